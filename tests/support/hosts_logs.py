# SPDX-License-Identifier: Apache-2.0
"""Machines with clocks of their own, and the logs that they record of bios at true times."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit, RotatingLog
from biotrail.recorder.schema.records import Kind, schema
from tests.support.log_samples import ring
from tests.support.stack_logs import record

SECOND = 1_000_000_000
EPOCH = 1_790_000_000 * SECOND
"""REALTIME at the true time 0, where a machine's wall clock is right."""
DEV = 252 << 20
"""A bio-based device: zram0."""
LATENCY = 40_000
"""ns, true: of every bio."""


@dataclass
class Machine:
    """Its clocks as functions of true time, ns."""

    host: str = "db1"
    boot: str = "1" * 32
    started: int = -1000 * SECOND
    """When BOOTTIME and MONOTONIC were 0."""
    fast: float = 0.0
    """By what part MONOTONIC and BOOTTIME run faster than they should, and than REALTIME does."""
    wrong: int = 0
    """What REALTIME shows too much, ns."""
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(from when on, by how much) REALTIME was set."""
    sleeps: list[tuple[int, int]] = field(default_factory=list)
    """(when, for how long): MONOTONIC stands still."""
    blur: int = 100
    """Half the bracket of a reading, ns."""
    seed: int = 0

    def boottime(self, true: int) -> int:
        since = true - self.started
        return since + round(since * self.fast)

    def monotonic(self, true: int) -> int:
        asleep = sum(min(max(true - at, 0), length) for at, length in self.sleeps)
        return self.boottime(true) - asleep

    def realtime(self, true: int) -> int:
        return EPOCH + true + self.wrong + sum(size for at, size in self.steps if true >= at)

    def reading(self, true: int) -> dict[str, int]:
        """BOOTTIME and REALTIME were read within the bracket, in this order."""
        draw = random.Random(f"{self.seed} {true}")
        first, second = sorted(draw.randint(-self.blur, self.blur) for _ in range(2))
        return {
            "monotonic": self.monotonic(true),
            "boottime": self.boottime(true + first),
            "realtime": self.realtime(true + second),
            "uncertainty": self.blur,
        }

    def header(self, true: int, log_id: str, **more: Any) -> dict[str, Any]:
        return {
            "log_id": log_id,
            "backend": "core",
            "host": {"name": self.host, "boot_id": self.boot},
            "clocks": self.reading(true),
            "devices": [{"dev": DEV, "name": "zram0", "kind": "zram"}],
            "schema": schema(),
            **more,
        }

    def write(
        self,
        path: Path,
        bios: Sequence[int],
        *,
        span: tuple[int, int],
        every: int = SECOND // 4,
        log_id: str = "",
        end: bool = True,
    ) -> Path:
        """A log from span[0] to span[1] of bios queued at the true times, a chunk each `every`."""
        with path.open("wb") as stream:
            log = LogWriter(stream, self.header(span[0], log_id or log_id_of(path)))
            for segments, reading in self.chunks(bios, span, every):
                log.write_chunk(segments, reading)
            if end:
                log.close({"clocks": self.reading(span[1])})
        return path

    def write_rotated(
        self, path: Path, bios: Sequence[int], *, span: tuple[int, int], every: int = SECOND // 4
    ) -> list[Path]:
        """The same as a rotated recording: a file for each chunk."""
        header = self.header(span[0], log_id_of(path))
        log = RotatingLog(Series(str(path), None), header, Limit(), lambda: [], 1, False)
        for segments, reading in self.chunks(bios, span, every):
            log.rotate()
            log.write_chunk(segments, reading)
        end = self.reading(span[1])
        log.close({"reason": "test", "stopped": end, "clocks": end})
        return [Path(name) for name in log.series.files]

    def chunks(
        self, bios: Sequence[int], span: tuple[int, int], every: int
    ) -> Iterator[tuple[list[Segment], dict[str, int]]]:
        """Segments and the reading behind them, for each `every` in which it did not sleep."""
        begin, until = span
        rows = sorted(
            (at, kind, number)
            for number, queued in enumerate(bios, 1)
            for at, kind in ((queued, Kind.Q), (queued + LATENCY, Kind.BIO_COMPLETE))
        )
        position = 0
        for at in range(begin, until, every):
            if self.monotonic(at + every) == self.monotonic(at):
                continue
            of_chunk = [row for row in rows if at <= row[0] < at + every]
            data = ring([self._record(*row) for row in of_chunk], position)
            segments = [Segment(0, 0, position, data)] if data else []
            yield segments, self.reading(min(at + every, until))
            position += len(data)

    def _record(self, true: int, kind: Kind, number: int) -> bytes:
        place = {"bio": number, "sector": 8 * number, "bytes": 4096, "dev": DEV}
        place |= {"part": DEV, "tid": 42} if kind == Kind.Q else {}
        return record(kind, self.monotonic(true), **place)


def log_id_of(path: Path) -> str:
    return path.stem.encode().hex().ljust(32, "0")
