# SPDX-License-Identifier: Apache-2.0
"""Slow I/Os and slow system calls as text."""
