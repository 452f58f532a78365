# SPDX-License-Identifier: Apache-2.0
"""How long the poll loop sleeps: long while little comes, short before rings fill."""

SHORTEST = 0.005
LONGEST = 0.05
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
