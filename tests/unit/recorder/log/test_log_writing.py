# SPDX-License-Identifier: Apache-2.0
"""A log's writer against streams that fail, block, or take a part at a time."""

import errno
import io
import os
import threading
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.schema.errors import OutputError
from tests.support.log_samples import (
    HEADER,
    PERIOD,
    START,
    chunk_segments,
    clock,
    content,
    read,
    sample,
)


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


def write_all(writer: LogWriter, chunks: int = 5) -> None:
    for number in range(chunks):
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


def test_a_full_disk_is_an_output_error() -> None:
    # GIVEN the device that is always full
    # WHEN a log is begun on it
    with open("/dev/full", "wb") as stream, pytest.raises(OutputError) as error:
        LogWriter(stream, HEADER)
    # THEN the error names it
    assert str(error.value).startswith("/dev/full: cannot be written at offset 0: No space left")
    # Closing a buffered stream tries again what it could not write.


def test_a_pipe_whose_reader_went_away_is_an_output_error() -> None:
    # GIVEN a pipe without a reader
    out, into = os.pipe()
    with open(into, "wb", buffering=0) as stream:
        os.close(out)
        # WHEN a log is written to it
        # THEN it is an error that says so
        with pytest.raises(OutputError, match="the reader of the pipe has closed it"):
            LogWriter(stream, HEADER)  # type: ignore[arg-type]


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


def test_every_call_leaves_whole_frames_behind(tmp_path: Path) -> None:
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


def test_sync_makes_every_chunk_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_sync_needs_a_file() -> None:
    # GIVEN a stream that is no file
    # WHEN a log shall be synced to it
    # THEN that is refused, with the option to leave out
    with pytest.raises(OutputError, match="leave out --sync"):
        LogWriter(io.BytesIO(), HEADER, sync=True)


def test_the_writer_forgets_what_it_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording that goes on for ever
    monkeypatch.setattr("biotrail.recorder.log.writer.INDEX_FRAMES", 16)
    writer = LogWriter(io.BytesIO(), HEADER)
    # WHEN many chunks are written
    for number in range(100):
        writer.write_chunk([], clock(START + number))
        # THEN what it remembers stays small
        assert len(writer._index) < 16 * 32


def test_a_frame_beyond_the_limit_is_refused() -> None:
    # GIVEN a note larger than any reader would accept
    writer = LogWriter(io.BytesIO(), HEADER)
    # WHEN it is written
    # THEN it is refused, and the log goes on
    with pytest.raises(OutputError, match="more than the 33554432"):
        writer.write_note("huge", {"text": "x" * (33 << 20)})
    writer.close({})
