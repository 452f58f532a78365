# SPDX-License-Identifier: Apache-2.0
"""I/O of real cgroups, named as systemd, runtimes and the kubelet name theirs, has their names."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.host import cgroups
from biotrail.recorder.host.device_mounts import Mount
from tests.support.devices import LoopDevice
from tests.support.record_command import (
    in_json,
    recorded,
    recorder,
    remove_cgroup,
    wait_for_size,
    wait_until,
)

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(cgroups.hierarchy() is None, reason="no cgroups are mounted here"),
]


MINE = f"{os.getpid():08x}"
UID = f"{MINE}-d9cb-469f-a165-70867728950e"
UID_2 = f"{MINE}-d9cb-469f-a165-70867728950f"


def number(place: int) -> str:
    """The id of a container of this test."""
    return f"{MINE}{place:056x}"


POD_SLICE = f"kubepods-burstable-pod{UID_2.replace('-', '_')}.slice"
FORMS = (
    f"/system.slice/bt-{MINE}.service",
    f"/user.slice/user-1.slice/user@1.service/app.slice/bt-{MINE}.scope",
    f"/docker/{number(2)}",
    f"/system.slice/docker-{number(3)}.scope",
    f"/machine.slice/libpod-{number(4)}.scope/container",
    f"/default/{number(5)}",
    f"/kubepods/burstable/pod{UID}/{number(6)}",
    f"/kubepods.slice/kubepods-burstable.slice/{POD_SLICE}/cri-containerd-{number(7)}.scope",
    f"/kubepods.slice/kubepods-burstable.slice/{POD_SLICE}/crio-{number(8)}.scope",
    f"/lxc.payload.bt-{MINE}/init.scope",
    rf"/machine.slice/machine-qemu\x2d1\x2dbt\x2d{MINE}.scope/libvirt/emulator",
)
"""The cgroup at place N does N + 1 reads."""


@contextmanager
def directories(paths: list[Path], *, of_cgroups: bool = False) -> Iterator[None]:
    """Make directories with those above them; remove what was made at the block's end."""
    made: list[Path] = []
    try:
        for path in paths:
            for one in (*reversed(path.parents), path):
                if not one.exists():
                    one.mkdir()
                    made.append(one)
        yield
    finally:
        for one in reversed(made):
            remove_cgroup(one) if of_cgroups else one.rmdir()


@contextmanager
def pod(uid: str, name: str, container: str, id_: str) -> Iterator[None]:
    """What the kubelet keeps below /var/log for a pod with a container."""
    log = Path(f"/var/log/pods/shop_{name}_{uid}/{container}")
    link = Path(f"/var/log/containers/{name}_shop_{container}-{id_}.log")
    with directories([log, link.parent]):
        link.symlink_to(log / "0.log")
        try:
            yield
        finally:
            link.unlink()


def read(loop: LoopDevice, reads: int, cgroup: Path) -> None:
    """Do direct reads in a cgroup."""
    line = f'echo $$ > "$0/cgroup.procs"; exec dd if={loop.path} of=/dev/null bs=4k iflag=direct'
    command = ["bash", "-c", f"{line} count={reads} status=none", str(cgroup)]
    subprocess.run(command, check=True, timeout=60)


def grouped(log: Path, by: str) -> Any:
    return in_json("report", "--by", by, log)["groups"]


def hierarchy() -> Mount:
    found = cgroups.hierarchy()
    assert found is not None
    return found


def place(form: str) -> Path:
    """The directory of a cgroup."""
    return Path(hierarchy().point) / form.lstrip("/")


@contextmanager
def made(*forms: str) -> Iterator[None]:
    """Cgroups that I/O is charged to, until the block ends."""
    where, places = hierarchy(), [place(form) for form in forms]
    with directories(places, of_cgroups=True):
        for one in places if where.fstype == "cgroup2" else []:
            for above in reversed(one.relative_to(where.point).parents):
                (Path(where.point) / above / "cgroup.subtree_control").write_text("+io")
        yield


@contextmanager
def docker_name(id_: str, name: str) -> Iterator[None]:
    """What Docker keeps of a container."""
    directory = Path("/var/lib/docker/containers") / id_
    with directories([directory]):
        (directory / "config.v2.json").write_text(json.dumps({"Name": f"/{name}"}))
        try:
            yield
        finally:
            (directory / "config.v2.json").unlink()


def test_cgroups_of_each_form_have_their_names(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a cgroup of each form, in the hierarchy that I/O is charged in, and a pod's log
    log = tmp_path / "log"
    with ExitStack() as stack:
        stack.enter_context(made(*FORMS))
        stack.enter_context(pod(UID, "web-0", "nginx", number(6)))
        # WHEN each reads while recording
        with recorded("-d", loop_device.path, "-o", log):
            for count, form in enumerate(FORMS, 1):
                read(loop_device, count, place(form))
    # THEN units have the reads
    units = {one["unit"]: one["ios"] for one in grouped(log, "unit")}
    assert units[f"bt-{MINE}.service"] == 1
    assert units[f"bt-{MINE}.scope"] == 2
    # AND containers and guests, with the names that are known
    found = {
        (one["runtime"], one["container"], one["container_id"]): one["ios"]
        for one in grouped(log, "container")
        if one["cgroup_kind"] == "container"
    }
    assert found == {
        ("docker", None, number(2)): 3,
        ("docker", None, number(3)): 4,
        ("podman", None, number(4)): 5,
        ("containerd", None, number(5)): 6,
        (None, "nginx", number(6)): 7,
        ("containerd", None, number(7)): 8,
        ("cri-o", None, number(8)): 9,
        ("lxc", f"bt-{MINE}", f"bt-{MINE}"): 10,
        ("qemu", f"bt-{MINE}", f"bt-{MINE}"): 11,
    }
    # AND pods and namespaces
    pods = {(p["namespace"], p["pod"], p["pod_uid"]): p["ios"] for p in grouped(log, "pod")}
    assert pods["shop", "web-0", UID] == 7
    assert pods[None, None, UID_2] == 17
    namespaces = {one["namespace"]: one["ios"] for one in grouped(log, "namespace")}
    assert namespaces["shop"] == 7


def test_cgroups_that_live_for_a_moment_keep_their_names(
    loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording on a host with Docker
    log = tmp_path / "log"
    unit, container = f"bt-{MINE}-short.service", number(90)
    deep = f"/system.slice/{unit}/" + "/".join("abcdefghijklm")
    long = f"/system.slice/{'n' * 200}-{MINE}.service"
    odd = f"/system.slice/bt-{MINE}\x1b[2J \udcff.scope"
    with docker_name(number(91), "long"), recorded("-d", loop_device.path, "-o", log):
        # WHEN a unit's and a container's cgroup are made, read and are removed meanwhile, one that
        # is 15 levels deep, one with a long name, and one with a hostile name
        for count, form in enumerate(
            (f"/system.slice/{unit}", f"/docker/{container}", deep, long, odd), 1
        ):
            with docker_name(container, "short"), made(form):
                before = log.stat().st_size
                read(loop_device, count, place(form))
                wait_for_size(log, before + 1)  # the recorder has met it
                if form == f"/docker/{container}":
                    wait_until(lambda: name_of(container, log) == "short", "it has no name")
    # THEN all of them are known, by their paths and names
    found = {one["cgroup"]: one["ios"] for one in grouped(log, "cgroup")}
    assert found[f"/docker/{container}"] == 2
    assert (found[deep], found[long], found[odd.replace("\udcff", "\ufffd")]) == (3, 4, 5)
    units = {one["unit"]: one["ios"] for one in grouped(log, "unit")}
    assert units[unit] == 1 + 3
    assert name_of(container, log) == "short"


def name_of(container: str, log: Path) -> str | None:
    found = {one["container_id"]: one["container"] for one in grouped(log, "container")}
    return found.get(container)


PODMAN = ("podman", "--runtime", "runc")
LIMITS = ("--network=host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def _podman(*words: str) -> str:
    done = subprocess.run([*PODMAN, *words], capture_output=True, text=True, timeout=120)
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image with busybox alone."""
    box = shutil.which("busybox")
    if shutil.which("podman") is None or shutil.which("runc") is None or box is None:
        pytest.skip("needs podman, runc and busybox")
    (tmp_path / "root" / "bin").mkdir(parents=True)
    shutil.copy(box, tmp_path / "root" / "bin" / "busybox")
    subprocess.run(["tar", "-C", tmp_path / "root", "-cf", tmp_path / "tar", "."], check=True)
    name = f"localhost/biotrail-test-{MINE}"
    if not _podman("import", str(tmp_path / "tar"), name):
        pytest.skip("podman does not work here")
    yield name
    _podman("rmi", "-f", name)


def test_a_container_of_podman_has_its_name(image: str, tmp_path: Path) -> None:
    # GIVEN a container that waits for a file, then writes 20 x 64 KiB directly
    name, log = f"bt-{MINE}", tmp_path / "log"
    load = (
        "while ! busybox [ -e /go ]; do busybox sleep 0.1; done; "
        "busybox dd if=/dev/zero of=/x bs=64k count=20 oflag=direct; busybox touch /done; "
        "busybox sleep 60"
    )
    number = _podman("run", "-d", "--name", name, *LIMITS, image, "/bin/busybox", "sh", "-c", load)
    if not number:
        pytest.skip("podman runs no container here")
    try:
        # WHEN it writes while recording
        with recorded("-o", log):
            wait = "/bin/busybox touch /go; until /bin/busybox [ -e /done ]; do :; done"
            _podman("exec", name, "/bin/busybox", "sh", "-c", wait)
    finally:
        _podman("rm", "-f", "-t", "0", name)
    # THEN what it wrote is the container's, by its name
    mine = [one for one in grouped(log, "container") if one["container_id"] == number]
    assert {one["container"] for one in mine} == {name}
    assert {one["runtime"] for one in mine} == {"podman"}
    assert sum(one["bytes"] for one in mine) >= 20 << 16


# Filters by units, containers and pods admit those that are there, and those that appear later.

UNIT = f"bt-{MINE}-filter"
GUEST = f"bt-{MINE}-guest"
SHORT = f"84{MINE}{0:054x}"
LATER = {
    f"--unit={UNIT}-later.service": f"/system.slice/{UNIT}-later.service",
    f"--container=bt-{MINE}-web": f"/system.slice/docker-{number(71)}.scope",
    f"--container={SHORT[:16]}": f"/machine.slice/libpod-{SHORT}.scope",
    f"--container={GUEST}": "/machine.slice/machine-qemu"
    + rf"\x2d1\x2d{GUEST}.scope".replace("-", r"\x2d"),
    "--pod=shop/web-0": f"/kubepods/burstable/pod{UID}/{number(73)}",
}
"""Option → the cgroup that bears the name."""


def ios(log: Path) -> dict[str, int]:
    """I/Os of a log by cgroup."""
    told = in_json("report", log)
    return {one["cgroup"]: one["ios"] for one in told["cgroups"]}


@pytest.mark.parametrize("events", ["lifecycle", "light"])
def test_named_cgroups_are_recorded_when_they_appear(
    loop_device: LoopDevice, tmp_path: Path, events: str
) -> None:
    log = tmp_path / "log"
    there, other = f"/system.slice/{UNIT}.service", f"/system.slice/{UNIT}-other.service"
    options = ["-d", loop_device.path, "-o", log, "--events", events, f"--unit={UNIT}", *LATER]
    with ExitStack() as stack:
        # GIVEN a unit that is asked for, one that is not, and names of what is not there yet
        stack.enter_context(made(there, other))
        stack.enter_context(docker_name(number(71), f"bt-{MINE}-web"))
        stack.enter_context(pod(UID, "web-0", "nginx", number(73)))
        with recorder(*options) as recording:
            assert recording.stderr is not None
            said = [recording.stderr.readline() for _ in LATER]
            # WHEN both read, and what was asked for appears, and reads once it is said to be there
            read(loop_device, 1, place(there))
            read(loop_device, 30, place(other))
            for count, form in enumerate(LATER.values(), 2):
                with made(form):
                    said.append(recording.stderr.readline())
                    read(loop_device, count, place(form))
                    # AND in a cgroup below, whose I/O is charged there from the beginning
                    with made(f"{form}/below"):
                        read(loop_device, count, place(f"{form}/below"))
            recording.terminate()
            _, rest = recording.communicate(timeout=60)
    # THEN it is said which were not there, and that they came
    for option, waiting, come in zip(LATER, said, said[len(LATER) :], strict=False):
        shown = option.replace("=", " ")
        assert f"{shown}: there is none now; it is recorded when it appears" in waiting
        assert f"{shown} has appeared, and is recorded from now on" in come
    assert "of other cgroups" in rest
    # AND they are recorded, with what is below, and nothing else is
    assert ios(log) == {
        there: 1,
        **{form: count for count, form in enumerate(LATER.values(), 2)},
        **{f"{form}/below": count for count, form in enumerate(LATER.values(), 2)},
    }
    # AND a log can be cut by the same names
    for count, (option, form) in enumerate(LATER.items(), 2):
        told = in_json("report", option, log)
        assert {one["cgroup"] for one in told["cgroups"]} == {form, f"{form}/below"}
        assert sum(one["ios"] for one in told["cgroups"]) == 2 * count


def test_lives_of_a_named_unit_that_appears(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN bios that are followed of a unit that is not there
    log = tmp_path / "log"
    form = f"/system.slice/{UNIT}-pairs.service"
    with recorder("-d", loop_device.path, "-o", log, f"--unit={UNIT}-pairs", "--follow", "bio") as (
        recording
    ):
        assert recording.stderr is not None
        # WHEN it appears and reads
        recording.stderr.readline()
        with made(form):
            recording.stderr.readline()
            read(loop_device, 7, place(form))
        recording.terminate()
        recording.communicate(timeout=60)
    # THEN its reads are recorded
    assert ios(log) == {form: 7}
