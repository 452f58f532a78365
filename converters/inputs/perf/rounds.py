# SPDX-License-Identifier: Apache-2.0
"""Up to which time a recording is complete: by the rounds in which perf reads its rings."""

from collections.abc import Sequence

from biotrail.converters.inputs.tracepoints.rows import TracepointRows


class Rounds:
    """The times that the rounds reached.

    In each round perf reads all CPUs' rings one after the other, so what was recorded before a
    round began is there at its end: after a round all is known up to the newest record of the round
    before (ordered-events.c of perf).
    """

    def __init__(self) -> None:
        self._newest = self._at_last_round = 0
        self.complete_to = 0
        """ns; 0 before the second round."""

    def add(self, rows: Sequence[TracepointRows], start: int, ends: Sequence[int]) -> None:
        """Take in a block's records, and where in it rounds ended.

        rows: with positions (`arrival`) that begin at `start`. ends: offsets from there, ascending.
        Only the last two can matter.
        """
        for end in ends[-2:]:
            self.complete_to = max(self.complete_to, self._at_last_round)
            before = [part.time[part.arrival < start + end] for part in rows]
            reached = [int(times.max()) for times in before if len(times)]
            self._at_last_round = max([self._newest, *reached])
        newest = [int(part.time.max()) for part in rows if len(part)]
        self._newest = max([self._newest, *newest])
