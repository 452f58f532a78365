# SPDX-License-Identifier: Apache-2.0
"""Devices by the names that a user gives them: nodes, links, mount points; lines of mountinfo."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.host import device_sysfs, devices
from biotrail.recorder.host.device_mounts import parse_mount, unescape
from biotrail.recorder.schema.errors import ProbeError
from tests.support.host_tree import Host, dev, server


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return server(tmp_path)


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
    # WHEN a snapshot is taken
    # THEN its name tells the kind
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
    # GIVEN a way to name a device
    # WHEN it is resolved
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
    # GIVEN what names no block device
    # WHEN it is resolved
    with pytest.raises(ProbeError) as error:
        devices.resolve(spec.format(root=host.root), host.roots)
    # THEN the error says what it is, and what there is instead
    assert words in str(error.value)


def test_a_file_within_a_mount_says_what_to_name(host: Host) -> None:
    # GIVEN a file on a file system of a known disk
    file = host.root / "file"
    file.touch()
    below = device_sysfs.kernel_dev(file.stat().st_dev)
    number = f"{below >> 20}:{below & 0xFFFFF}"
    host.add("scsi/sdz", number, 10)
    host.mounts(f"30 1 {number} / /data rw - ext4 /dev/sdz rw")
    # WHEN it is given as a device
    # THEN the error names the disk
    with pytest.raises(ProbeError, match="it lies on sdz: name that"):
        devices.resolve(str(file), host.roots)


def test_a_node_of_another_host_is_an_error(host: Host) -> None:
    # GIVEN a node for a device that the kernel does not have
    host.nodes[os.path.realpath(host.root / "dev/sda")] = dev(8, 240)
    # WHEN it is resolved
    # THEN the error says so
    with pytest.raises(ProbeError, match=r"8:240, which .* does not list"):
        devices.resolve(f"{host.root}/dev/sda", host.roots)


def test_lines_of_mountinfo() -> None:
    # GIVEN lines with optional fields, white space, and such as make no sense
    # WHEN they are parsed
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
