# SPDX-License-Identifier: Apache-2.0
"""Outputs compressed by a thread beside what writes them: the same bytes, and no error is lost."""

import gzip
import io
import threading
from pathlib import Path

import pytest
import zstandard

from biotrail.cli.options.compressing import beside, compressed
from tests.support.cli_runner import Cli
from tests.support.paths import SAMPLE

DATA = bytes(range(256)) * 40_000  # ten pieces


def written(data: bytes, *sizes: int) -> list[bytes]:
    """Return the data cut into parts of the sizes, in turn."""
    parts, at = [], 0
    while at < len(data):
        size = sizes[len(parts) % len(sizes)]
        parts.append(data[at : at + size])
        at += size
    return parts


def test_all_bytes_arrive_in_their_order() -> None:
    # GIVEN small, large and empty writes WHEN a thread passes them on
    out = io.BytesIO()
    with beside(out) as stream:
        for part in written(DATA, 100, 3_000_000, 65_537):
            assert stream.write(part) == len(part)
        assert stream.write(b"") == 0
    # THEN all is there, the stream is open, and the thread is gone
    assert out.getvalue() == DATA
    assert "beside" not in [thread.name for thread in threading.enumerate()]


def test_what_is_written_may_change_afterwards() -> None:
    # GIVEN a buffer that is used again WHEN it is written each time
    out, buffer = io.BytesIO(), bytearray(1000)
    with beside(out) as stream:
        for value in range(3):
            buffer[:] = bytes([value]) * 1000
            stream.write(memoryview(buffer))
    # THEN each write had its own content
    assert out.getvalue() == b"".join(bytes([value]) * 1000 for value in range(3))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_bytes_are_those_of_one_thread(ending: str) -> None:
    # GIVEN the same data, written in different parts WHEN it is compressed
    outs = []
    for sizes in ((100, 70_000), (len(DATA),)):
        out = io.BytesIO()
        with compressed(out, f"a{ending}") as stream:
            for part in written(DATA, *sizes):
                stream.write(part)
        outs.append(out.getvalue())
    # THEN the bytes are the same, those that one thread writes, and give the data back
    alone = io.BytesIO()
    if ending == ".gz":
        with gzip.GzipFile("", "wb", 6, alone, mtime=0) as packed:
            packed.write(DATA)
        assert gzip.decompress(outs[0]) == DATA
    else:
        with zstandard.ZstdCompressor(level=9).stream_writer(alone, closefd=False) as writer:
            writer.write(DATA)
        assert zstandard.ZstdDecompressor().stream_reader(outs[0]).readall() == DATA
    assert outs == [alone.getvalue()] * 2


class _Full(io.RawIOBase):
    """Has room for some bytes."""

    def __init__(self, room: int) -> None:
        self._room = room

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._room -= len(data)  # type: ignore[arg-type]
        if self._room < 0:
            raise OSError(28, "No space left on device")
        return len(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [0, 5_000_000])
def test_an_error_of_the_thread_is_raised_where_the_bytes_come_from(room: int) -> None:
    # GIVEN a disk that is full at once, or later WHEN more is written
    with pytest.raises(OSError, match="No space left"), beside(_Full(room)) as stream:  # type: ignore[arg-type]
        for part in written(DATA, 100_000):
            stream.write(part)
    # THEN the error came, and the thread is gone
    assert "beside" not in [thread.name for thread in threading.enumerate()]


def test_an_error_at_the_very_end_is_raised_too() -> None:
    # GIVEN a few bytes, which are passed on when the block ends, and no room for them
    with pytest.raises(OSError, match="No space left"), beside(_Full(1)) as stream:  # type: ignore[arg-type]
        # WHEN they are written THEN the end of the block raises
        stream.write(b"abc")


def test_an_error_of_the_writer_ends_the_thread_and_stays_the_error() -> None:
    # GIVEN a stream without room WHEN the one who writes fails
    with pytest.raises(KeyError), beside(_Full(0)) as stream:  # type: ignore[arg-type]
        stream.write(DATA)
        raise KeyError("its own")
    # THEN that is the error, and the thread is gone
    assert "beside" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_converted_and_compressed_is_what_was_converted(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log WHEN it is converted with and without compression
    cli = Cli(capsys)
    plain, packed = tmp_path / "a.pftrace", tmp_path / f"b.pftrace{ending}"
    assert cli("convert", SAMPLE, "-o", plain).status == 0
    assert cli("convert", SAMPLE, "-o", packed).status == 0
    # THEN the one is the other compressed
    with packed.open("rb") as stream:
        reader = (
            gzip.GzipFile(fileobj=stream)
            if ending == ".gz"
            else zstandard.ZstdDecompressor().stream_reader(stream)
        )
        assert reader.read() == plain.read_bytes()
