# SPDX-License-Identifier: Apache-2.0
"""blktrace's per-CPU files as events."""
