# SPDX-License-Identifier: Apache-2.0
"""Figures of pairs of events."""
