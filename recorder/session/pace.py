# SPDX-License-Identifier: Apache-2.0
"""How long the poll loop sleeps, in seconds: long under little load, short before rings fill."""

SHORTEST = 0.005
LONGEST = 0.05
GLANCE = 0.025
"""A longer sleep is interrupted after this time to check the rings: a sudden load of five million
events a second fills one of 16 MiB in 60 ms, and on a busy machine waking up takes a while."""
TARGET_FILL = 0.1
"""Share of the fullest ring that may be in use on waking: a burst ten times the last fits."""


class Pace:
    """The sleep between two polls, `seconds`, adapted to how full the rings were."""

    def __init__(self) -> None:
        self.seconds = SHORTEST

    def adapt(self, fill: float) -> None:
        """Set `seconds` so that the fullest ring reaches TARGET_FILL by the next poll at this load.

        `fill`: the fullest ring's used share, 0 to 1, right before it is emptied, after a sleep of
        `seconds`. `seconds` at most doubles, and stays between SHORTEST (5 ms) and LONGEST (50 ms).
        """
        wanted = self.seconds * TARGET_FILL / max(fill, TARGET_FILL / 2)
        self.seconds = min(max(wanted, SHORTEST), LONGEST)

    def split_sleep(self, left: float) -> list[float]:
        """Return the next sleep (s) in one part or two; between them `must_poll` is to be asked.

        `left`: seconds until the recording's end, which the sum does not exceed. Two parts if the
        sleep is longer than GLANCE, which is then the first.
        """
        seconds = min(self.seconds, left)
        return [seconds] if seconds <= GLANCE else [GLANCE, seconds - GLANCE]

    def must_poll(self, fill: float) -> bool:
        """Return whether to empty the rings before the sleep is over, at this fill (0 to 1)."""
        return fill >= TARGET_FILL
