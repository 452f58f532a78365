# SPDX-License-Identifier: Apache-2.0
"""A log that is still being written, and into which nothing is written for a while."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from biotrail.converters.analysis.live.live import LiveTrace
from biotrail.converters.inputs import backlog
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.recorder.log import LogReader, LogWriter
from tests.support.light_logs import Light, write_log

MILLISECOND = 1_000_000
REQUESTS = 5


def test_the_newest_io_is_given_out_after_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a light log in a pipe that stays open, whose requests wait a second for earlier ones
    lights = [
        Light(at * MILLISECOND, start=at * MILLISECOND - 9000, issue=at * MILLISECOND - 8000)
        for at in range(1, REQUESTS + 1)
    ]
    path = write_log(tmp_path / "a.biotrail", lights)
    with LogReader(path) as reader:
        header, chunks = reader.header, list(reader.chunks())
    written = max(chunk.clock["monotonic"] for chunk in chunks)
    out, into = os.pipe()
    with os.fdopen(out, "rb") as stream, os.fdopen(into, "wb") as pipe:
        writer = LogWriter(pipe, header)
        for chunk in chunks:
            writer.write_chunk(chunk.segments, chunk.clock)
        pipe.flush()
        # WHEN nothing comes, until the last chunk is old enough
        age = backlog.QUIET_NS + backlog.SILENCE_NS
        clock = SimpleNamespace(monotonic_ns=lambda: written + age)
        monkeypatch.setattr(backlog, "time", clock)
        source = LiveSource(stream)
        source.start()
        windows = LiveTrace(source).windows()
        done = 0
        while done < REQUESTS:
            done += int((next(windows).bios.complete >= 0).sum())
        # THEN all I/O has been given out, though the log goes on
        assert source._thread.is_alive()
        # AND the same silence is told once
        assert source._silence() is None
        pipe.close()
        assert sum(int((window.bios.complete >= 0).sum()) for window in windows) == 0
