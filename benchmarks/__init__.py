# SPDX-License-Identifier: Apache-2.0
"""Measurements; never tests."""
