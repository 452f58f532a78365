# SPDX-License-Identifier: Apache-2.0
"""The first sentence of a log with the path: which call of whom waited, for what, beside whom."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from biotrail.text.report import verdict
from biotrail.text.report.verdict import Sentence
from tests.support.path_logs import FSYNC, MS, WITH_REASONS, WRITE, PathLog
from tests.support.stack_logs import DEV, START

STACKS = {
    "wait": {
        "1": [["blkdev_direct_IO", "", 0], ["submit_bio_wait", "", 0]],
        "2": [["jbd2_log_wait_commit", "", 0]],
        "3": [["balance_dirty_pages", "", 0]],
        "4": [["rwsem_down_write_slowpath", "", 0], ["ext4_buffered_write_iter", "", 0]],
        "5": [["folio_wait_bit_common", "", 0], ["filemap_get_pages", "", 0]],
    }
}
APP, OTHER, FLUSHER = 42, 43, 44


def made() -> PathLog:
    log = PathLog()
    log.task(APP, b"app")
    log.task(OTHER, b"backup")
    log.task(FLUSHER, b"kworker/u4:1")
    return log


def call(log: PathLog, wait: int = 0, *, cpu: int = 0, stack: int = 1, **values: Any) -> None:
    """A call of 100 ms, of which it waits `wait` ms in state D and `cpu` ms for a CPU."""
    out = 10 * MS
    woken = out + wait * MS
    log.waits(0, out, woken, woken + cpu * MS, APP, stack=stack, **values)
    log.returns(0, 100 * MS, APP, number=FSYNC, blocked=wait * MS, runnable=cpu * MS, result=0)


def sentences(log: PathLog, target: Path, cuts: tuple[int, ...] = ()) -> dict[str, Sentence]:
    target.write_bytes(log.data(cuts, WITH_REASONS, {"stacks": STACKS}))
    return {one.rule: one for one in verdict.verdict(make_report(Trace(target)))}


def test_a_call_that_waits_for_a_cpu(tmp_path: Path) -> None:
    # GIVEN a call of 100 ms with 5 ms of own I/O, and 80 ms or 10 ms without a CPU
    for cpu, told in ((80, True), (10, False)):
        log = made()
        log.bio(5 * MS, 15 * MS, APP, entry=0, call=FSYNC)
        call(log, 5, cpu=cpu)
        # WHEN the report is put in sentences
        found = sentences(log, tmp_path / "log")
        # THEN the first is of that call where it waited, and says for what and what remains
        assert ("waits" in found) == told
    log = made()
    log.bio(5 * MS, 15 * MS, APP, entry=0, call=FSYNC)
    call(log, 5, cpu=80)
    first = next(iter(sentences(log, tmp_path / "log").values()))
    assert first.text == (
        "fsync of app (pid 42) took 100 ms of 100 ms (1 time, 100 ms on average): 80 % for a CPU; "
        "without that it would take 20 ms on average"
    )
    assert "For a CPU" in first.next
    figures = first.figures
    assert (figures["process"], figures["call"], figures["count"]) == ("app", "fsync", 1)
    assert figures["took_ns"] == 100 * MS
    assert figures["causes"][0] == {"cause": "CPU", "wait_ns": 80 * MS, "share": 0.8}
    assert figures["without_mean_ns"] == 20 * MS


@pytest.mark.parametrize(
    ("ran", "words", "own"),
    [
        ({"ran": OTHER, "ran_pid": OTHER}, "a CPU (100 % of that backup ran instead)", False),
        (
            {"ran": 45, "ran_pid": APP},
            "a CPU (100 % of that its own other threads ran instead)",
            True,
        ),
        ({}, "a CPU; without", None),
    ],
)
def test_who_ran_instead(tmp_path: Path, ran: dict[str, int], words: str, own: bool | None) -> None:
    # GIVEN a call that waits for a CPU, on which another thread ran before it, or none
    log = made()
    call(log, 5, cpu=80, **ran)
    # WHEN the report is put in sentences THEN it says who, if anybody did
    first = sentences(log, tmp_path / "log")["waits"]
    assert words in first.text
    assert first.figures.get("ran_own") == own


@pytest.mark.parametrize("cuts", [(), (20 * MS, 60 * MS)])
@pytest.mark.parametrize(
    ("others", "beside"),
    [(3, "backup"), (0, None)],
)
def test_own_io_beside_another_ones_write_back(
    tmp_path: Path, others: int, beside: str | None, cuts: tuple[int, ...]
) -> None:
    # GIVEN a call that waits 80 ms for its own bio, and bios with pages that another one dirtied
    log = made()
    log.bio(5 * MS, 90 * MS, APP, entry=0, call=FSYNC, opf=WRITE)
    for number in range(others):
        end = (85 + number) * MS
        log.bio(6 * MS, end, FLUSHER, call=None, opf=WRITE, dirtied=(MS, OTHER, b"backup"))
    call(log, 80)
    # WHEN the report is put in sentences
    first = sentences(log, tmp_path / "log", cuts)["waits"]
    # THEN whose I/O the device had meanwhile is said, and nobody's where there is none
    assert "80 % for its own I/O" in first.text
    assert first.figures.get("beside") == beside
    if beside:
        meanwhile = "beside writes of backup on vda (2.85 in flight meanwhile, 12.0 KiB done)"
        assert meanwhile in first.text


@pytest.mark.parametrize(
    ("steal", "quota", "said"),
    [
        (50, 70, "; at most 70 ms of that is the CPU quota of cgroup /web; at most 50 ms is the"),
        (500, 0, "; at most 80 ms is the hypervisor's (steal)"),
        (1, 0, ""),
    ],
)
def test_quota_and_hypervisor(tmp_path: Path, steal: int, quota: int, said: str) -> None:
    # GIVEN a call that waits 80 ms for a CPU, and what quotas and the hypervisor took meanwhile
    log = made()
    call(log, 5, cpu=80)
    note = {
        **{"from": START, "to": START + 90 * MS, "steal_ns": steal * MS},
        "throttled_ns": {"/web": quota * MS, "/other": 90 * MS} if quota else {},
        "pids": {"/web": [APP, 7], "/other": [OTHER]},
    }
    target = tmp_path / "log"
    target.write_bytes(log.data((), WITH_REASONS, {"stacks": STACKS, "cpus": note}))
    # WHEN the report is put in sentences THEN that is said as the most that it can be
    first = {one.rule: one for one in verdict.verdict(make_report(Trace(target)))}["waits"]
    assert said in first.text
    assert ("at most" in first.text) == bool(said)
    assert first.figures.get("steal_at_most_ns") == (min(steal, 80) * MS if said else None)


def test_own_depth(tmp_path: Path) -> None:
    # GIVEN a call that waits for one of eight bios of its own process, or for its only one
    for depth, told in ((8, True), (1, False)):
        log = made()
        for _ in range(depth):
            log.bio(5 * MS, 95 * MS, APP, entry=0, call=FSYNC)
        call(log, 80)
        # WHEN the report is put in sentences
        text = sentences(log, tmp_path / "log")["waits"].text
        # THEN its own I/O is named as what the device had, where it is several
        assert ("with 8 of its own reads in flight on vda meanwhile" in text) == told


@pytest.mark.parametrize(
    ("stack", "cause", "words"),
    [
        (2, "journal", "for the journal's commits"),
        (3, "throttled", "for throttled writing (too many dirty pages)"),
        (5, "page read", "for pages that were not in the page cache"),
    ],
)
def test_causes_by_the_reason_of_a_wait(tmp_path: Path, stack: int, cause: str, words: str) -> None:
    # GIVEN a call that waits in state D for some reason, for most of its time or for little
    for wait, told in ((80, True), (10, False)):
        log = made()
        call(log, wait, stack=stack)
        # WHEN the report is put in sentences
        found = sentences(log, tmp_path / "log")
        # THEN that is said where it has a quarter of the call's time
        assert ("waits" in found) == told
        if told:
            assert found["waits"].figures["causes"][0]["cause"] == cause
            assert words in found["waits"].text


def test_a_lock_and_who_had_it(tmp_path: Path) -> None:
    # GIVEN a call that waits for a lock, which another one lets go of
    log = made()
    call(log, 80, stack=4, waker=OTHER)
    # WHEN the report is put in sentences
    first = sentences(log, tmp_path / "log")["waits"]
    # THEN it is named
    assert "80 % for a lock that backup (pid 43) had" in first.text
    assert (first.figures["holder"], first.figures["holder_pid"]) == ("backup", 43)


def test_what_commits_carried(tmp_path: Path) -> None:
    # GIVEN a call that waits for a commit, whose thread writes another one's data
    log = made()
    log.task(900, b"jbd2/vda-8")
    for number in range(2):
        end = (85 + number) * MS
        log.bio(6 * MS, end, 900, call=None, opf=WRITE, dirtied=(MS, OTHER, b"backup"))
    call(log, 80, stack=2)
    # WHEN the report is put in sentences THEN it says how much of whose
    first = sentences(log, tmp_path / "log")["waits"]
    assert "beside writes of backup on vda" in first.text
    assert "commits wrote 8.0 KiB of its data" in first.text
    assert first.figures["carried_bytes"] == 8192


def test_who_waited_less_is_in_the_figures(tmp_path: Path) -> None:
    # GIVEN two programs that wait, one longer than the other
    log = made()
    call(log, 80)
    log.waits(0, 10 * MS, 50 * MS, 50 * MS, OTHER, stack=1)
    log.returns(0, 60 * MS, OTHER, number=FSYNC, blocked=40 * MS, result=0)
    # WHEN the report is put in sentences THEN the first has the sentence, the other figures
    first = sentences(log, tmp_path / "log")["waits"]
    assert first.figures["process"] == "app"
    assert [one["process"] for one in first.figures["others"]] == ["backup"]
    assert json.dumps(first.figures)


def slow_to_issue(log: PathLog, allocated: int, issued: int) -> None:
    """A bio that is queued at 5 ms by the call that begins at 0, and has 2 ms with the device."""
    log.bios += 1
    at = {"bio": log.bios << 6, "sector": 8, "bytes": 4096, "dev": DEV, "opf": WRITE}
    rq = {"rq": log.bios << 10}
    log.add(Kind.Q, 5 * MS, **at, part=DEV, tid=APP)
    log.add(Kind.CALL, 5 * MS, bio=at["bio"], entry=START, number=FSYNC)
    log.add(Kind.G, allocated, **at, tid=APP)
    log.add(Kind.START, allocated + 1, **rq, **at)
    log.add(Kind.I, issued - 1, **rq, **at)
    log.add(Kind.D, issued, **rq, **at, nr_bios=1)
    log.add(Kind.C, issued + 2 * MS, **rq, **at)


@pytest.mark.parametrize(
    ("cpu", "share"),
    [(85, "87 %"), (20, None)],  # of 100 ms the call then ran for 10 and for 75
)
def test_a_plug_held_by_a_thread_without_a_cpu(tmp_path: Path, cpu: int, share: str | None) -> None:
    # GIVEN a call of 100 ms that holds a bio in its plug for 80 ms, and runs for a part of them
    log = made()
    slow_to_issue(log, 5 * MS, 85 * MS)
    call(log, 5, cpu=5)
    log.records = log.records[:-1]
    log.returns(0, 100 * MS, APP, number=FSYNC, blocked=5 * MS, runnable=cpu * MS, result=0)
    # WHEN the report is put in sentences
    main = sentences(log, tmp_path / "log")["main-part"]
    # THEN what the plug was held for beyond all that the call ran is told as waiting for a CPU
    assert "held back by the task, in its plug" in main.text
    assert (share is not None) == ("without a CPU" in main.text)
    if share is not None:
        assert f"for {share} of that part or more its threads were ready to run" in main.text
        assert "who uses the CPUs" in main.next and "without_cpu_share" in main.figures
    else:
        assert "merges below" in main.next


def test_a_request_that_its_thread_without_a_cpu_takes_late(tmp_path: Path) -> None:
    # GIVEN a bio that waits for a request from 5 to 85 ms; its thread is woken at 15 ms, runs at 80
    log = made()
    slow_to_issue(log, 85 * MS, 86 * MS)
    call(log, 5, cpu=65)
    # WHEN the report is put in sentences THEN 65 of these 80 ms are waiting for a CPU
    main = sentences(log, tmp_path / "log")["main-part"]
    assert "waiting for a request (Q2G)" in main.text
    assert "for 81 % of that part or more its threads were ready to run" in main.text
    # AND so they are where windows are cut
    cuts = tuple(at * MS for at in (20, 60))
    assert sentences(log, tmp_path / "cut", cuts)["main-part"].text == main.text
