# SPDX-License-Identifier: Apache-2.0
"""Logs as Parquet archives."""
