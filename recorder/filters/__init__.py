# SPDX-License-Identifier: Apache-2.0
"""Which I/O to record (filters), and when a flight recorder writes its log (triggers)."""
