# SPDX-License-Identifier: Apache-2.0
"""Bios that a cgroup's limit held before their Q: whose, for how long, for whom."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import HeldSince
from biotrail.converters.events.tables import NEVER
from biotrail.converters.lifecycles.arrow.tables import bios_table
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import MS, PREAD, WITH_REASONS, PathLog
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.stack_logs import DEV

READER, WORKER, OTHER = 42, 7, 43
LIMITED = 11
"""Id of a cgroup."""
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
NOTES = {**STACKS, "cgroups": {str(LIMITED): "/limited"}}


def log() -> PathLog:
    made = PathLog()
    made.task(READER, b"fio")
    made.task(WORKER, b"kworker/0:1")
    made.task(OTHER, b"other")
    return made


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
    return made.write(tmp_path / "held.biotrail", (), WITH_REASONS, NOTES)


def test_report_and_slow_say_what_was_held(cli: Cli, written: Path) -> None:
    # WHEN a report is made of held reads
    told = json.loads(cli("report", "--json", written).out)
    # THEN its JSON has them, by limit, device and operation
    (one,) = told["held"]
    assert (one["cgroup"], one["operation"], one["bios"], one["several"]) == (
        "/limited",
        "read",
        3,
        1,
    )
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
    told = json.loads(cli("slow", "--json", written).out)
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
        told = json.loads(cli("report", "--json", *choice, written).out)
        # THEN the calls that waited for these are among them
        reasons = {(wait["call"], wait["reason"]): wait["count"] for wait in told["waits"]}
        assert reasons["pread64", "cgroup limit"] == 2, choice
    # AND not where others are chosen
    assert json.loads(cli("report", "--json", "--op", "write", written).out)["waits"] == []
    # AND they are their cgroup's
    told = json.loads(cli("report", "--json", "--by", "cgroup", written).out)
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
