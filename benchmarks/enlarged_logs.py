# SPDX-License-Identifier: Apache-2.0
"""Long logs made of a short one: the same records again and again, each time later.

The short log is one whole recording, from before its load began until after it ended. Nothing is
in flight at its ends, so addresses may be used again in the next repetition, as a kernel does.
Times, positions in the rings, clock readings and the numbers of followed lives go on; sectors,
addresses and other numbers are those of the recording, which this version has to have made.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail import __version__
from biotrail.converters.inputs.log import LogSource
from biotrail.converters.outputs.parquet import archive
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.log.chunks import Chunk
from biotrail.recorder.log.columns import record_starts
from biotrail.recorder.schema.records import BLOCK_BYTES, BY_KIND, Kind

_PAUSE_NS = 100_000_000
"""Between repetitions: more than the time that a window waits for other CPUs' records."""
_CLOCKS = ("monotonic", "boottime", "realtime")
_TOP = 56
"""Bits of a record's first word below its kind: its time."""
_TIMES = {
    Kind.CALL: ("entry",),
    Kind.RETURN: ("entry",),
    Kind.WAIT: ("entry",),
    Kind.SUBMISSION: ("submitted",),
    Kind.RING_COMPLETE: ("submitted",),
    Kind.COMMIT: ("started", "locking", "flushing", "logging"),
    Kind.PAIR: ("began",),
}
"""Times (ns, a word each) that records have beside that of their head. 0: not known."""
_LOW = (1 << 32) - 1
"""A hit's number of its life: the lower half of a word."""


def enlarge(recorded: Path, times: int, out: Path) -> None:
    """Write the recorded log `times` times over, one after the other, as one log `out`.

    Memory is that of one chunk. A file that ends early is removed. Raises ValueError where the log
    has losses or was interrupted, for these would be repeated too, and what the reader raises.
    """
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as stream, LogReader(recorded) as reader:
            if reader.interrupted or reader.losses or reader.end is None:
                raise ValueError(f"{recorded}: lost events, or was interrupted: record it again")
            writer = LogWriter(stream, reader.header)
            for name, payload in reader.notes:
                writer.write_note(name, payload)
            span, ring = extent(reader)
            lives = 0  # the highest number of a followed life
            for segment in (s for chunk in reader.chunks() for s in chunk.segments):
                words = np.frombuffer(segment.data, dtype="<u8")
                starts, kinds = _records(segment, words)
                numbers = words[starts[kinds == Kind.HIT] + _word(Kind.HIT, "life")]
                lives = max(lives, int((numbers & np.uint64(_LOW)).max(initial=0)))
            for number in range(times):
                for chunk in _chunks(recorded):
                    shift = number * span
                    moved = [
                        later(one, shift, number * ring, number * lives) for one in chunk.segments
                    ]
                    writer.write_chunk(moved, clock_later(chunk.clock, shift))
            writer.close(end_later(reader.end, (times - 1) * span))
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def copied_times(recorded: Path, events: int, wanted: int) -> int:
    """Return how often a log of `events` events has to be repeated for at least `wanted`.

    Raises ValueError where it has none.
    """
    if events < 1:
        raise ValueError(f"{recorded}: has no events")
    return -(-wanted // events)


def _chunks(recorded: Path) -> Iterator[Chunk]:
    with LogReader(recorded) as reader:
        yield from reader.chunks()


def extent(reader: LogReader) -> tuple[int, int]:
    """Return (time, ring): what one repetition takes of time (ns) and of each ring (bytes)."""
    spans = reader.chunk_spans or []
    first, last = min((s[0] for s in spans), default=0), max((s[1] for s in spans), default=0)
    ends = [0]
    for chunk in reader.chunks():
        ends += [one.position + len(one.data) for one in chunk.segments]
        last = max(last, chunk.clock["monotonic"])
    # Records stay where they were within the blocks of a ring, which none of them crosses.
    return last - first + _PAUSE_NS, -(-max(ends) // BLOCK_BYTES) * BLOCK_BYTES


def later(segment: Segment, shift: int, further: int, lives: int) -> Segment:
    """Return a segment with records `shift` ns later, `further` bytes on in its ring.

    lives: added to the numbers of followed lives.
    """
    words = np.frombuffer(segment.data, dtype="<u8").copy()
    if not len(words):
        return segment
    starts, kinds = _records(segment, words)
    words[starts] += np.uint64(shift)
    for kind, names in _TIMES.items():
        for name in names:
            at = starts[kinds == kind] + _word(kind, name)
            words[at] += np.where(words[at] > 0, np.uint64(shift), np.uint64(0))
    words[starts[kinds == Kind.HIT] + _word(Kind.HIT, "life")] += np.uint64(lives)
    return Segment(segment.cpu, segment.level, segment.position + further, words.tobytes())


def _records(
    segment: Segment, words: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return (index of each record's first word, its kind), of all records but pads."""
    if not len(words):
        return np.empty(0, np.int64), np.empty(0, np.uint8)
    tops = (words >> np.uint64(_TOP)).astype(np.uint8)
    starts = record_starts(tops, segment.position // 8)
    starts = starts[tops[starts] != Kind.PAD]
    return starts, tops[starts]


def _word(kind: Kind, name: str) -> int:
    """Return in which word of its record a field begins."""
    fields = BY_KIND[kind].dtype.fields
    assert fields is not None
    return int(fields[name][1]) // 8


def clock_later(clock: Mapping[str, int], shift: int) -> dict[str, int]:
    return {name: ns + shift if name in _CLOCKS else ns for name, ns in clock.items()}


def end_later(end: Mapping[str, Any], shift: int) -> dict[str, Any]:
    """Return the END frame's facts with its clocks `shift` ns later; `log` is the writer's."""
    later = {name: value for name, value in end.items() if name != "log"}
    for name in {"clocks", "stopped"} & later.keys():
        later[name] = clock_later(later[name], shift)
    return later


def main() -> None:
    """Make a log of at least so many events: RECORDED WANTED OUT; print how many it has."""
    recorded, wanted, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    events = sum(len(window) for window, _ in Trace(recorded).events())
    times = copied_times(recorded, events, wanted)
    enlarge(recorded, times, out)
    print(times * events)


HOUR_NS = 3_600_000_000_000
"""Each host's recording begins an hour after the one before."""


def host_name(number: int) -> str:
    return f"host{number:04}"


def move(recorded: Path, number: int, out: Path) -> None:
    """Write a log as one of the host of that number, as many hours later.

    Raises what the reader raises.
    """
    shift = number * HOUR_NS
    with out.open("wb") as stream, LogReader(recorded) as reader:
        header = dict(reader.header)
        header["host"] = {**header.get("host", {}), "name": host_name(number)}
        header["log_id"] = hashlib.md5(f"{reader.header['log_id']} {number}".encode()).hexdigest()
        for name in ("clocks", "started", "start"):
            if isinstance(header.get(name), dict):
                header[name] = clock_later(header[name], shift)
        writer = LogWriter(stream, header)
        for name, payload in reader.notes:
            writer.write_note(name, payload)
        for chunk in reader.chunks():
            moved = [later(one, shift, 0, 0) for one in chunk.segments]
            writer.write_chunk(moved, clock_later(chunk.clock, shift))
        writer.close(end_later(reader.end or {}, shift))


def make(recorded: Path, number: int, folder: Path) -> int:
    """Write `folder`/HOST.parquet, and return its number of events."""
    out = folder / f"{host_name(number)}.parquet"
    log = out.with_suffix(".biotrail.part")
    move(recorded, number, log)
    with out.open("wb") as stream:
        summary = archive.write(LogSource(log), stream, created_by=__version__, log=log.name)
    log.unlink()
    return summary.events


if __name__ == "__main__":
    main()
