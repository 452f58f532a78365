# SPDX-License-Identifier: Apache-2.0
"""A package for each format that lifecycles are written in."""
