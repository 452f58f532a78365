# SPDX-License-Identifier: Apache-2.0
"""What is printed: tables, units, progress, reports in words."""
