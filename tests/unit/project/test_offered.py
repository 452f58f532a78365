# SPDX-License-Identifier: Apache-2.0
"""The pure part of benchmarks/offered.py."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.offered_figures import Run, Setting, Written, complaints, line, read_log, summarize
from benchmarks.offered_load import Offer
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import Kind
from tests.support.log_samples import START, chunk_segments, clock, record

SECOND = 1_000_000_000
RING = 1 << 20
WINDOW = {"start": START, "end": START + 9, "cpu": 0, "level": 0}


def run(offered: int, written: int, lost: int, cpu_seconds: float = 0.5) -> Run:
    offer = Offer({Kind.Q: offered}, SECOND, RING // 4)
    return Run(offer, Written({Kind.Q: written}, {Kind.Q: lost}, 10 * written, cpu_seconds))


def write_log(path: Path, lost: dict[str, int], windows: list[dict[str, int]]) -> None:
    with open(path, "wb") as stream:
        log = LogWriter(stream, {"clocks": {"monotonic": START}, "devices": []})
        log.write_chunk([Segment(0, 0, 0, record(Kind.TASK, START))], clock(START))
        for number in range(3):
            log.write_chunk(chunk_segments(number), clock(START + number))
        log.write_loss(windows)
        end: dict[str, Any] = {"lost": lost, "recorder": {"cpu_seconds": 1.25, "max_rss_bytes": 1}}
        log.close({**end, "clocks": clock(START + 9)})


def test_rows_are_medians_of_runs_and_totals_of_events():
    # GIVEN three runs, one of them disturbed
    runs = [run(1000, 1000, 0, 0.2), run(1000, 1000, 0, 0.3), run(1000, 400, 600, 0.9)]

    # WHEN they are summed up
    row = summarize(Setting(1000, 1, RING), runs)

    # THEN the middle one counts, what was lost is not forgotten, and all is accounted for
    assert (row.offered, row.written, row.lost, row.runs_that_lost) == (3000, 2400, 600, 1)
    assert row.reached == pytest.approx(1000)
    assert (row.cpu, row.cpu_ns) == pytest.approx((30, 300_000))
    assert (row.bytes_per_event, row.fullest) == pytest.approx((10, 25))
    assert row.unexplained == {}
    assert list(complaints([row])) == []
    assert "20.00" in line(row)
    assert "1/3" in line(row)


def test_what_a_log_does_not_account_for_is_said():
    # GIVEN one run with an event too few, and one with an event too many
    runs = [run(1000, 900, 99), run(1000, 900, 101)]

    # WHEN they are summed up
    row = summarize(Setting(1000, 0, RING), runs)

    # THEN one does not hide the other
    assert row.unexplained == {Kind.Q: 2}
    assert list(complaints([row])) == ["level 0, 1,000/s: not accounted for: 2 of kind 1"]


def test_a_log_is_counted_record_by_record(tmp_path: Path):
    # GIVEN a log of three times Q, s, D and C, with a task's name and a loss
    path = tmp_path / "a.biotrail"
    write_log(path, {"14": 3}, [{**WINDOW, "kind": 14, "count": 3}])

    # WHEN it is read
    found = read_log(path)

    # THEN each event counts and the name does not
    assert found.written == dict.fromkeys((Kind.Q, Kind.START, Kind.D, Kind.C), 3)
    assert found.lost == {Kind.C: 3}
    assert (found.size, found.cpu_seconds) == (path.stat().st_size, 1.25)


def test_a_log_whose_two_accounts_of_its_losses_differ_is_refused(tmp_path: Path):
    # GIVEN a log whose end says more than its windows
    path = tmp_path / "a.biotrail"
    write_log(path, {"14": 4}, [{**WINDOW, "kind": 14, "count": 3}])

    # WHEN it is read, THEN that is said
    with pytest.raises(RuntimeError, match=r"its windows lost \{14: 3\}, its end says \{14: 4\}"):
        read_log(path)
