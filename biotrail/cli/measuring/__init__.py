# SPDX-License-Identifier: Apache-2.0
"""Figures of I/O that goes on, for `biotrail metrics`: where they come from, and how served."""
