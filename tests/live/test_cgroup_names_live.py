# SPDX-License-Identifier: Apache-2.0
"""I/O of real cgroups, named as systemd, runtimes and the kubelet name theirs, has their names."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from biotrail.recorder.host import cgroups
from tests.support.devices import LoopDevice
from tests.support.named_cgroups import (
    FORMS,
    MINE,
    UID,
    UID_2,
    docker_name,
    grouped,
    made,
    number,
    place,
    pod,
    read,
)
from tests.support.record_command import recorder, wait_for_size

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(cgroups.hierarchy() is None, reason="no cgroups are mounted here"),
]


def test_cgroups_of_each_form_have_their_names(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a cgroup of each form, in the hierarchy that I/O is charged in, and a pod's log
    where, log = cgroups.hierarchy(), tmp_path / "log"
    assert where is not None
    with ExitStack() as stack:
        stack.enter_context(made(where, *FORMS))
        stack.enter_context(pod(UID, "web-0", "nginx", number(6)))
        # WHEN each reads while recording
        with recorder("-d", loop_device.path, "-o", log) as recording:
            for count, form in enumerate(FORMS, 1):
                read(loop_device, count, place(where, form))
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


def test_cgroups_that_live_for_a_moment_keep_their_names(
    loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording
    where, log = cgroups.hierarchy(), tmp_path / "log"
    assert where is not None
    unit, container = f"bt-{MINE}-short.service", number(90)
    deep = f"/system.slice/{unit}/" + "/".join("abcdefghijklm")
    long = f"/system.slice/{'n' * 200}-{MINE}.service"
    odd = f"/system.slice/bt-{MINE}\x1b[2J \udcff.scope"
    with recorder("-d", loop_device.path, "-o", log) as recording:
        # WHEN a unit's and a container's cgroup are made, read and are removed meanwhile, one that
        # is 15 levels deep, one with a long name, and one with a hostile name
        for count, form in enumerate(
            (f"/system.slice/{unit}", f"/docker/{container}", deep, long, odd), 1
        ):
            with docker_name(container, "short"), made(where, form):
                before = log.stat().st_size
                read(loop_device, count, place(where, form))
                wait_for_size(log, before + 1)  # the recorder has met it
        recording.terminate()
        recording.communicate(timeout=60)
    # THEN all of them are known, by their paths and names
    found = {one["cgroup"]: one["ios"] for one in grouped(log, "cgroup")}
    assert found[f"/docker/{container}"] == 2
    assert (found[deep], found[long], found[odd.replace("\udcff", "\ufffd")]) == (3, 4, 5)
    units = {one["unit"]: one["ios"] for one in grouped(log, "unit")}
    assert units[unit] == 1 + 3
    names = {one["container_id"]: one["container"] for one in grouped(log, "container")}
    assert names[container] == "short"


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
