# SPDX-License-Identifier: Apache-2.0
"""Logs that were cut, damaged or made up: a clear error or whole chunks, at a bounded cost."""

import dataclasses
import io
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.recorder.log import LogReader, LogWriter, validation
from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    MAX_RATIO,
    PREAMBLE,
    PREAMBLE_BYTES,
    SYNC,
    Codec,
    DamagedError,
    Frame,
    FrameType,
    decode_frame,
    encode_frame,
)
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.payloads import End, Header
from tests.support import crafted_logs
from tests.support.log_samples import (
    LOSSES,
    NOTE,
    PERIOD,
    START,
    Sample,
    content,
    read,
    read_pipe,
    sample,
)
from tests.support.path_logs import PathLog
from tests.support.read_cost import check, counted

# A log that was cut, hit or interrupted: a clear error or whole chunks, nothing else.

Read = Callable[[bytes], tuple[LogReader, list[tuple[Any, ...]]]]
READS = pytest.mark.parametrize("read_back", [read, read_pipe], ids=["file", "pipe"])


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def check_hit(made: Sample, whole: list[tuple[Any, ...]], at: int, data: bytes, how: Read) -> None:
    """At most one chunk is lost, it is named, and all that is read is as it was written."""
    reader, chunks = how(data)
    lost = [i for i, one in enumerate(whole) if one not in chunks]
    assert [one for one in whole if one in chunks] == chunks, at
    assert len(lost) <= 1, at
    inside = [i for i, (begin, end) in enumerate(made.chunks) if begin <= at < end]
    assert lost == inside, at
    if lost:
        begin = made.chunks[lost[0]][0]
        assert any(re.search(rf"\b{begin}\b", problem) for problem in reader.problems), at
        window = next(w for w in reader.damaged if w["offset"] == begin)
        first, last = whole[lost[0]][:2]
        assert (window["start"] <= first and last <= window["end"]) or not reader.end, at
    if reader.losses != LOSSES or reader.notes != [NOTE] or reader.interrupted:
        assert reader.problems, at


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_costs_at_most_one_chunk(bit: int) -> None:
    # GIVEN a small log
    made = sample(2)
    _, whole = read(made.data)
    # WHEN any single bit of it is flipped
    for at in range(len(made.data)):
        # THEN at most the chunk that it is in is lost, and named by its offset
        check_hit(made, whole, at, flipped(made.data, at, 1 << bit), read)


@READS
def test_an_overwritten_byte_costs_at_most_one_chunk(read_back: Read) -> None:
    # GIVEN a log that comes from a file, or through a pipe
    made = sample(2)
    _, whole = read(made.data)
    # WHEN any byte of it changes
    for at in range(len(made.data)):
        # THEN at most one chunk is lost
        check_hit(made, whole, at, flipped(made.data, at, 0xFF), read_back)


def test_damage_to_an_interrupted_log_costs_at_most_one_chunk() -> None:
    # GIVEN a log without its end and index
    made = sample(4, end=False)
    _, whole = read(made.data)
    # WHEN any byte of it but those of its last chunk changes
    for at in range(made.chunks[-1][0]):
        reader, chunks = read(flipped(made.data, at, 0xFF))
        # THEN at most one chunk is lost, and it still counts as interrupted
        assert len(whole) - len(chunks) <= 1, at
        assert all(chunk in whole for chunk in chunks), at
        assert reader.interrupted
        assert len(chunks) == len(whole) or reader.damaged, at


@READS
def test_a_log_cut_at_any_byte_reads_to_its_last_whole_chunk(read_back: Read) -> None:
    # GIVEN a small log
    made = sample(3)
    _, whole = read(made.data)
    header_end = made.frames["header"][1] // 2
    # WHEN it is cut at any byte
    for length in range(len(made.data)):
        try:
            reader, chunks = read_back(made.data[:length])
        except LogFormatError as error:
            # THEN it says that it ends within the header,
            assert length < header_end + 40, (length, error)
            assert "record again" in str(error), length
            continue
        # or gives the chunks that are whole, and says that it was interrupted
        expected = [one for one, (_, end) in zip(whole, made.chunks, strict=True) if end <= length]
        assert chunks == expected, length
        assert reader.interrupted == (reader.end is None), length
        assert not reader.damaged, length


def test_what_an_interrupted_log_has_behind_its_last_chunk_is_left_out() -> None:
    # GIVEN a log that ends within its last chunk, as kill -9 leaves it
    made = sample(3, end=False)
    begin, end = made.chunks[-1]
    # WHEN it is read
    reader, chunks = read(made.data[: end - 10])
    # THEN the whole chunks are there and the rest is named
    assert len(chunks) == 2
    assert reader.interrupted
    assert reader.problems == [
        f"the last {end - 10 - begin} bytes, from offset {begin} on, hold no whole frame: left out"
    ]
    # AND if it lost power, with zeros behind what was written, all chunks are there
    reader, chunks = read(made.data + bytes(5000))
    assert len(chunks) == 3
    assert reader.interrupted
    assert "5000 bytes" in reader.problems[0]


@READS
def test_missing_bytes_cost_their_chunk_alone(read_back: Read) -> None:
    # GIVEN a log that lost ten bytes in the middle of its second chunk
    made = sample(4)
    _, whole = read(made.data)
    begin, end = made.chunks[1]
    cut = made.data[: end - 20] + made.data[end - 10 :]
    # WHEN it is read
    reader, chunks = read_back(cut)
    # THEN the others are there and the window is that of the chunk
    assert chunks == [whole[0], *whole[2:]]
    assert reader.damaged[0]["offset"] == begin
    assert not reader.interrupted
    # GIVEN a log from which one whole chunk was removed
    begin, end = made.chunks[2]
    # WHEN it is read
    reader, chunks = read_back(made.data[:begin] + made.data[end:])
    # THEN its place is named, with the time from the chunk before to the one after
    assert chunks == [*whole[:2], whole[3]]
    assert reader.damaged == [{"offset": begin, "start": whole[1][1], "end": whole[3][0]}]
    assert reader.problems[0] == f"1 frame is damaged or missing from offset {begin} on: left out"


@READS
def test_what_stands_twice_or_is_foreign_is_passed_over(read_back: Read) -> None:
    # GIVEN a log in which a block of the disk stands twice
    made = sample(3)
    _, whole = read(made.data)
    begin, end = made.chunks[1]
    # WHEN it is read
    reader, chunks = read_back(made.data[:end] + made.data[begin:])
    # THEN no event is there twice, and it says so
    assert chunks == whole
    assert f"offset {end} repeats" in reader.problems[0]
    # GIVEN 3 MiB that are not its own before the second chunk
    begin = made.chunks[1][0]
    junk = (b"\xfaBT\xce" + bytes(60)) * (3 << 14)
    # WHEN it is read
    reader, chunks = read_back(made.data[:begin] + junk + made.data[begin:])
    # THEN nothing is lost, and the bytes are named
    assert chunks == whole
    assert (
        reader.problems[0] == f"bytes {begin} to {begin + len(junk)} are not this log's: left out"
    )
    assert not reader.damaged
    # GIVEN two logs, one behind the other WHEN they are read as one
    reader, chunks = read_back(made.data + made.data)
    # THEN the first is read, and the rest is named
    assert chunks == whole
    behind = f"bytes behind the log's end, from offset {len(made.data)} on: left out"
    assert behind in reader.problems


def test_the_header_comes_from_its_twin() -> None:
    # GIVEN a log whose first header is destroyed, preamble and all but its last byte
    made = sample(2)
    reader, whole = read(made.data)
    length = (made.frames["header"][1] - 24) // 2
    destroyed = made.data[:24] + b"x" * length + made.data[24 + length :]
    # WHEN it is read
    again, chunks = read(destroyed)
    # THEN nothing is lost
    assert again.header == reader.header
    assert chunks == whole
    assert again.problems == [
        f"header at offset 24 is damaged; its copy at offset {24 + length} was used"
    ]
    # GIVEN a log with both copies of the header destroyed WHEN it is read
    with pytest.raises(LogFormatError) as error:
        read(made.data[:24] + bytes(2 * length) + made.data[24 + 2 * length :])
    # THEN the error says where, and what to do
    assert "both copies of the header, from offset 24 on, are damaged" in str(error.value)
    assert "look for another copy of the file" in str(error.value)


def test_damage_behind_the_last_whole_chunk() -> None:
    # GIVEN a log whose end frame is damaged
    made = sample(2)
    reader, chunks = read(flipped(made.data, made.frames["end"][0] + 60, 0xFF))
    # WHEN it is read
    # THEN what it said is unknown, and that is said; the log is complete all the same
    assert reader.end is None
    assert not reader.interrupted
    assert len(chunks) == 2
    assert f"end frame at offset {made.frames['end'][0]}" in reader.problems[0]
    # GIVEN a log read without its index, whose last chunk's header is damaged
    made = sample(3)
    begin = made.chunks[-1][0]
    data = flipped(made.data, begin + 5, 0xFF)[:-1]
    # WHEN it is read
    reader, _ = read(data)
    # THEN events are missing from the chunk before up to the end of the recording
    assert reader.damaged == [
        {"offset": begin, "start": START + 2 * PERIOD, "end": START + 4 * PERIOD}
    ]


def test_damage_that_cannot_be_passed_is_refused() -> None:
    # GIVEN a file of /proc, which has no size WHEN it is read as a log  THEN the message names it
    with pytest.raises(LogFormatError, match=r"^/proc/version: not a biotrail log: .* give a file"):
        LogReader("/proc/version")
    # GIVEN foreign bytes before a chunk, so that its header lies anywhere at a block's end
    made = sample(2, end=False)
    _, whole = read(made.data)
    begin = made.chunks[1][0]
    for shift in (0, 1, 3, 4, 20, 46, 47, 48, 49):
        junk = SYNC * ((1 << 18) - 16) + bytes(64 - shift)
        for where in (begin, made.chunks[0][0]):
            # WHEN it is read
            reader = LogReader(io.BytesIO(made.data[:where] + junk + made.data[where:]))
            # THEN the chunk is there
            assert [content(chunk) for chunk in reader.chunks()] == whole


# Logs made up by somebody: checksums are right, what they say is not.

LOG = sample(3).data
EDGES = [0, 1, 2, 48, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(LOG), len(LOG) - FRAME_BYTES]
PAYLOADS = [
    b"", b"{}", b"[]", b"[1]", b"null", b'"x"', b'{"name": 1}', b'{"clocks": 3}', b"[" * 100_000,
    b'{"clocks": {"monotonic": -5}}', b'{"clocks": {"monotonic": "x"}}', bytes(64), b"\xff" * 96,
]  # fmt: skip


def frames_of(data: bytes) -> list[Frame]:
    found, offset = [], 24
    while frame := decode_frame(data[offset : offset + FRAME_BYTES], offset):
        found.append(frame)
        offset = frame.next
    return found


FRAMES = frames_of(LOG)


def with_frame(frame: Frame, payload: bytes, replaced: Frame) -> bytes:
    """The log with the frame at the place of `replaced` encoded anew, checksums and all."""
    header = encode_frame(
        frame.type & 0xFF,
        payload,
        sequence=frame.sequence,
        tag=frame.tag,
        codec=frame.codec & 0xF,
        raw=frame.raw & 0xFFFFFFFF,
        words=(frame.word0, frame.word1),
    )
    return LOG[: replaced.offset] + header + payload + LOG[replaced.next :]


def check_reads_or_refuses(data: bytes) -> None:
    for how in (read, read_pipe):
        try:
            reader, _ = how(data)
        except LogFormatError:
            continue
        assert all(window["start"] <= window["end"] for window in reader.damaged)
        assert all(isinstance(problem, str) for problem in reader.problems)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(FRAMES),
    st.sampled_from(["type", "codec", "sequence", "tag", "word0", "word1", "raw"]),
    st.sampled_from(EDGES) | st.integers(0, len(LOG)),
)
def test_any_value_in_a_frame_header_reads_or_is_refused(
    frame: Frame, name: str, value: int
) -> None:
    # GIVEN a log with a frame header that says something else, with right checksums
    bits = {"sequence": 32, "tag": 32}.get(name, 64)
    changed = dataclasses.replace(frame, **{name: value % (1 << bits)})
    payload = LOG[frame.payload : frame.next]
    # WHEN it is read THEN there is a clear error, or what can be read
    check_reads_or_refuses(with_frame(changed, payload, frame))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(FRAMES), st.sampled_from(PAYLOADS) | st.binary(max_size=200))
def test_any_payload_reads_or_is_refused(frame: Frame, raw: bytes) -> None:
    # GIVEN a log with a frame of another payload, well compressed
    changed = dataclasses.replace(frame, codec=1, raw=len(raw))
    payload = zstandard.ZstdCompressor().compress(raw)
    # WHEN it is read THEN there is a clear error, or what can be read
    check_reads_or_refuses(with_frame(changed, payload, frame))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2), st.data())
def test_any_bytes_in_a_chunk_read_or_are_refused(number: int, data: st.DataObject) -> None:
    # GIVEN a chunk with some bytes of its columns changed before it was compressed
    frame = [f for f in FRAMES if f.type == FrameType.CHUNK][number]
    raw = bytearray(zstandard.decompress(LOG[frame.payload : frame.next]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    # WHEN it is read THEN there is a clear error, or what can be read
    check_reads_or_refuses(with_frame(frame, zstandard.compress(bytes(raw)), frame))


def test_an_index_that_goes_round_or_a_newer_codec_costs_nothing_else() -> None:
    # GIVEN an index whose predecessor is itself
    index = next(f for f in FRAMES if f.type == FrameType.INDEX)
    changed = dataclasses.replace(index, word0=index.offset)
    # WHEN the log is read
    reader, chunks = read(with_frame(changed, LOG[index.payload : index.next], index))
    # THEN it is read without the index
    assert len(chunks) == 3
    assert reader.problems == [
        f"index at offset {index.offset} is damaged or not there: read without it"
    ]
    # GIVEN a chunk that is stored with a codec that this reader does not know
    frame = next(f for f in FRAMES if f.type == FrameType.CHUNK)
    changed = dataclasses.replace(frame, codec=9)
    # WHEN it is read
    reader, chunks = read(with_frame(changed, LOG[frame.payload : frame.next], frame))
    # THEN that chunk is left out, and the reason is told
    assert len(chunks) == 2
    assert "codec 9, which this biotrail cannot read" in reader.problems[0]


@pytest.mark.parametrize("kind", [FrameType.LOSS, FrameType.NOTE, FrameType.END])
def test_frames_of_the_wrong_shape_are_left_out(kind: FrameType) -> None:
    # GIVEN a frame whose JSON is a number
    frame = next(f for f in FRAMES if f.type == kind)
    changed = dataclasses.replace(frame, codec=0, raw=1)
    # WHEN the log is read
    reader, chunks = read(with_frame(changed, b"7", frame))
    # THEN it is named, and all chunks are there
    assert len(chunks) == 3
    assert f"at offset {frame.offset} holds a JSON int" in reader.problems[0]


# What a made-up log says of the path is refused, or left out, where it has the wrong shape.


def made(tmp_path: Path, **facts: Any) -> Path:
    log = PathLog()
    log.bio(100, 200)
    return log.write(tmp_path / "log", **facts)


def test_a_header_is_checked_when_a_log_is_opened(tmp_path: Path) -> None:
    # GIVEN a log whose header has a made-up entry `path`  WHEN it is opened  THEN that is said
    with pytest.raises(LogFormatError, match="has 3 as path, not an object"):
        LogReader(made(tmp_path, path=3))
    # AND a part and a key that this version does not know are no error
    path = {"parts": ["call", "newer"], "missing": [], "more": 1}
    assert LogReader(made(tmp_path, path=path)).header["path"] == path


@pytest.mark.parametrize(
    ("parts", "major"), [(("call", "time"), 2), (("call",), 1), (("time", "wait"), 1), ((), 1)]
)
def test_only_logs_that_older_readers_would_misread_have_a_new_version(
    tmp_path: Path, parts: tuple[str, ...], major: int
) -> None:
    # GIVEN logs of which those with timed calls have one CALL for several bios
    path = made(tmp_path, parts=parts)
    # WHEN their preamble, header and first frame are read
    data = path.read_bytes()
    frame = decode_frame(data[PREAMBLE_BYTES:], PREAMBLE_BYTES)
    # THEN all say the version that a reader needs
    assert PREAMBLE.unpack_from(data)[1:3] == (major, 0)
    assert frame is not None
    assert frame.major == major
    assert LogReader(path).header["format"] == {"major": major, "minor": 0}


def test_a_note_of_another_shape_is_left_out(tmp_path: Path) -> None:
    # GIVEN a log with a made-up note of the end of timing  WHEN it is read
    reader = LogReader(made(tmp_path, notes={"call_timing": {"until": -1}}))
    chunks = list(reader.chunks())
    # THEN the note is left out, with one message; all else is there
    assert len(chunks) == 1
    assert reader.notes == []
    (problem,) = reader.problems
    assert "has -1 as call_timing.until, not a whole number" in problem


# What it costs to read a log is bounded by its size, whoever made it: counted in bytes.


@READS
@pytest.mark.parametrize("name", crafted_logs.MADE)
def test_a_crafted_log_costs_no_more_than_its_size(name: str, read_back: Read) -> None:
    # GIVEN a log of 1 MB whose frames overlap, repeat or seem to, with right checksums
    data = crafted_logs.MADE[name](1_000_000)
    # WHEN it is read
    with counted() as cost:
        reader, _ = read_back(data)
    # THEN what was looked at is a few times its size, and it says that something is wrong
    check(data, cost)
    assert reader.problems


@READS
def test_damage_within_damage_costs_only_the_damaged_chunks(read_back: Read) -> None:
    # GIVEN an interrupted log of which every second chunk lost most of its bytes
    made = sample(12, end=False)
    _, whole = read(made.data)
    data = made.data[: made.chunks[0][0]]
    for number, (begin, end) in enumerate(made.chunks):
        data += made.data[begin : begin + FRAME_BYTES + 5 if number % 2 else end]
    # WHEN it is read
    reader, chunks = read_back(data)
    # THEN the others are there, and nothing else
    assert chunks == whole[::2]
    assert reader.damaged


def test_a_chunk_that_reaches_into_the_next_is_not_the_index_s() -> None:
    # GIVEN a whole log, of which one chunk's header says that its payload is longer
    data = sample(3).data
    first, second = [f for f in frames_of(data) if f.type == FrameType.CHUNK][:2]
    stored = data[first.payload : second.next]
    header = encode_frame(
        first.type, stored, sequence=first.sequence, tag=first.tag, codec=first.codec,
        raw=first.raw, words=(first.word0, first.word1),
    )  # fmt: skip
    # WHEN it is read
    reader, chunks = read(data[: first.offset] + header + data[first.payload :])
    # THEN it is left out, and the one behind is there
    assert len(chunks) == 2
    assert reader.damaged[0]["offset"] == first.offset


def with_type(data: bytes, frame: Frame, kind: int) -> bytes:
    """The log with that frame's type changed, its header's checksum set right."""
    head = bytearray(data[frame.offset : frame.payload])
    head[4] = kind
    head[-4:] = struct.pack("<I", zlib.crc32(head[:-4]))
    return data[: frame.offset] + head + data[frame.payload :]


@pytest.mark.parametrize("indexed", [True, False], ids=["index", "walk"])
@pytest.mark.parametrize("kind", [FrameType.NOTE, FrameType.CHUNK])
def test_a_frame_of_type_0_is_damage(kind: FrameType, indexed: bool) -> None:
    # GIVEN a log in which a note's, or a chunk's, type has become 0
    data = sample(3, end=indexed).data
    frame = next(f for f in frames_of(data) if f.type == kind)
    # WHEN it is read
    reader, chunks = read(with_type(data, frame, 0))
    # THEN it is said to be left out; of a chunk, when events are missing
    assert any(f"offset {frame.offset}" in problem for problem in reader.problems)
    assert reader.notes == ([] if kind == FrameType.NOTE else [NOTE])
    assert reader.losses == LOSSES
    assert len(chunks) == (3 if kind == FrameType.NOTE else 2)
    windows = [(w["start"], w["end"]) for w in reader.damaged]
    assert windows == ([] if kind == FrameType.NOTE else [(frame.word0, frame.word1)])


def test_a_frame_of_another_type_than_the_index_has_is_said() -> None:
    # GIVEN a whole log in which the index tells of a note, and there stands another type
    data = sample(3).data
    note = next(f for f in frames_of(data) if f.type == FrameType.NOTE)
    # WHEN it is read
    reader, _ = read(with_type(data, note, 9))
    # THEN it is told
    assert any(f"note at offset {note.offset}" in problem for problem in reader.problems)


def test_what_compresses_beyond_belief_is_written_as_it_is() -> None:
    # GIVEN a note that zstd would make a thousandth of
    stream = io.BytesIO()
    writer = LogWriter(stream, {"log_id": "7" * 32})
    payload = {"text": "x" * 1_000_000}
    assert len(zstandard.compress(b"x" * 1_000_000)) < 1_000_000 // MAX_RATIO
    # WHEN it is written and read
    writer.write_note("long", payload)
    reader = LogReader(io.BytesIO(stream.getvalue()))
    # THEN it is there
    assert reader.notes == [("long", payload)]
    assert frames_of(stream.getvalue())[-1].codec == Codec.NONE


# Checks of header, notes and END that are made of their types.


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"host": {"cpus": True}}, "has True as host.cpus, not a whole number from 0 to"),
        ({"devices": [{"name": "sda"}]}, r"has no dev in devices\[0\]"),
        ({"filters": {"sectors": [[1]]}}, r"has a list as filters.sectors\[0\], not a list of 2"),
        ({"kernel": {"op_enum": {"READ": 256}}}, "has 256 as kernel.op_enum.READ"),
        ({"events": {"missing": [{"letter": "Q"}]}}, r"has no reason in events.missing\[0\]"),
        ({"path": {"parts": "call"}}, "has 'call' as path.parts, not a list"),
        ({"path": {"parts": [1]}}, r"has 1 as path.parts\[0\], not a text"),
        ({"path": {"missing": [{"part": "wait"}]}}, r"has no reason in path.missing\[0\]"),
        (
            {"path": {"missing": [{"part": "x", "reason": 7}]}},
            r"has 7 as path.missing\[0\].reason, not a text",
        ),
        ({"schema": [{"kind": 1, "size": 12}]}, r"has 12 as schema\[0\].size, not a multiple of 8"),
    ],
)
def test_a_header_of_another_shape_is_refused(header: dict[str, Any], problem: str) -> None:
    # WHEN a made-up header is checked  THEN the first wrong value is named
    with pytest.raises(DamagedError, match=problem):
        validation.check(header, Header)


def test_headers_and_notes_of_other_versions_pass() -> None:
    # GIVEN a header as another version may write it: keys not known here, sizes of another form
    header = {"later": [None], "rings": {"bytes": 1}, "filters": {"cgroups": [{"path": "/x"}]}}
    # WHEN it is checked  THEN it passes
    validation.check(header, Header)
    validation.check({}, Header)
    # GIVEN cgroups in both forms, and a note that this version does not know
    validation.note({"name": "cgroups", "payload": {"1": "/a"}})
    validation.note({"name": "cgroups", "payload": {"cgroups": {"1": "/a"}}})
    validation.note({"name": "of a later version", "payload": {"any": object()}})
    # WHEN END has a limit of cost that is not set  THEN it passes
    validation.check({"recorder": {"cpu_seconds": 1, "max_rss_bytes": 2, "max_cpu": None}}, End)


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        ("stacks", {"kernel": {"x": []}}, "has 'x' as a key of stacks.kernel"),
        ("stacks", {"kernel": {"1": [["f", "m"]]}}, r"stacks.kernel.1\[0\], not a list of 3"),
        ("mounts", {"99999999999": []}, "as a key of mounts"),
        ("call_timing", {"percent": 1.5}, "has no until in call_timing"),
        ("call_timing", {"until": 1 << 63}, "as call_timing.until, not a whole number"),
        ("call_timing", {"until": 5, "percent": "7"}, "has '7' as call_timing.percent, not a n"),
        ("call_timing", {"until": 5, "budget": [1]}, "a list as call_timing.budget, not a number"),
        ("paused", {"from": 1}, "has no to in paused"),
        ("names", {"monotonic": 1, "count": 1, "records": {"1": "?"}}, "not records in base64"),
    ],
)
def test_a_note_of_another_shape_is_refused(
    name: str, payload: dict[str, Any], problem: str
) -> None:
    # WHEN a made-up note is checked  THEN the first wrong value is named
    with pytest.raises(DamagedError, match=problem):
        validation.note({"name": name, "payload": payload})
