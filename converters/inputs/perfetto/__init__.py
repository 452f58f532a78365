# SPDX-License-Identifier: Apache-2.0
"""Perfetto's traces, read: their packets, clocks and ids, and the block events in them."""
