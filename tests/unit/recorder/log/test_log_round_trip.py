# SPDX-License-Identifier: Apache-2.0
"""What is written to a log is read from it, whole or by time range."""

import errno
import io
import itertools
import os
import struct
import threading
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.recorder.log import LogReader, LogWriter, Segment, columns
from biotrail.recorder.log.chunks import decode_chunk, encode_chunk, first_time, runs, split, unwrap
from biotrail.recorder.log.frames import MAX_CHUNK_DATA, encode_frame, encode_preamble
from biotrail.recorder.log.writer import Packer
from biotrail.recorder.schema.errors import LogFormatError, OutputError
from biotrail.recorder.schema.records import BLOCK_BYTES, RECORDS, TIMESTAMP_BITS, Kind
from tests.support.both_ways import uncompiled
from tests.support.chunks_by_hand import name_records
from tests.support.log_samples import (
    HEADER,
    LOSSES,
    NOTE,
    PERIOD,
    START,
    chunk_segments,
    clock,
    content,
    read,
    read_pipe,
    record,
    ring,
    sample,
)

LETTERS = [r.kind for r in RECORDS if r.kind != Kind.PAD]


@st.composite
def segments(draw: st.DrawFn) -> list[Segment]:
    """Segments of rings at any position, each a whole number of records."""
    made = []
    for cpu in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, 2**40)) * 8
        times = st.integers(0, 2**TIMESTAMP_BITS - 1)
        one = st.builds(record, st.sampled_from(LETTERS), times, st.integers(0, 2**63))
        records = draw(st.lists(one, min_size=1, max_size=200))
        made.append(Segment(cpu, draw(st.integers(0, 2)), position, ring(records, position)))
    return made


def packed(data: bytes | memoryview, position: int) -> bytes:
    return b"".join(columns.pack(data, position) or [])


def write(chunks: list[list[Segment]], level: int = 1) -> bytes:
    stream = io.BytesIO()
    writer = LogWriter(stream, HEADER, level=level)
    for i, one in enumerate(chunks):
        writer.write_chunk(one, clock(START + (i + 1) * PERIOD))
    writer.close({})
    return stream.getvalue()


@settings(max_examples=60, deadline=None)
@given(st.lists(segments(), max_size=4), st.sampled_from([0, 1, 3]))
def test_segments_come_back_as_they_were(chunks: list[list[Segment]], level: int) -> None:
    # GIVEN any segments of records WHEN they are written as chunks and read back
    _, found = read(write(chunks, level))
    # THEN they are the same, byte for byte
    expected = [tuple((s.cpu, s.level, s.position, bytes(s.data)) for s in one) for one in chunks]
    assert [one[3] for one in found] == expected


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=600), st.integers(0, 2**20))
def test_bytes_that_are_no_records_come_back_too(data: bytes, position: int) -> None:
    # GIVEN bytes that follow no schema, such as a newer kernel side's
    # WHEN they are written and read back
    _, found = read(write([[Segment(0, 0, position, data)]]))
    # THEN they are the same; of those behind a PAD alone it is known that nobody reads them
    back = found[0][3][0][3] if data else b""
    assert back == data or packed(data, position) == packed(back, position)


def test_pads_read_as_zero_and_bytes_are_kept() -> None:
    # GIVEN a block of which the last part was not used: old records stand there
    old = record(Kind.D, START) * 20
    used = record(Kind.Q, START) * 60
    pad = struct.pack("<Q", Kind.PAD << TIMESTAMP_BITS | 77)
    room = BLOCK_BYTES - len(used) - len(pad)
    following = record(Kind.C, START + 5)
    # WHEN it is written and read back
    _, found = read(write([[Segment(0, 0, 0, used + pad + old[:room] + following)]]))
    # THEN the records and the PAD are there, and zeros between
    assert found[0][3][0][3] == used + pad + bytes(room) + following
    # GIVEN rings that begin with different times, one of them with a PAD
    pad = struct.pack("<Q", Kind.PAD << TIMESTAMP_BITS) + bytes(56)
    rings = [
        Segment(0, 0, 0, record(Kind.Q, START + 30) + record(Kind.Q, START + 40)),
        Segment(0, 1, BLOCK_BYTES - 64, pad + record(Kind.C, START + 20)),
        Segment(1, 0, BLOCK_BYTES - 64, pad),
        Segment(1, 1, 0, b""),
    ]
    # WHEN the first time is asked for
    # THEN it is the least of their first records', and the reading's where there is none
    assert first_time(rings, START + 100) == START + 20
    assert first_time(rings[2:], START + 100) == START + 100


def test_all_of_a_log_comes_back_by_its_path_as_from_a_stream(tmp_path: Path) -> None:
    # GIVEN a log with everything in it
    made = sample(2)
    # WHEN it is read
    reader = LogReader(io.BytesIO(made.data))
    # THEN all but the chunks is known before any is read
    assert reader.header == {**HEADER, "format": {"major": 1, "minor": 0}}
    assert reader.losses == LOSSES
    assert reader.notes == [NOTE]
    assert reader.end is not None
    assert reader.end["clocks"] == clock(START + 3 * PERIOD)
    assert reader.end["log"]["chunks"] == 2
    assert (reader.interrupted, reader.problems, reader.damaged) == (False, [], [])
    assert reader.size == len(made.data)
    path = tmp_path / "a.biotrail"
    path.write_bytes(made.data)
    # WHEN it is read by its path, twice
    with LogReader(path) as reader:
        first = [content(chunk) for chunk in reader.chunks()]
        second = [content(chunk) for chunk in reader.chunks()]
    # THEN it gives what a stream gives
    assert first == second == read(made.data)[1]


def test_a_pipe_reads_as_a_file_does() -> None:
    # GIVEN a log that comes through a pipe
    made = sample(3)
    # WHEN it is read to its end
    reader, chunks = read_pipe(made.data)
    # THEN all is as from a file
    from_file, expected = read(made.data)
    assert chunks == expected
    assert (reader.header, reader.end) == (from_file.header, from_file.end)
    assert (reader.losses, reader.notes) == (LOSSES, [NOTE])
    assert (reader.interrupted, reader.problems) == (False, [])
    # and a second time is refused
    with pytest.raises(LogFormatError, match="is a pipe and was read already"):
        list(reader.chunks())


@pytest.mark.parametrize("through", [read, read_pipe], ids=["file", "pipe"])
def test_a_log_without_chunks_is_a_log(through: type) -> None:
    # GIVEN a recording in which nothing happened WHEN it is read
    reader, chunks = through(write([]))  # type: ignore[misc]
    # THEN that is no error
    assert chunks == []
    assert not reader.interrupted
    assert reader.problems == []


def test_chunks_are_chosen_by_time() -> None:
    # GIVEN a log of ten chunks, each with events 10 to 500 ns into its period
    made = sample(10)
    reader, whole = read(made.data)
    start = START + 3 * PERIOD

    def chosen(begin: int | None, end: int | None) -> list[int]:
        return [whole.index(content(chunk)) for chunk in reader.chunks(begin, end)]

    # WHEN a range is asked for THEN it gives those that may hold events in it, both ends included
    assert chosen(start + 10, start + 10) == [3]
    assert chosen(start + PERIOD, start + PERIOD + 9) == [3]
    assert chosen(start + PERIOD + 1, start + PERIOD + 9) == []
    assert chosen(start, start + 2 * PERIOD + 10) == [2, 3, 4, 5]
    assert chosen(None, START + 10) == [0]
    assert chosen(START + 9 * PERIOD + 100, None) == [9]
    assert chosen(-5, START) == []
    assert chosen(2, 1) == []
    assert chosen(None, None) == list(range(10))
    # GIVEN a log in which every chunk but the third is destroyed
    made = sample(5)
    data = bytearray(made.data)
    for number, (begin, end) in enumerate(made.chunks):
        if number != 2:
            data[begin + 60 : end] = bytes(end - begin - 60)
    # WHEN the third's time is asked for
    reader = LogReader(io.BytesIO(bytes(data)))
    found = list(reader.chunks(START + 2 * PERIOD + 10, START + 2 * PERIOD + 20))
    # THEN nobody looked at the others
    assert len(found) == 1
    assert reader.problems == []


def test_every_index_part_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a log whose index came in several parts
    monkeypatch.setattr("biotrail.recorder.log.writer.INDEX_FRAMES", 4)
    made = sample(11)
    # WHEN it is read, whole and by time
    reader, chunks = read(made.data)
    # THEN all chunks are found, and none twice
    assert [c[1] for c in chunks] == [START + (i + 1) * PERIOD for i in range(11)]
    assert len(list(reader.chunks(START + 10, START + 10))) == 1
    assert reader.problems == []
    # and without the trailer as well
    again, walked = read(made.data[:-48])
    assert walked == chunks
    assert not again.interrupted


def test_a_chunk_holds_at_most_eight_mebibytes() -> None:
    # GIVEN 20 MiB of records in one ring, from the middle of a block on
    position = 40
    block = ring([record(Kind.Q, START + i) for i in range(64)], 0)
    data = block[: BLOCK_BYTES - 64 + 24].replace(block[:40], b"", 1)
    records = [record(Kind.G, START)] * 101 + [record(Kind.Q, START + 1)] * (20 << 14)
    data = ring(records, position)
    # WHEN they are written at once
    stream = io.BytesIO()
    writer = LogWriter(stream, HEADER)
    writer.write_chunk([Segment(0, 0, 0, b""), Segment(1, 0, position, data)], clock(START + 9))
    writer.close({})
    # THEN they are several chunks, cut between records
    chunks = list(LogReader(io.BytesIO(stream.getvalue())).chunks())
    parts = [segment for chunk in chunks for segment in chunk.segments]
    assert len(chunks) == 3
    assert b"".join(bytes(part.data) for part in parts) == data
    assert all(len(part.data) <= MAX_CHUNK_DATA for part in parts)
    assert all(part.position % BLOCK_BYTES == 0 for part in parts[1:])


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(0, 511), st.integers(1, 12))
def test_split_keeps_every_byte_in_order(blocks: list[int], start: int, limit: int) -> None:
    # GIVEN segments of any lengths at any positions
    made = [
        Segment(i, 0, start * 8, (bytes([i]) * BLOCK_BYTES * n)[: BLOCK_BYTES * n - start * 8])
        for i, n in enumerate(blocks)
    ]
    # WHEN they are split
    groups = list(split(made, limit * BLOCK_BYTES))
    # THEN no group is above the limit, and nothing is lost or moved
    assert all(sum(len(s.data) for s in g) <= limit * BLOCK_BYTES for g in groups)
    assert b"".join(bytes(s.data) for g in groups for s in g) == b"".join(s.data for s in made)
    for part in (s for g in groups for s in g):
        assert part.position in (start * 8, part.position // BLOCK_BYTES * BLOCK_BYTES)


def test_chunks_have_clock_readings_and_whole_times() -> None:
    # GIVEN a drain that found nothing WHEN it is written
    _, found = read(write([[], [Segment(0, 0, 0, b"")]]))
    # THEN its clock reading is in the log
    assert [one[:2] for one in found] == [(START + PERIOD,) * 2, (START + 2 * PERIOD,) * 2]
    assert dict(found[0][2]) == clock(START + PERIOD)
    # GIVEN a host that is up for 2.3 years: the low 56 bits wrap within a chunk
    wrap = 1 << TIMESTAMP_BITS
    data = record(Kind.Q, wrap - 500) + record(Kind.Q, wrap + 300)
    stream = io.BytesIO()
    writer = LogWriter(stream, HEADER)
    writer.write_chunk([Segment(0, 0, 0, data)], clock(wrap + 1000))
    writer.close({})
    # WHEN it is read
    _, chunks = read(stream.getvalue())
    # THEN the range holds whole times
    assert chunks[0][:2] == (wrap - 500, wrap + 1000)


@given(st.integers(0, 2**62), st.integers(-(2**55) + 1, 2**55 - 1))
def test_unwrap_finds_the_time_near_the_reading(near: int, away: int) -> None:
    # GIVEN a time less than 1.1 years away from a clock reading
    time = max(0, near + away)
    # WHEN only its low 56 bits are known THEN it is found again
    assert unwrap(time & ((1 << TIMESTAMP_BITS) - 1), near) == time


def test_frames_of_an_unknown_type_are_counted() -> None:
    # GIVEN a log of the same major version with frames that this reader does not know
    made = sample(2, end=False)
    tag = struct.unpack_from("<I", made.data, 24 + 12)[0]
    data = made.data
    for i in range(3):
        data += encode_frame(77, b"new", sequence=6 + i, tag=tag) + b"new"
    # WHEN it is read
    reader, chunks = read(data)
    # THEN they are passed over, and counted
    assert len(chunks) == 2
    assert reader.problems == [
        "3 frames of unknown type 77 were passed over: a newer biotrail wrote them"
    ]


@pytest.mark.parametrize("through", [read, read_pipe], ids=["file", "pipe"])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\x89biotr", "ends within its preamble, after 6 bytes"),
        (encode_preamble(), "ends within its header, after 24 bytes"),
        (encode_preamble(3, 5), "is a log of format 3.5, and this biotrail reads up to 2.0"),
        (b"#!/bin/sh\necho hello\n", "is not a biotrail log: it begins with b'#!/bin/s'"),
        (b"\x28\xb5\x2f\xfd" + bytes(99), "zstd: decompress it first"),
        (bytes(3 << 20), "is not a biotrail log"),
    ],
    ids=["empty", "cut", "header cut", "newer", "foreign", "zstd", "zeros"],
)
def test_what_is_no_log_gets_a_clear_error(data: bytes, words: str, through: type) -> None:
    # GIVEN a file that cannot be read as a log WHEN it is opened
    with pytest.raises(LogFormatError) as error:
        through(data)  # type: ignore[call-arg]
    # THEN the error says what it is
    assert words in str(error.value)


def test_errors_name_the_path(tmp_path: Path) -> None:
    # GIVEN paths that hold no log
    foreign = tmp_path / "notes.txt"
    foreign.write_text("hello")
    # WHEN they are opened THEN each error names the path
    for path in (foreign, tmp_path / "missing.biotrail", tmp_path):
        with pytest.raises(LogFormatError, match=str(path)):
            LogReader(path)


def test_a_payload_that_expands_beyond_its_declared_length_is_refused() -> None:
    # GIVEN a chunk whose zstd payload is longer than its frame says, and one that is too long
    made = sample(1, end=False)
    head = made.data[: made.chunks[0][0]]
    tag = struct.unpack_from("<I", made.data, 24 + 12)[0]
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    data = head
    for i, (stored, raw) in enumerate(((bomb, 4096), (bomb, 1 << 30), (unsized, 4096))):
        data += encode_frame(2, stored, sequence=2 + i, tag=tag, codec=1, raw=raw) + stored
    # WHEN it is read
    reader, chunks = read(data)
    # THEN nothing of it is expanded, and it is named
    assert chunks == []
    assert ["declares" in problem for problem in reader.problems] == [True, True, True]


def test_segments_of_a_real_drain_need_less_than_half_the_goal() -> None:
    # GIVEN 20,000 reads as the rings hold them: recycled pointers, random sectors
    import random

    random.seed(7)
    position, rows, time = 0, [], START
    for i in range(20_000):
        time += random.randrange(1500, 6000)
        fill = random.randrange(2**18) * 8
        slot = 0xFFFF_8880_0000_0000 + (i * 7 % 32) * 256
        for kind in (Kind.Q, Kind.START, Kind.D, Kind.C):
            words = [slot, slot + 64, fill, 4096, 7 << 20, 0, 0][: len(record(kind, 0)) // 8 - 1]
            time += random.randrange(100, 900)
            rows.append(struct.pack(f"<{1 + len(words)}Q", kind << TIMESTAMP_BITS | time, *words))
    data = ring(rows, position)
    # WHEN they are written as one chunk
    stored = len(write([[Segment(0, 0, position, data)]]))
    # THEN an event takes less than 4 bytes
    assert stored / len(rows) < 4


# Segments of many polls: stored as one segment for each run of a ring.

CLOCK = clock(10**9)
KINDS = [Kind.Q, Kind.D, Kind.C, Kind.TASK, Kind.M]


def test_segments_of_one_ring_that_follow_each_other_are_one_run() -> None:
    # GIVEN three polls of two rings, one ring with a gap
    polls = [
        Segment(0, 0, 0, b"a" * 8),
        Segment(1, 0, 64, b"x" * 16),
        Segment(0, 0, 8, memoryview(b"b" * 8)),
        Segment(1, 0, 80, b"y" * 8),
        Segment(0, 0, 32, b"c" * 8),
        Segment(0, 1, 40, b"z" * 8),
    ]
    # WHEN they are grouped
    grouped = [[(s.cpu, s.level, s.position) for s in run] for run in runs(polls)]
    # THEN what is contiguous is one run, and nothing else is
    assert grouped == [[(0, 0, 0), (0, 0, 8)], [(0, 0, 32)], [(1, 0, 64), (1, 0, 80)], [(0, 1, 40)]]


def _records(times: list[int]) -> list[bytes]:
    return [record(KINDS[at % len(KINDS)], ns, at) for at, ns in enumerate(times)]


def _pieces(data: bytes, position: int, cuts: int) -> list[Segment]:
    """Cut a ring's bytes at record boundaries: of every block, and of the first block's records."""
    bounds = {0, len(data)}
    starts = range(BLOCK_BYTES - position % BLOCK_BYTES, len(data), BLOCK_BYTES)
    bounds |= {at for number, at in enumerate(starts) if cuts >> number & 1}
    if len(data) > 64 and data[7] == Kind.Q:  # behind the first record, which is a Q of 64 bytes
        bounds.add(64)
    edges = sorted(bounds)
    return [Segment(3, 1, position + a, data[a:b]) for a, b in itertools.pairwise(edges)]


@given(
    times=st.lists(st.integers(0, 2**56 - 1), min_size=1, max_size=600),
    place=st.integers(0, 600),
    cuts=st.integers(0, 2**16),
    before=st.integers(0, 3),
    columns_=st.booleans(),
)
def test_a_run_is_stored_as_if_it_were_one_segment(
    times: list[int], place: int, cuts: int, before: int, columns_: bool
) -> None:
    # GIVEN records of a ring, whole and in pieces as polls copied them, behind another ring's,
    # whose length moves the columns off the multiples of 8 bytes
    position = place * 8
    data = ring(_records(times), position)
    other = Segment(0, 0, 0, b"".join(_records([5] * before)))
    front = [[other]] if before else []
    # WHEN both are encoded
    segments = [Segment(3, 1, position, data)]
    whole = encode_chunk([*front, segments], CLOCK, columns=columns_)[0]
    pieces = encode_chunk([*front, _pieces(data, position, cuts)], CLOCK, columns=columns_)[0]
    # THEN the bytes are equal, and decode to one segment with all records
    assert bytes(pieces) == bytes(whole)
    last = decode_chunk(bytes(pieces))[1][-1]
    assert (last.cpu, last.level, last.position) == (3, 1, position)
    decoded = b"".join(columns.pack(last.data, position) or [])
    assert decoded == b"".join(columns.pack(data, position) or [])


def test_uncompiled_loops_find_and_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN pieces, of times close to each other and far apart
    times = [1000 + 7 * n for n in range(300)] + [2**40, 5, 2**55, 2**55 + 2**30]
    data = ring(_records(times), 4080)
    pieces = _pieces(data, 4080, 0b101)
    compiled = bytes(encode_chunk([pieces], CLOCK)[0])
    # WHEN they are encoded by numpy
    monkeypatch.setattr(columns, "loops", None)
    # THEN nothing differs
    assert bytes(encode_chunk([pieces], CLOCK)[0]) == compiled
    # GIVEN records of several blocks
    data = ring(_records(list(range(400))), 4080)
    words = np.frombuffer(data, "<u8")
    compiled = columns.starts_of(words, 510, KINDS).tolist()
    # WHEN the source of the loops runs as it is THEN nothing differs
    monkeypatch.setattr(columns, "loops", uncompiled("recorder/log/column_loops.py"))
    assert columns.starts_of(words, 510, KINDS).tolist() == compiled
    assert columns.counts_of(data, 4080) is not None


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.CGROUP, Kind.FILE_NAME, Kind.Q])
@pytest.mark.parametrize("level", [0, 1])
def test_name_records_are_found_by_the_kinds_that_are_present(
    kind: Kind, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN records of which one or two may be names, in pieces as polls copied them
    data = ring([record(Kind.D, 5, 1), record(kind, 6, 2), record(Kind.C, 7, 3)], 0)
    later = ring([record(Kind.Q, 8, 4), record(kind, 9, 2)], 0)
    segments = [Segment(0, 0, 0, data), Segment(0, 0, len(data), later)]

    def found() -> list[list[bytes]]:
        packed = Packer(level).chunks(segments, CLOCK)
        ways = name_records(segments), *(chunk.names for chunk in packed)
        return [[rows.tobytes() for rows in way] for way in ways]

    # WHEN the names are looked for, alone and while packing, with the compiled loops and without
    compiled = found()
    monkeypatch.setattr(columns, "loops", None)
    # THEN all find the same
    first, *others = [*compiled, *found()]
    assert others == [first] * 3
    assert len(b"".join(first)) == (kind != Kind.Q) * 2 * len(record(kind, 6, 2))


@given(
    kinds=st.lists(st.sampled_from([*KINDS, Kind.FILE_NAME, Kind.CGROUP]), max_size=300),
    place=st.integers(0, 600),
    behind=st.sampled_from([b"", bytes([0] * 7 + [250]) * 3, bytes([0] * 7 + [Kind.FILE_NAME])]),
)
def test_starts_are_those_of_a_walk_over_all_records(
    kinds: list[Kind], place: int, behind: bytes
) -> None:
    # GIVEN records of a ring, whole, or followed by a kind that is not known, or by half a record
    records = [record(kind, at, at) for at, kind in enumerate(kinds)]
    data = ring(records, place * 8) + behind
    words = np.frombuffer(data, "<u8")
    wanted = (Kind.TASK, Kind.FILE_NAME)
    # WHEN the names among them are looked for
    found = columns.starts_of(words, place, wanted)
    # THEN they are where a walk over all records finds them
    tops = np.frombuffer(data, np.uint8)[7::8]
    walked = columns.record_starts(tops, place) if len(tops) else np.empty(0, np.int64)
    assert found.tolist() == [at for at in walked.tolist() if tops[at] in wanted]


# A log's writer against streams that fail, block, or take a part at a time.


class FailingStream(io.RawIOBase):
    """Takes `room` bytes, then fails with `code`."""

    def __init__(self, room: int, code: int) -> None:
        super().__init__()
        self.data = bytearray()
        self.room = room
        self.code = code

    def writable(self) -> bool:
        return True

    def write(self, data: memoryview) -> int:
        part = bytes(data)[: self.room - len(self.data)]
        if not part:
            raise OSError(self.code, os.strerror(self.code))
        self.data += part
        return len(part)


def write_all(writer: LogWriter) -> None:
    for number in range(5):
        writer.write_chunk(chunk_segments(number), clock(START + (number + 1) * PERIOD))
    writer.close({})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "No space left on device; 2 chunks"),
        (errno.EDQUOT, "make room"),
        (errno.EPIPE, "the reader of the pipe has closed it"),
        (errno.EIO, "check the device"),
    ],
)
def test_a_failing_stream_says_what_is_kept(code: int, words: str) -> None:
    # GIVEN a disk that takes two chunks and a half
    made = sample(3)
    loss_and_note = made.frames["note"][1] - made.frames["loss"][0]
    stream = FailingStream(made.chunks[2][0] - loss_and_note + 30, code)
    writer = LogWriter(stream, HEADER)  # type: ignore[arg-type]
    # WHEN more is written
    with pytest.raises(OutputError) as error:
        write_all(writer)
    # THEN the error says what went wrong, what is kept, and what to do
    assert words in str(error.value)
    assert "2 chunks" in str(error.value)
    # and what is kept reads back
    reader, chunks = read(bytes(stream.data))
    assert len(chunks) == 2
    assert reader.interrupted


class SmallDisk(io.FileIO):
    """A file on a disk with room for so many bytes."""

    room = 0

    def write(self, data: Any, /) -> int:
        part = memoryview(data)[: max(self.room - self.tell(), 0)]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(part)


@pytest.mark.parametrize("noise", [0, 1 << 20])
@pytest.mark.parametrize("before", [b"", b"another log's bytes"])
def test_a_file_ends_with_its_last_whole_frame(tmp_path: Path, noise: int, before: bytes) -> None:
    # GIVEN a log, also behind what was in the file, of two chunks and a note
    path = tmp_path / "a.biotrail"
    path.write_bytes(before)
    with SmallDisk(path, "ab") as stream:
        stream.room = 1 << 30
        writer = LogWriter(cast(BinaryIO, stream), HEADER)
        for number in range(2):
            writer.write_chunk(chunk_segments(number), clock(START + (number + 1) * PERIOD))
        writer.write_note("small", {})
        # WHEN the disk becomes full in the middle of a frame, small or large
        stream.room = stream.tell() + 100
        with pytest.raises(OutputError):
            writer.write_note("large", {"noise": os.urandom(noise + 1000).hex()})
        whole = writer.size
    # THEN the part of it is not in the file
    data = path.read_bytes()
    assert data[: len(before)] == before
    assert len(data) == len(before) + whole
    reader, chunks = read(data[len(before) :])
    assert len(chunks) == 2
    assert reader.interrupted
    assert not any("no whole frame" in problem for problem in reader.problems)


def test_a_failed_writer_stays_failed() -> None:
    # GIVEN a writer whose disk was full
    stream = FailingStream(600, errno.ENOSPC)
    writer = LogWriter(stream, HEADER)  # type: ignore[arg-type]
    with pytest.raises(OutputError):
        write_all(writer)
    # WHEN the disk has room again and the log is closed
    kept = bytes(stream.data)
    stream.room = 1 << 20
    with pytest.raises(OutputError):
        writer.close({})
    # THEN nothing is written behind the hole
    assert bytes(stream.data) == kept


def test_output_errors_say_what_is_wrong() -> None:
    # GIVEN the device that is always full WHEN a log is begun on it
    with open("/dev/full", "wb") as stream, pytest.raises(OutputError) as error:
        LogWriter(stream, HEADER)
    # THEN the error names it
    assert str(error.value).startswith("/dev/full: cannot be written at offset 0: No space left")
    # Closing a buffered stream tries again what it could not write.
    # GIVEN a pipe without a reader
    out, into = os.pipe()
    with open(into, "wb", buffering=0) as stream:
        os.close(out)
        # WHEN a log is written to it THEN it is an error that says so
        with pytest.raises(OutputError, match="the reader of the pipe has closed it"):
            LogWriter(stream, HEADER)  # type: ignore[arg-type]
    # GIVEN a stream that is no file WHEN a log shall be synced to it
    # THEN that is refused, with the option to leave out
    with pytest.raises(OutputError, match="leave out --sync"):
        LogWriter(io.BytesIO(), HEADER, sync=True)
    # GIVEN a note larger than any reader would accept
    writer = LogWriter(io.BytesIO(), HEADER)
    # WHEN it is written THEN it is refused, and the log goes on
    with pytest.raises(OutputError, match="more than the 33554432"):
        writer.write_note("huge", {"text": "x" * (33 << 20)})
    writer.close({})


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_non_blocking_pipe_is_waited_for(buffering: int) -> None:
    # GIVEN a non-blocking pipe, as ssh leaves standard output, with a slow reader
    out, into = os.pipe()
    os.set_blocking(into, False)
    found: list[tuple[object, ...]] = []

    def drain() -> None:
        os.set_blocking(out, False)
        with open(out, "rb", buffering=buffering) as stream:
            found.extend(content(chunk) for chunk in LogReader(stream).chunks())

    reader = threading.Thread(target=drain)
    # WHEN more is written than it holds
    segments = [Segment(0, 0, 0, os.urandom(1 << 20))]
    with open(into, "wb", buffering=buffering) as stream:
        writer = LogWriter(stream, HEADER)
        reader.start()
        for i in range(4):
            writer.write_chunk(segments, clock(START + i))
        writer.close({})
    reader.join()
    # THEN all of it arrives
    assert [one[3][0][3] == segments[0].data for one in found] == [True] * 4


def test_every_call_leaves_whole_frames_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log in a buffered file
    path = tmp_path / "a.biotrail"
    with open(path, "wb") as stream:
        writer = LogWriter(stream, HEADER)
        for number in range(3):
            # WHEN a chunk was written
            written = writer.write_chunk(chunk_segments(number), clock(START + number * PERIOD))
            # THEN somebody else sees it at once, as after kill -9
            assert path.stat().st_size == writer.size
            assert written > 0
            with LogReader(path) as reader:
                assert len(list(reader.chunks())) == number + 1
                assert reader.interrupted
    # GIVEN a writer that syncs
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    with open(tmp_path / "a.biotrail", "wb") as stream:
        writer = LogWriter(stream, HEADER, sync=True)
        before = len(synced)
        # WHEN a chunk is written
        writer.write_chunk(chunk_segments(0), clock(START))
        # THEN it is durable when the call returns
        assert synced[before:] == [stream.fileno()]


def test_the_writer_forgets_what_it_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording that goes on for ever
    monkeypatch.setattr("biotrail.recorder.log.writer.INDEX_FRAMES", 16)
    writer = LogWriter(io.BytesIO(), HEADER)
    # WHEN many chunks are written
    for number in range(100):
        writer.write_chunk([], clock(START + number))
        # THEN what it remembers stays small
        assert len(writer._index) < 16 * 32
