# SPDX-License-Identifier: Apache-2.0
"""Cgroups that appear while recording: their paths, and which of them are admitted by name."""

from pathlib import Path

import pytest

from biotrail.recorder.host.cgroups import Hierarchy, number
from biotrail.recorder.notes import cgroups
from biotrail.recorder.notes.cgroups import Admission, CgroupWatch
from biotrail.recorder.probes.maps.cgroup_maps import CgroupPath
from biotrail.recorder.schema.cgroup_names import NamedCgroups
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import ContainersNote

A = "a1" * 32
NO_NAMES: ContainersNote = {"containers": {}, "pods": {}}


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
    kernel.admission.begin({1: "/", 2: "/system.slice/db.service"}, NO_NAMES)
    # THEN the other one is said to be missing
    assert kernel.listed == [(2, True)]
    assert kernel.said == ["--container web: there is none now; it is recorded when it appears"]
    # WHEN a container appears, and has its name later
    kernel.admission.look({3: f"/docker/{A}", 4: f"/docker/{A}/sub"}, NO_NAMES)
    assert kernel.listed == [(2, True)]
    kernel.admission.look({}, {"containers": {A: {"name": "web"}}, "pods": {}})
    # THEN it is admitted, with which what is below it is, and that is said once
    assert kernel.listed[1:] == [(3, True)]
    kernel.admission.look({5: f"/docker/{A}/more", 6: "/a.slice/db.service"}, NO_NAMES)
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
        kernel.admission.begin({1: "/a.service"}, NO_NAMES)
    # WHEN one appears later THEN it is said
    kernel.admission.look({2: "/b.service"}, NO_NAMES)
    assert kernel.said[0].startswith("--unit b: its I/O is charged to a cgroup above it")


def test_admitted_cgroups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for two
    monkeypatch.setattr(cgroups, "MAX_NAMED", 2)
    kernel = Kernel(NamedCgroups(units=("a",)), Hierarchy(str(tmp_path), "/"))
    paths = {one: f"/{one}.slice/a.service" for one in range(1, 5)}
    for one in (1, 2, 3):
        (tmp_path / paths[one].lstrip("/")).mkdir(parents=True)
    kernel.admission.begin({1: paths[1], 2: paths[2]}, NO_NAMES)
    # WHEN there is a third THEN it is left out, which is said
    kernel.admission.look({3: paths[3]}, NO_NAMES)
    assert kernel.listed == [(1, True), (2, True)]
    assert kernel.said == [
        "--unit a: 2 such cgroups are recorded, and further ones are left out until one of them "
        "ends"
    ]
    # WHEN one has ended THEN it makes room
    (tmp_path / paths[2].lstrip("/")).rmdir()
    kernel.admission.look({4: paths[4]}, NO_NAMES)
    assert kernel.listed[2:] == [(2, False), (4, True)]


def test_told_cgroups_and_those_of_directories_are_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a hierarchy of which a part is mounted, and programs that tell of two cgroups
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ids = {name: (tmp_path / name).stat().st_ino for name in ("a", "b")}
    told = [CgroupPath(ids["a"], "/docker/x/a"), CgroupPath(7, "/gone"), CgroupPath(8, None)]
    monkeypatch.setattr(
        "biotrail.recorder.host.cgroups.hierarchy", lambda: Hierarchy(str(tmp_path), "/")
    )
    watch = CgroupWatch(lambda: [told.pop() for _ in range(len(told))])
    # WHEN looked THEN both are there, by the whole path where it was told
    note = watch.changes(always=True)
    root = {str(tmp_path.stat().st_ino): "/"}
    expected = {**root, str(ids["a"]): "/docker/x/a", "7": "/gone", str(ids["b"]): "/b"}
    assert note == expected
    assert watch.unseen() == {int(key): path for key, path in expected.items()}
    # AND there is nothing new
    assert (watch.changes(always=True), watch.unseen(), watch.due(0)) == (None, {}, False)


def test_the_number_of_the_hierarchy(tmp_path: Path) -> None:
    # GIVEN a process's cgroups WHEN v1's blkio is there THEN its number counts, else v2's, 0
    own = tmp_path / "cgroup"
    own.write_text("12:cpu,cpuacct:/\n7:blkio:/a:b\n0::/\n")
    assert number(own) == 7
    own.write_text("0::/user.slice\n")
    assert number(own) == 0
    assert number(tmp_path / "missing") == 0
