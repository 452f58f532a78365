# SPDX-License-Identifier: Apache-2.0
"""Light logs by hand: a record per completion."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import (
    BLOCK_BYTES,
    BY_KIND,
    LIGHT_COARSE,
    LIGHT_NONE,
    LIGHT_UNIT,
    TIMESTAMP_BITS,
    Kind,
    schema,
)
from tests.support.captures import BASE_NS, FLAG_BITS, OPS, clock, header

DEV = 7 << 20
PART = 259 << 20
"""Partition of DEV, of sectors 4096 to 4103."""
READ, WRITE, FLUSH, DRV_IN = (OPS[name] for name in ("READ", "WRITE", "FLUSH", "DRV_IN"))
PREFLUSH, FUA = (1 << FLAG_BITS[name] for name in ("PREFLUSH", "FUA"))
_SIZE = BY_KIND[Kind.LIGHT].size


@dataclass(frozen=True)
class Light:
    """One completion; times in ns since the log's begin, None: the kernel took none."""

    at: int
    start: int | None
    issue: int | None
    sector: int = 0
    bytes: int = 4096
    opf: int = READ
    status: int = 0
    rq: int = 0xFFFF888000001000
    bios: int = 1
    goes_on: bool = False
    cgroup: int = 1
    coarse: bool = False
    dev: int = DEV

    def record(self) -> bytes:
        """As in a ring."""
        row = np.zeros(1, BY_KIND[Kind.LIGHT].dtype)
        row["head"] = int(Kind.LIGHT) << TIMESTAMP_BITS | (BASE_NS + self.at)
        for name in ("rq", "sector", "bytes", "opf", "dev", "status", "cgroup"):
            row[name] = getattr(self, name)
        row["nr_bios"], row["hctx"], row["tag"] = self.bios, 0, 5
        row["flags"] = self.goes_on | self.coarse * LIGHT_COARSE
        unit = LIGHT_UNIT if self.coarse else 0
        for name, time in (("since_start", self.start), ("since_issue", self.issue)):
            row[name] = LIGHT_NONE if time is None else (self.at - time) >> unit
        return row.tobytes()


def write_log(
    path: Path, lights: Sequence[Light], chunk: int = 1 << 20, others: bytes = b""
) -> Path:
    """Write a light log of these completions, of one CPU; `chunk` records to a chunk.

    others: records of other kinds, of another CPU, that come with the first chunk.
    """
    made = header()
    made["events"] = {"set": "light", "letters": ["L"], "missing": []}
    made["schema"] = schema(light=True)
    part = {"name": "loop0p1", "kind": "partition", "disk": DEV, "start": 4096, "sectors": 8}
    made["devices"] = [{"dev": DEV, "name": "loop0", "kind": "disk"}, {"dev": PART, **part}]
    ordered = sorted(lights, key=lambda one: one.at)
    position = 0
    with open(path, "wb") as stream:
        writer = LogWriter(stream, made)
        for first in range(0, len(ordered), chunk):
            part = ordered[first : first + chunk]
            data = b"".join(one.record() for one in part)
            segments = [Segment(0, 0, position, data)]
            if others and not first:
                segments.append(Segment(1, 0, 0, others))
            writer.write_chunk(segments, clock(part[-1].at + 1))
            position += len(data)
        writer.close({"clocks": clock(ordered[-1].at + 2)})
    return path


assert BLOCK_BYTES % _SIZE == 0, "records of a block need no pad"
