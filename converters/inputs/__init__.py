# SPDX-License-Identifier: Apache-2.0
"""Sources of events: logs, rotated and live logs, Parquet archives, other tools' recordings."""
