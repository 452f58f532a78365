# SPDX-License-Identifier: Apache-2.0
"""What a cgroup is by its path, in the forms in which programs name theirs."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.host import cgroups
from biotrail.recorder.host.device_mounts import Mount
from biotrail.recorder.schema.cgroup_names import CgroupNames, NamedCgroups
from biotrail.recorder.schema.cgroup_paths import CgroupName, identity

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
U_ID = UID.replace("-", "_")
STATIC = "4e" * 16
SYSTEM = "system.slice"
MACHINE = "machine.slice"
BURSTABLE = "kubepods-burstable.slice"
UID_SLICE = f"kubepods.slice/{BURSTABLE}/kubepods-burstable-pod{U_ID}.slice"
IN_POD_SLICE = {"slice": f"kubepods-burstable-pod{U_ID}.slice", "pod_uid": UID, "qos": "burstable"}
FORMS = {
    # systemd
    "/": {},
    "/init.scope": {"unit": "init.scope", "slice": "-.slice"},
    "/system.slice": {"slice": SYSTEM},
    "/system.slice/nginx.service": {"unit": "nginx.service", "slice": SYSTEM},
    "/system.slice/nginx.service/workers/1": {"unit": "nginx.service", "slice": SYSTEM},
    "/system.slice/_cpu.service": {"unit": "cpu.service", "slice": SYSTEM},
    "/system.slice/system-getty.slice/getty@tty1.service": {
        **{"unit": "getty@tty1.service", "slice": "system-getty.slice"}
    },
    "/system.slice/run-r1.scope": {"unit": "run-r1.scope", "slice": SYSTEM},
    "/user.slice/user-1000.slice/session-2.scope": {
        **{"unit": "session-2.scope", "slice": "user-1000.slice"}
    },
    "/user.slice/user-1000.slice/user@1000.service/init.scope": {
        **{"unit": "init.scope", "slice": "user-1000.slice"}
    },
    "/user.slice/user-1000.slice/user@1000.service/app.slice/app-web.scope": {
        **{"unit": "app-web.scope", "slice": "user-1000.slice"}
    },
    "/user.slice/user-1000.slice/user@1000.service": {
        **{"unit": "user@1000.service", "slice": "user-1000.slice"}
    },
    "/my.service.d/x": {},
    # Docker
    f"/docker/{A}": {"runtime": "docker", "container_id": A},
    f"/docker/{A}/init.scope": {"runtime": "docker", "container_id": A},
    f"/system.slice/docker-{A}.scope": {
        **{"unit": f"docker-{A}.scope", "slice": SYSTEM, "runtime": "docker", "container_id": A}
    },
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope": {
        **{"unit": f"docker-{A}.scope", "slice": "user-1000.slice"},
        **{"runtime": "docker", "container_id": A},
    },
    f"/system.slice/docker.service/system.slice:docker:{A}": {
        **{"unit": "docker.service", "slice": SYSTEM, "runtime": "docker", "container_id": A}
    },
    "/docker/buildkit": {},
    f"/docker/{A[:-1]}": {},
    f"/mine/{A}": {"container_id": A},
    # Podman
    f"/machine.slice/libpod-{A}.scope/container": {
        **{"unit": f"libpod-{A}.scope", "slice": MACHINE, "runtime": "podman", "container_id": A}
    },
    f"/machine.slice/libpod-conmon-{A}.scope": {
        **{"unit": f"libpod-conmon-{A}.scope", "slice": MACHINE},
        **{"runtime": "podman", "container_id": A, "monitor": True},
    },
    f"/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope": {
        **{"unit": f"libpod-{A}.scope", "slice": f"machine-libpod_pod_{B}.slice"},
        **{"runtime": "podman", "container_id": A, "pod_uid": B},
    },
    f"/user.slice/user-1.slice/user@1.service/user.slice/user-libpod_pod_{B}.slice/"
    f"libpod-{A}.scope/container": {
        **{"unit": f"libpod-{A}.scope", "slice": "user-1.slice"},
        **{"runtime": "podman", "container_id": A, "pod_uid": B},
    },
    f"/libpod_parent/libpod-{A}": {"runtime": "podman", "container_id": A},
    f"/libpod_parent/libpod-{A}/ctr": {"runtime": "podman", "container_id": A},
    f"/libpod_parent/{B}/libpod-{A}": {"runtime": "podman", "container_id": A, "pod_uid": B},
    f"/system.slice/web.service/libpod-payload-{A}": {
        **{"unit": "web.service", "slice": SYSTEM, "runtime": "podman", "container_id": A}
    },
    # containerd by itself
    f"/default/{A}": {"runtime": "containerd", "container_id": A},
    f"/system.slice/nerdctl-{A}.scope": {
        **{
            "unit": f"nerdctl-{A}.scope",
            "slice": SYSTEM,
            "runtime": "containerd",
            "container_id": A,
        }
    },
    # Kubernetes, cgroupfs
    f"/kubepods/burstable/pod{UID}/{A}": {"container_id": A, "pod_uid": UID, "qos": "burstable"},
    f"/kubepods/besteffort/pod{UID}/{A}": {"container_id": A, "pod_uid": UID, "qos": "besteffort"},
    f"/kubepods/pod{STATIC}/{A}": {"container_id": A, "pod_uid": STATIC, "qos": "guaranteed"},
    f"/kubepods/pod{UID}": {"pod_uid": UID, "qos": "guaranteed"},
    f"/kubepods/besteffort/pod{UID}/crio-{A}": {
        **{"runtime": "cri-o", "container_id": A, "pod_uid": UID, "qos": "besteffort"}
    },
    f"/pod{UID}/{A}": {"container_id": A},
    # Kubernetes, systemd
    f"/{UID_SLICE}": IN_POD_SLICE,
    f"/{UID_SLICE}/cri-containerd-{A}.scope": {
        **IN_POD_SLICE,
        **{"unit": f"cri-containerd-{A}.scope", "runtime": "containerd", "container_id": A},
    },
    f"/{UID_SLICE}/crio-{A}.scope/container": {
        **IN_POD_SLICE,
        **{"unit": f"crio-{A}.scope", "runtime": "cri-o", "container_id": A},
    },
    f"/{UID_SLICE}/crio-conmon-{A}.scope": {
        **IN_POD_SLICE,
        **{
            "unit": f"crio-conmon-{A}.scope",
            "runtime": "cri-o",
            "container_id": A,
            "monitor": True,
        },
    },
    f"/{UID_SLICE}/docker-{A}.scope": {
        **IN_POD_SLICE,
        **{"unit": f"docker-{A}.scope", "runtime": "docker", "container_id": A},
    },
    f"/kubepods.slice/kubepods-pod{STATIC}.slice/crio-{A}.scope": {
        **{"unit": f"crio-{A}.scope", "slice": f"kubepods-pod{STATIC}.slice", "runtime": "cri-o"},
        **{"container_id": A, "pod_uid": STATIC, "qos": "guaranteed"},
    },
    f"/system.slice/containerd.service/kubepods-besteffort-pod{U_ID}.slice:cri-containerd:{A}": {
        **{"unit": "containerd.service", "slice": SYSTEM, "runtime": "containerd"},
        **{"container_id": A, "pod_uid": UID, "qos": "besteffort"},
    },
    # LXC
    "/lxc/web": {"runtime": "lxc", "container_id": "web"},
    "/lxc/101/ns/system.slice/nginx.service": {"runtime": "lxc", "container_id": "101"},
    "/lxc.payload.web/init.scope": {"runtime": "lxc", "container_id": "web"},
    "/lxc.monitor.web": {"runtime": "lxc", "container_id": "web", "monitor": True},
    "/lxc.payload/web": {"runtime": "lxc", "container_id": "web"},
    "/lxc": {},
    "/mine/lxc/web": {},
    # libvirt, QEMU, nspawn
    r"/machine.slice/machine-qemu\x2d3\x2ddb\x2d01.scope/libvirt/vcpu0": {
        **{"unit": r"machine-qemu\x2d3\x2ddb\x2d01.scope", "slice": MACHINE},
        **{"runtime": "qemu", "container_id": "db-01"},
    },
    r"/machine.slice/machine-qemu\x2ddb.scope/emulator": {
        **{"unit": r"machine-qemu\x2ddb.scope", "slice": MACHINE},
        **{"runtime": "qemu", "container_id": "db"},
    },
    "/machine/qemu-3-db.libvirt-qemu/emulator": {"runtime": "qemu", "container_id": "db"},
    "/machine/prod.partition/db.libvirt-qemu": {"runtime": "qemu", "container_id": "db"},
    "/libvirt/qemu/db/vcpu0": {"runtime": "qemu", "container_id": "db"},
    "/qemu.slice/100.scope": {
        **{"unit": "100.scope", "slice": "qemu.slice", "runtime": "qemu", "container_id": "100"}
    },
    r"/machine.slice/machine-caf\xc3\xa9.scope/payload": {
        **{"unit": r"machine-caf\xc3\xa9.scope", "slice": MACHINE},
        **{"runtime": "nspawn", "container_id": "café"},
    },
    r"/machine.slice/machine-a\xff.scope": {
        **{"unit": r"machine-a\xff.scope", "slice": MACHINE},
        **{"runtime": "nspawn", "container_id": r"a\xff"},
    },
    "/machine.slice/systemd-nspawn@web.service/payload": {
        **{"unit": "systemd-nspawn@web.service", "slice": MACHINE},
        **{"runtime": "nspawn", "container_id": "web"},
    },
    # nested
    f"/system.slice/docker-{A}.scope/kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{U_ID}.slice/"
    f"cri-containerd-{B}.scope": {
        **{
            "unit": f"docker-{A}.scope",
            "slice": SYSTEM,
            "runtime": "containerd",
            "container_id": B,
        },
        **{"pod_uid": UID, "qos": "burstable"},
    },
    f"/kubepods/pod{UID}/{A}/docker/{B}": {
        **{"runtime": "docker", "container_id": B, "pod_uid": UID, "qos": "guaranteed"}
    },
    f"/lxc.payload.web/lxc/db/docker/{C}": {**{"runtime": "docker", "container_id": C}},
    f"/lxc.payload.web/system.slice/docker-{C}.scope": {**{"runtime": "docker", "container_id": C}},
}


@pytest.mark.parametrize("path", FORMS)
def test_a_path_tells_what_the_cgroup_is(path: str) -> None:
    # GIVEN the path of a cgroup as a program names it WHEN it is read, also without its first slash
    # THEN it is that unit, container, pod or guest
    expected = CgroupName(**FORMS[path])  # type: ignore[arg-type]
    assert identity(path) == expected
    assert identity(path.lstrip("/")) == expected


def test_a_tree_of_all_forms_is_known_by_walking_it(tmp_path: Path) -> None:
    # GIVEN a hierarchy with a directory of each form
    for path in FORMS:
        (tmp_path / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    # WHEN it is walked as the recorder does
    found = cgroups.paths(Mount(0, str(tmp_path), "cgroup", "", "/"))
    # THEN each has its path, by its directory's inode, and is what its path says
    for path, expected in FORMS.items():
        inode = os.stat(tmp_path / path.lstrip("/")).st_ino
        assert identity(found[inode]) == CgroupName(**expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        "/\x1b[2J.service",
        "/lxc/\n",
        "/machine.slice/machine-\\x.scope",
        "/\ud800",
        "//..//",
        "x" * 9999,
    ],
)
def test_any_text_can_be_a_path(path: str) -> None:
    # GIVEN paths that nobody made, WHEN they are read, THEN nothing fails
    assert identity(path).pod_uid is None


# Cgroups that are chosen by the names of units, containers and pods.

NAMES = CgroupNames({})
NAMES.add(
    {
        "containers": {A: {"name": "web", "pod": UID}},
        "pods": {UID: {"name": "web-0", "namespace": "shop"}},
    }
)


@pytest.mark.parametrize(
    ("named", "path", "held"),
    [
        # A unit by its whole name, or without .service; what is below it is its own.
        (NamedCgroups(units=("db.service",)), "/system.slice/db.service", True),
        (NamedCgroups(units=("db",)), "/system.slice/db.service/workers", True),
        (NamedCgroups(units=("db",)), "/system.slice/db.socket", False),
        (NamedCgroups(units=("a.b",)), "/system.slice/a.b.service", True),
        (NamedCgroups(units=("db",)), f"/docker/{A}/system.slice/db.service", False),
        # A slice, with all units in it.
        (NamedCgroups(units=("system.slice",)), "/system.slice/db.service", True),
        (NamedCgroups(units=("user.slice",)), "/system.slice/db.service", False),
        # A container by name, by id, or by a part of that.
        (NamedCgroups(containers=("web",)), f"/system.slice/docker-{A}.scope/init", True),
        (NamedCgroups(containers=(A,)), f"/docker/{A}", True),
        (NamedCgroups(containers=(A[:12],)), f"/docker/{A}", True),
        (NamedCgroups(containers=(A[:11],)), f"/docker/{A}", False),
        (NamedCgroups(containers=("web",)), f"/docker/{B}", False),
        (NamedCgroups(containers=("web",)), f"/docker/{A}/docker/{B}", True),
        (NamedCgroups(containers=("web",)), f"/machine.slice/libpod-conmon-{A}.scope", False),
        (NamedCgroups(containers=("vm",)), r"/machine.slice/machine-qemu\x2d1\x2dvm.scope/a", True),
        (NamedCgroups(containers=("vm",)), "/lxc.monitor.vm", False),
        # A pod by namespace and name, or by uid.
        (NamedCgroups(pods=("shop/web-0",)), f"/kubepods/pod{UID}/{B}", True),
        (NamedCgroups(pods=("shop/web-0",)), f"/docker/{A}", True),
        (NamedCgroups(pods=(UID,)), f"/kubepods/burstable/pod{UID}", True),
        (NamedCgroups(pods=("other/web-0",)), f"/kubepods/pod{UID}/{B}", False),
        # Any of several kinds.
        (NamedCgroups(("db",), ("web",)), f"/docker/{A}", True),
        (NamedCgroups(), "/system.slice/db.service", False),
    ],
)
def test_a_cgroup_is_held_by_its_name_or_one_above(
    named: NamedCgroups, path: str, held: bool
) -> None:
    # GIVEN names WHEN a cgroup is looked at THEN it is held if it or one above it bears one
    assert named.holds(path, NAMES) is held


@pytest.mark.parametrize(
    ("named", "path", "unknown"),
    [
        (NamedCgroups(containers=("web",)), f"/docker/{B}", True),
        (NamedCgroups(containers=("web",)), f"/docker/{A}", False),
        (NamedCgroups(pods=("a/b",)), f"/kubepods/pod{UID[:-1]}f/{B}", True),
        (NamedCgroups(units=("db",)), f"/docker/{B}", False),
    ],
)
def test_what_has_no_name_may_be_held(named: NamedCgroups, path: str, unknown: bool) -> None:
    # GIVEN names WHEN a container or pod has none in the log THEN it is not known whether it is one
    assert named.may_hold(path, NAMES) is unknown
