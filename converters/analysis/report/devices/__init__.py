# SPDX-License-Identifier: Apache-2.0
"""Figures of devices: depths, patterns, flushes, stacked devices, drivers, completions."""
