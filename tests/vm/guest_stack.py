# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: a file on ext4 on LVM on a mirror on two partitions."""

from pathlib import Path

from tests.vm.guest_case import Case, disk, module, run, tool, wait_for
from tests.vm.guest_repeats import until_whole

PARTITION_SECTORS = 196608
FILE = "/mnt/written"
WRITE = "64k"


def lvm(*words: object) -> str:
    settings = "activation{udev_sync=0 udev_rules=0 monitoring=0} devices{scan_lvs=0}"
    return run("lvm", *words, "--config", settings)


def partition(name: str) -> str:
    """Adds a partition to a disk, without a table on it."""
    run("addpart", f"/dev/{name}", 1, 2048, PARTITION_SECTORS)
    part = f"{name}p1" if name[-1].isdigit() else f"{name}1"
    wait_for(Path(f"/dev/{part}"))
    return part


def array(name: str, parts: list[str], *words: object) -> None:
    """An array that knows its disks by what is written on them."""
    usual = ("--run", f"--raid-devices={len(parts)}", "--metadata=1.2", "--assume-clean")
    disks = (f"/dev/{part}" for part in parts)
    run("mdadm", "--create", f"/dev/{name}", *usual, "--bitmap=none", *words, *disks)
    wait_for(Path(f"/dev/{name}"))


def volume(below: str, group: str) -> Path:
    lvm("pvcreate", f"/dev/{below}")
    lvm("vgcreate", group, f"/dev/{below}")
    lvm("lvcreate", "--yes", "-Zn", "-n", "data", "-L", "64m", group)
    return wait_for(Path(f"/dev/mapper/{group}-data"))


def dm_name(mapped: Path) -> str:
    """A volume's kernel name."""
    return f"dm-{run('dmsetup', 'info', '-c', '--noheadings', '-o', 'minor', mapped.name).strip()}"


def file_on_stack(case: Case) -> None:
    for needed in ("mdadm", "lvm", "mkfs.ext4", "addpart"):
        tool(needed)
    for needed in ("raid1", "dm-mod", "ext4"):
        module(needed)
    disks = [disk("nvme0"), disk("scsi0")]
    parts = [partition(name) for name in disks]
    array("md8", parts, "--level=1")
    mapped = volume("md8", "vmtest")
    top = dm_name(mapped)
    run("mkfs.ext4", "-q", mapped)
    run("mount", mapped, "/mnt")
    try:
        # Allocated and written once, so that the recorded write needs no block of its own.
        run("dd", "if=/dev/zero", f"of={FILE}", f"bs={WRITE}", "count=1", "conv=fsync")
        run("sync")
        write = ["dd", "if=/dev/urandom", f"of={FILE}", f"bs={WRITE}", "count=1",
                 "oflag=direct", "conv=notrunc,fsync"]  # fmt: skip
        until_whole(case, lambda: case.record([top, "md8", *disks], write))
    finally:
        run("umount", "/mnt")
    case.told |= {"devices": [top, "md8", *disks], "partitions": parts, "bytes": 65536}
    lvm("vgchange", "-an", "vmtest")
    run("mdadm", "--stop", "/dev/md8")
    for name in disks:
        run("delpart", f"/dev/{name}", 1)


CASES = (file_on_stack,)
