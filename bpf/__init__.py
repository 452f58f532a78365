# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernel-side programs; this package only carries the compiled object."""
