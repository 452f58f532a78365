# SPDX-License-Identifier: Apache-2.0
"""Reads the three clocks by which a log's times are converted to other clocks' times."""

import time

_TRIES = 7


def reading() -> dict[str, int]:
    """Return {"monotonic", "boottime", "realtime", "uncertainty"}, all in ns.

    BOOTTIME and REALTIME are read between two readings of MONOTONIC; of _TRIES tries the one with
    the shortest time between those is returned. "monotonic" is their middle; the others differ from
    what they were at that instant by at most "uncertainty".
    """
    taken = []
    for _ in range(_TRIES):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        half = (after - before + 1) // 2
        taken.append((half, before + half, boottime, realtime))
    uncertainty, monotonic, boottime, realtime = min(taken)
    return {
        "monotonic": monotonic,
        "boottime": boottime,
        "realtime": realtime,
        "uncertainty": uncertainty,
    }
