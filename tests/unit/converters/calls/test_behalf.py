# SPDX-License-Identifier: Apache-2.0
"""Bios that a worker queued for somebody: for whom, and what is shown of both."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from biotrail.converters.calls.behalf import set_whom
from biotrail.converters.lifecycles.arrow.tables import bios_table
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import MS, WITH_REASONS, PathLog

READER, WORKER, OTHER = 42, 7, 8
LIMITED, ROOT = 11, 1
"""Ids of cgroups."""
LIMIT = {"cgroup": LIMITED, "bps": 2 << 20, "iops": (1 << 32) - 1, "limits": 1}
NOTES = {"cgroups": {str(LIMITED): "/limited", str(ROOT): "/"}}


def log() -> PathLog:
    made = PathLog()
    made.task(READER, b"fio")
    made.task(WORKER, b"kworker/0:1")
    made.task(OTHER, b"kworker/1:0")
    return made


def written(made: PathLog, place: Path) -> Path:
    return made.write(place / "log.biotrail", (), WITH_REASONS, NOTES)


def processes(cli: Cli, path: Path, *options: str) -> dict[tuple[str | None, int | None], Any]:
    told = json.loads(cli("report", "--json", *options, path).out)
    return {(one["process"], one["pid"]): one for one in told["processes"]}


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """One read by its thread, and two that two workers queued while that thread waited."""
    made = log()
    made.bio(MS, 2 * MS, READER, cgroup=LIMITED)
    made.bio(10 * MS, 13 * MS, WORKER, call=None, cgroup=LIMITED, limit=LIMIT, waiter=READER)
    made.bio(20 * MS, 23 * MS, OTHER, call=None, cgroup=LIMITED, waiter=READER)
    return written(made, tmp_path)


def test_a_report_gives_it_to_whom_it_was_for(cli: Cli, both: Path) -> None:
    # GIVEN bios of workers whose own fields say who waits for them  WHEN a report is made
    found = processes(cli, both)
    # THEN all are of that thread, and beside it stands how many workers queued
    assert list(found) == [("fio", READER)]
    assert (found["fio", READER]["ios"], found["fio", READER]["by_workers"]) == (3, 2)
    assert found["fio", READER]["latency"]["sum_ns"] == 7 * MS
    # AND the limit held it for that thread, though for how long is not known
    (held,) = json.loads(cli("report", "--json", both).out)["held"]
    assert (held["process"], held["time"]["count"]) == ("fio", 0)
    # AND so do the text, the CSV and the table of writers
    text = cli("report", both).out
    assert "by workers" in text
    assert "kworker" not in text
    lines = csv.DictReader(cli("report", "--csv", both).out.splitlines())
    assert {one["by_workers"] for one in lines if one["process"] == "fio"} >= {"2"}
    (writer,) = json.loads(cli("report", "--json", "--by", "writer", both).out)["groups"]
    assert (writer["process"], writer["ios"]) == ("fio", 3)


@pytest.mark.parametrize(
    ("who", "ios"), [(("--comm", "fio"), 3), (("--pid", "42"), 3), (("--comm", "kworker/0*"), 1)]
)
def test_choosing_a_process_takes_what_workers_queued_for_it(
    cli: Cli, both: Path, who: Sequence[str], ios: int
) -> None:
    # WHEN I/Os are chosen by thread THEN those queued for it, and those it queued, are chosen
    assert json.loads(cli("report", "--json", *who, both).out)["total"]["ios"] == ios


def test_slow_and_tables_name_both(cli: Cli, both: Path) -> None:
    # WHEN the slowest I/Os are shown THEN each names worker and waiter
    told = json.loads(cli("slow", "--json", both).out)["ios"]
    names = [(one["io"]["comm"], one["io"]["for_comm"], one["io"]["for_tid"]) for one in told]
    assert sorted(names, key=str) == [
        ("fio", None, None),
        ("kworker/0:1", "fio", READER),
        ("kworker/1:0", "fio", READER),
    ]
    assert "kworker/0:1 (7) for fio (42)" in cli("slow", both).out
    # AND so do the tables of bios
    trace = Trace(both)
    tables = [bios_table(one, trace.context) for one in trace.lifecycles()]
    names_of = ["comm", "for_tid", "for_pid", "for_comm"]
    rows = [row for table in tables for row in table.select(names_of).to_pylist()]
    assert [tuple(row.values()) for row in rows] == [
        ("fio", None, None, None),
        ("kworker/0:1", READER, READER, "fio"),
        ("kworker/1:0", READER, READER, "fio"),
    ]


@pytest.mark.parametrize("waiter", [None, 43])
def test_a_thread_that_a_limits_wait_tells_is_whose_it_is(
    cli: Cli, tmp_path: Path, waiter: int | None
) -> None:
    # GIVEN a held read whose completion ended a call's wait, and that names nobody or another one
    made = log()
    made.task(43, b"cat")
    made.waits(MS - 10, MS, 91 * MS + 500, 91 * MS + 520, READER)
    made.returns(MS - 10, 91 * MS + 530, READER, blocked=90 * MS + 500, runnable=20)
    named = {} if waiter is None else {"waiter": waiter}
    made.bio(90 * MS, 91 * MS, WORKER, call=None, cgroup=LIMITED, limit=LIMIT, **named)
    path = written(made, tmp_path)
    # WHEN a report is made
    found = {who: one["by_workers"] for who, one in processes(cli, path).items()}
    # THEN it is of the thread that waited, or of the other one, for how long is then not known
    assert found == {("fio", READER) if waiter is None else ("cat", 43): 1}
    (held,) = json.loads(cli("report", "--json", path).out)["held"]
    if waiter is not None:
        assert (held["process"], held["time"]["count"]) == ("cat", 0)


def test_workers_for_a_cgroup_are_one_row(cli: Cli, tmp_path: Path) -> None:
    # GIVEN bios of two workers, charged to a cgroup, to one without a name, and to the root
    made = log()
    for at, worker, cgroup in ((1, WORKER, LIMITED), (3, OTHER, LIMITED), (5, WORKER, 99)):
        made.bio(at * MS, (at + 1) * MS, worker, call=None, cgroup=cgroup)
    made.bio(7 * MS, 8 * MS, WORKER, call=None, cgroup=ROOT)
    made.bio(9 * MS, 10 * MS, WORKER, call=None)
    path = written(made, tmp_path)
    # WHEN a report is made
    told = json.loads(cli("report", "--json", path).out)["processes"]
    # THEN what they did for a cgroup is that cgroup's, the rest their own
    rows = {(one["process"], one["pid"], one.get("cgroup"), one.get("cgroup_id")) for one in told}
    assert rows == {
        ("kworker", None, "/limited", LIMITED),
        ("kworker", None, None, 99),
        ("kworker/0:1", WORKER, None, None),
    }
    text = cli("report", path).out
    assert "kworker for /limited" in text
    assert "kworker for cgroup 99" in text


def test_a_lower_bio_is_for_whoever_queued_the_topmost(tmp_path: Path) -> None:
    # GIVEN a reader's bio, a worker's for it below, and another's below that
    made = log()
    made.bio(MS, 9 * MS, READER)
    for at, worker in ((2, WORKER), (3, OTHER), (4, WORKER)):
        made.bio(at * MS, (9 - at) * MS, worker, call=None)
    trace = Trace(written(made, tmp_path))
    (window,) = [one for one in trace.lifecycles() if len(one.bios)]
    bios = window.bios.take(np.argsort(window.bios.queue))
    top, middle, lowest, alone = bios.number.tolist()
    bios.parent[1:3], bios.family[1:3] = (top, middle), (top, top)
    # WHEN it is asked for whom each was queued, with the topmost ended or still in flight
    for split in (0, 1):
        bios.whom[:] = -1
        ended, still = bios.take(np.arange(4) >= split), bios.take(np.arange(4) < split)
        set_whom(SimpleNamespace(bios=ended, open_bios=still, path=None))
        # THEN both below are for the reader; the one without an upper bio is for nobody
        names = [str(window.tasks.comm[row]) if row >= 0 else "" for row in ended.whom]
        assert dict(zip(ended.number.tolist(), names, strict=True)) == {
            **({top: ""} if not split else {}), middle: "fio", lowest: "fio", alone: "",
        }  # fmt: skip
