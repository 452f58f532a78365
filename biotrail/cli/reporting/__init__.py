# SPDX-License-Identifier: Apache-2.0
"""Reports in other forms than text: pages, flame graphs, comparisons of recordings."""
