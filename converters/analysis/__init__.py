# SPDX-License-Identifier: Apache-2.0
"""Figures made of lifecycles: one pass, bounded memory, plain data."""
