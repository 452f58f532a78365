# SPDX-License-Identifier: Apache-2.0
"""Cgroups that are chosen by the names of units, containers and pods."""

import pytest

from biotrail.recorder.schema.cgroup_names import CgroupNames, NamedCgroups

A, B = "a1" * 32, "b2" * 32
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
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
