# SPDX-License-Identifier: Apache-2.0
"""Groups by interval of time, in memory that does not grow with how many I/Os there are."""

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
"""An interval is closed when the trace is that far past its end."""
_WIDTH = 44
"""Bits of a code: below those of its interval."""


def check_interval(span: int, interval: int) -> None:
    """Refuses what would be too many intervals; ns."""
    if interval and span // interval >= MOST_INTERVALS:
        raise ConversionError(
            f"the log has more than {MOST_INTERVALS:,} intervals of {interval / 1e9:g} s: "
            f"give --interval {span // MOST_INTERVALS // 10**9 + 1}s or longer"
        )


Closed = TypeVar("Closed")


@dataclass
class Series(Generic[Closed]):
    """I/O by the interval in which it ended. close: what is kept of (code, group) then."""

    origin: int
    interval: int
    close: Callable[[int, Group], Closed]
    closed: dict[int, list[Closed]] = field(default_factory=dict)
    """By interval, counted from the origin."""
    left_out: int = 0
    """I/O that was told when its interval had been closed: part of a family that went on."""
    _open: Groups = field(default_factory=lambda: Groups(1 << 62))
    _edge: int = 0
    """First interval that is still open."""

    def add(self, codes: I64, samples: Samples, now: int) -> None:
        """More I/O; codes as for Groups. now: ns, the trace is complete up to here."""
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
        """No I/O follows."""
        self._close(1 << 62)

    def _close(self, edge: int) -> None:
        for code in sorted(c for c in self._open.by_code if c >> _WIDTH < edge):
            group = self._open.by_code.pop(code)
            rows = self.closed.setdefault(code >> _WIDTH, [])
            rows.append(self.close(code & ((1 << _WIDTH) - 1), group))
        self._edge = edge
