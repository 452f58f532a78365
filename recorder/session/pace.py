# SPDX-License-Identifier: Apache-2.0
"""How long the poll loop sleeps: long while little comes, short before rings fill."""

SHORTEST = 0.005
LONGEST = 0.05
GLANCE = 0.025
"""A longer sleep has a glance at the rings in it: five million events a second, out of nothing,
fill one of 16 MiB in 60 ms, and on a busy machine waking up takes a while."""
TARGET_FILL = 0.1
"""How full the fullest ring may be when the loop wakes: a burst ten times the last fits."""


class Pace:
    """The sleep between two polls in seconds, from how full the rings were found."""

    def __init__(self) -> None:
        self.seconds = SHORTEST

    def found(self, fill: float) -> None:
        """fill: the fullest ring, 0 to 1, right before it was emptied."""
        wanted = self.seconds * TARGET_FILL / max(fill, TARGET_FILL / 2)
        self.seconds = min(max(wanted, SHORTEST), LONGEST)

    def naps(self, left: float) -> list[float]:
        """The next sleep, of at most `left` seconds, in parts: between them, see `enough`."""
        seconds = min(self.seconds, left)
        return [seconds] if seconds <= GLANCE else [GLANCE, seconds - GLANCE]

    def enough(self, fill: float) -> bool:
        """Whether the rings, the fullest so full, are to be emptied before the sleep is over."""
        return fill >= TARGET_FILL
