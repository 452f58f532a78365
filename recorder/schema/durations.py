# SPDX-License-Identifier: Apache-2.0
"""Durations as text."""


def duration(nanoseconds: float) -> str:
    """Return ns as text: `850 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`, `2 min 5 s`."""
    for unit, scale in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if nanoseconds < scale * 999.5:
            return f"{nanoseconds / scale:.3g} {unit}"
    seconds = nanoseconds / 1e9
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s"
