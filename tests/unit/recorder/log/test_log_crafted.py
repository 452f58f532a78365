# SPDX-License-Identifier: Apache-2.0
"""Logs made up by somebody: checksums are right, what they say is not."""

import dataclasses

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.recorder.log.frames import FRAME_BYTES, Frame, FrameType, decode_frame, encode_frame
from biotrail.recorder.schema.errors import LogFormatError
from tests.support.log_samples import read, read_pipe, sample

LOG = sample(3).data
EDGES = [0, 1, 2, 48, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(LOG), len(LOG) - FRAME_BYTES]
PAYLOADS = [
    b"", b"{}", b"[]", b"[1]", b"null", b'"x"', b'{"name": 1}', b'{"clocks": 3}', b"[" * 100_000,
    b'{"clocks": {"monotonic": -5}}', b'{"clocks": {"monotonic": "x"}}', bytes(64), b"\xff" * 96,
]  # fmt: skip


def frames() -> list[Frame]:
    found, offset = [], 24
    while frame := decode_frame(LOG[offset : offset + FRAME_BYTES], offset):
        found.append(frame)
        offset = frame.next
    return found


FRAMES = frames()


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
    # WHEN it is read
    # THEN there is a clear error, or what can be read
    check_reads_or_refuses(with_frame(changed, payload, frame))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(FRAMES), st.sampled_from(PAYLOADS) | st.binary(max_size=200))
def test_any_payload_reads_or_is_refused(frame: Frame, raw: bytes) -> None:
    # GIVEN a log with a frame of another payload, well compressed
    changed = dataclasses.replace(frame, codec=1, raw=len(raw))
    payload = zstandard.ZstdCompressor().compress(raw)
    # WHEN it is read
    # THEN there is a clear error, or what can be read
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
    # WHEN it is read
    # THEN there is a clear error, or what can be read
    check_reads_or_refuses(with_frame(frame, zstandard.compress(bytes(raw)), frame))


def test_an_index_that_goes_round_is_not_followed() -> None:
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


def test_codecs_of_a_newer_version_are_named() -> None:
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
