# SPDX-License-Identifier: Apache-2.0
"""Where the time of calls went: their own I/O, others', a limit, a commit; to the nanosecond."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.analysis.blame import share_loops
from biotrail.converters.analysis.blame.tree import CallVictim, Kind
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from tests.support import path_sample
from tests.support.blame_reading import blamed
from tests.support.both_ways import uncompiled
from tests.support.path_logs import FSYNC, MS, WITH_REASONS, WRITE, PathLog

US = 1_000
READER, WRITER, JOURNAL, WORKER = 42, 43, 900, 7
LIMITED = 11
LIMIT = {"cgroup": LIMITED, "bps": (1 << 64) - 1, "iops": 40, "limits": 1}
STACKS = {
    "stacks": {
        "wait": {
            "7": [["schedule", "", 1], ["submit_bio_wait", "", 1]],
            "8": [["schedule", "", 1], ["jbd2_log_wait_commit", "", 1]],
        }
    }
}


def made() -> PathLog:
    log = PathLog()
    for tid, comm in (
        *((READER, b"app"), (WRITER, b"backup")),
        *((JOURNAL, b"jbd2/vda-8"), (WORKER, b"kworker/0:1")),
    ):
        log.task(tid, comm)
    return log


def calls_of(path: Path, window: int = WINDOW_EVENTS) -> dict[tuple[str, str], CallVictim]:
    found = blamed(path, window).calls
    assert all(sum(p.wait_ns for p in one.parts) == one.wait_ns for one in found)
    assert all(p.wait_ns >= 0 for one in found for p in one.parts)
    return {(one.name, one.call): one for one in found}


def part(one: CallVictim, kind: Kind, culprit: str | None = None) -> int:
    return sum(p.wait_ns for p in one.parts if p.kind == kind and p.culprit == culprit)


def written(log: PathLog, tmp_path: Path, **header: Any) -> Path:
    cuts = [at for at, _ in log.records][::20]
    return log.write(tmp_path / "a.biotrail", cuts, WITH_REASONS, STACKS, **header)


def a_read(log: PathLog, at: int, takes: int) -> None:
    """A pread of 4 KiB: 5 µs until it waits, `takes` ns with the device, 3 µs to run, 2 µs more."""
    log.request(at + 5 * US, at + 5 * US + takes, tid=READER, entry=at)
    out, woken = at + 6 * US, at + 5 * US + takes + US
    log.waits(at, out, woken, woken + 3 * US, READER, stack=7)
    exit = woken + 5 * US
    log.returns(at, exit, READER, blocked=woken - out, runnable=3 * US, queued=1, waits=1)


@pytest.mark.parametrize("window", [20, WINDOW_EVENTS])
def test_a_calls_waits_are_divided_as_its_ios(tmp_path: Path, window: int) -> None:
    # GIVEN reads of 50 µs, and reads of 150 µs beside a writer's I/O
    log = made()
    for at in range(40):
        a_read(log, at * 10 * MS, 50 * US)
    for at in range(40, 60):
        log.request(at * 10 * MS - US, at * 10 * MS + 400 * US, tid=WRITER, opf=WRITE)
        a_read(log, at * 10 * MS, 150 * US)
    # WHEN their calls' time is blamed, in windows of any size
    one = calls_of(written(log, tmp_path), window)["app", "pread64"]
    # THEN waiting is the writer's in the proportion of the I/O, and a CPU's share is told apart
    assert one.calls == 60
    assert part(one, Kind.CPU) == 60 * 3 * US
    assert part(one, Kind.RUNNING) == 60 * 8 * US
    assert part(one, Kind.OTHER, "backup") == pytest.approx(20 * 100 * US, rel=0.01)
    assert not part(one, Kind.WAITING)


def test_what_a_call_waits_for_after_its_io_is_nobodys(tmp_path: Path) -> None:
    # GIVEN reads of 50 µs, and reads of 150 µs beside a writer's I/O, which wait for 1 ms more for
    # whoever ends them
    log = made()
    for at in range(60):
        begin, takes = at * 10 * MS, 50 * US if at < 40 else 150 * US
        if at >= 40:
            log.request(begin - US, begin + 400 * US, tid=WRITER, opf=WRITE)
        log.request(begin + 5 * US, begin + 5 * US + takes, tid=READER, entry=begin)
        out, woken = begin + 5 * US, begin + 5 * US + takes + MS
        log.waits(begin, out, woken, woken, READER, stack=7)
        log.returns(begin, woken, READER, blocked=woken - out, runnable=0, queued=1, waits=1)
    # WHEN their calls' time is blamed
    one = calls_of(written(log, tmp_path))["app", "pread64"]
    # THEN no more than the I/O took is the writer's, and what came after it is another wait
    assert part(one, Kind.OTHER, "backup") == 20 * 100 * US
    assert part(one, Kind.SERVICE) == pytest.approx(60 * 50 * US, abs=US)
    assert part(one, Kind.WAITING) == pytest.approx(60 * MS, abs=US)


@pytest.mark.parametrize("window", [20, WINDOW_EVENTS])
def test_a_limit_is_told_by_its_held_bios(tmp_path: Path, window: int) -> None:
    # GIVEN reads that a cgroup's limit holds for 20 ms before a worker queues them
    log = made()
    for at in range(0, 40 * 30, 30):
        begin = at * MS
        out, queued = begin + 5 * US, begin + 20 * MS + 5 * US
        end = queued + 60 * US
        log.bio(queued, end, WORKER, call=None, cgroup=LIMITED, limit=LIMIT)
        log.waits(begin, out, end + US, end + 2 * US, READER, stack=7)
        log.returns(begin, end + 3 * US, READER, blocked=end + US - out, runnable=US)
    # WHEN the calls' time is blamed / THEN it is the limit's but for the I/O itself
    one = calls_of(written(log, tmp_path), window)["app", "pread64"]
    assert part(one, Kind.LIMIT) == 40 * 20 * MS
    assert part(one, Kind.SERVICE) == pytest.approx(40 * 61 * US, rel=0.02)


@pytest.mark.parametrize("window", [20, WINDOW_EVENTS])
def test_a_commit_is_whose_data_it_writes(tmp_path: Path, window: int) -> None:
    # GIVEN fsyncs that wait for commits, which write 9 ms of another's data before their own log
    log = made()
    for at in range(40):
        log.request(at * 100 * MS + 50 * MS, at * 100 * MS + 50 * MS + 300 * US, tid=JOURNAL,
                    opf=WRITE)  # fmt: skip
    for at in range(40):
        begin = at * 100 * MS
        flushing, logging, end = begin + MS, begin + 10 * MS, begin + 11 * MS
        dirtied = (5 * MS, WRITER, b"backup")
        log.request(flushing, logging, tid=WORKER, opf=WRITE, dirtied=dirtied)
        log.request(logging + 10 * US, end - 10 * US, tid=JOURNAL, opf=WRITE)
        log.commit(at, flushing - 20 * US, flushing - 10 * US, flushing, logging, end, tid=JOURNAL)
        woken = end + 5 * US
        log.waits(begin, begin + MS, woken, woken + US, READER, stack=8, waker=JOURNAL)
        log.returns(begin, woken + 2 * US, READER, number=FSYNC, blocked=woken - begin - MS,
                    runnable=US)  # fmt: skip
    # WHEN the fsyncs' time is blamed
    one = calls_of(written(log, tmp_path), window)["app", "fsync"]
    # THEN nine tenths of what they waited are the other's, whose data the commits carried
    waited = 40 * 10 * MS
    assert part(one, Kind.OTHER, "backup") == pytest.approx(0.9 * waited, rel=0.02)


@pytest.mark.parametrize("window", [20, WINDOW_EVENTS])
def test_a_long_commit_is_of_others_also_where_windows_have_no_calls(
    tmp_path: Path, window: int
) -> None:
    # GIVEN a commit of five seconds, in which another one writes all the time, without a call
    log = made()
    begin, second = 2000 * MS, 1000 * MS
    for at in range(0, 800 * MS, 20 * MS):
        log.request(at, at + 300 * US, tid=JOURNAL, opf=WRITE)
    flushing, logging, end = begin + MS, begin + 5 * second, begin + 5 * second + MS
    for at in range(flushing, logging, 2 * MS):
        log.request(at, at + 1900 * US, tid=WRITER, opf=WRITE)
    log.commit(1, flushing - 20 * US, flushing - 10 * US, flushing, logging, end, tid=JOURNAL)
    # WHEN a call has waited for it / THEN it waited for the writer, however the log was read
    woken = end + 5 * US
    log.waits(begin, begin + MS, woken, woken + US, READER, stack=8, waker=JOURNAL)
    log.returns(begin, woken + 2 * US, READER, number=FSYNC, blocked=woken - begin - MS)
    one = calls_of(written(log, tmp_path), window)["app", "fsync"]
    assert part(one, Kind.OTHER, "backup") > 4900 * MS


@pytest.mark.parametrize("window", [1, 30])
def test_calls_add_up_and_windows_make_no_difference(tmp_path: Path, window: int) -> None:
    # GIVEN a log with all parts of the path
    path = path_sample.write(tmp_path / "a.biotrail")
    # WHEN its calls are blamed / THEN in windows of any size they are the same
    whole = calls_of(path)
    assert calls_of(path, window) == whole
    # AND each call that queued or waited for I/O is there with its duration
    trace, expected = Trace(path), Counter[str]()
    for one in trace.lifecycles():
        if one.path is None:
            continue
        calls = one.path.calls
        good = (calls.entry != NEVER) & ~calls.own
        good &= (calls.own_io > 0) | (calls.other_io > 0) | (calls.bios > 0)
        for row in range(len(calls)):
            if good[row]:
                name = name_of_call(int(calls.number[row]), False, trace.context.machine)
                expected[str(name)] += int(calls.exit[row] - calls.entry[row])
    told = Counter[str]()
    for (_, call), found in whole.items():
        told[call] += found.wait_ns
    assert told == expected


@pytest.mark.parametrize("window", [20, WINDOW_EVENTS])
def test_a_journals_writes_are_dealt_to_all_who_wait_by_how_long(
    tmp_path: Path, window: int
) -> None:
    # GIVEN commits that one program waits for three times as long as another, and reads beside
    log, other, rounds = made(), 44, 200
    log.task(other, b"logger")
    for at in range(rounds):
        begin, end = at * 10 * MS, at * 10 * MS + MS
        log.request(begin + 5 * US, begin + 100 * US, tid=WRITER, entry=begin, opf=WRITE)
        late = begin + 709 * US
        log.request(begin + 6 * US, begin + 99 * US, tid=other, entry=begin + US, opf=WRITE)
        log.request(begin + 200 * US, end - 10 * US, tid=JOURNAL, opf=WRITE)
        phases = (begin + 110 * US, begin + 120 * US, begin + 130 * US, begin + 140 * US)
        log.commit(at, *phases, end, tid=JOURNAL)
        for tid, entry, out in ((WRITER, begin, begin + 103 * US), (other, begin + US, late)):
            log.waits(entry, out, end + 5 * US - US, end + 6 * US, tid, stack=8, waker=JOURNAL)
            log.returns(entry, end + 9 * US, tid, number=FSYNC, blocked=end + 4 * US - out,
                        runnable=2 * US, queued=1)  # fmt: skip
        log.request(begin + 300 * US, begin + 450 * US, tid=READER)
        log.request(begin + 5 * MS, begin + 5 * MS + 50 * US, tid=READER)
    # WHEN I/O is blamed
    found = blamed(written(log, tmp_path), window)
    # THEN the journal's writes are of both, and what they cost the reads, in that proportion
    [app] = [one for one in found.victims if one.name == "app"]
    parts = {one.culprit: one.wait_ns for one in app.parts if one.culprit}
    longer, shorter = 1000 + 4 - 103, 1000 + 4 - 709
    share = longer / (longer + shorter)
    assert set(parts) == {"backup", "logger"}
    assert parts["backup"] / sum(parts.values()) == pytest.approx(share, abs=0.02)
    ios = {one.name: one.ios for one in found.victims}
    assert "jbd2/vda-8" not in ios
    assert ios["backup"] - rounds == pytest.approx(share * rounds, abs=4)
    assert ios["backup"] + ios["logger"] == 3 * rounds


def test_a_wait_that_begins_before_its_commit_is_also_of_the_one_before(tmp_path: Path) -> None:
    # GIVEN an fsync that waits 4 ms for a commit that carries one program's data, then 2 ms for
    # its own commit, which carries another's
    log, other = made(), 44
    log.task(other, b"logger")
    for at, (writer, begin, ms) in enumerate(
        one
        for round in range(30)
        for one in ((other, 20 * round * MS, 4), (WRITER, (20 * round + 4) * MS, 2))
    ):
        begun, end = begin + 20 * US, begin + ms * MS
        log.request(begun + 30 * US, end - 40 * US, tid=writer, opf=WRITE)
        phases = (begun, begun + 10 * US, begun + 20 * US, end - 30 * US)
        log.request(end - 25 * US, end - 5 * US, tid=JOURNAL, opf=WRITE)
        log.commit(at, *phases, end, tid=JOURNAL)
        if writer == WRITER:
            entry, woken = begin - 4 * MS, end + 5 * US
            log.waits(entry, entry + 30 * US, woken, woken + US, READER, stack=8, waker=JOURNAL)
            log.returns(entry, woken + 2 * US, READER, number=FSYNC,
                        blocked=woken - entry - 30 * US, runnable=US, queued=0)  # fmt: skip
    # WHEN its calls are blamed / THEN both programs have what their commits took of it
    one = calls_of(written(log, tmp_path))["app", "fsync"]
    assert one.calls == 30
    assert part(one, Kind.OTHER, "logger") == pytest.approx(30 * 3.9 * MS, rel=0.05)
    assert part(one, Kind.OTHER, "backup") == pytest.approx(30 * 1.9 * MS, rel=0.05)


NS = st.integers(-(10**12), 10**12)


@given(st.lists(st.tuples(NS, st.lists(NS, min_size=3, max_size=3)), max_size=20))
def test_what_is_divided_adds_up(rows: list[tuple[int, list[int]]]) -> None:
    # GIVEN amounts, and vectors of which some have no positive sum
    amount = np.array([one for one, _ in rows], np.int64)
    vectors = np.array([of for _, of in rows], np.int64).reshape(-1, 3)
    every = []
    for loops in (share_loops, uncompiled("converters/analysis/blame/share_loops.py")):
        shares, left = np.zeros_like(vectors), np.zeros_like(amount)
        # WHEN the amounts are divided
        loops.divide(amount, vectors, shares, left)
        # THEN shares and what is left are the amounts, and nothing is shared where nothing is to be
        assert (shares.sum(axis=1) + left == amount).all()
        total = vectors.sum(axis=1)
        shared = (total > 0) & (amount > 0) & (abs(vectors).max(axis=1) // 8 <= total)
        assert not left[shared].any()
        assert not shares[~shared].any()
        # AND rows are added up by their places
        sums = np.zeros((2, 3), np.int64)
        loops.add_rows(np.arange(len(rows)) % 2, shares, sums)
        assert (sums == [shares[::2].sum(axis=0), shares[1::2].sum(axis=0)]).all()
        every.append((shares.tolist(), left.tolist()))
    # AND compiled loops give the same as the same loops uncompiled
    assert every[0] == every[1]
