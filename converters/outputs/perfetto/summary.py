# SPDX-License-Identifier: Apache-2.0
"""The summary of a conversion to Perfetto: what was written, and where to look first."""

from dataclasses import dataclass

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

    def __str__(self) -> str:
        return f"{self.begin} {self.end} {self.device}"


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
