# SPDX-License-Identifier: Apache-2.0
"""The note of containers' names: when names are asked for, and what becomes of failures."""

import io
from collections.abc import Iterable
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.notes.cgroups import ContainerWatch, NamesChild
from biotrail.recorder.output.series import Background
from biotrail.recorder.schema.payloads import ContainersNote

A, B = "a1" * 32, "b2" * 32
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
EMPTY: ContainersNote = {"containers": {}, "pods": {}}


class Names(NamesChild):
    """Answers from a table, and keeps what it was asked."""

    def __init__(self, known: ContainersNote) -> None:
        self.known, self.asked = known, list[tuple[set[str], set[str]]]()

    def ask(self, containers: Iterable[str], pods: Iterable[str]) -> ContainersNote:
        self.asked.append((set(containers), set(pods)))
        return self.known


def test_names_are_asked_for_until_they_are_known_or_given_up() -> None:
    # GIVEN a container with a name, and one without
    names, now = Names({"containers": {A: {"name": "web"}}, "pods": {}}), [0]
    watch = ContainerWatch(names, print, lambda: now[0])
    paths = ["/", f"/docker/{A}", f"/kubepods/pod{UID}/{B}", "/lxc/web", "/system.slice/x.service"]
    # WHEN their cgroups are new THEN all are asked for, and what was found is noted once
    watch.look(paths)
    assert watch.changes() == names.known
    assert watch.changes() is None
    # AND it is told once to who decides by names
    assert watch.unseen() == names.known
    assert watch.unseen() == EMPTY
    # AND the others are asked for again, with longer and longer pauses, until they are given up
    names.known, asked = EMPTY, list[int]()
    while (due := watch.due_ns()) is not None:
        now[0] = due - 1
        watch.look(paths)
        now[0] = due
        watch.look()
        asked.append(due // 1_000_000)
    assert asked == [200, 1_200, 6_200, 26_200]
    assert names.asked == [({A, B}, {UID}), *[({B}, {UID})] * 4]


def test_the_last_look_asks_for_all() -> None:
    # GIVEN a container whose name was not found WHEN it is the last look THEN it is asked for again
    names = Names(EMPTY)
    watch = ContainerWatch(names, print, lambda: 0)
    watch.look([f"/docker/{A}"])
    watch.look()
    watch.look(last=True)
    assert names.asked == [({A}, set()), ({A}, set())]


def test_nothing_is_asked_without_containers() -> None:
    # GIVEN cgroups of units / WHEN looked at / THEN the process is left alone
    names = Names(EMPTY)
    watch = ContainerWatch(names, print)
    watch.look(["/", "/system.slice/x.service"])
    assert (watch.changes(), names.asked) == (None, [])
    nobody = ContainerWatch(None, print)
    nobody.look([f"/docker/{A}"])
    assert nobody.changes() is None


def test_the_process_answers() -> None:
    # GIVEN the process that reads names / WHEN asked for a container that nobody has, twice
    child = NamesChild()
    try:
        for _ in range(2):
            # THEN it answers that nothing is known
            assert child.ask([A], [UID]) == EMPTY
    finally:
        child.close()
    # AND it ends with its input
    assert child._process.returncode == 0


@pytest.mark.parametrize("program", ["raise SystemExit", "import sys\nsys.stdin.close()"])
def test_a_process_that_ends_is_told_once(program: str, tmp_path: Path) -> None:
    # GIVEN a process that ends / WHEN names are looked for
    (tmp_path / "x.py").write_text(program)
    child, told = NamesChild(tmp_path / "x.py"), list[str]()
    watch = ContainerWatch(child, told.append)
    try:
        for _ in range(3):
            watch.look([f"/docker/{A}"], last=True)
            assert watch.changes() is None
    finally:
        child.close()
    # THEN it is said, once
    assert len(told) == 1
    assert told[0].startswith("names of containers: ids stand for those to come")


def test_later_files_of_a_recording_repeat_the_names() -> None:
    # GIVEN the facts that later files repeat / WHEN names come in two notes
    facts = Background({})
    facts.note("containers", {"containers": {A: {"name": "old"}}, "pods": {UID: {"name": "p"}}})
    facts.note("containers", {"containers": {A: {"name": "web"}}, "pods": {}})
    # THEN a later file begins with the newest of each
    stream = io.BytesIO()
    writer = LogWriter(stream, {"log_id": "0" * 32})
    facts.facts({"monotonic": 1, "boottime": 1, "realtime": 1}).write(writer)
    writer.close({})
    stream.seek(0)
    with LogReader(stream) as reader:
        list(reader.chunks())
        names = {"containers": {A: {"name": "web"}}, "pods": {UID: {"name": "p"}}}
        assert ("containers", names) in reader.notes
