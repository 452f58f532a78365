# SPDX-License-Identifier: Apache-2.0
"""A log that was cut, hit or interrupted: a clear error or whole chunks, nothing else."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.errors import LogFormatError
from tests.support.log_samples import LOSSES, NOTE, PERIOD, START, Sample, read, read_pipe, sample

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


def test_an_interrupted_log_says_what_it_left_out() -> None:
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


def test_zeros_behind_an_interrupted_log_are_no_chunks() -> None:
    # GIVEN a log that lost power: the file is longer than what was written
    made = sample(2, end=False)
    # WHEN it is read
    reader, chunks = read(made.data + bytes(5000))
    # THEN all chunks are there
    assert len(chunks) == 2
    assert reader.interrupted
    assert "5000 bytes" in reader.problems[0]


@READS
def test_bytes_missing_within_a_chunk_cost_that_chunk(read_back: Read) -> None:
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


@READS
def test_a_chunk_cut_out_is_missed(read_back: Read) -> None:
    # GIVEN a log from which one whole chunk was removed
    made = sample(4)
    _, whole = read(made.data)
    begin, end = made.chunks[2]
    # WHEN it is read
    reader, chunks = read_back(made.data[:begin] + made.data[end:])
    # THEN its place is named, with the time from the chunk before to the one after
    assert chunks == [*whole[:2], whole[3]]
    assert reader.damaged == [{"offset": begin, "start": whole[1][1], "end": whole[3][0]}]
    assert reader.problems[0] == f"1 frame is damaged or missing from offset {begin} on: left out"


@READS
def test_a_chunk_that_stands_twice_is_read_once(read_back: Read) -> None:
    # GIVEN a log in which a block of the disk stands twice
    made = sample(3)
    _, whole = read(made.data)
    begin, end = made.chunks[1]
    # WHEN it is read
    reader, chunks = read_back(made.data[:end] + made.data[begin:])
    # THEN no event is there twice, and it says so
    assert chunks == whole
    assert f"offset {end} repeats" in reader.problems[0]


@READS
def test_foreign_bytes_between_frames_are_passed_over(read_back: Read) -> None:
    # GIVEN a log with 3 MiB that are not its own before the second chunk
    made = sample(3)
    _, whole = read(made.data)
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


@READS
def test_what_follows_the_end_is_named(read_back: Read) -> None:
    # GIVEN two logs, one behind the other
    made = sample(2)
    # WHEN they are read as one
    reader, chunks = read_back(made.data + made.data)
    # THEN the first is read, and the rest is named
    assert len(chunks) == 2
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


def test_two_destroyed_headers_are_an_error() -> None:
    # GIVEN a log with both copies of the header destroyed
    made = sample(2)
    begin, end = 24, made.frames["header"][1]
    # WHEN it is read
    with pytest.raises(LogFormatError) as error:
        read(made.data[:begin] + bytes(end - begin) + made.data[end:])
    # THEN the error says where, and what to do
    assert "both copies of the header, from offset 24 on, are damaged" in str(error.value)
    assert "look for another copy of the file" in str(error.value)


def test_a_lost_end_frame_is_no_interruption() -> None:
    # GIVEN a log whose end frame is damaged
    made = sample(2)
    reader, chunks = read(flipped(made.data, made.frames["end"][0] + 60, 0xFF))
    # WHEN it is read
    # THEN what it said is unknown, and that is said; the log is complete all the same
    assert reader.end is None
    assert not reader.interrupted
    assert len(chunks) == 2
    assert f"end frame at offset {made.frames['end'][0]}" in reader.problems[0]


def test_damaged_windows_end_with_the_log() -> None:
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


def test_a_file_whose_end_cannot_be_found_is_no_log() -> None:
    # GIVEN a file of /proc, which has no size
    # WHEN it is read as a log  THEN the message names it
    with pytest.raises(LogFormatError, match=r"^/proc/version: not a biotrail log: .* give a file"):
        LogReader("/proc/version")
