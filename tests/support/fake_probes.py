# SPDX-License-Identifier: Apache-2.0
"""Probes without a kernel, and options of a recording with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Probes, ProgramInfo
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.payloads import KernelEnums
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.session.session import RecordOptions


class FakeProbes(Probes):
    """Rings that give one queue record a poll, and counters that a test may move."""

    backend = "core"
    enums: KernelEnums = {"op_enum": {"READ": 0}, "flag_bits": {"SYNC": 11}}
    sizes: RingSizes | None = RingSizes(1 << 16, 1 << 13)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.given = 0
        self.at_drain: Callable[[], None] = lambda: None
        self.lost_records = np.zeros((2, 3, 256), np.uint64)
        self.misses = 0
        self.hits: list[Hit] = []
        self.detached = False
        self.size = BY_KIND[Kind.Q].size

    def open(self) -> None:
        self.calls.append("open")

    def attach(self) -> None:
        self.calls.append("attach")

    def detach(self) -> None:
        self.calls.append("detach")

    def close(self) -> None:
        self.calls.append("close")

    def count_runs(self, on: bool) -> None:
        """The kernel's statistics stay as they are."""

    def triggered(self) -> list[Hit]:
        hits, self.hits = self.hits, []
        return hits

    def backend_facts(self) -> dict[str, Any]:
        return {"backend": "core", "counts_skips": False}

    def stop_timing(self) -> None:
        self.calls.append("stop timing")

    def drain(self) -> list[Segment]:
        self.at_drain()
        if "detach" in self.calls:
            if self.calls[-1] == "last":
                return []
            self.calls.append("last")
        position = self.given * self.size
        self.given += 1
        data = (int(Kind.Q) << 56 | self.given).to_bytes(8, "little").ljust(self.size, b"\0")
        return [Segment(0, 0, position, data)]

    def fill(self) -> float:
        return 0.5

    def lost(self) -> np.ndarray[Any, Any]:
        return self.lost_records

    def too_deep(self) -> np.ndarray[Any, Any]:
        return np.zeros((2, 256), np.uint64)

    def programs(self) -> list[ProgramInfo]:
        return [
            ProgramInfo("bt_queue", "Q", "block_bio_queue", True, "", 0, 0, self.misses),
            ProgramInfo("", "s", "block_io_start", False, "this kernel has none", 0, 0, 0),
            ProgramInfo("", "P", "block_plug", False, "not in the event set", 0, 0, 0),
        ]


def options(path: Path | str | None, /, **others: Any) -> RecordOptions:
    output = None if path is None else str(path)
    return RecordOptions(created_by="test 1", argv=["biotrail"], output=output, **others)
