# SPDX-License-Identifier: Apache-2.0
"""Loaders of the kernel side."""
