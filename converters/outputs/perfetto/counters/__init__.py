# SPDX-License-Identifier: Apache-2.0
"""Counters: queue depths, throughput, lost records."""
