# SPDX-License-Identifier: Apache-2.0
"""`record -d`: a device by each of its names, and nothing else than it."""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices
from tests.support.record_command import biotrail, read

pytestmark = pytest.mark.usefixtures("needs_bpf", "fio")

FIRST_SECTOR, SECTORS = 2048, 65536


@pytest.fixture
def mounted(loop_device: Any, tmp_path: Path) -> Iterator[Path]:
    """A file system on the loop device."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    place = tmp_path / "mount point"
    place.mkdir()
    devices.make_ext4(loop_device.path)
    devices.run("mount", loop_device.path, place)
    try:
        yield place
    finally:
        devices.unmount(place)


def reading(path: str | Path) -> list[str]:
    return ["dd", f"if={path}", "of=/dev/null", "bs=64k", "count=16", "iflag=direct"]


@pytest.mark.parametrize("form", ["name", "path", "numbers", "link"])
def test_a_device_by_its_names(
    tmp_path: Path, loop_device: Any, make_loop: Callable[..., Any], form: str
) -> None:
    # GIVEN two devices, and a way to name one
    other, log = make_loop(), tmp_path / "log"
    (tmp_path / "link").symlink_to(loop_device.path)
    spec = {
        "name": loop_device.name,
        "path": loop_device.path,
        "numbers": f"{loop_device.dev >> 20}:{loop_device.dev & 0xFFFFF}",
        "link": str(tmp_path / "link"),
    }[form]
    # WHEN that one is recorded while both are read
    both = " && ".join(" ".join(reading(d.path)) for d in (loop_device, other))
    biotrail("record", "-d", spec, "-o", log, "--", "sh", "-c", both)
    # THEN the log holds its reads alone, and the header what was asked for
    found = read(log)
    assert found.devices() == {loop_device.dev}
    assert len(found.by("dd")) == 16
    (chosen,) = found.context.header["filters"]["devices"]
    assert chosen == {"spec": spec, "disk": loop_device.dev, "part": 0}


def test_a_device_by_its_mount_point(
    tmp_path: Path, loop_device: Any, mounted: Path, make_loop: Callable[..., Any]
) -> None:
    # GIVEN a mounted file system and another device
    other, log = make_loop(), tmp_path / "log"
    # WHEN the mount point is recorded while both are used
    both = f"dd if=/dev/zero of='{mounted}/file' bs=64k count=16 oflag=direct && " + " ".join(
        reading(other.path)
    )
    biotrail("record", "-d", str(mounted), "-o", log, "--", "sh", "-c", both)
    # THEN the log holds what went to the file system's device
    found = read(log)
    assert found.devices() == {loop_device.dev}
    assert int(found.by("dd").bytes.sum()) >= 1 << 20


def test_several_devices(tmp_path: Path, loop_device: Any, make_loop: Callable[..., Any]) -> None:
    # GIVEN three devices
    second, third, log = make_loop(), make_loop(), tmp_path / "log"
    # WHEN two are recorded while all are read
    every = " && ".join(" ".join(reading(d.path)) for d in (loop_device, second, third))
    chosen = ["-d", loop_device.name, "-d", second.name]
    biotrail("record", *chosen, "-o", log, "--", "sh", "-c", every)
    # THEN the log holds those two
    assert read(log).devices() == {loop_device.dev, second.dev}


def partition_table(size: int) -> bytes:
    """A master boot record with one partition."""
    entry = struct.pack("<B3sB3sII", 0, b"\0\0\0", 0x83, b"\0\0\0", FIRST_SECTOR, SECTORS)
    assert size >= (FIRST_SECTOR + SECTORS) * 512
    return b"\0" * 446 + entry + b"\0" * 48 + b"\x55\xaa"


def test_a_partition(tmp_path: Path, loop_device: Any) -> None:
    # GIVEN a device with a partition
    if shutil.which("partx") is None:
        pytest.skip("needs partx")
    with loop_device.backing.open("r+b") as file:
        file.write(partition_table(loop_device.size))
    devices.run("partx", "--add", loop_device.path)
    partition, log = Path(f"/dev/{loop_device.name}p1"), tmp_path / "log"
    try:
        # WHEN it is recorded while the disk is read before it and in it
        before = " ".join(["dd", f"if={loop_device.path}", *reading("")[2:]])
        inside = " ".join(reading(partition))
        biotrail("record", "-d", partition.name, "-o", log, "--", "sh", "-c", f"{before}; {inside}")
    finally:
        devices.run("partx", "--delete", loop_device.path)
    # THEN the log holds what is inside, with the partition's number
    found = read(log)
    bios = found.by("dd")
    assert len(bios) == 16
    assert set(bios.dev.tolist()) == {loop_device.dev}
    assert set(bios.part.tolist()) != {loop_device.dev}
    assert int(bios.sector.min()) == FIRST_SECTOR


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    # GIVEN no such device WHEN it is recorded THEN the error names it, and no log is left
    done = biotrail("record", "-d", "no-such-disk", "-o", tmp_path / "log", status=1)
    assert "no-such-disk" in done.stderr
    assert not (tmp_path / "log").exists()
