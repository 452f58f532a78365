# SPDX-License-Identifier: Apache-2.0
"""Parquet archives and datasets, written by `biotrail archive`."""
