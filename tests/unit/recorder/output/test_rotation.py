# SPDX-License-Identifier: Apache-2.0
"""Rotation: every file is a whole log, nothing is lost between two, only our files go."""

import os
import re
from pathlib import Path
from typing import cast

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.pipeline import Trace
from biotrail.recorder.accounting.loss import NOT_ONE_CPU
from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.log.names import NO_CPU, Names
from biotrail.recorder.output.series import shifted
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.records import Q_TURN_SHIFT, Kind
from biotrail.recorder.session.dumps import FileOrders
from biotrail.recorder.session.session import record
from tests.support.chunks_by_hand import (
    CLOCK,
    PromptWriter,
    clock,
    name_records,
    queue,
    rotating,
    task,
    times,
)
from tests.support.fake_probes import FakeProbes, options
from tests.support.stack_logs import record as record_of


def test_every_file_repeats_what_it_needs(tmp_path: Path) -> None:
    # GIVEN a rotating log that was told a task, a cgroup and a device in its first file
    log = rotating(tmp_path)
    log.write_note("cgroups", {"7": "/a"})
    log.write_note("devices", {"devices": [{"dev": 5, "name": "sda"}]})
    log.write_chunk([Segment(0, 0, 0, task(1100, 42, b"fio") + queue(1200))], clock(2000))
    # WHEN two more files follow, the second file's first event older than the border
    log.rotate()
    log.write_chunk([Segment(1, 0, 0, queue(1990))], clock(3000))
    log.rotate()
    log.write_chunk([Segment(0, 0, 80, queue(3500))], clock(4000))
    log.close({"reason": "test", "stopped": clock(4000)})
    # THEN each has its own id, number and clock, no event is older than its header, and each
    # has the task, the cgroup and the device
    readers = [LogReader(path) for path in log.series.files]
    assert len({r.header["log_id"] for r in readers}) == 3
    assert [r.header["series"]["number"] for r in readers] == [1, 2, 3]
    assert [r.header["clocks"]["monotonic"] for r in readers] == [1000, 1990, 3000]
    assert readers[1].header["clocks"]["realtime"] == 3990
    for reader, path in zip(readers[1:], log.series.files[1:], strict=True):
        first = next(iter(reader.chunks()))
        assert first.segments[0].cpu == NO_CPU
        assert len(times(path, Kind.TASK)) == 1
        assert reader.header["devices"] == [{"dev": 5, "name": "sda"}]
        assert ("cgroups", {"7": "/a"}) in reader.notes
        assert not reader.interrupted
    # AND the last one's end has the whole run's facts too
    assert readers[1].end is not None
    assert readers[1].end["reason"] == "rotated"
    assert readers[2].end is not None
    assert readers[2].end["run"]["reason"] == "test"


def test_a_call_that_goes_on_is_repeated(tmp_path: Path) -> None:
    # GIVEN a rotating log in whose first file two calls have their CALL, one of them long ago
    log = rotating(tmp_path)
    ages = {42: 5_000_000, 43: 1_000}
    told = 20_000_000
    records = [
        (told - ago, made)
        for tid, ago in ages.items()
        for made in (
            record_of(Kind.Q, told - ago, bio=tid << 8, tid=tid),
            record_of(Kind.CALL, told - ago, bio=tid << 8, number=tid, turn=7),
        )
    ]
    data = b"".join(made for _, made in sorted(records, key=lambda one: one[0]))
    log.write_chunk([Segment(0, 0, 0, data)], clock(told + 1))
    # WHEN the next file begins when one CALL is too old, and has a bio of each call
    border = told + 6_000_000
    log.rotate(clock(border))
    refers = 7 << Q_TURN_SHIFT
    bios = [
        record_of(Kind.Q, border + at, bio=1 << 12, tid=tid, flags=refers)
        for at, tid in enumerate(ages, start=1)
    ]
    log.write_chunk([Segment(0, 0, len(data), b"".join(bios))], clock(border + 9))
    log.close({"reason": "test", "stopped": clock(border + 10)})
    # THEN a reader of that file alone knows the other call, which the file repeats at its beginning
    (first, *_) = LogReader(log.series.files[1]).chunks()
    assert first.segments[-1].cpu == NO_CPU
    assert times(log.series.files[1], Kind.CALL) == [border]
    events = Events.join([found for found, _ in Trace(log.series.files[1]).events()])
    assert events.path is not None
    assert events.path[events.rows(Kind.Q)]["call"].tolist() == [NO_CALL, 43]


def test_an_idle_file_ends_where_the_next_begins(tmp_path: Path) -> None:
    # GIVEN a rotating log whose last event was at 1200
    log = rotating(tmp_path)
    log.write_chunk([Segment(0, 0, 0, queue(1200))], clock(2000))
    # WHEN nothing happens up to a rotation at 9000, and the next event is at 9500
    log.rotate(clock(9000))
    log.write_chunk([Segment(0, 0, 48, queue(9500))], clock(10000))
    log.close({"reason": "test", "stopped": clock(10000)})
    # THEN the first file covers the idle time, and the second begins at its end
    first, second = (LogReader(path) for path in log.series.files)
    assert first.end is not None
    assert first.end["stopped"] == clock(9000)
    assert second.header["clocks"] == clock(9000)
    # GIVEN a reading WHEN it is moved 400 ns back THEN all three clocks are, its uncertainty stays
    moved = {"monotonic": 600, "boottime": 1600, "realtime": 2600, "uncertainty": 1}
    assert shifted(CLOCK, 600) == moved


def test_rotation_goes_on_when_the_writer_is_quicker_than_the_order(tmp_path: Path) -> None:
    # GIVEN a log that is due at once, and a writer that runs each job before it is waited for
    log = rotating(tmp_path)
    orders = FileOrders(log, cast(WriterThread, PromptWriter(log)))
    # WHEN a file is ordered THEN the next file can be ordered too
    assert orders.due(0)
    orders.order(clock(2000))
    log.write_chunk([Segment(0, 0, 0, queue(2500))], clock(3000))
    assert orders.due(0)


def test_losses_are_told_in_the_file_whose_time_they_fall_into(tmp_path: Path) -> None:
    # GIVEN a file that lost five D, and a loss that is told between two files
    log = rotating(tmp_path)
    window = {"start": 1, "end": 2, "cpu": 0, "level": 3, "kind": int(Kind.D), "count": 5}
    log.write_loss([window])
    log.rotate()
    log.write_loss([{**window, "cpu": NOT_ONE_CPU, "count": 2}])
    # WHEN the log ends
    log.close({"reason": "test", "stopped": CLOCK})
    # THEN each end counts its own
    first, second = (LogReader(path) for path in log.series.files)
    assert first.end is not None
    assert (first.end["lost"], first.end["too_deep"]) == ({str(int(Kind.D)): 5}, 5)
    assert second.end is not None
    assert (second.end["lost"], second.end["skipped"]) == ({}, {"D": 2})
    assert second.losses == [{**window, "cpu": NOT_ONE_CPU, "count": 2}]


def test_only_files_of_this_run_are_deleted(tmp_path: Path) -> None:
    # GIVEN a foreign file of a like name, and a series of which two files shall be kept
    foreign = tmp_path / "x-20200101T000000Z-000001.biotrail"
    foreign.write_bytes(b"not ours")
    log = rotating(tmp_path, max_files=2)
    # WHEN somebody puts another file in the place of the first, and four files are made
    first = Path(log.series.files[0])
    first.unlink()
    first.write_bytes(b"not ours either")
    for number in range(3):
        log.rotate()
        log.write_chunk([Segment(0, 0, 48 * number, queue(2000 + number))], clock(3000 + number))
    log.close({"reason": "test", "stopped": clock(4000)})
    # THEN ours are deleted, the others not, and what is kept is told
    assert foreign.read_bytes() == b"not ours"
    assert first.read_bytes() == b"not ours either"
    assert (len(log.series.files), log.series.deleted) == (2, 1)
    assert {foreign.name, first.name, *(Path(p).name for p in log.series.files)} == {
        *os.listdir(tmp_path)
    }


def test_names_keep_the_newest_of_each_slot() -> None:
    # GIVEN chunks whose rings were drained one after the other
    names = Names()
    names.update(name_records([Segment(0, 0, 0, task(10, 1, b"old") + task(30, 1, b"new"))]))
    # WHEN an older name of the thread comes later, and another thread takes a slot
    late = task(20, 1, b"late") + queue(21) + task(22, 2, b"two")
    names.update(name_records([Segment(1, 0, 0, late)]))
    names.update(name_records([Segment(1, 0, len(late), task(40, 2 + 16384, b"other"))]))
    # THEN the newest is kept, given the time that was asked for
    (segment,) = names.segments(99)
    rows = name_records([segment]).tasks
    assert sorted(row.tobytes()[16:].rstrip() for row in rows) == [b"new", b"other"]
    assert {int(row[0]) & 0xFF for row in rows} == {99}


def test_a_recording_rotates_and_loses_nothing(tmp_path: Path) -> None:
    # GIVEN probes that give a record a poll
    probes = FakeProbes()
    # WHEN a recording rotates often
    summary = record(
        options(tmp_path / "x.biotrail", duration=0.5, rotate=Limit(seconds=0.05)), probes=probes
    )
    # THEN its files, read in order, hold every record once, and name themselves by time
    assert len(summary.files) > 1
    found = [at for path in summary.files for at in times(path)]
    assert found == list(range(1, probes.given + 1))
    pattern = r"x-\d{8}T\d{6}Z-\d{6}\.biotrail"
    assert all(re.fullmatch(pattern, Path(path).name) for path in summary.files)
    assert all(not LogReader(path).interrupted for path in summary.files)


def test_a_removed_file_is_followed_by_a_new_one_or_ends_a_plain_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a rotating recording whose first file is removed at once
    probes = FakeProbes()

    def remove() -> None:
        if probes.given == 3:
            for name in os.listdir(tmp_path):
                (tmp_path / name).unlink()

    probes.at_drain = remove
    # WHEN it goes on
    record(options(tmp_path / "x", duration=0.3, rotate=Limit(seconds=60)), probes=probes)
    # THEN a second file has what came since
    (left,) = os.listdir(tmp_path)
    assert left.endswith("-000002.biotrail")
    assert times(str(tmp_path / left))[-1] == probes.given
    # GIVEN a recording of one file, which is removed
    monkeypatch.setattr("biotrail.recorder.session.running.NOTES_NS", 10_000_000)
    probes, path = FakeProbes(), tmp_path / "y"
    probes.at_drain = lambda: path.unlink(missing_ok=True)
    # WHEN it notices THEN it has stopped, with an error that says so
    summary = record(options(path, duration=60), probes=probes)
    assert summary.reason == "output removed"
    assert isinstance(summary.error, OutputError)
    assert "was removed" in str(summary.error)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_events": 5}, "number of events"), ({"max_bytes": 6000}, "size of the log")],
)
def test_a_recording_ends_at_its_limit(tmp_path: Path, limit: dict[str, int], reason: str) -> None:
    # GIVEN a limit on events or bytes, far below what a minute gives
    probes, path = FakeProbes(), tmp_path / "x"
    # WHEN it is recorded
    summary = record(options(path, duration=60, level=0, **limit), probes=probes)
    # THEN it ended for that reason, near the limit
    assert summary.reason == reason
    assert limit.get("max_events", 0) <= summary.events <= limit.get("max_events", 1000) + 1
