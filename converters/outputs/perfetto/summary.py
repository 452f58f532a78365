# SPDX-License-Identifier: Apache-2.0
"""Reckon how large a trace becomes, before it is written.

Bytes as docs/perfetto.md has them, of random reads of 4 KiB. Real loads differ by a fifth or so:
longer times and larger numbers take more bytes, merged bios have fewer requests.
"""

from dataclasses import dataclass

from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.perfetto.names import Detail, Options

# The summary of a conversion to Perfetto: what was written, and where to look first.

LARGE = 500_000_000
"""Bytes from which on a browser may fail to open a trace."""


@dataclass(frozen=True)
class View:
    """The part of a trace around its slowest I/O, as the trace's attribute `view` has it."""

    latency: int
    """Of that I/O, ns."""
    begin: int
    """On the trace's primary clock, ns, like `ts` in SQL."""
    end: int
    device: str
    """Label of the I/O's device: `nvme0n1 (259:0)`; empty: the trace has no I/O."""


@dataclass
class PerfettoSummary:
    """Counts of what was written to a trace."""

    bios: int = 0
    requests: int = 0
    slices: int = 0
    """Slices of bios, requests, their stages and loss windows."""
    samples: int = 0
    """Samples of counters."""
    lanes: int = 0
    devices: int = 0
    loss_windows: int = 0
    open_at_end: int = 0
    """Bios and requests without an end, drawn to the trace's end."""
    not_drawn: int = 0
    """Bios and requests without any known time."""
    bytes: int = 0
    sequences: int = 0
    """Packet sequences: the log's own, and one for each lane and counter."""
    families: int = 0
    """One more than the largest correlation id, not counting those of bios from before the log."""

    lives: int = 0
    """Lives of followed objects."""

    view: "View | None" = None
    """Where to look first; None: no bio without a parent has both queue and completion."""

    @property
    def warning(self) -> str | None:
        """Advice for a trace of LARGE bytes or more; None: it is smaller."""
        if self.bytes < LARGE:
            return None
        return (
            f"The trace has {self.bytes / 1e6:.0f} MB; a browser's engine holds 4 GB and needs 6 "
            "to 7.5 times the file. Cut it by time (--from, --to, --around), by device (-d) or by "
            "what was slow (--slower-than, --slowest), draw less of each bio (--detail), write it "
            "in parts (--max-size 500M), or open it with trace_processor."
        )


_COSTS = {
    Detail.FULL: (158, 27, 114, 27, 100, 180),
    Detail.STANDARD: (38, 27, 30, 0, 31, 32),
    Detail.STAGES: (30, 27, 0, 0, 31, 32),
    Detail.BIOS: (30, 0, 0, 0, 0, 0),
}
"""Bytes of a bio, a stage of one, a request, a stage of one, a call and a submission."""
_WAIT, _INTERRUPT, _PAIR, _HIT = 54, 139, 60, 80
"""Bytes of what is drawn besides; interrupts with full detail alone, but for the longest."""
_FTRACE, _FLOWS = 54, 110
"""Bytes of a request's block_io_start and block_io_done, and of a bio's arrows (with the path)."""


def expected(window: Lifecycles, options: Options) -> int:
    """Return about how many bytes a window's slices take, when drawn as `convert` would."""
    detail = options.detail
    bio, stage, request, request_stage, call, submission = _COSTS[detail]
    total = bio * len(window.bios) + stage * len(window.bio_stages.owner)
    if detail.requests:
        total += (request + _FTRACE * options.ftrace) * len(window.requests)
    total += request_stage * len(window.request_stages.owner)
    if (path := window.path) is not None:
        calls, io = path.calls, path.calls.with_io | options.every_call
        total += _FLOWS * len(window.bios) * (options.every_arrow and detail.requests)
        total += call * int(io.sum()) + _INTERRUPT * len(path.interrupts) * (detail == Detail.FULL)
        total += submission * len(path.submissions)
        if detail != Detail.BIOS:
            total += _WAIT * int(calls.waits[io].sum())
    if (sites := window.sites) is not None:
        total += _PAIR * len(sites.pairs) + _HIT * len(sites.hits)
    return total
