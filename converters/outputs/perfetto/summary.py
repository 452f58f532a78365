# SPDX-License-Identifier: Apache-2.0
"""What a conversion to Perfetto wrote, and where to look first."""

from dataclasses import dataclass

LARGE = 500_000_000
"""Bytes from which on a browser may not hold the trace."""


@dataclass(frozen=True)
class View:
    """The part of a trace around its slowest I/O, as the trace's attribute `view` tells it."""

    latency: int
    """ns, of that I/O."""
    begin: int
    """ns, as `ts` is in SQL."""
    end: int
    device: str
    """Label of the I/O's device: `nvme0n1 (259:0)`."""

    def __str__(self) -> str:
        return f"{self.begin} {self.end} {self.device}"


@dataclass
class PerfettoSummary:
    """What was written."""

    bios: int = 0
    requests: int = 0
    slices: int = 0
    """Of bios, requests, their stages and loss windows."""
    samples: int = 0
    """Of counters."""
    lanes: int = 0
    devices: int = 0
    loss_windows: int = 0
    open_at_end: int = 0
    """Bios and requests without an end, drawn to the trace's end."""
    not_drawn: int = 0
    """Bios and requests of which no time at all was seen."""
    bytes: int = 0
    sequences: int = 0
    """Of packets: the log's own, and one for each lane and counter."""
    families: int = 0
    """Correlation ids are smaller, but for those of bios that began before the log."""

    view: "View | None" = None
    """What to look at first; None: no I/O is there whole."""

    @property
    def warning(self) -> str | None:
        """What to know about a trace of this size, if anything."""
        if self.bytes < LARGE:
            return None
        return (
            f"The trace has {self.bytes / 1e6:.0f} MB; a browser holds about 2 GB and needs "
            "2 to 4 times the file. Cut it by time (--from, --to, --around), by device (-d) or by "
            "what was slow (--slower-than, --slowest), draw less of each bio (--detail), write it "
            "in parts (--max-size 500M), or open it with trace_processor."
        )
