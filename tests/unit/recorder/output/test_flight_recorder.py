# SPDX-License-Identifier: Apache-2.0
"""The flight recorder: only the newest stays, each dump is a whole log that says why."""

import ctypes
import io
import os
import re
import signal
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zstandard
from click.testing import CliRunner

from biotrail.cli import info
from biotrail.cli.options.record_keeping import amount, limit, together, trigger
from biotrail.recorder.filters.triggers import Hit, Pressure, Triggers
from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.log.packing import Packer
from biotrail.recorder.log.writer import _JOINED
from biotrail.recorder.log.writer import LogWriter as FileLogWriter
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import FlightBuffer, Limit
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session.dumps import FileOrders
from biotrail.recorder.session.session import Status, record
from tests.support.chunks_by_hand import CLOCK, HEADER, PromptWriter, clock, queue, task, times
from tests.support.cli_runner import Cli
from tests.support.fake_probes import FakeProbes, options
from tests.support.log_samples import HEADER as NAMED_HEADER
from tests.support.record_command import wait_until

# A flight recorder's buffer in a directory, filled by hand: a chunk a second.

SECOND = 1_000_000_000


def kept(directory: Path, most: Limit, max_files: int | None = None) -> FlightBuffer:
    series = Series(str(directory / "dump.biotrail"), max_files)
    return FlightBuffer(series, HEADER, most, lambda: [], 1)


def fill(log: FlightBuffer, seconds: range) -> None:
    """A chunk a second with one Q in its middle."""
    for second in seconds:
        at = second * SECOND
        log.write_chunk([Segment(0, 0, 0, queue(at - SECOND // 2))], clock(at))


def end(**others: Any) -> dict[str, Any]:
    return {"reason": "test", "stopped": CLOCK, **others}


# The flight recorder: only the newest stays, each dump is a whole log that says why.


def test_dumps_go_on_when_the_writer_is_quicker_than_the_order(tmp_path: Path) -> None:
    # GIVEN a flight recorder, and a writer that runs each job before it is waited for
    log = kept(tmp_path, Limit(seconds=3))
    flight = FileOrders(log, cast(WriterThread, PromptWriter(log)))
    # WHEN a dump is ordered THEN the next one can be, when that is written
    for number in (1, 2):
        flight.asked_by = "SIGUSR1"
        assert flight.due(0)
        flight.order(clock(2000 * number))
        assert log.messages.get(timeout=60).startswith("wrote ")
        wait_until(lambda: not log.busy, "the dump's end")


def test_a_dump_covers_the_time_up_to_its_moment(tmp_path: Path) -> None:
    # GIVEN I/O until second 10 WHEN the last five seconds are written at second 12
    log = kept(tmp_path, Limit(seconds=5))
    fill(log, range(1, 11))
    path, _ = dump(log, 12)
    # THEN the I/O of the last five is there, but for the step of a second, and the rest is not
    assert times(str(path)) == [n * SECOND - SECOND // 2 for n in range(7, 11)]
    assert period(path) == (6.5, 12.0, 5.5)
    # GIVEN a chunk that is too large for its events to be counted
    many = b"".join(queue(13 * SECOND + number) for number in range(56)).ljust(4096, b"\0")
    log.write_chunk([Segment(0, 0, 0, many * 9)], clock(14 * SECOND))
    # WHEN it is dumped THEN the number is said to be about right
    _, said = dump(log, 14)
    assert re.search(r": the last [\d.]+ s, about [\d,]+ events \(", said)


def test_only_the_newest_is_kept_with_the_names_it_needs(tmp_path: Path) -> None:
    # GIVEN a task's name in the first chunk, and more chunks than shall be kept
    log = kept(tmp_path, Limit(seconds=3))
    log.write_note("cgroups", {"7": "/a"})
    log.write_chunk([Segment(0, 0, 0, task(1100, 42, b"fio"))], clock(2000))
    loss = {"start": 1, "end": 2, "cpu": 0, "level": 0, "kind": 1, "count": 5}
    late = {**loss, "start": 9 * SECOND, "end": 10 * SECOND}
    log.write_loss([loss])
    fill(log, range(1, 11))
    log.write_loss([late])
    # WHEN it is written out
    log.close(end())
    # THEN the last three seconds are there, with the name, the cgroup and their losses alone
    (path,) = log.series.files
    reader = LogReader(path)
    assert times(path) == [n * SECOND - SECOND // 2 for n in range(7, 11)]
    assert len(times(path, Kind.TASK)) == 1
    assert ("cgroups", {"7": "/a"}) in reader.notes
    assert reader.losses == [late]
    # AND the log is complete, says why it was written, and no event is older than its header
    assert not reader.interrupted
    assert reader.header["kept"]["reason"] == "test"
    assert reader.header["clocks"]["monotonic"] <= times(path)[0]
    assert reader.header["clocks"]["monotonic"] >= 6 * SECOND


def test_memory_is_limited_by_size_and_dumps_by_number(tmp_path: Path) -> None:
    # GIVEN a limit of a few chunks' bytes
    log = kept(tmp_path, Limit(bytes=1000))
    # WHEN many chunks come
    fill(log, range(1, 100))
    # THEN they are within the limit, the newest among them
    assert 0 < log.size <= 1000
    log.close(end())
    assert times(log.series.files[0])[-1] == 99 * SECOND - SECOND // 2
    # GIVEN a series of at most two dumps
    (tmp_path / "two").mkdir()
    log = kept(tmp_path / "two", Limit(seconds=3), max_files=2)
    fill(log, range(1, 3))
    # WHEN four are made
    for _ in range(3):
        log.dump({"reason": "x"})
        while log.busy:
            time.sleep(0.001)
    log.close(end())
    # THEN the newest two are there
    numbers = [LogReader(path).header["kept"]["number"] for path in log.series.files]
    assert (numbers, len(os.listdir(tmp_path / "two"))) == ([3, 4], 2)


def test_a_dump_that_fails_is_told_and_the_next_one_works(tmp_path: Path) -> None:
    # GIVEN a directory that vanished after recording began
    directory = tmp_path / "gone"
    directory.mkdir()
    log = kept(directory, Limit(seconds=3))
    fill(log, range(1, 3))
    directory.rmdir()
    # WHEN a dump is asked for, and another one when the directory is back
    log.dump({"reason": "first"})
    while log.busy:
        time.sleep(0.001)
    said = log.messages.get()
    assert said.startswith("a dump failed")
    assert said.endswith("; none of its 2 events (the last 2.0 s) is in it")
    directory.mkdir()
    log.close(end())
    # THEN the second has all
    assert times(log.series.files[0]) == [SECOND // 2, 3 * SECOND // 2]
    # AND a failing last dump is an error
    other = kept(directory / "not there", Limit(seconds=3))
    with pytest.raises(OutputError, match="directory does not exist"):
        other.close(end())


def test_sigusr1_and_the_end_write_what_is_kept(tmp_path: Path) -> None:
    # GIVEN a flight recorder that is sent SIGUSR1 while it records
    probes, seen = FakeProbes(), list[Status]()

    def ask() -> None:
        if probes.given == 5:
            os.kill(os.getpid(), signal.SIGUSR1)

    probes.at_drain = ask
    # WHEN it records and ends
    some = options(tmp_path / "x", duration=0.5, keep=Limit(seconds=60))
    summary = record(some, seen.append, probes=probes)
    # THEN there are two dumps, the user was told, and the last has every record
    assert len(summary.files) == 2
    reasons = [LogReader(path).header["kept"]["reason"] for path in summary.files]
    assert reasons == ["asked for (SIGUSR1)", "duration"]
    assert sum(status.note.startswith("wrote ") for status in seen) == 2
    assert times(summary.files[1]) == list(range(1, probes.given + 1))


def test_a_trigger_dumps_once_and_is_told_in_the_log(tmp_path: Path) -> None:
    # GIVEN triggers that fire at each poll, and a long distance between dumps
    probes = FakeProbes()

    def fire() -> None:
        probes.hits = [Hit("slow", time.monotonic_ns(), 5, 8, 70_000_000)]

    probes.at_drain = fire
    # WHEN it records
    some = options(
        tmp_path / "x", duration=0.5, keep=Limit(seconds=60), triggers=Triggers(1), after=0.05
    )
    summary = record(some, probes=probes)
    # THEN one dump was made for them, which holds the first, and what came behind it
    first, last = (LogReader(path).header["kept"] for path in summary.files)
    assert first["reason"] == "trigger slow"
    assert (first["trigger"]["dev"], first["trigger"]["value"]) == (5, 70_000_000)
    assert (first["number"], last["number"], last["reason"]) == (1, 2, "duration")
    # AND those that came after it within the distance are counted, and told
    assert first["triggers_let_pass"] == 0
    assert last["triggers_let_pass"] == summary.triggers_let_pass > 0
    shown = CliRunner().invoke(info.command, [summary.files[1]]).output
    assert f"no dump       at least {summary.triggers_let_pass} trigger" in shown


def test_amounts_and_triggers_are_understood() -> None:
    # GIVEN what users write WHEN it is converted THEN sizes, times and triggers come out
    amounts = [amount(text) for text in ("1G", "512MiB", "10min", "30s")]
    assert amounts == [1 << 30, 512 << 20, 600.0, 30.0]
    assert limit(amounts) == Limit(512 << 20, 30.0)
    assert limit(()) is None
    given = [trigger(t) for t in ("slow=50ms", "failed", "slow=2s")]
    assert together(given) == Triggers(slow_ns=50_000_000, failed=True)
    assert trigger("depth=128") == Triggers(depth=128)
    assert trigger("stuck=10s") == Triggers(stuck_ns=10_000_000_000)
    cgroup = "/a.slice/x@1.service"
    for text, pressure in {
        "some-io:150ms/1s": Pressure(150_000, 1_000_000),
        f"full-io:1500us/500ms@{cgroup}": Pressure(1500, 500_000, True, cgroup),
    }.items():
        assert trigger(f"pressure={text}") == Triggers(pressure=(pressure,))
        assert str(pressure) == text


@pytest.mark.parametrize(
    "bad",
    [
        *("slow", "slow=", "slow=0s", "failed=1", "depth=-1", "x", "depth=²", "stuck", "stuck=1ms"),
        *("pressure", "pressure=io", "pressure=cpu:1ms/1s", "pressure=io:1ms", "pressure=io:x/1s"),
        *("pressure=io:1ms/20s", "pressure=io:1ms/1ms", "pressure=io:2s/1s", "pressure=io:1ms/1s@"),
    ],
)
def test_bad_triggers_are_usage_errors(bad: str) -> None:
    # GIVEN no trigger WHEN it is converted THEN a usage error says what to write
    words = r"slow=50ms|not a duration|not between|stuck=1s|STALL|0.5 to 10 s|longer than"
    with pytest.raises(Exception, match=words):
        trigger(bad)


@pytest.mark.parametrize("bad", ["30", "x", "0s", "-1s", "10parsecs", ""])
def test_bad_amounts_are_usage_errors(bad: str) -> None:
    # GIVEN no amount WHEN it is converted THEN it is refused
    with pytest.raises(Exception, match=r"unit|duration|size|not between"):
        amount(bad)


# The period of a flight recorder's dump: by the clock, whether or not there was I/O.


def dump(log: FlightBuffer, at: int) -> tuple[Path, str]:
    """A dump at that second, and what was said of it."""
    log.dump({"reason": "asked for"}, clock(at * SECOND))
    while log.busy:
        time.sleep(0.001)
    return Path(log.series.files[-1]), log.messages.get(timeout=60)


def period(path: Path) -> tuple[float, float, float]:
    """(begin, end, length) of what the dump says that it covers, in seconds."""
    reader = LogReader(path)
    assert reader.end is not None
    begin, stopped = reader.header["clocks"], reader.end["stopped"]
    length = float(reader.header["kept"]["seconds"])
    return begin["monotonic"] / SECOND, stopped["monotonic"] / SECOND, length


def test_a_dump_after_an_idle_time_holds_nothing_that_is_older(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    # AND info names the period of an empty one
    done = Cli(capsys)("info", path)
    assert done.status == 0
    assert "the last 5 s" in done.out


def test_what_is_kept_covers_all_time_since_the_last_that_was_let_go(tmp_path: Path) -> None:
    # GIVEN a flight recorder that goes by size alone, from second 0 on
    log = kept(tmp_path, Limit(bytes=1 << 20))
    fill(log, range(1, 4))
    # WHEN it is written out long after the last I/O
    path, _ = dump(log, 40)
    # THEN all I/O is there, and the period is all that time
    assert len(times(str(path))) == 3
    assert period(path)[1] == 40.0
    assert period(path)[2] == pytest.approx(40.0, abs=1e-3)
    # GIVEN a flight recorder of a minute that has recorded for two seconds
    (tmp_path / "short").mkdir()
    log = kept(tmp_path / "short", Limit(seconds=60))
    fill(log, range(1, 3))
    # WHEN it ends THEN its dump covers two seconds
    log.close(end(stopped=clock(2 * SECOND)))
    assert period(Path(log.series.files[0]))[2] == pytest.approx(2.0, abs=1e-3)


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
    assert len(times(log.series.files[0])) == 4


# Kept memory, and frames that are written in two parts.


def test_a_machine_without_mallopt_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    keep_freed_memory()


@pytest.mark.parametrize("level", [1, 2, 3, 19])
def test_every_level_compresses_to_what_any_zstd_reads(level: int):
    data = np.arange(1 << 18, dtype="<u4").tobytes()
    assert zstandard.ZstdDecompressor().decompress(Packer(level).compress(data)[0]) == data


@pytest.mark.parametrize("size", [_JOINED - 100, _JOINED + 100])
def test_a_frame_s_size_is_counted_in_one_part_or_two(size: int):
    # GIVEN a log that stores without compression
    stream = io.BytesIO()
    log = FileLogWriter(stream, NAMED_HEADER, level=0)
    before = log.size
    # WHEN a note of about that size is written
    log.write_note("devices", {"text": "x" * size})
    # THEN the log is as long as it says
    assert log.size - before > size
    assert log.size == len(stream.getvalue())
