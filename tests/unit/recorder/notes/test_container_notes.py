# SPDX-License-Identifier: Apache-2.0
"""Notes of cgroups, containers and CPUs: what is looked up, when, and what becomes of failures."""

import io
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from biotrail.recorder.host.cgroups import Hierarchy, number
from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.notes import cgroups
from biotrail.recorder.notes.cgroups import Admission, CgroupWatch, ContainerWatch, NamesChild
from biotrail.recorder.notes.cpus import CpuWatch
from biotrail.recorder.output.series import Background
from biotrail.recorder.schema.cgroup_names import NamedCgroups
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import ContainersNote

# The note of containers' names: when names are asked for, and what becomes of failures.

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
    assert watch.look(paths) == names.known
    assert watch.changes() == names.known
    assert watch.changes() is None
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


def test_when_names_are_asked_for_at_all() -> None:
    # GIVEN a container whose name was not found WHEN it is the last look THEN it is asked for again
    names = Names(EMPTY)
    watch = ContainerWatch(names, print, lambda: 0)
    watch.look([f"/docker/{A}"])
    watch.look()
    watch.look(last=True)
    assert names.asked == [({A}, set()), ({A}, set())]
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
    with closing(NamesChild()) as child:
        # THEN it answers that nothing is known
        assert [child.ask([A], [UID]) for _ in range(2)] == [EMPTY] * 2
    # AND it ends with its input
    assert child._process.returncode == 0


@pytest.mark.parametrize("program", ["raise SystemExit", "import sys\nsys.stdin.close()"])
def test_a_process_that_ends_is_told_once(program: str, tmp_path: Path) -> None:
    # GIVEN a process that ends / WHEN names are looked for
    (tmp_path / "x.py").write_text(program)
    told = list[str]()
    with closing(NamesChild(tmp_path / "x.py")) as child:
        watch = ContainerWatch(child, told.append)
        for _ in range(3):
            watch.look([f"/docker/{A}"], last=True)
            assert watch.changes() is None
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
    _, later = facts.begin({"monotonic": 1, "boottime": 1, "realtime": 1}, {})
    later.write(writer)
    writer.close({})
    stream.seek(0)
    with LogReader(stream) as reader:
        list(reader.chunks())
        names = {"containers": {A: {"name": "web"}}, "pods": {UID: {"name": "p"}}}
        assert ("containers", names) in reader.notes


# Cgroups that appear while recording: their paths, and which of them are admitted by name.


class Kernel:
    """Takes what is listed."""

    def __init__(self, named: NamedCgroups, where: Hierarchy | None = None) -> None:
        self.listed: list[tuple[int, bool]] = []
        self.said: list[str] = []
        self.admission = Admission(named, where, lambda *one: self.listed.append(one), self.tell)

    def tell(self, message: str) -> None:
        self.said.append(message)


def test_what_bears_a_name_is_admitted_when_it_appears() -> None:
    # GIVEN names, one of which is borne already
    kernel = Kernel(NamedCgroups(units=("db",), containers=("web",)))
    kernel.admission.begin({1: "/", 2: "/system.slice/db.service"}, EMPTY)
    # THEN the other one is said to be missing
    assert kernel.listed == [(2, True)]
    assert kernel.said == ["--container web: there is none now; it is recorded when it appears"]
    # WHEN a container appears, and has its name later
    kernel.admission.look({3: f"/docker/{A}", 4: f"/docker/{A}/sub"}, EMPTY)
    assert kernel.listed == [(2, True)]
    kernel.admission.look({}, {"containers": {A: {"name": "web"}}, "pods": {}})
    # THEN it is admitted, with which what is below it is, and that is said once
    assert kernel.listed[1:] == [(3, True)]
    kernel.admission.look({5: f"/docker/{A}/more", 6: "/a.slice/db.service"}, EMPTY)
    assert kernel.listed[2:] == [(6, True)]
    assert kernel.said[1:] == [
        f"--container web has appeared, and is recorded from now on: /docker/{A}"
    ]


def test_a_cgroup_that_is_not_charged_is_refused_or_said(tmp_path: Path) -> None:
    # GIVEN cgroups without the io controller, one there before
    where = Hierarchy(str(tmp_path), "/", unified=True)
    for name in ("a", "b"):
        (tmp_path / f"{name}.service").mkdir()
        (tmp_path / f"{name}.service" / "cgroup.controllers").write_text("memory")
    kernel = Kernel(NamedCgroups(units=("a", "b")), where)
    # WHEN recording would begin THEN it is refused
    with pytest.raises(ProbeError, match=r"--unit a: its I/O is charged to a cgroup above it"):
        kernel.admission.begin({1: "/a.service"}, EMPTY)
    # WHEN one appears later THEN it is said
    kernel.admission.look({2: "/b.service"}, EMPTY)
    assert kernel.said[0].startswith("--unit b: its I/O is charged to a cgroup above it")


def test_admitted_cgroups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for two
    monkeypatch.setattr(cgroups, "MAX_NAMED", 2)
    kernel = Kernel(NamedCgroups(units=("a",)), Hierarchy(str(tmp_path), "/"))
    paths = {one: f"/{one}.slice/a.service" for one in range(1, 5)}
    for one in (1, 2, 3):
        (tmp_path / paths[one].lstrip("/")).mkdir(parents=True)
    kernel.admission.begin({1: paths[1], 2: paths[2]}, EMPTY)
    # WHEN there is a third THEN it is left out, which is said
    kernel.admission.look({3: paths[3]}, EMPTY)
    assert kernel.listed == [(1, True), (2, True)]
    assert kernel.said == [
        "--unit a: 2 such cgroups are recorded, and further ones are left out until one of them "
        "ends"
    ]
    # WHEN one has ended THEN it makes room
    (tmp_path / paths[2].lstrip("/")).rmdir()
    kernel.admission.look({4: paths[4]}, EMPTY)
    assert kernel.listed[2:] == [(2, False), (4, True)]


def test_told_cgroups_and_those_of_directories_are_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a hierarchy of which a part is mounted, and programs that tell of two cgroups
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ids = {name: (tmp_path / name).stat().st_ino for name in ("a", "b")}
    told = [(ids["a"], "/docker/x/a"), (7, "/gone"), (8, None)]
    monkeypatch.setattr(
        "biotrail.recorder.host.cgroups.hierarchy", lambda: Hierarchy(str(tmp_path), "/")
    )
    watch = CgroupWatch(lambda: [told.pop() for _ in range(len(told))])
    # WHEN looked THEN both are there, by the whole path where it was told
    note = watch.changes()
    root = {str(tmp_path.stat().st_ino): "/"}
    expected = {**root, str(ids["a"]): "/docker/x/a", "7": "/gone", str(ids["b"]): "/b"}
    assert note == expected
    assert watch.unseen() == {int(key): path for key, path in expected.items()}
    # AND there is nothing new
    watch.walk()
    assert (watch.changes(), watch.unseen(), watch.due(0)) == (None, {}, False)


def test_the_number_of_the_hierarchy(tmp_path: Path) -> None:
    # GIVEN a process's cgroups WHEN v1's blkio is there THEN its number counts, else v2's, 0
    own = tmp_path / "cgroup"
    own.write_text("12:cpu,cpuacct:/\n7:blkio:/a:b\n0::/\n")
    assert number(own) == 7
    own.write_text("0::/user.slice\n")
    assert number(own) == 0
    assert number(tmp_path / "missing") == 0


# Samples of what kept threads from running: quotas of cgroups, and the hypervisor.


def host(place: Path, kind: str, options: str) -> tuple[Path, Path]:
    """A /proc and a hierarchy of cgroups with one called web."""
    proc, groups = place / "proc", place / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "web").mkdir(parents=True)
    mount = f"30 24 0:26 / {groups} rw - {kind} cgroup {options}\n"
    (proc / "self" / "mountinfo").write_text(mount)
    (groups / "cgroup.controllers").write_text("cpu io\n")
    steal(proc, 5)
    return proc, groups / "web"


def steal(proc: Path, ticks: int) -> None:
    (proc / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {ticks} 0 0\ncpu0 1\n")


@pytest.mark.parametrize(
    ("kind", "options", "quota", "stat"),
    [
        ("cgroup2", "rw", ("cpu.max", "50000 100000"), "throttled_usec {}"),
        ("cgroup", "rw,cpu,cpuacct", ("cpu.cfs_quota_us", "50000"), "throttled_time {}000"),
    ],
)
def test_what_grew_is_noted(
    tmp_path: Path, kind: str, options: str, quota: tuple[str, str], stat: str
) -> None:
    # GIVEN a cgroup with a quota
    proc, web = host(tmp_path, kind, options)
    (web / quota[0]).write_text(quota[1])
    (web / "cpu.stat").write_text("nr_periods 1\n" + stat.format(100))
    (web / "cgroup.procs").write_text("7\n")
    (web / "below").mkdir()
    (web / "below" / "cgroup.procs").write_text("8\n9\n")
    watch = CpuWatch(proc)
    # WHEN nothing grew / THEN nothing is noted
    assert watch.changes() is None
    # WHEN its threads were held, and the hypervisor ran others
    (web / "cpu.stat").write_text("nr_periods 2\n" + stat.format(350))
    steal(proc, 7)
    note = watch.changes()
    # THEN that is noted, for the time since the last look, and once
    assert note is not None
    assert note["throttled_ns"] == {"/web": 250_000}
    assert note["pids"] == {"/web": [7, 8, 9]}
    assert note["steal_ns"] > 0
    assert note["from"] < note["to"]
    assert watch.changes() is None


def test_cgroups_without_a_quota_and_hosts_without_cgroups(tmp_path: Path) -> None:
    # GIVEN a cgroup without a quota / WHEN looked at / THEN it is not watched
    proc, web = host(tmp_path, "cgroup2", "rw")
    (web / "cpu.max").write_text("max 100000")
    (web / "cpu.stat").write_text("throttled_usec 1")
    watch = CpuWatch(proc)
    (web / "cpu.stat").write_text("throttled_usec 9")
    assert watch.changes() is None
    # AND nothing is needed
    assert CpuWatch(tmp_path / "none").changes() is None
