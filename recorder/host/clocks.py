# SPDX-License-Identifier: Apache-2.0
"""Readings of the three clocks that put a log's times on a wall clock and beside other traces."""

import time

_TRIES = 7


def reading() -> dict[str, int]:
    """{"monotonic", "boottime", "realtime", "uncertainty"}, all in ns.

    BOOTTIME and REALTIME are read between two readings of MONOTONIC; the tightest of several
    such brackets is given. "monotonic" is its middle, and what the other two showed at that
    instant differs from what stands here by at most "uncertainty".
    """
    return min((_bracket() for _ in range(_TRIES)), key=lambda taken: taken["uncertainty"])


def _bracket() -> dict[str, int]:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    half = (after - before + 1) // 2
    return {
        "monotonic": before + half,
        "boottime": boottime,
        "realtime": realtime,
        "uncertainty": half,
    }
