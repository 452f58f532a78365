# SPDX-License-Identifier: Apache-2.0
"""The lives of a log's followed objects, as trees, in the order of their ends."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Lifecycles, LossWindows
from biotrail.converters.sites.building import build
from biotrail.converters.sites.frames import Path, path_of
from biotrail.converters.sites.hits import Following, HitRows
from biotrail.converters.sites.lives import Gatherer, LifeHits, Tally, Wanted
from biotrail.converters.sites.trees import Life
from biotrail.recorder.schema.records import Kind

_MOST_LOSSES = 10_000
"""Loss windows that are kept: lives are long over when so many have followed."""


@dataclass
class Followed:
    """A life's tree, and the hits that it was made of."""

    life: Life
    hits: HitRows
    """Row i is of the node `life.node_of[i]`."""
    number: int = NEVER
    """Number of the request or bio that it is; NEVER: none, or not known by its end."""


class LifeReader:
    """Makes trees of the hits of a log, window after window in order."""

    def __init__(self, context: Context, wanted: Wanted | None = None) -> None:
        """Start before the first window.

        context: the log's, whose stacks grow while it is read. wanted: which lives; None: all.
        """
        self.following = Following(context.header)
        self._context = context
        self._losses: list[tuple[int, int]] = []
        """(start, end) in ns of each loss of hits, or of records of unknown kinds."""
        self._gatherer = Gatherer(self._knows, wanted)
        self._paths: dict[int, Path] = {}
        self._numbers: dict[int, int] = {}
        """Life → request or bio, of lives that are not given out yet."""

    @property
    def tally(self) -> Tally:
        """Counts of hits and lives so far."""
        return self._gatherer.tally

    def add(self, window: Lifecycles) -> None:
        """Add the log's next window."""
        self._note_losses(window.loss)
        joined = None if window.sites is None else window.sites.joined
        if joined is not None:
            self._numbers.update(zip(joined.life.tolist(), joined.number.tolist(), strict=True))
        self._gatherer.add(None if window.sites is None else window.sites.hits, window.end)

    def _note_losses(self, loss: LossWindows) -> None:
        """Note the times at which hits may have been lost; only the newest are kept."""
        rows = np.flatnonzero((loss.kind == Kind.HIT) | (loss.kind == 0))
        times = zip(loss.start[rows].tolist(), loss.end[rows].tolist(), strict=True)
        self._losses = [*self._losses, *times][-_MOST_LOSSES:]

    def ready(self) -> Iterator[Followed]:
        """Yield the lives that are over, in the order of their ends; each once."""
        return map(self._followed, self._gatherer.ready())

    def rest(self) -> Iterator[Followed]:
        """Yield all other lives, after the last window."""
        return map(self._followed, self._gatherer.rest())

    def _followed(self, hits: LifeHits) -> Followed:
        life = build(hits, self.following, self._path, lost=self._lost(hits))
        return Followed(life, hits.rows, self._numbers.pop(life.number, NEVER))

    def _knows(self, stacks: set[int]) -> bool:
        return stacks <= self._context.site_stacks.keys()

    def _path(self, stack: int) -> Path | None:
        """Return what a stack says; None: there is none, or no note with its frames was read."""
        found = self._paths.get(stack)
        if found is None and (frames := self._context.site_stacks.get(stack)) is not None:
            found = self._paths[stack] = path_of(frames)
        return found

    def _lost(self, hits: LifeHits) -> bool:
        """Return whether hits, or records of unknown kinds, were lost during a life."""
        first, last = int(hits.rows["time"][0]), int(hits.rows["time"][-1])
        return any(start <= last and end >= first for start, end in self._losses)


def read_lives(windows: Iterable[Lifecycles], reader: LifeReader) -> Iterator[Followed]:
    """Yield the lives of a log's windows, in the order of their ends."""
    for window in windows:
        reader.add(window)
        yield from reader.ready()
    yield from reader.rest()
