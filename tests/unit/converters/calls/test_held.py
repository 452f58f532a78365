# SPDX-License-Identifier: Apache-2.0
"""Bios that a limit held or a worker queued: whose, for how long, for whom."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from biotrail.converters.calls.behalf import set_whom
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import HeldSince
from biotrail.converters.events.tables import NEVER
from biotrail.converters.lifecycles.arrow.tables import bios_table
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import MS, PREAD, WITH_REASONS, PathLog
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.stack_logs import DEV

READER, WORKER, SECOND, OTHER = 42, 7, 8, 43
LIMITED, ROOT = 11, 1
"""Ids of cgroups."""
NO_IOPS = (1 << 32) - 1
LIMIT = {"cgroup": LIMITED, "bps": 2 << 20, "iops": NO_IOPS, "limits": 1}
PARTITION = DEV + 1
STACKS = {
    "stacks": {
        "wait": {
            "7": [["schedule", "", 1], ["submit_bio_wait", "", 1]],
            "8": [["schedule", "", 1], ["rwsem_down_read_slowpath", "", 1]],
        }
    }
}
NOTES = {**STACKS, "cgroups": {str(LIMITED): "/limited", str(ROOT): "/"}}


def log() -> PathLog:
    made = PathLog()
    made.task(READER, b"fio")
    made.task(WORKER, b"kworker/0:1")
    made.task(SECOND, b"kworker/1:0")
    made.task(OTHER, b"other")
    return made


def write(made: PathLog, place: Path) -> Path:
    return made.write(place / "log.biotrail", (), WITH_REASONS, NOTES)


def held(made: PathLog, at: int, end: int, **more: Any) -> None:
    """A bio that a worker queues when its limit lets it go."""
    made.bio(at, end, WORKER, call=None, cgroup=LIMITED, **{"limit": LIMIT, **more})


def waited(made: PathLog, out: int, woken: int, tid: int = READER, stack: int | None = 7) -> None:
    """A call that waits for that time, and returns."""
    made.waits(out - 10, out, woken, woken + 20, tid, stack=stack)
    made.returns(out - 10, woken + 30, tid, blocked=woken - out, runnable=20)


def read(made: PathLog, window: int = 1 << 20) -> RecordedPath:
    cuts = [at for at, _ in made.records] if window == 1 else []
    return recorded_path(io.BytesIO(made.data(cuts, WITH_REASONS, NOTES)), window)


@pytest.mark.parametrize("window", [1 << 20, 1])
def test_a_waits_beginning_is_when_the_limit_began_to_hold(window: int) -> None:
    # GIVEN a read for which a call waits from 1 ms on, which a worker queues at 90 ms
    made = log()
    waited(made, MS, 91 * MS + 500)
    held(made, 90 * MS, 91 * MS)
    # WHEN the log is read, in windows of any size
    found = read(made, window)
    # THEN it was held for 89 ms, for that thread, by that limit
    assert found.held.held.tolist() == [89 * MS]
    assert (found.held.since[0], found.held.tid[0]) == (HeldSince.WAIT, READER)
    assert (found.held.limit[0], found.held.bps[0], found.held.limits[0]) == (LIMITED, 2 << 20, 1)
    assert found.held.number.tolist() == found.bios.number.tolist()
    # AND that is what the wait was for
    if window > 1:
        assert found.waits.limit.tolist() == [LIMITED]
        assert found.waits.reason.tolist() == [WaitReason.CGROUP_LIMIT]


@pytest.mark.parametrize(
    ("what", "wait", "bio"),
    [
        ("nobody waits", None, None),
        ("the wait began after Q", {"out": 90 * MS + 5}, None),
        ("the wake-up came too late", {"woken": 93 * MS}, None),
        ("the wake-up came before", {"woken": 91 * MS - 1}, None),
        ("the wait was for a lock", {"stack": 8}, None),
        ("another I/O completed in between", {}, (80 * MS, 91 * MS + 300, OTHER)),
        ("a bio of its own call was in flight", {}, (MS - 5, 95 * MS, READER)),
    ],
)
def test_a_wait_that_need_not_be_for_the_bio_tells_nothing(
    what: str, wait: dict | None, bio: tuple[int, int, int] | None
) -> None:
    # GIVEN a held read, and a wait that its completion did not end, or need not have ended
    made = log()
    if bio:
        made.bio(*bio, entry=MS - 10)
    if wait is not None:
        waited(made, **{"out": MS, "woken": 91 * MS + 500, **wait})
    held(made, 90 * MS, 91 * MS)
    # WHEN the log is read THEN the limit is known, the length is not
    found = read(made)
    assert found.held.limit.tolist() == [LIMITED], what
    assert found.held.held.tolist() == [NEVER]
    assert (found.held.since[0], found.held.tid[0]) == (HeldSince.UNKNOWN, 0)
    assert WaitReason.CGROUP_LIMIT not in found.waits.reason.tolist()


def test_a_short_hold_or_none_does_not_name_the_wait() -> None:
    # GIVEN a read that was held for a third of the wait, and in the device for the rest
    made = log()
    waited(made, MS, 31 * MS + 500)
    held(made, 11 * MS, 31 * MS)
    # WHEN the log is read THEN its length is known, and the wait is for a bio
    found = read(made)
    assert found.held.held.tolist() == [10 * MS]
    assert [WAIT_REASON_NAMES[WaitReason(one)] for one in found.waits.reason] == ["bio"]
    assert found.waits.limit.tolist() == [LIMITED]
    # GIVEN the same reads, recorded before there was such a record
    made = log()
    waited(made, MS, 91 * MS + 500)
    made.bio(90 * MS, 91 * MS, WORKER, call=None)
    # WHEN the log is read THEN nothing was held, and the wait is for what its stack says
    found = read(made)
    assert not len(found.held)
    assert found.waits.reason.tolist() == [WaitReason.BIO]
    assert np.array_equal(found.waits.limit, [0])


@pytest.mark.parametrize("window", [1 << 20, 1])
def test_a_remap_from_a_partition_is_when_it_was_submitted(window: int) -> None:
    # GIVEN a read of a partition, remapped by its thread at 3 ms, and queued at 90 ms
    made = log()
    held(made, 90 * MS, 91 * MS, part=PARTITION, remapped=(3 * MS, READER))
    # AND one that no limit held
    made.bio(95 * MS, 96 * MS, READER, part=PARTITION, remapped=(95 * MS - 2, READER))
    # WHEN the log is read THEN the first was held since, for that thread, also without a wait
    found = read(made, window)
    assert found.held.held.tolist() == [87 * MS]
    assert (found.held.since[0], found.held.tid[0]) == (HeldSince.REMAP, READER)
    assert len(found.bios) == 2


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Three held reads, two with a known length, and three that were not held."""
    made = log()
    for at in (100, 200):
        waited(made, at * MS + MS, at * MS + 91 * MS + 500)
        held(made, at * MS + 90 * MS, at * MS + 91 * MS)
    held(made, 300 * MS, 301 * MS, limit={**LIMIT, "limits": 2})
    for at in (400, 410, 420):
        made.bio(at * MS, (at + 1) * MS, READER, call=PREAD, entry=at * MS - 10)
        made.returns(at * MS - 10, at * MS + 5, queued=1)
    return write(made, tmp_path)


def test_report_and_slow_say_what_was_held(cli: Cli, written: Path) -> None:
    # WHEN a report is made of held reads / THEN its JSON has them, by limit, device and operation
    told = cli.json("report", written)
    (one,) = told["held"]
    names = ("cgroup", "operation", "bios", "several")
    assert [one[name] for name in names] == ["/limited", "read", 3, 1]
    assert (one["bps"], one["iops"], one["process"], one["pid"]) == (2 << 20, None, "fio", READER)
    assert (one["time"]["count"], one["time"]["sum_ns"]) == (2, 178 * MS)
    # AND what calls waited for
    reasons = {(wait["call"], wait["reason"]): wait["count"] for wait in told["waits"]}
    assert reasons["pread64", "cgroup limit"] == 2
    # AND the text has a sentence and a table, the CSV a line
    text = " ".join(cli("report", written).out.split())
    assert (
        f"* The limit of cgroup /limited held 3 of 6 reads on {one['device']} of fio (pid 42) "
        "before they were queued, for 89 ms on average, 1 of them for a time not known; calls "
        "waited for limits for 180 ms of 180 ms." in text
    )
    assert "Held by a cgroup's limit before Q (blk-throttle); of 1, cgroups above" in text
    (line,) = [row for row in cli("report", "--csv", written).out.splitlines() if ",held," in row]
    assert "/limited" in line
    # WHEN the slowest I/Os are shown
    told = cli.json("slow", written)
    limits = [one["io"]["held"] for one in told["ios"] if one["io"]["held"]]
    # THEN each held one has its limit, its length if known, and for whom
    assert sorted((one["ns"] or 0, one["by"]) for one in limits if one["ns"]) == [
        (89 * MS, "wait"),
        (89 * MS, "wait"),
    ]
    assert {(one["cgroup"], one["bps"], one["iops"]) for one in limits} == {
        ("/limited", 2 << 20, None)
    }
    text = cli("slow", written).out
    line = "held by the limit of cgroup /limited (2.0 MiB/s) for 89 ms before it was queued"
    assert text.count(f"{line}, for fio (42)") == 2
    assert (
        "held by the limit of cgroup /limited (2.0 MiB/s) or of 1 cgroup above it before it was "
        "queued, length not known" in text
    )
    assert "3 I/Os were held by a cgroup's limit before being queued" in text
    # AND a call's wait names the limit
    assert "cgroup limit of /limited, state D" in cli("slow", "--calls", written).out
    # GIVEN calls that queued no bio themselves, as the limit held it
    # WHEN I/Os are chosen, by operation and by cgroup
    for choice in (("--op", "read"), ("--cgroup", "/limited")):
        told = cli.json("report", *choice, written)
        # THEN the calls that waited for these are among them
        reasons = {(wait["call"], wait["reason"]): wait["count"] for wait in told["waits"]}
        assert reasons["pread64", "cgroup limit"] == 2, choice
    # AND not where others are chosen
    assert cli.json("report", "--op", "write", written)["waits"] == []
    # AND they are their cgroup's
    told = cli.json("report", "--by", "cgroup", written)
    assert {one["cgroup"]: one["count"] for one in told["call_groups"]}["/limited"] == 2


def test_tables_have_it(written: Path) -> None:
    # WHEN the bios are put as a table
    trace = Trace(written)
    tables = [bios_table(one, trace.context) for one in trace.lifecycles()]
    # THEN the held ones have the limit's cgroup, and those with a known length that and the thread
    names = ["limit", "held_ns", "held_tid"]
    rows = [row for table in tables for row in table.select(names).to_pylist()]
    assert [row["limit"] for row in rows] == ["/limited"] * 3 + [None] * 3
    assert [row["held_ns"] for row in rows] == [89 * MS, 89 * MS, None, None, None, None]
    assert [row["held_tid"] for row in rows] == [READER, READER, None, None, None, None]


# Bios that a worker queued for somebody: for whom, and what is shown of both.


def processes(cli: Cli, path: Path, *options: str) -> dict[tuple[str | None, int | None], Any]:
    told = cli.json("report", *options, path)
    return {(one["process"], one["pid"]): one for one in told["processes"]}


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """One read by its thread, and two that two workers queued while that thread waited."""
    made = log()
    made.bio(MS, 2 * MS, READER, cgroup=LIMITED)
    made.bio(10 * MS, 13 * MS, WORKER, call=None, cgroup=LIMITED, limit=LIMIT, waiter=READER)
    made.bio(20 * MS, 23 * MS, SECOND, call=None, cgroup=LIMITED, waiter=READER)
    return write(made, tmp_path)


def test_a_report_gives_it_to_whom_it_was_for(cli: Cli, both: Path) -> None:
    # GIVEN bios of workers whose own fields say who waits for them  WHEN a report is made
    found = processes(cli, both)
    # THEN all are of that thread, and beside it stands how many workers queued
    assert list(found) == [("fio", READER)]
    assert (found["fio", READER]["ios"], found["fio", READER]["by_workers"]) == (3, 2)
    assert found["fio", READER]["latency"]["sum_ns"] == 7 * MS
    # AND the limit held it for that thread, though for how long is not known
    (held,) = cli.json("report", both)["held"]
    assert (held["process"], held["time"]["count"]) == ("fio", 0)
    # AND so do the text, the CSV and the table of writers
    text = cli("report", both).out
    assert "by workers" in text
    assert "kworker" not in text
    lines = csv.DictReader(cli("report", "--csv", both).out.splitlines())
    assert {one["by_workers"] for one in lines if one["process"] == "fio"} >= {"2"}
    (writer,) = cli.json("report", "--by", "writer", both)["groups"]
    assert (writer["process"], writer["ios"]) == ("fio", 3)


@pytest.mark.parametrize(
    ("who", "ios"), [(("--comm", "fio"), 3), (("--pid", "42"), 3), (("--comm", "kworker/0*"), 1)]
)
def test_choosing_a_process_takes_what_workers_queued_for_it(
    cli: Cli, both: Path, who: Sequence[str], ios: int
) -> None:
    # WHEN I/Os are chosen by thread THEN those queued for it, and those it queued, are chosen
    assert cli.json("report", *who, both)["total"]["ios"] == ios


def test_slow_and_tables_name_both(cli: Cli, both: Path) -> None:
    # WHEN the slowest I/Os are shown THEN each names worker and waiter
    told = cli.json("slow", both)["ios"]
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
    path = write(made, tmp_path)
    # WHEN a report is made
    found = {who: one["by_workers"] for who, one in processes(cli, path).items()}
    # THEN it is of the thread that waited, or of the other one, for how long is then not known
    assert found == {("fio", READER) if waiter is None else ("cat", 43): 1}
    (held,) = cli.json("report", path)["held"]
    if waiter is not None:
        assert (held["process"], held["time"]["count"]) == ("cat", 0)


def test_workers_for_a_cgroup_are_one_row(cli: Cli, tmp_path: Path) -> None:
    # GIVEN bios of two workers, charged to a cgroup, to one without a name, and to the root
    made = log()
    for at, worker, cgroup in ((1, WORKER, LIMITED), (3, SECOND, LIMITED), (5, WORKER, 99)):
        made.bio(at * MS, (at + 1) * MS, worker, call=None, cgroup=cgroup)
    made.bio(7 * MS, 8 * MS, WORKER, call=None, cgroup=ROOT)
    made.bio(9 * MS, 10 * MS, WORKER, call=None)
    path = write(made, tmp_path)
    # WHEN a report is made / THEN what they did for a cgroup is that cgroup's, the rest their own
    told = cli.json("report", path)["processes"]
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
    for at, worker in ((2, WORKER), (3, SECOND), (4, WORKER)):
        made.bio(at * MS, (9 - at) * MS, worker, call=None)
    trace = Trace(write(made, tmp_path))
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
