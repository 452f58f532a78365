# SPDX-License-Identifier: Apache-2.0
"""Samples, groups and distributions of latencies and sizes."""
