# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: three kinds of disk at once; call stacks; what doctor says."""

import os

from tests.vm.guest_case import Case, disk, fio, run
from tests.vm.guest_repeats import until_whole

JOBS = {"rw": "randrw", "size": "2m"}


def doctor(case: Case) -> None:
    case.told["tracepoints"] = os.listdir("/sys/kernel/tracing/events/block")
    (case.directory / "doctor.json").write_text(run(".venv/bin/biotrail", "doctor", "--json"))


def three_disks(case: Case) -> None:
    disks = [disk("nvme0"), disk("scsi0"), disk("virtio")]
    load = fio(output=case.directory / "log.json", **JOBS)
    for name in disks:
        load += [f"--name={name}", f"--filename=/dev/{name}"]
    load = [word for word in load if word != "--name=job"]
    until_whole(case, lambda: case.record(disks, load))
    case.told["devices"] = disks


def call_stacks(case: Case) -> None:
    """A program that reads one disk directly."""
    disks = [disk("virtio")]
    load = fio(filename=f"/dev/{disks[0]}", output=case.directory / "log.json",
               ioengine="psync", iodepth=1, rw="randread")  # fmt: skip
    until_whole(case, lambda: case.record(disks, load, more=["--stacks", "--user-stacks"]))
    case.told["devices"] = disks


CASES = (doctor, three_disks, call_stacks)
