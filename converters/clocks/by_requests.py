# SPDX-License-Identifier: Apache-2.0
"""A guest's log on its host's timeline, by requests that both recorded."""

from dataclasses import dataclass, field, replace

from biotrail.converters.clocks.alignment import Alignment, Clocks
from biotrail.converters.clocks.corridor import Line
from biotrail.converters.events.tables import I64


@dataclass
class ByRequests(Alignment):
    """Conversion of a guest's CLOCK_MONOTONIC times to the host's CLOCK_BOOTTIME."""

    line: Line = field(kw_only=True)
    """The host's CLOCK_MONOTONIC for the guest's."""

    @classmethod
    def on(cls, host: Clocks, line: Line) -> "ByRequests":
        """Return the conversion. host: clocks of the host's log."""
        own = replace(host.align_to(host), same_boot=True)
        return cls(own.own, own.reference, own.at, own.slept, True, own.span, line=line)

    @property
    def uncertainty(self) -> int:
        """Bound (ns) of the error of `times`, from the first to the last request of both logs."""
        return self.line.within

    def times(self, monotonic: I64) -> I64:
        """Return the guest's CLOCK_MONOTONIC times as the host's CLOCK_BOOTTIME (ns, int64)."""
        return super().times(self.line.times(monotonic))
