# SPDX-License-Identifier: Apache-2.0
"""The report: accumulators, the tree of figures made from them, and its JSON and CSV."""
