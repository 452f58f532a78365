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
from tests.support.devices import LoopDevice
from tests.support.record_command import biotrail, recorder, remove_cgroup

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
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


def grouped(log: Path, by: str) -> list[dict[str, Any]]:
    told = json.loads(biotrail("report", "--json", "--by", by, log).stdout)
    return list(told["groups"])


def test_cgroups_of_each_form_have_their_names(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a cgroup of each form, in the hierarchy that I/O is charged in, and a pod's log
    where, log = cgroups.hierarchy(), tmp_path / "log"
    assert where is not None
    places = [Path(where.mount) / form.lstrip("/") for form in FORMS]
    with ExitStack() as stack:
        stack.enter_context(directories(places, of_cgroups=True))
        for place in places if where.unified else []:
            for above in reversed(place.relative_to(where.mount).parents):
                (Path(where.mount) / above / "cgroup.subtree_control").write_text("+io")
        stack.enter_context(pod(UID, "web-0", "nginx", number(6)))
        # WHEN each reads while recording
        with recorder("-d", loop_device.path, "-o", log) as recording:
            for count, place in enumerate(places, 1):
                read(loop_device, count, place)
            recording.terminate()
            recording.communicate(timeout=60)
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
        with recorder("-o", log) as recording:
            wait = "/bin/busybox touch /go; until /bin/busybox [ -e /done ]; do :; done"
            _podman("exec", name, "/bin/busybox", "sh", "-c", wait)
            recording.terminate()
            recording.communicate(timeout=60)
    finally:
        _podman("rm", "-f", "-t", "0", name)
    # THEN what it wrote is the container's, by its name
    mine = [one for one in grouped(log, "container") if one["container_id"] == number]
    assert {one["container"] for one in mine} == {name}
    assert {one["runtime"] for one in mine} == {"podman"}
    assert sum(one["bytes"] for one in mine) >= 20 << 16
