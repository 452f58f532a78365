# SPDX-License-Identifier: Apache-2.0
"""Hosts whose /sys, /dev and /proc are folders: devices of many kinds without any hardware."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biotrail.recorder.host import devices


def dev(major: int, minor: int) -> int:
    return major << 20 | minor


@dataclass
class Host:
    """A host's /sys, /dev and /proc in a folder."""

    root: Path
    nodes: dict[str, int] = field(default_factory=dict)

    @property
    def roots(self) -> devices.Roots:
        base = {name: str(self.root / name) for name in ("sys", "dev", "proc")}
        return devices.Roots(**base, number=self.number)

    def number(self, path: str) -> int | None:
        return self.nodes.get(os.path.realpath(path))

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / target)

    def add(self, where: str, number: str, sectors: int, **attributes: str) -> str:
        """A device at sys/devices/<where>; attributes' "__" stands for "/"."""
        base = f"sys/devices/{where}"
        self.write(f"{base}/dev", f"{number}\n")
        self.write(f"{base}/size", f"{sectors}\n")
        for name, text in attributes.items():
            self.write(f"{base}/{name.replace('__', '/')}", f"{text}\n")
        self.link(f"sys/dev/block/{number}", base)
        name = Path(where).name.replace("!", "/")
        self.write(f"dev/{name}", "")
        major, minor = map(int, number.split(":"))
        self.nodes[os.path.realpath(self.root / "dev" / name)] = dev(major, minor)
        return base

    def slave(self, upper: str, lower: str) -> None:
        self.link(f"{upper}/slaves/{Path(lower).name}", lower)

    def mounts(self, *lines: str) -> None:
        self.write("proc/self/mountinfo", "".join(f"{line}\n" for line in lines))

    def snapshot(self) -> dict[str, dict[str, Any]]:
        return {entry["name"]: entry for entry in devices.snapshot(self.roots)}


NVME = "pci0/nvme/nvme0/nvme0n1"


def server(root: Path) -> Host:
    """A server: NVMe with partitions, LVM on one, RAID 1 of two disks, a loop device."""
    made = Host(root)
    data = _nvme(made)
    lv = made.add("virtual/block/dm-0", "253:0", 700, dm__name="vg-home", dm__uuid="LVM-xyz")
    made.slave(lv, data)
    page = b"\0\x80\0\x06SN0042"
    for i, name in enumerate(("sda", "sdb")):
        disk = made.add(f"scsi/{name}", f"8:{16 * i}", 5000, queue__rotational="1")
        (made.root / disk / "device").mkdir()
        (made.root / disk / "device/vpd_pg80").write_bytes(page)
    md = made.add(
        "virtual/block/md127", "9:127", 4990, md__level="raid1", md__raid_disks="2",
        md__chunk_size="0", md__array_state="clean",
    )  # fmt: skip
    made.slave(md, "sys/devices/scsi/sdb")
    made.slave(md, "sys/devices/scsi/sda")
    made.add(
        "virtual/block/loop0", "7:0", 64, loop__backing_file="/images/a b.img", loop__dio="1",
        loop__offset="4096", loop__sizelimit="0",
    )  # fmt: skip
    made.add("virtual/block/loop1", "7:1", 0)
    made.add("scsi/cciss!c0d0", "104:0", 10)
    _names(made)
    return made


def _nvme(made: Host) -> str:
    """Add an NVMe disk with two partitions; the directory of the second one."""
    nvme = made.add(
        NVME,
        "259:0",
        1000,
        ro="0",
        removable="0",
        queue__scheduler="[none] mq-deadline kyber",
        queue__rotational="0",
        queue__write_cache="write back",
        queue__nr_requests="1023",
        queue__max_sectors_kb="1280",
        queue__logical_block_size="512",
        queue__zoned="none",
        mq__0__cpu_list="0",
        mq__1__cpu_list="1",
        device__model="Samsung SSD 980 PRO    ",
        device__serial="S5GX  ",
        device__firmware_rev="5B2QGXA7",
        wwid="eui.0025",
    )
    made.add(f"{NVME}/nvme0n1p1", "259:1", 100, partition="1", start="8", ro="0")
    data = made.add(f"{NVME}/nvme0n1p2", "259:2", 800, partition="2", start="200", ro="1")
    made.link(f"{nvme}/device/driver", "sys/drivers/nvme")
    return data


def _names(made: Host) -> None:
    """Mount some of the devices, and link further names to them."""
    made.mounts(
        "20 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw",
        "21 20 253:0 / /home rw - ext4 /dev/mapper/vg-home rw",
        "22 20 253:0 /bind /srv/my\\040files rw - ext4 /dev/mapper/vg-home rw",
        "23 20 0:5 / /proc rw - proc proc rw",
    )
    made.link("dev/mapper/vg-home", "dev/dm-0")
    made.link("dev/disk/by-id/nvme-Samsung-part2", "dev/nvme0n1p2")
    made.link("dev/disk/by-label/my\\x20data", "dev/sda")
