# SPDX-License-Identifier: Apache-2.0
"""How long the poll loop sleeps, in seconds: long under little load, short before rings fill."""

SHORTEST = 0.005
LONGEST = 0.05
"""Where the programs do not wake the recorder, or what it looks for does not."""
NAP = 0.45
"""Where they do, twice in a chunk's time: what missed waking it up waits no longer."""
GLANCE = 0.025
"""A longer sleep is ended by programs, or interrupted after this time to check the rings: a sudden
load of five million events a second fills one of 16 MiB in 60 ms, and on a busy machine waking up
takes a while."""
TARGET_FILL = 0.1
"""Share of the fullest ring that may be in use on waking: a burst ten times the last fits."""


class Pace:
    """The sleep between two polls, `seconds`, adapted to how full the rings were."""

    def __init__(self, longest: float = LONGEST) -> None:
        """Begin with the shortest sleep. longest: LONGEST, or NAP if programs wake the recorder."""
        self.longest = longest
        self.seconds = SHORTEST

    def adapt(self, fill: float, slept: float) -> None:
        """Set `seconds` so that the fullest ring reaches TARGET_FILL by the next poll at this load.

        `fill`: the fullest ring's used share, 0 to 1, right before it is emptied, after a sleep of
        `slept` seconds, which may have ended early. `seconds` at most doubles, and stays between
        SHORTEST (5 ms) and `longest`.
        """
        wanted = slept * TARGET_FILL / fill if fill > 0 else self.longest
        self.seconds = min(max(min(wanted, 2 * self.seconds), SHORTEST), self.longest)

    @property
    def wants_waking(self) -> bool:
        """Whether programs are to wake the recorder from the coming sleep: it may exceed GLANCE."""
        return 2 * self.seconds > GLANCE

    def split_sleep(self, left: float) -> list[float]:
        """Return the next sleep (s) in one part or two; between them `must_poll` is to be asked.

        For sleeps that no program ends. `left`: seconds, which the sum does not exceed. Two parts
        if the sleep is longer than GLANCE, which is then the first.
        """
        seconds = min(self.seconds, left)
        return [seconds] if seconds <= GLANCE else [GLANCE, seconds - GLANCE]

    def must_poll(self, fill: float) -> bool:
        """Return whether to empty the rings before the sleep is over, at this fill (0 to 1)."""
        return fill >= TARGET_FILL
