# SPDX-License-Identifier: Apache-2.0
"""Association by sector ranges, with interval trees."""
