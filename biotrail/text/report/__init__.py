# SPDX-License-Identifier: Apache-2.0
"""A report in tables for people, and its verdict in sentences."""
