# SPDX-License-Identifier: Apache-2.0
"""Names of threads over time: renamed, reused, late and missing."""

import numpy as np

from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.log import Segment
from biotrail.recorder.schema.records import Kind
from tests.support.record_rings import NOW, chunk, record, ring


def events(*names: tuple[int, int, int, bytes]) -> Events:
    """TASK records of (ns, tid, tgid, comm)."""
    rows = [record(Kind.TASK, ns, tid=tid, tgid=tgid, comm=comm) for ns, tid, tgid, comm in names]
    return Decoder().decode(chunk(Segment(0, 0, 0, ring(rows)))).events


def named(tasks: TaskNames, *wanted: tuple[int, int]) -> list[str | None]:
    """comm of (tid, ns) pairs."""
    tid = np.array([w[0] for w in wanted], dtype=np.uint32)
    ts = np.array([NOW + w[1] for w in wanted], dtype=np.int64)
    rows = tasks.rows(tid, ts)
    comm = tasks.table().comm
    return [None if row < 0 else str(comm[row]) for row in rows.tolist()]


def test_a_name_holds_until_the_next_one() -> None:
    # GIVEN a thread that is renamed by exec, and a tid that is used again
    tasks = TaskNames()
    tasks.add_records(events((10, 5, 5, b"bash"), (20, 6, 6, b"sync"), (30, 5, 5, b"dd")))
    tasks.add_records(events((90, 5, 9, b"fio")))
    # WHEN asked at several times
    found = named(tasks, (5, 10), (5, 29), (5, 30), (5, 89), (5, 90), (6, 500))
    # THEN each time has its name, from its very nanosecond on
    assert found == ["bash", "bash", "dd", "dd", "fio", "sync"]
    rows = tasks.rows(np.array([5, 5], np.uint32), np.array([NOW + 15, NOW + 95], np.int64))
    assert tasks.tgid(rows).tolist() == [5, 9]


def test_threads_without_a_name_have_none() -> None:
    # GIVEN names of other threads, below and above / WHEN asked / THEN none is taken for it
    tasks = TaskNames()
    assert named(tasks, (5, 10)) == [None]
    tasks.add_records(events((10, 4, 4, b"a"), (10, 6, 6, b"b")))
    assert named(tasks, (5, 10), (3, 10), (7, 10), (4, 11)) == [None, None, None, "a"]
    assert tasks.tgid(np.array([-1], np.int32)).tolist() == [0]


def test_a_name_that_comes_late_is_better_than_none() -> None:
    # GIVEN a name whose first record was lost / WHEN asked before it / THEN it is taken
    tasks = TaskNames()
    tasks.add_records(events((50, 5, 5, b"dd"), (60, 5, 5, b"cat")))
    assert named(tasks, (5, 10), (5, 55)) == ["dd", "dd"]


def test_a_name_that_comes_after_an_io_is_not_its_own() -> None:
    # GIVEN names that were told after the events that they are asked for, of one and of two names
    tasks = TaskNames()
    tasks.add_records(events((50, 5, 5, b"dd"), (50, 6, 6, b"a"), (60, 6, 6, b"b")))
    # WHEN asked for I/O that had ended just before, or ended just then
    for last in ([5], [5, 6]):  # each alone, and beside one that was renamed
        tid = np.array(last, np.uint32)
        ts = np.full(len(last), NOW + 10)
        before = tasks.rows(tid, ts, np.full(len(last), NOW + 49))
        just = tasks.rows(tid, ts, np.full(len(last), NOW + 50))
        # THEN it has none, as in a window that ends before the name; or that name
        assert before.tolist() == [-1] * len(last)
        assert tasks.table().comm[just].tolist() == ["dd", "a"][: len(last)]
    # AND one that never ended has the name of its time
    never = tasks.rows(np.array([5, 5], np.uint32), NOW + np.array([10, 50]), np.array([-1, -1]))
    assert never.tolist() == [-1, 0]


def test_rows_stay_when_more_is_learned() -> None:
    # GIVEN rows given out / WHEN more names come, the same ones again too
    tasks = TaskNames()
    tasks.add_records(events((10, 5, 5, b"dd")))
    before = tasks.rows(np.array([5], np.uint32), np.array([NOW + 10], np.int64))
    tasks.add_records(
        events((1, 4, 4, b"a"), (20, 5, 5, b"dd"), (30, 4, 4, b"a"), (40, 4, 4, b"b"))
    )
    # THEN they point to the same name, and names stand once per change
    assert tasks.table().comm[before[0]] == "dd"
    assert tasks.table().comm.tolist() == ["dd", "a", "b"]
    assert tasks.table().tid.tolist() == [5, 4, 4]


def test_names_that_are_no_text() -> None:
    # GIVEN a comm of 16 bytes, and one of bytes that are no UTF-8 / WHEN read / THEN readable
    tasks = TaskNames()
    tasks.add_records(events((1, 1, 1, b"x" * 16), (2, 2, 2, b"\xff\xfea")))
    assert tasks.table().comm.tolist() == ["x" * 16, "\ufffd\ufffda"]


def test_names_by_tid_not_by_place() -> None:
    # GIVEN many threads renamed at the same times / WHEN asked / THEN each has its own
    tasks = TaskNames()
    names = [(t, tid, tid, b"%d-%d" % (tid, t)) for t in (10, 20, 30) for tid in range(1, 40)]
    tasks.add_records(events(*names))
    asked = [(tid, t) for tid in range(1, 40) for t in (10, 15, 29, 31)]
    wanted = [f"{tid}-{t // 10 * 10}" for tid, t in asked]
    assert named(tasks, *asked) == wanted
