# SPDX-License-Identifier: Apache-2.0
"""Comparison of two recordings, with confidence intervals."""
