# SPDX-License-Identifier: Apache-2.0
"""Slow, obvious implementations that production is compared with."""
