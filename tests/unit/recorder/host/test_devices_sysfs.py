# SPDX-License-Identifier: Apache-2.0
"""Devices from made-up sysfs trees: NVMe, partitions, dm, md, loop, btrfs, and races."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.host import device_paths, device_sysfs, devices
from biotrail.recorder.host.device_mounts import host_mounts, parse_mount, unescape
from biotrail.recorder.schema.device_numbers import kernel_dev
from biotrail.recorder.schema.errors import ProbeError

# Hosts whose /sys, /dev and /proc are folders.


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
        NVME, "259:0", 1000, ro="0", removable="0",
        queue__scheduler="[none] mq-deadline kyber", queue__rotational="0",
        queue__write_cache="write back", queue__nr_requests="1023", queue__max_sectors_kb="1280",
        queue__logical_block_size="512", queue__zoned="none",
        mq__0__cpu_list="0", mq__1__cpu_list="1", device__model="Samsung SSD 980 PRO    ",
        device__serial="S5GX  ", device__firmware_rev="5B2QGXA7", wwid="eui.0025",
    )  # fmt: skip
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


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return server(tmp_path)


def test_facts_of_each_kind_of_device(host: Host) -> None:
    # GIVEN disks, LVM on a partition, RAID 1 of two disks, and loop devices
    # WHEN a snapshot is taken
    found = host.snapshot()
    # THEN an NVMe disk has every fact, and no key for those it has not
    assert found["nvme0n1"] == {
        "dev": dev(259, 0), "name": "nvme0n1", "kind": "disk", "disk": dev(259, 0),
        "sectors": 1000, "scheduler": "none", "rotational": False, "write_cache": "write back",
        "queue": {
            "nr_requests": 1023, "max_sectors_kb": 1280, "logical_block_size": 512,
            "nr_hw_queues": 2,
        },
        "model": "Samsung SSD 980 PRO", "serial": "S5GX", "firmware": "5B2QGXA7",
        "wwid": "eui.0025", "driver": "nvme",
    }  # fmt: skip
    # AND each partition says where it lies on which disk, in sectors
    assert found["nvme0n1p1"] == {
        "dev": dev(259, 1), "name": "nvme0n1p1", "kind": "partition", "disk": dev(259, 0),
        "start": 8, "sectors": 100, "mounts": ["/"],
    }  # fmt: skip
    assert found["nvme0n1p2"]["start"] == 200
    assert found["nvme0n1p2"]["read_only"] is True
    # AND what is stacked names what is right below, ordered
    assert found["dm-0"]["kind"] == "dm"
    assert found["dm-0"]["dm_name"] == "vg-home"
    assert found["dm-0"]["dm_uuid"] == "LVM-xyz"
    assert found["dm-0"]["stacked_on"] == [dev(259, 2)]
    assert found["dm-0"]["mounts"] == ["/home", "/srv/my files"]
    assert found["md127"]["kind"] == "md"
    assert found["md127"]["md"] == {
        "level": "raid1", "disks": 2, "chunk_bytes": 0, "state": "clean",
    }  # fmt: skip
    assert found["md127"]["stacked_on"] == [dev(8, 0), dev(8, 16)]
    # AND the header of page 80h is not part of a SCSI disk's serial number
    assert found["sda"]["serial"] == "SN0042"
    # AND a loop device names its file, also one out of reach, and nothing below is made up
    assert found["loop0"]["loop"] == {
        "file": "/images/a b.img", "direct_io": True, "offset": 4096, "size_limit": 0,
    }  # fmt: skip
    assert found["loop1"] == {
        "dev": dev(7, 1), "name": "loop1", "kind": "loop", "disk": dev(7, 1), "sectors": 0,
    }  # fmt: skip


def test_a_file_names_the_device_below(host: Host) -> None:
    # GIVEN a file on a file system that the mounts know, a loop device over it
    image = host.root / "image"
    image.touch()
    below = kernel_dev(image.stat().st_dev)
    number = f"{below >> 20}:{below & 0xFFFFF}"
    host.add("scsi/sdz", number, 10)
    host.mounts(f"30 1 {number} / /data rw - ext4 /dev/sdz rw")
    host.add("virtual/block/loop2", "7:2", 8, loop__backing_file=str(image))
    # AND one over a block device
    host.add("virtual/block/loop3", "7:3", 8, loop__backing_file=str(host.root / "dev/sda"))
    # WHEN a snapshot is taken THEN each names the device
    found = host.snapshot()
    assert found["loop2"]["loop"]["backing_dev"] == below
    assert found["loop3"]["loop"]["backing_dev"] == dev(8, 0)
    # WHEN the file is given as a device THEN the error names the disk
    with pytest.raises(ProbeError, match="it lies on sdz: name that"):
        devices.resolve(str(image), host.roots)
    # GIVEN a node for a device that the kernel does not have WHEN it is resolved THEN that is said
    host.nodes[os.path.realpath(host.root / "dev/sda")] = dev(8, 240)
    with pytest.raises(ProbeError, match=r"8:240, which .* does not list"):
        devices.resolve(f"{host.root}/dev/sda", host.roots)


def test_what_else_a_snapshot_shows(host: Host, tmp_path: Path) -> None:
    # GIVEN a driver that puts its devices into a folder of /dev WHEN a snapshot is taken
    # THEN the name has the slash that sysfs cannot have
    assert "cciss/c0d0" in host.snapshot()
    assert devices.resolve("cciss/c0d0", host.roots) == (dev(104, 0), 0)
    # GIVEN swap on a disk
    host.write("proc/swaps", f"Filename\tType\n{host.root}/dev/sdb partition 100 0 -2\n")
    # WHEN a snapshot is taken THEN it is among what uses the disk
    assert host.snapshot()["sdb"]["mounts"] == ["[SWAP]"]
    # AND a host without sysfs has no devices
    assert Host(tmp_path / "none").snapshot() == {}


def test_btrfs_is_mounted_on_all_its_devices(host: Host) -> None:
    # GIVEN a btrfs on two disks, which shows a device number of its own
    for name in ("sda", "sdb"):
        host.link(f"sys/fs/btrfs/uuid-1/devices/{name}", f"sys/devices/scsi/{name}")
    host.mounts(f"40 1 0:44 / /pool rw - btrfs {host.root}/dev/sdb rw")
    # WHEN a snapshot is taken
    found = host.snapshot()
    # THEN both are mounted there
    assert found["sda"]["mounts"] == found["sdb"]["mounts"] == ["/pool"]
    # and the mount point alone names neither
    with pytest.raises(ProbeError, match=r"several devices; name those to record: sda, sdb"):
        devices.resolve("/pool", host.roots)


def test_a_device_that_vanishes_is_left_out(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a disk that goes away while its facts are read: at first, or half way
    (host.root / "sys/devices/scsi/sda/dev").unlink()
    read = device_sysfs.read

    def vanishing(path: str) -> str | None:
        if path.endswith("sdb/queue/scheduler"):
            (host.root / "sys/devices/scsi/sdb/dev").unlink()
        return read(path)

    monkeypatch.setattr(device_sysfs, "read", vanishing)
    # WHEN a snapshot is taken
    found = host.snapshot()
    # THEN it is left out, the others are there
    assert "sda" not in found
    assert "sdb" not in found
    assert "nvme0n1" in found


@pytest.fixture
def shared(host: Host) -> Host:
    """The same host with an NVMe disk that two controllers reach."""
    host.add("virtual/nvme-subsystem/nvme-subsys1/nvme1n1", "259:9", 1000, hidden="0")
    for controller in (1, 2):
        base = f"sys/devices/pci1/nvme/nvme{controller}/nvme1c{controller}n1"
        host.write(f"{base}/size", "1000\n")
        host.write(f"{base}/hidden", "1\n")
        host.link(f"sys/class/block/nvme1c{controller}n1", base)
    host.write("proc/diskstats", "   8 0 sda 1 2\n 259 7 nvme1c1n1 0\n 259 8 nvme1c2n1 0\n\n")
    return host


def test_paths_to_an_nvme_disk_are_below_it_and_recorded_with_it(shared: Host) -> None:
    # GIVEN an NVMe disk with two hidden paths, whose numbers no file of sysfs tells
    # WHEN a snapshot is taken
    found = shared.snapshot()
    # THEN they are there by name and number, and the disk stands on them
    assert (found["nvme1c1n1"]["dev"], found["nvme1c2n1"]["dev"]) == (dev(259, 7), dev(259, 8))
    assert found["nvme1n1"]["stacked_on"] == [dev(259, 7), dev(259, 8)]
    assert "stacked_on" not in found["nvme0n1"]
    # AND one can be named
    assert devices.resolve("nvme1c2n1", shared.roots) == (dev(259, 8), 0)
    # GIVEN that disk, a partition of another, and a disk without paths
    chosen = [(dev(259, 9), 0), (dev(259, 0), dev(259, 1)), (dev(8, 0), 0)]
    # WHEN the paths of what was chosen are added  THEN they are those of the whole disk
    paths = [(dev(259, 7), 0), (dev(259, 8), 0)]
    assert device_paths.with_paths(chosen, shared.roots) == [*chosen, *paths]


def test_paths_that_come_and_go_are_followed(shared: Host) -> None:
    # GIVEN a disk with two paths, of which one goes away, and then the other's number is not told
    disk, answers = dev(259, 9), [device_paths.is_spread(dev(259, 9), shared.roots)]
    path = shared.root / "sys/class/block/nvme1c2n1"
    target = path.readlink()
    path.unlink()
    answers.append(device_paths.is_spread(disk, shared.roots))
    shared.write("proc/diskstats", " 0 0 nvme1c1n1 0\n")
    answers.append(device_paths.is_spread(disk, shared.roots))
    # WHEN it is asked each time whether its bios have to be followed
    # THEN they need not while its one path is known
    assert answers == [True, False, True]
    assert not device_paths.is_spread(dev(259, 0), shared.roots)
    # GIVEN a path that /proc/diskstats does not list any more
    path.symlink_to(target)
    shared.write("proc/diskstats", " 259 8 nvme1c2n1 0\n")
    # WHEN a snapshot is taken  THEN the disk stands on the other
    assert shared.snapshot()["nvme1n1"]["stacked_on"] == [dev(259, 8)]
    # AND without any such list on none
    (shared.root / "proc/diskstats").unlink()
    assert "stacked_on" not in shared.snapshot()["nvme1n1"]


def test_thousands_of_devices_come_in_order(tmp_path: Path) -> None:
    # GIVEN a host with 2,000 disks WHEN a snapshot is taken THEN all are there, by number
    made = Host(tmp_path)
    for i in range(2000):
        made.add(f"d/sd{i}", f"8:{i}", i)
    found = devices.snapshot(made.roots)
    assert [entry["dev"] for entry in found] == [dev(8, i) for i in range(2000)]


def test_the_hosts_mounts_come_before_a_containers(tmp_path: Path) -> None:
    # GIVEN a container with the host's process numbers, whose file system has a mount of the
    # host's disk, and one that the host has not
    root, bind = (
        "25 1 254:1 / / rw - ext4 /dev/vda1 rw",
        "90 80 254:1 /var/log /logs rw - ext4 x rw",
    )
    alone = "91 80 7:3 / /image ro - squashfs /dev/loop3 ro"
    for who, lines in (("1", [root]), ("self", [bind, alone])):
        (tmp_path / who).mkdir()
        (tmp_path / who / "mountinfo").write_text("".join(f"{line}\n" for line in lines))
    # WHEN mounts are read  THEN the disk's is the host's
    assert host_mounts(str(tmp_path)) == [root, alone]
    # AND where the first process has the same, or may not be looked at, they are its own
    (tmp_path / "1" / "mountinfo").write_text(f"{bind}\n{alone}\n")
    assert host_mounts(str(tmp_path)) == [bind, alone]
    (tmp_path / "1" / "mountinfo").unlink()
    assert host_mounts(str(tmp_path)) == [bind, alone]


def test_masked_facts_of_devices_are_told_from_none(host: Host) -> None:
    # GIVEN a host with disks  THEN nothing is masked
    assert devices.masked(host.roots) is None
    # WHEN /sys/dev/block is empty, as podman makes it  THEN a name cannot be looked up, and why
    sys = Path(host.roots.sys)
    for link in (sys / "dev" / "block").iterdir():
        link.unlink()
    (sys / "class" / "block" / "nvme0n1").mkdir(parents=True, exist_ok=True)
    with pytest.raises(
        ProbeError, match=r"vda: cannot be looked up: .*dev/block is masked.*unmask="
    ):
        devices.resolve("vda", host.roots)


# Devices by the names that a user gives them: nodes, links, mount points; lines of mountinfo.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("zram0", "zram"), ("ram1", "ram"), ("sr0", "rom"), ("nbd3", "nbd"), ("sda", "disk"),
        ("md_home", "md"), ("dm-3", "dm"), ("vda", "disk"), ("rbd0", "rbd"), ("pmem0s", "pmem"),
    ],
)  # fmt: skip
def test_kinds_by_name(tmp_path: Path, name: str, kind: str) -> None:
    # GIVEN a device of a driver without a folder of its own in sysfs
    made = Host(tmp_path)
    made.add(f"virtual/block/{name}", "1:1", 1)
    # WHEN a snapshot is taken THEN its name tells the kind
    assert made.snapshot()[name]["kind"] == kind


@pytest.mark.parametrize(
    ("spec", "disk", "partition"),
    [
        ("nvme0n1", dev(259, 0), 0),
        ("nvme0n1p2", dev(259, 0), dev(259, 2)),
        ("259:2", dev(259, 0), dev(259, 2)),
        ("vg-home", dev(253, 0), 0),
        ("dm-0", dev(253, 0), 0),
        ("nvme-Samsung-part2", dev(259, 0), dev(259, 2)),
        ("disk/by-id/nvme-Samsung-part2", dev(259, 0), dev(259, 2)),
        ("LABEL=my data", dev(8, 0), 0),
        ("{root}/dev/nvme0n1p1", dev(259, 0), dev(259, 1)),
        ("{root}/dev/mapper/vg-home", dev(253, 0), 0),
        ("{root}/dev/disk/by-id/nvme-Samsung-part2", dev(259, 0), dev(259, 2)),
        ("/", dev(259, 0), dev(259, 1)),
        ("/home", dev(253, 0), 0),
        ("/home/", dev(253, 0), 0),
        ("/srv/my files", dev(253, 0), 0),
    ],
)
def test_devices_by_every_name(host: Host, spec: str, disk: int, partition: int) -> None:
    # GIVEN a way to name a device WHEN it is resolved
    # THEN it gives the disk, and the partition where it is one
    assert devices.resolve(spec.format(root=host.root), host.roots) == (disk, partition)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nvme0n2", "there is no such block device or mount point; did you mean nvme0n1"),
        ("vg-hom", "did you mean vg-home"),
        ("xyz", "this host has cciss/c0d0, dm-0, loop0"),
        ("/proc", "is a mount point of no block device"),
        ("/nothing/here", "/nothing/here: there is no such block device or mount point"),
        ("{root}/proc/self", "is neither a block device nor a mount point; name one of"),
        ("UUID=1234", "UUID=1234: there is no such block device"),
        ("8:99", "8:99: there is no such block device"),
        ("", "there is no such block device"),
    ],
)
def test_what_is_no_device_gets_a_clear_error(host: Host, spec: str, words: str) -> None:
    # GIVEN what names no block device WHEN it is resolved
    with pytest.raises(ProbeError) as error:
        devices.resolve(spec.format(root=host.root), host.roots)
    # THEN the error says what it is, and what there is instead
    assert words in str(error.value)


def test_lines_of_mountinfo() -> None:
    # GIVEN lines with optional fields, white space, and such as make no sense WHEN they are parsed
    mount = parse_mount(
        "36 35 98:0 /mnt1 /mnt\\0112 rw,noatime master:1 shared:2 - ext3 /dev/x rw,errors=continue"
    )
    # THEN the fields are found behind the optional ones, or nothing is
    assert mount is not None
    assert (mount.st_dev, mount.point, mount.source) == (dev(98, 0), "/mnt\t2", "/dev/x")
    assert mount.options == ("rw", "errors=continue")
    assert parse_mount("") is None
    assert parse_mount("36 35 98 / /mnt rw - ext3 /dev/x") is None
    assert unescape("a\\134b\\040c") == "a\\b c"
