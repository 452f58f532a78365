# SPDX-License-Identifier: Apache-2.0
"""What it costs to read a log is bounded by its size, whoever made it: counted in bytes."""

import io
import struct
import zlib
from collections.abc import Callable

import pytest
import zstandard

from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    MAX_RATIO,
    SYNC,
    Codec,
    Frame,
    FrameType,
    decode_frame,
    encode_frame,
)
from tests.support import crafted_logs
from tests.support.log_samples import LOSSES, NOTE, content, read, read_pipe, sample
from tests.support.read_cost import check, counted


@pytest.mark.parametrize("how", [read, read_pipe], ids=["file", "pipe"])
@pytest.mark.parametrize("name", crafted_logs.MADE)
def test_a_crafted_log_costs_no_more_than_its_size(
    name: str, how: Callable[[bytes], tuple[LogReader, list[tuple[object, ...]]]]
) -> None:
    # GIVEN a log of 1 MB whose frames overlap, repeat or seem to, with right checksums
    data = crafted_logs.MADE[name](1_000_000)
    # WHEN it is read
    with counted() as cost:
        reader, _ = how(data)
    # THEN what was looked at is a few times its size, and it says that something is wrong
    check(data, cost)
    assert reader.problems


def frames(data: bytes) -> list[Frame]:
    found, offset = [], 24
    while frame := decode_frame(data[offset : offset + FRAME_BYTES], offset):
        found.append(frame)
        offset = frame.next
    return found


@pytest.mark.parametrize("how", [read, read_pipe], ids=["file", "pipe"])
def test_damage_within_damage_costs_only_the_damaged_chunks(
    how: Callable[[bytes], tuple[LogReader, list[tuple[object, ...]]]],
) -> None:
    # GIVEN an interrupted log of which every second chunk lost most of its bytes
    made = sample(12, end=False)
    _, whole = read(made.data)
    data = made.data[: made.chunks[0][0]]
    for number, (begin, end) in enumerate(made.chunks):
        data += made.data[begin : begin + FRAME_BYTES + 5 if number % 2 else end]
    # WHEN it is read
    reader, chunks = how(data)
    # THEN the others are there, and nothing else
    assert chunks == whole[::2]
    assert reader.damaged


def test_a_chunk_that_reaches_into_the_next_is_not_the_index_s() -> None:
    # GIVEN a whole log, of which one chunk's header says that its payload is longer
    data = sample(3).data
    first, second = [f for f in frames(data) if f.type == FrameType.CHUNK][:2]
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
    frame = next(f for f in frames(data) if f.type == kind)
    # WHEN it is read
    reader, chunks = read(with_type(data, frame, 0))
    # THEN it is said to be left out; of a chunk, when events are missing
    assert any(f"offset {frame.offset}" in problem for problem in reader.problems)
    assert reader.notes == ([] if kind == FrameType.NOTE else [NOTE])
    assert reader.losses == LOSSES
    assert len(chunks) == (3 if kind == FrameType.NOTE else 2)
    windows = [(w["start"], w["end"]) for w in reader.damaged]
    assert windows == ([] if kind == FrameType.NOTE else [(frame.word0, frame.word1)])


def test_a_frame_of_a_newer_version_is_passed_over_and_said() -> None:
    # GIVEN an interrupted log with a frame of a type that this version does not know
    data = sample(3, end=False).data
    note = next(f for f in frames(data) if f.type == FrameType.NOTE)
    # WHEN it is read
    reader, chunks = read(with_type(data, note, 9))
    # THEN the rest is there
    assert len(chunks) == 3
    assert reader.problems == [
        "1 frames of unknown type 9 were passed over: a newer biotrail wrote them"
    ]


def test_a_frame_whose_type_is_not_the_index_s_is_told() -> None:
    # GIVEN a whole log in which the index tells of a note, and there stands another type
    data = sample(3).data
    note = next(f for f in frames(data) if f.type == FrameType.NOTE)
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
    assert frames(stream.getvalue())[-1].codec == Codec.NONE


def test_a_marker_across_two_blocks_is_found() -> None:
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
