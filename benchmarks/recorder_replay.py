# SPDX-License-Identifier: Apache-2.0
"""What the recorder's own work costs per record: a log's records once more through its steps.

    python -m benchmarks.recorder_replay [LOG …] [--levels 1,0] [--helpers 0,1] [--rounds 5]
                                         [--json FILE]

The records of a log are put back into rings in memory, as the programs wrote them, and go the way
that they take while recording: copied out of the rings, a tenth of a ring at a time, encoded
in chunks (columns), compressed, and written to a log in memory. A row has each step's CPU
time per record, the least of all rounds. Not in it: waking up, the poll loop's own work, and that
the records come from another core's caches. Without LOG, random reads and writes to the page cache
are recorded first, for 3 s each, which needs root and fio.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_figures import numbers
from benchmarks.cost_loads import LOADS, SkippedError, running
from benchmarks.cost_tools import Biotrail
from benchmarks.record_cost import describe
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.log.chunks import CLOCK_KEYS
from biotrail.recorder.log.columns import record_starts
from biotrail.recorder.log.frames import Codec
from biotrail.recorder.log.writer import Packer
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.probes.rings.barriers import Barrier
from biotrail.recorder.probes.rings.ring import LEVELS, Rings, RingSizes
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session.intake import CHUNK_BYTES
from biotrail.recorder.session.running import TARGET_FILL

RING_BYTES = 16 << 20
POLL_BYTES = int(RING_BYTES * TARGET_FILL)
MOST_BYTES = 64 << 20
"""Records of a log that are used: more say nothing else."""
STEPS = ("drain", "encode", "compress", "write", "count")
RECORDED = {"random reads": "ram-qd32", "buffered writes": "ram-write"}
RECORDED_SECONDS = 3
Parts = list[list[Segment]]
"""What a log has, chunk by chunk."""


@dataclass(frozen=True)
class Row:
    """One log at one level. steps: CPU ns per record by STEPS; total: all of them."""

    log: str
    level: int
    records: int
    bytes_per_record: float
    stored_per_record: float
    steps: dict[str, float]
    total: float


class Stopwatch:
    """This thread's CPU time, in ns, by step."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = defaultdict(int)

    @contextmanager
    def step(self, name: str, within: str | None = None) -> Iterator[None]:
        """Add the time of the block to a step, and take it off the one that it is within."""
        began = time.thread_time_ns()
        yield
        took = time.thread_time_ns() - began
        self.ns[name] += took
        if within:
            self.ns[within] -= took


class TimedPacker(Packer):
    """A Packer whose compression is timed as a step of its own."""

    def __init__(self, level: int, watch: Stopwatch) -> None:
        super().__init__(level)
        self._watch = watch

    def compress(self, payload: bytes | memoryview) -> tuple[bytes | memoryview, Codec]:
        with self._watch.step("compress", within="encode"):
            return super().compress(payload)


@dataclass(frozen=True)
class Drained:
    """Full rings emptied. records: millions a second; cpu: ns a record, of all threads."""

    log: str
    level: int
    helpers: int
    records: float
    cpu: float


class FilledRings(Rings):
    """Rings that a log's segments are put into, in place of the programs."""

    def __init__(self, cpus: int, ring_bytes: int = RING_BYTES) -> None:
        sizes = RingSizes(ring_bytes, ring_bytes)
        super().__init__(bytearray(cpus * sizes.area_bytes), cpus, sizes, Barrier())

    def put(self, segment: Segment) -> None:
        """Store a segment's bytes where its position is, and begin the ring there if it is not."""
        size = self.sizes.ring_bytes
        at = segment.position % size
        base = segment.cpu * self.sizes.area_bytes + self.sizes.offset(segment.level)
        first = min(len(segment.data), size - at)
        self._bytes[base + at : base + at + first] = segment.data[:first]
        self._bytes[base : base + len(segment.data) - first] = segment.data[first:]
        self.begin(segment)

    def begin(self, segment: Segment) -> None:
        """Have nothing before the segment in its ring."""
        for words in (self._heads, self._tails, self._done):
            words[segment.cpu, segment.level] = segment.position

    def publish(self, segment: Segment, length: int) -> None:
        """Set the head so that the segment's first `length` bytes can be drained."""
        self._heads[segment.cpu, segment.level] = segment.position + length


def replay(parts: Parts, level: int, directory: Path) -> tuple[Stopwatch, int]:
    """Put all chunks through the recorder's steps; return the times and the log's bytes."""
    watch = Stopwatch()
    rings = FilledRings(1 + max(s.cpu for segments in parts for s in segments))
    packer, meter = TimedPacker(level, watch), Meter()
    path = directory / "replay.biotrail"
    with open(path, "wb", buffering=0) as stream:
        log = LogWriter(stream, {}, level=level)
        for segments in parts:
            drained: list[Segment] = []
            for segment in segments:
                drained += _drain(rings, segment, watch)
            now = time.monotonic_ns()
            clock = dict.fromkeys(CLOCK_KEYS, now)
            with watch.step("encode"):
                packed = packer.chunks(drained, clock)
            with watch.step("write"):
                for one in packed:
                    log.write_packed(one)
            with watch.step("count"):
                meter.add(drained)
        size = log.size
    path.unlink()
    return watch, size


def _drain(rings: FilledRings, segment: Segment, watch: Stopwatch) -> list[Segment]:
    """Copy a segment out of its ring as several polls do."""
    rings.put(segment)
    drained: list[Segment] = []
    for at in range(POLL_BYTES, len(segment.data) + POLL_BYTES, POLL_BYTES):
        # Whole blocks: no record crosses one.
        block = (segment.position + at) // 4096 * 4096 - segment.position
        rings.publish(segment, min(block, len(segment.data)))
        with watch.step("drain"):
            drained += rings.drain()
    return drained


def drain_full(name: str, parts: Parts, level: int, helpers: int, rounds: int) -> Drained:
    """Empty rings that hold all chunks, as the recorder's threads do; return the quickest round."""
    cpus = 1 + max(s.cpu for segments in parts for s in segments)
    rings = FilledRings(cpus, 1 << (2 * MOST_BYTES - 1).bit_length())
    for segment in (s for segments in parts for s in segments):
        rings.put(segment)
    records = count(parts)
    rows = []
    for _ in range(rounds):
        with tempfile.TemporaryFile(dir="/dev/shm", buffering=0) as stream:
            writer = WriterThread(LogWriter(stream, {}, level=level), helpers)
            began, cpu_began = time.monotonic_ns(), time.process_time_ns()
            for segments in parts:
                for segment in segments:
                    rings.begin(segment)
                    rings.publish(segment, len(segment.data))
                clock = dict.fromkeys(CLOCK_KEYS, time.monotonic_ns())
                drained = rings.drain()
                while not (writer.ready() and writer.offer_chunk(drained, clock)):
                    time.sleep(0.001)
            writer.finish(lambda log: None, lambda: False)
            took, cpu = time.monotonic_ns() - began, time.process_time_ns() - cpu_began
            rows.append(Drained(name, level, helpers, 1e3 * records / took, cpu / records))
    return max(rows, key=lambda row: row.records)


def read(path: Path) -> Parts:
    """Return a log's records in chunks of the recorder's size, MOST_BYTES at most."""
    parts: Parts = []
    size = 0
    with LogReader(path) as log:
        for chunk in log.chunks():
            held = [s for s in chunk.segments if s.level < LEVELS and s.cpu < 0xFFFF]
            length = sum(len(s.data) for s in held)
            if length < CHUNK_BYTES // 4:  # the first and last, which are as small as it happened
                continue
            parts.append(held)
            size += length
            if size >= MOST_BYTES:
                break
    if not parts:
        raise SkippedError(f"{path} has too few records: a chunk of 1 MiB at least is needed")
    return parts


def count(parts: Parts) -> int:
    """Return how many records there are, without PADs."""
    total = 0
    for segment in (s for segments in parts for s in segments):
        tops = np.ascontiguousarray(np.frombuffer(segment.data, np.uint8)[7::8])
        kinds = tops[record_starts(tops, segment.position // 8)]
        total += int((kinds != Kind.PAD).sum())
    return total


def measure(name: str, parts: Parts, level: int, rounds: int) -> Row:
    """Return the least of several rounds, step by step."""
    records = count(parts)
    raw = sum(len(s.data) for segments in parts for s in segments)
    least: dict[str, float] = {}
    size = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for _ in range(rounds):
            watch, size = replay(parts, level, Path(directory))
            for step in STEPS:
                took = watch.ns[step] / records
                least[step] = min(took, least.get(step, took))
    steps = {step: round(least[step], 2) for step in STEPS}
    total = round(sum(least.values()), 2)
    return Row(name, level, records, raw / records, size / records, steps, total)


def recorded(directory: Path) -> Iterator[tuple[str, Path]]:
    """Record the loads of RECORDED one after the other; yield each one's name and log."""
    for name, load in RECORDED.items():
        tool = Biotrail("replayed", "--events", "lifecycle")
        path = directory / load
        with running(next(one for one in LOADS if one.name == load), 0) as run:
            try:
                tool.start(run.device, path)
                time.sleep(RECORDED_SECONDS)
                tool.stop()
            finally:
                tool.abandon()
        yield name, path


HEAD = (
    f"{'log, level':32}{'records':>11}{'B':>6}{'stored':>8}"
    + "".join(f"{step:>10}" for step in STEPS)
    + f"{'ns/record':>11}"
)


def line(row: Row) -> str:
    steps = "".join(f"{row.steps[step]:>10.1f}" for step in STEPS)
    return (
        f"{row.log[-26:] + ', ' + str(row.level):32}{row.records:>11,}{row.bytes_per_record:>6.1f}"
        f"{row.stored_per_record:>8.2f}{steps}{row.total:>11.1f}"
    )


def drained_line(row: Drained) -> str:
    return (
        f"{row.log[-26:] + ', ' + str(row.level):32}{row.helpers} helpers:{row.records:6.1f} M "
        f"records/s,{row.cpu:6.1f} ns CPU a record"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("logs", nargs="*", type=Path, metavar="LOG", help="none: record some")
    parser.add_argument("--levels", type=numbers, default=[1, 0], help="zstd's; 0: none")
    parser.add_argument("--helpers", type=numbers, default=[], help="numbers of threads")
    parser.add_argument("--rounds", type=int, default=5, help="of which the least counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    keep_freed_memory()  # as the recorder does
    print(describe(), HEAD, sep="\n", flush=True)
    rows: list[Row] = []
    drained: list[Drained] = []
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            logs: Any = ((path.name, path) for path in arguments.logs)
            for name, path in logs if arguments.logs else recorded(Path(directory)):
                parts = read(path)
                for level in arguments.levels:
                    rows.append(measure(name, parts, level, arguments.rounds))
                    print(line(rows[-1]), flush=True)
                    for helpers in arguments.helpers:
                        row = drain_full(name, parts, level, helpers, arguments.rounds)
                        drained.append(row)
                        print(drained_line(row), flush=True)
    except (SkippedError, TraceError) as error:
        sys.exit(f"recorder_replay.py: {error}")
    if arguments.json is not None:
        report = {
            "machine": describe(),
            "rows": [asdict(row) for row in rows],
            "drained": [asdict(row) for row in drained],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
