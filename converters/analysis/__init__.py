# SPDX-License-Identifier: Apache-2.0
"""Figures computed from lifecycles, in one pass and bounded memory, as plain data."""
