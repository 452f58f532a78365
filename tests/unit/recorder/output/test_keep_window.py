# SPDX-License-Identifier: Apache-2.0
"""The period of a flight recorder's dump: by the clock, whether or not there was I/O."""

import os
import signal
import time
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.output.flight_buffer import FlightBuffer
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.session.session import record
from tests.support.chunks_by_hand import clock, times
from tests.support.cli_runner import Cli
from tests.support.fake_probes import FakeProbes, options
from tests.support.flight_buffers import SECOND, end, fill, kept


def dump(log: FlightBuffer, at: int) -> tuple[Path, str]:
    """A dump at that second, and what was said of it."""
    log.dump({"reason": "asked for"}, clock(at * SECOND))
    while log.busy:
        time.sleep(0.001)
    return Path(log.files[-1]), log.messages.get(timeout=60)


def period(path: Path) -> tuple[float, float, float]:
    """(begin, end, length) of what the dump says that it covers, in seconds."""
    reader = LogReader(path)
    assert reader.end is not None
    begin, stopped = reader.header["clocks"], reader.end["stopped"]
    length = float(reader.header["kept"]["seconds"])
    return begin["monotonic"] / SECOND, stopped["monotonic"] / SECOND, length


def test_a_dump_after_an_idle_time_holds_nothing_that_is_older(tmp_path: Path) -> None:
    # GIVEN a flight recorder of five seconds, and I/O until second 10
    log = kept(tmp_path, Limit(seconds=5))
    fill(log, range(1, 11))
    loss = {"start": 9 * SECOND, "end": 10 * SECOND, "cpu": 0, "level": 0, "kind": 1, "count": 5}
    log.write_loss([loss])
    # WHEN it is written out at second 50
    path, said = dump(log, 50)
    # THEN it holds nothing, and says that of the five seconds before
    assert times(str(path)) == []
    assert LogReader(path).losses == []
    assert period(path) == (45.0, 50.0, 5.0)
    assert said == f"wrote {path}: the last 5.0 s, no event in them (asked for)"
    # AND what comes after is recorded as ever
    fill(log, range(51, 53))
    later, said = dump(log, 53)
    assert times(str(later)) == [50 * SECOND + SECOND // 2, 51 * SECOND + SECOND // 2]
    assert period(later) == (48.0, 53.0, 5.0)
    assert "the last 5.0 s, 2 events" in said


def test_a_dump_covers_the_time_up_to_its_moment(tmp_path: Path) -> None:
    # GIVEN I/O until second 10 WHEN the last five seconds are written at second 12
    log = kept(tmp_path, Limit(seconds=5))
    fill(log, range(1, 11))
    path, _ = dump(log, 12)
    # THEN the I/O of the last five is there, but for the step of a second, and the rest is not
    assert times(str(path)) == [n * SECOND - SECOND // 2 for n in range(7, 11)]
    assert period(path) == (6.5, 12.0, 5.5)


def test_what_is_kept_by_size_covers_all_time_since_the_last_that_was_let_go(
    tmp_path: Path,
) -> None:
    # GIVEN a flight recorder that goes by size alone, from second 0 on
    log = kept(tmp_path, Limit(bytes=1 << 20))
    fill(log, range(1, 4))
    # WHEN it is written out long after the last I/O
    path, _ = dump(log, 40)
    # THEN all I/O is there, and the period is all that time
    assert len(times(str(path))) == 3
    assert period(path)[1] == 40.0
    assert period(path)[2] == pytest.approx(40.0, abs=1e-3)


def test_a_short_recording_claims_no_more_than_it_has_seen(tmp_path: Path) -> None:
    # GIVEN a flight recorder of a minute that has recorded for two seconds
    log = kept(tmp_path, Limit(seconds=60))
    fill(log, range(1, 3))
    # WHEN it ends THEN its dump covers two seconds
    log.close(end(stopped=clock(2 * SECOND)))
    assert period(Path(log.files[0]))[2] == pytest.approx(2.0, abs=1e-3)


def test_an_idle_recording_is_dumped_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder that keeps 0.2 s, whose probes give a few records and then nothing
    monkeypatch.setattr("biotrail.recorder.session.intake.CHUNK_NS", 1)
    probes, last = FakeProbes(), time.monotonic_ns()
    give = probes.drain

    def drain() -> list[Segment]:
        nonlocal last
        if probes.given < 5:
            last = time.monotonic_ns()
            return give()
        # WHEN a second has passed since, it is ended
        if time.monotonic_ns() - last > SECOND:
            os.kill(os.getpid(), signal.SIGINT)
        return []

    probes.drain = drain  # type: ignore[method-assign]
    summary = record(options(tmp_path / "x", keep=Limit(seconds=0.2)), probes=probes)
    # THEN the last dump is empty, and covers what was asked for
    assert probes.given == 5
    assert times(summary.files[-1]) == []
    assert LogReader(summary.files[-1]).header["kept"]["seconds"] == pytest.approx(0.2)


def test_an_empty_dump_is_told_by_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN an empty dump
    path, _ = dump(kept(tmp_path, Limit(seconds=5)), 50)
    # WHEN it is looked at THEN its period is named
    done = Cli(capsys)("info", path)
    assert done.status == 0
    assert "the last 5 s" in done.out


def test_a_last_dump_that_fails_is_told_once_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a flight recorder with ten events, and a disk that is full after a few chunks
    log = kept(tmp_path, Limit(seconds=60))
    fill(log, range(1, 11))
    write = LogWriter.write_packed

    def writing(self: LogWriter, chunk: object) -> None:
        if self.chunks == 4:
            raise OSError(28, "No space left on device")
        write(self, chunk)  # type: ignore[arg-type]

    monkeypatch.setattr(LogWriter, "write_packed", writing)
    # WHEN it ends
    with pytest.raises(OutputError, match="no space left") as caught:
        log.close(end(stopped=clock(10 * SECOND)))
    # THEN the error alone says so, by the file's name, and how much of it is missing
    assert log.messages.empty()
    assert str(tmp_path / "dump-") in str(caught.value)
    assert ".part" not in str(caught.value)
    assert "about 6 of its 10 events" in str(caught.value)
    assert len(times(log.files[0])) == 4
