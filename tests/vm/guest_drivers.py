# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: what the drivers nvme, scsi and loop did with requests."""

from pathlib import Path

from tests.vm.guest_case import Case, disk, fio, module, put, run, scheduler
from tests.vm.guest_cgroups import MOUNT, mounted
from tests.vm.guest_faults import HOST_BUSY, TIMEOUT, inject, scsi_debug
from tests.vm.guest_repeats import until_whole

MORE = ["--path=driver,irq"]


def _recorded(case: Case, name: str) -> None:
    """Records direct reads and writes on a disk."""
    case.told["devices"] = [name]
    module("loop")
    report = f"--output={case.directory / 'log.json'}"
    load = [*fio(filename=f"/dev/{name}"), report]
    until_whole(case, lambda: case.record([name], load, more=MORE))


def nvme_steps(case: Case) -> None:
    """An NVMe disk of several queues; `doctor` says which drivers the kernel has."""
    _recorded(case, disk("nvme0"))
    doctor = run(".venv/bin/biotrail", "doctor", "--json")
    (case.directory / "doctor.json").write_text(doctor, encoding="utf-8")


def scsi_steps(case: Case) -> None:
    """A virtio-scsi disk, whose scheduler sends each request on."""
    name = disk("scsi0")
    scheduler(name, "none")
    _recorded(case, name)


def ata_steps(case: Case) -> None:
    """A disk of libata, which is below SCSI."""
    _recorded(case, disk("ata0"))


def loop_steps(case: Case) -> None:
    module("loop")
    with mounted(disk("scsi1")):
        file = Path(MOUNT) / "disk"
        run("dd", "if=/dev/zero", f"of={file}", "bs=64k", "count=64", "conv=fsync", "status=none")
        path = run("losetup", "--find", "--show", "--direct-io=on", file).strip()
        try:
            _recorded(case, Path(path).name)
        finally:
            run("losetup", "--detach", path)


def scsi_busy(case: Case) -> None:
    """A SCSI host that refuses every seventh command."""
    name = scsi_debug()
    inject(HOST_BUSY, 7)
    try:
        _recorded(case, name)
    finally:
        inject(0, 0)


def scsi_late(case: Case) -> None:
    """A SCSI host that never answers every 60th command, which times out after two seconds."""
    name = scsi_debug()
    limit = Path(f"/sys/block/{name}/device/timeout")
    usual = limit.read_text()
    put(limit, 2)
    inject(TIMEOUT, 60)
    try:
        _recorded(case, name)
    finally:
        inject(0, 0)
        put(limit, usual.strip())


CASES = (nvme_steps, scsi_steps, ata_steps, loop_steps, scsi_busy, scsi_late)
