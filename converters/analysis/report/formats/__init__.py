# SPDX-License-Identifier: Apache-2.0
"""The tree of a report, written as JSON and CSV."""
