# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert --with TRACE`: a log's tracks in a Perfetto trace that another program wrote.

Theirs is copied as it stands, ours is written behind it. Where theirs was read while it recorded
ours comes first: a reader may sort such a trace piece by piece, and drops older events that
follow.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from biotrail.converters.clocks.perfetto_trace import Joined, joined
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME
from biotrail.converters.inputs.perfetto.packets import plain
from biotrail.converters.inputs.perfetto.survey import Survey, survey
from biotrail.converters.inputs.unpacking import Allowance
from biotrail.converters.outputs.perfetto.names import Options
from biotrail.converters.outputs.perfetto.packets import Facts
from biotrail.converters.outputs.perfetto.place import Ids, Place
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError, LogFormatError, OutputError
from biotrail.recorder.schema.strings import characters
from biotrail.text import units

_COPIED = 1 << 20


@dataclass(frozen=True)
class OtherTrace:
    """Another trace, and how a log's tracks are written beside it."""

    path: str
    theirs: Survey
    joined: Joined
    opened: Callable[[], AbstractContextManager[BinaryIO]]

    def placed(self, alone: Place) -> Place:
        """Return a log's place beside the other trace: its own ids, the other's clock."""
        ids = Ids(self.theirs.sequences, self.theirs.uuids)
        clock = self.joined.clock
        above = alone.above and f"{alone.above}: block I/O"  # a host's name says it of all tracks
        # Ftrace's times are of BOOTTIME.
        reasons = clock == BOOTTIME and not self.theirs.blocked_reasons and not self.joined.itself
        placed = replace(alone, above=above, aligned=True, clock=clock, beside=ids, reasons=reasons)
        facts: Facts = {
            "beside": characters(Path(self.path).name),
            "aligned_by": "the same boot's clock",
            "aligned_within_ns": self.joined.within,
        }
        return replace(placed, facts=facts)

    def written(
        self, out: BinaryIO, options: Options, write_ours: Callable[[], PerfettoSummary]
    ) -> PerfettoSummary:
        """Write both traces to `out`; return the summary of ours, with the bytes of both."""
        if options.ftrace and self.theirs.block_io:
            raise ConversionError(
                f"{self.path}: has block_io_start of ftrace itself: leave --ftrace out"
            )
        if options.ftrace and self.joined.clock != BOOTTIME:
            raise ConversionError(
                f"{self.path}: its clock is MONOTONIC, and ftrace's events are of BOOTTIME: leave "
                "--ftrace out"
            )
        if self.theirs.read_on:
            summary = write_ours()
            self._copy(out)
        else:
            self._copy(out)
            summary = write_ours()
        summary.bytes += self.theirs.whole
        return summary

    def _copy(self, out: BinaryIO) -> None:
        """Copy the other trace's whole packets, decompressed, byte for byte."""
        left = self.theirs.whole
        with self.opened() as stream:
            allowance = Allowance()
            allowance.used = left
            theirs = plain(stream, allowance)
            while left:
                data = theirs.read(min(left, _COPIED))
                if not data:
                    raise ConversionError(f"{self.path}: changed while it was read: try again")
                try:
                    out.write(data)
                except OSError as error:
                    raise OutputError(f"The trace cannot be written: {error.strerror}.") from error
                left -= len(data)

    def lines(self) -> list[str]:
        theirs = self.theirs
        packets = units.plural(theirs.packets, "packet")
        if self.joined.itself:
            found = [f"  beside the packets of {self.path}: {packets}, unchanged"]
        else:
            within = self.joined.within
            clock = f"within {units.duration(within)}" if within else "exact"
            boot = f"the same boot, so one clock: {clock}"
            found = [f"  beside {self.path}: {packets}, unchanged; {boot}"]
        if not self.joined.checked:
            found.append(
                "  note: it has no readings of the wall clock, so that it is of the same boot is "
                "not checked"
            )
        if theirs.unplaced and not self.joined.itself:
            what = units.plural(theirs.unplaced, "packet")
            found.append(f"  note: {what} of it have times on clocks of its own: not compared")
        found += [] if self.joined.itself else [f"  {text}" for text in theirs.problems]
        return found


def other_traces(path: str, logs: Sequence[tuple[str, Trace]]) -> list[OtherTrace]:
    """Return how each log's tracks stand beside the trace at `path`, which is read once."""
    with opened_trace(path) as stream:
        theirs = survey(stream, path)
    again = partial(opened_trace, path)
    return [OtherTrace(path, theirs, joined(log, trace, theirs), again) for log, trace in logs]


@contextmanager
def opened_trace(path: str) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as stream:
            yield stream
    except OSError as error:
        if isinstance(error, OutputError) or error.filename is None:
            raise
        raise LogFormatError(
            f"{path}: cannot be read: {error.strerror}; give a Perfetto trace"
        ) from None
