# SPDX-License-Identifier: Apache-2.0
"""The notes of titles: whose are looked up, when, and what is noted of them."""

from collections import deque

import pytest

from biotrail.recorder.log import Segment
from biotrail.recorder.notes import titles
from biotrail.recorder.notes.titles import Process, TitleWatch
from biotrail.recorder.schema.payloads import TitlesNote
from biotrail.recorder.schema.records import Kind
from tests.support import log_samples
from tests.support.chunks_by_hand import name_records
from tests.support.stack_logs import START, record


class Machine:
    """Processes by id; counts the looks."""

    def __init__(self, **processes: Process) -> None:
        self.processes = {int(pid[1:]): one for pid, one in processes.items()}
        self.looks: list[int] = []

    def look(self, pid: int, thread: int, comm: str, whole: bool) -> Process | None:
        self.looks.append(pid)
        return self.processes.get(pid)


def seen(watch: TitleWatch, *threads: tuple[int, int, bytes]) -> TitlesNote | None:
    """Has the watch see records of threads (process, thread, name); returns the note."""
    tasks = [record(Kind.TASK, START, tid=t, tgid=p, comm=c) for p, t, c in threads]
    data = log_samples.ring(tasks, 0) if tasks else b""
    return watch.changes(deque([name_records([Segment(0, 0, 0, data)]).tasks]))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is at known processes, too, and takes as long as it takes."""
    monkeypatch.setattr(titles, "AGAIN_NS", 0)
    monkeypatch.setattr(titles, "_LOOK_NS", 1 << 60)


CHECKPOINTER = Process("postgres", "postgres: checkpointer")


def test_a_process_is_noted_once_and_forgotten_when_it_is_gone() -> None:
    # GIVEN a process with a title, and one without
    machine = Machine(p7=CHECKPOINTER, p9=Process("cat", ""))
    watch = TitleWatch(False, machine.look)
    # WHEN threads of both are named / THEN the one with a title is noted, and not again
    note = seen(watch, (7, 7, b"postgres"), (7, 8, b"io worker"), (9, 9, b"cat"))
    assert note == {"7": {"comm": "postgres", "title": "postgres: checkpointer"}}
    assert seen(watch, (7, 7, b"postgres"), (9, 9, b"cat")) is None
    assert seen(watch) is None
    # GIVEN a process with a title / WHEN it is gone / THEN it is not looked at for ever
    machine = Machine(p7=CHECKPOINTER)
    watch = TitleWatch(False, machine.look)
    seen(watch, (7, 7, b"postgres"))
    machine.processes.clear()
    assert [seen(watch) for _ in range(5)] == [None] * 5
    assert len(machine.looks) < 5


def test_a_title_that_is_set_later_or_of_another_process_is_noted() -> None:
    # GIVEN a process that has no title at its first I/O
    machine = Machine(p7=Process("gunicorn", "python3 gunicorn"))
    watch = TitleWatch(False, machine.look)
    seen(watch, (7, 7, b"gunicorn"))
    # WHEN it sets one / THEN that is noted without another record
    machine.processes[7] = Process("gunicorn", "gunicorn: master [shop]")
    assert seen(watch) == {"7": {"comm": "gunicorn", "title": "gunicorn: master [shop]"}}
    # GIVEN a process with a title, and later another one of its number, without
    machine = Machine(p7=CHECKPOINTER)
    watch = TitleWatch(False, machine.look)
    seen(watch, (7, 7, b"postgres"))
    machine.processes[7] = Process("dd", "")
    # WHEN that is named / THEN it is noted that it has none
    assert seen(watch, (7, 7, b"dd")) == {"7": {"comm": "dd", "title": ""}}


def test_titles_that_always_change_are_noted_a_few_times() -> None:
    # GIVEN a process whose title says what it does at the moment
    machine = Machine(p7=Process("x", "x: 0"))
    watch = TitleWatch(False, machine.look)
    notes = [seen(watch, (7, 7, b"x"))]
    # WHEN it changes a hundred times THEN eight are noted, and it is not looked at any more
    for number in range(1, 100):
        machine.processes[7] = Process("x", f"x: {number}")
        notes.append(seen(watch))
    assert [note for note in notes if note] == notes[:8]
    assert len(machine.looks) < 20
