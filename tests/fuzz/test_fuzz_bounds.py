# SPDX-License-Identifier: Apache-2.0
"""Small files that ask for much: memory stays bounded, and the reason is told."""

import io
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.log.frames import MAX_RAW, Codec, FrameType, encode_frame
from tests.support.paths import ROOT

MEMORY = 3 << 30
"""Address space, of which numpy's threads reserve a part that they never use."""
INFO = """
import resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from biotrail.cli.main import main
main(["info", sys.argv[2]])
"""
CLOCK = struct.pack("<4Q", 10**12, 10**12, 10**18, 40)


def chunk(segments: int, lengths: tuple[int, int], layout: int, body: bytes) -> bytes:
    """A chunk's payload of equal segments; lengths: in the ring, and here."""
    entry = struct.pack("<QIIHBBI", 0, *lengths, 0, 0, layout, 0)
    return CLOCK + struct.pack("<II", segments, 0) + entry * segments + body


def frame(payload: bytes, kind: FrameType, raw: int | None = None) -> tuple[bytes, int, FrameType]:
    return zstandard.compress(payload, 19), len(payload) if raw is None else raw, kind


def without_size(payload: bytes) -> bytes:
    """A zstd frame that does not say how long it will be."""
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    return compressor.compress(payload)


ZEROS = bytes(MAX_RAW)
NOISE = random.Random(5).randbytes(40_000)
"""What does not compress, so that a payload is not refused for its ratio alone."""
TEXT = NOISE[:20_000].hex().encode()
BOMBS: dict[str, tuple[tuple[bytes, int, FrameType], str]] = {
    "declared-4-gib": (frame(b"x", FrameType.CHUNK, (1 << 32) - 1), "more than a log's frames"),
    "another-size": (frame(ZEROS + ZEROS, FrameType.CHUNK, 64), "declares another length"),
    "no-size": ((without_size(ZEROS), 64, FrameType.CHUNK), "declares another length"),
    "ratio": (frame(chunk(1, (8 << 20, 8 << 20), 0, ZEROS[: 8 << 20]), FrameType.CHUNK),
              "more than 256 times as many"),
    "records": (
        frame(chunk(1, (9 << 20, 9 << 20), 0, (NOISE + ZEROS)[: 9 << 20]), FrameType.CHUNK),
        "bytes of records that a chunk may hold",
    ),
    "segments": (frame(chunk(200_000, (0, 0), 0, NOISE), FrameType.CHUNK), "segments, more than"),
    "columns": (
        frame(chunk(1, (800, 16), 1, struct.pack("<IIBBHI", 1, 1, 1, 255, 0, (1 << 32) - 1)),
              FrameType.CHUNK),
        "columns that do not fit",
    ),
    "deep": (frame(b'["' + TEXT + b'",' + b"[" * (3 << 20), FrameType.LOSS),
             "holds JSON of more than"),
    "wide": (frame(b'["' + TEXT + b'",' + b"[]," * 1_700_000 + b"1]", FrameType.LOSS),
             "holds JSON of more than"),
    "nested": (frame(b'{"x":' * 900 + b"1" + b"}" * 900, FrameType.END), "nested more than"),
    "digits": (frame(b'{"x":"' + TEXT + b'","seconds":' + b"9" * 100_000 + b"}", FrameType.END),
               "no valid JSON"),
}  # fmt: skip


def log_with(stored: bytes, raw: int, kind: FrameType) -> bytes:
    """A log whose third frame is that one, with right checksums."""
    stream = io.BytesIO()
    writer = LogWriter(stream, {"log_id": "7" * 32})
    head: dict[str, Any] = {"sequence": 2, "tag": writer._tag, "codec": Codec.ZSTD, "raw": raw}
    return stream.getvalue() + encode_frame(kind, stored, **head) + stored


@pytest.mark.parametrize("name", BOMBS)
def test_a_frame_that_asks_for_too_much_is_left_out(name: str) -> None:
    # GIVEN a small log with a frame that would take much memory or time
    (stored, raw, kind), why = BOMBS[name]
    data = log_with(stored, raw, kind)
    assert len(data) < 64 << 10
    # WHEN it is read
    reader = LogReader(io.BytesIO(data))
    # THEN there is nothing of it, and the reason is told
    assert not list(reader.chunks())
    assert any(why in problem for problem in reader.problems), reader.problems


def test_reading_a_log_of_such_frames_takes_bounded_memory(tmp_path: Path) -> None:
    # GIVEN a log that holds all of them
    data = b"".join(log_with(*bomb) for bomb, _ in list(BOMBS.values())[:1])
    tag, at = struct.unpack_from("<I", data, 24 + 12)[0], 3
    for bomb, _ in list(BOMBS.values())[1:]:
        head: dict[str, Any] = {"sequence": at, "tag": tag, "codec": Codec.ZSTD, "raw": bomb[1]}
        data += encode_frame(bomb[2], bomb[0], **head) + bomb[0]
        at += 1
    path = tmp_path / "bombs.biotrail"
    path.write_bytes(data)
    # WHEN it is read with little memory
    done = subprocess.run(
        [sys.executable, "-c", INFO, str(MEMORY), str(path)],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    # THEN it tells what it left out
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("left out") >= len(BOMBS)
