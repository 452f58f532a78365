# SPDX-License-Identifier: Apache-2.0
"""Slices, arguments and arrows of the path beside the block layer."""
