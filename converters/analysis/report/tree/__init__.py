# SPDX-License-Identifier: Apache-2.0
"""A report as one tree of plain data: what `report` makes and `formats` write."""
