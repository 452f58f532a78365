# SPDX-License-Identifier: Apache-2.0
"""Kept memory, and frames that are written in two parts."""

import ctypes
import io

import pytest
import zstandard

from biotrail.recorder.log.packing import _compressor
from biotrail.recorder.log.writer import _JOINED, LogWriter
from biotrail.recorder.session.session import keep_freed_memory
from tests.support.log_samples import HEADER


def test_a_machine_without_mallopt_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    keep_freed_memory()


@pytest.mark.parametrize("level", [1, 2, 3, 19])
def test_every_level_compresses_to_what_any_zstd_reads(level: int):
    data = bytes(range(256)) * 4096
    assert zstandard.ZstdDecompressor().decompress(_compressor(level).compress(data)) == data


@pytest.mark.parametrize("size", [_JOINED - 100, _JOINED + 100])
def test_a_frame_s_size_is_counted_in_one_part_or_two(size: int):
    # GIVEN a log that stores without compression
    stream = io.BytesIO()
    log = LogWriter(stream, HEADER, level=0)
    before = log.size

    # WHEN a note of about that size is written
    log.write_note("devices", {"text": "x" * size})

    # THEN the log is as long as it says
    assert log.size - before > size
    assert log.size == len(stream.getvalue())
