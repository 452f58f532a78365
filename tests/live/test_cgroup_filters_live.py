# SPDX-License-Identifier: Apache-2.0
"""Filters by units, containers and pods admit those that are there, and those that appear later."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from biotrail.recorder.host import cgroups
from tests.support.devices import LoopDevice
from tests.support.named_cgroups import MINE, UID, docker_name, made, number, place, pod, read
from tests.support.record_command import biotrail, recorder

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(cgroups.hierarchy() is None, reason="no cgroups are mounted here"),
]

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
    told = json.loads(biotrail("report", "--json", log).stdout)
    return {one["cgroup"]: one["ios"] for one in told["cgroups"]}


@pytest.mark.parametrize("events", ["lifecycle", "light"])
def test_named_cgroups_are_recorded_when_they_appear(
    loop_device: LoopDevice, tmp_path: Path, events: str
) -> None:
    where, log = cgroups.hierarchy(), tmp_path / "log"
    assert where is not None
    there, other = f"/system.slice/{UNIT}.service", f"/system.slice/{UNIT}-other.service"
    options = ["-d", loop_device.path, "-o", log, "--events", events, f"--unit={UNIT}", *LATER]
    with ExitStack() as stack:
        # GIVEN a unit that is asked for, one that is not, and names of what is not there yet
        stack.enter_context(made(where, there, other))
        stack.enter_context(docker_name(number(71), f"bt-{MINE}-web"))
        stack.enter_context(pod(UID, "web-0", "nginx", number(73)))
        with recorder(*options) as recording:
            assert recording.stderr is not None
            said = [recording.stderr.readline() for _ in LATER]
            # WHEN both read, and what was asked for appears, and reads once it is said to be there
            read(loop_device, 1, place(where, there))
            read(loop_device, 30, place(where, other))
            for count, form in enumerate(LATER.values(), 2):
                with made(where, form):
                    said.append(recording.stderr.readline())
                    read(loop_device, count, place(where, form))
                    # AND in a cgroup below, whose I/O is charged there from the beginning
                    with made(where, f"{form}/below"):
                        read(loop_device, count, place(where, f"{form}/below"))
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
        told = json.loads(biotrail("report", "--json", option, log).stdout)
        assert {one["cgroup"] for one in told["cgroups"]} == {form, f"{form}/below"}
        assert sum(one["ios"] for one in told["cgroups"]) == 2 * count


def test_lives_of_a_named_unit_that_appears(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN bios that are followed of a unit that is not there
    where, log = cgroups.hierarchy(), tmp_path / "log"
    assert where is not None
    form = f"/system.slice/{UNIT}-pairs.service"
    with recorder("-d", loop_device.path, "-o", log, f"--unit={UNIT}-pairs", "--follow", "bio") as (
        recording
    ):
        assert recording.stderr is not None
        # WHEN it appears and reads
        recording.stderr.readline()
        with made(where, form):
            recording.stderr.readline()
            read(loop_device, 7, place(where, form))
        recording.terminate()
        recording.communicate(timeout=60)
    # THEN its reads are recorded
    assert ios(log) == {form: 7}
