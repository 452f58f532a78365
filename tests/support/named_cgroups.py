# SPDX-License-Identifier: Apache-2.0
"""Real cgroups, named as systemd, runtimes and the kubelet name theirs, with loads in them."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biotrail.recorder.host.cgroups import Hierarchy
from tests.support.devices import LoopDevice
from tests.support.record_command import biotrail, remove_cgroup

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


def place(where: Hierarchy, form: str) -> Path:
    """The directory of a cgroup."""
    return Path(where.mount) / form.lstrip("/")


@contextmanager
def made(where: Hierarchy, *forms: str) -> Iterator[None]:
    """Cgroups that I/O is charged to, until the block ends."""
    places = [place(where, form) for form in forms]
    with directories(places, of_cgroups=True):
        for one in places if where.unified else []:
            for above in reversed(one.relative_to(where.mount).parents):
                (Path(where.mount) / above / "cgroup.subtree_control").write_text("+io")
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
