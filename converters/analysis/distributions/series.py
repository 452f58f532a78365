# SPDX-License-Identifier: Apache-2.0
"""Groups by interval of time, in memory that does not grow with the number of I/Os."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from biotrail.converters.analysis.distributions.groups import Group, Groups, add_to_all
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.tables import I64
from biotrail.recorder.schema.errors import ConversionError

MOST_INTERVALS = 100_000
LINGER_NS = 10_000_000_000
"""ns after an interval's end at which the interval is closed."""
_WIDTH = 44
"""Bits of a group's code below the interval's number: `interval << _WIDTH | code`."""


def check_interval(span: int, interval: int) -> None:
    """Raise ConversionError if a log of `span` ns has MOST_INTERVALS intervals or more; 0: none."""
    if interval and span // interval >= MOST_INTERVALS:
        raise ConversionError(
            f"the log has more than {MOST_INTERVALS:,} intervals of {interval / 1e9:g} s: "
            f"give --interval {span // MOST_INTERVALS // 10**9 + 1}s or longer"
        )


Closed = TypeVar("Closed")


@dataclass
class Series(Generic[Closed]):
    """Groups by the interval in which their I/Os ended, closed LINGER_NS after the interval."""

    origin: int
    """ns where interval 0 begins."""
    interval: int
    """Length of an interval, ns."""
    close: Callable[[int, Group], Closed]
    """Given the code and the group of a closed interval, returns what `closed` keeps."""
    closed: dict[int, list[Closed]] = field(default_factory=dict)
    """Interval, counted from the origin → results of `close`, by code."""
    left_out: int = 0
    """I/Os that came after their interval was closed: a family of bios took so long to end."""
    _open: Groups = field(default_factory=lambda: Groups(1 << 62))
    _edge: int = 0
    """First interval that is still open."""

    def add(self, codes: I64, samples: Samples, now: int) -> None:
        """Add a window's samples to the intervals in which they ended, and close old intervals.

        codes: of each sample's group, 0 or more. now: the window's end, ns. Samples whose interval
        an earlier call closed are only counted in `left_out`.
        """
        place = np.maximum(samples.end - self.origin, 0) // self.interval
        late = place < self._edge
        if late.any():
            self.left_out += int(late.sum())
            samples = samples.take(~late)
            codes, place = codes[~late], place[~late]
        add_to_all(samples, [(self._open, (place << _WIDTH) | codes)])
        edge = max((now - LINGER_NS - self.origin) // self.interval, 0)
        if edge > self._edge:
            self._close(edge)

    def finish(self) -> None:
        """Close all intervals; to be called after the last window."""
        self._close(1 << 62)

    def _close(self, edge: int) -> None:
        for code in sorted(c for c in self._open.by_code if c >> _WIDTH < edge):
            group = self._open.by_code.pop(code)
            rows = self.closed.setdefault(code >> _WIDTH, [])
            rows.append(self.close(code & ((1 << _WIDTH) - 1), group))
        self._edge = edge
