# SPDX-License-Identifier: Apache-2.0
"""Figures of a recording that is still going on."""
