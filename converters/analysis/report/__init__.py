# SPDX-License-Identifier: Apache-2.0
"""The report: accumulators, one tree of figures, and its JSON and CSV."""
