# SPDX-License-Identifier: Apache-2.0
"""Lifecycles as Perfetto traces."""
