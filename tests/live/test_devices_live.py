# SPDX-License-Identifier: Apache-2.0
"""Devices of this machine, held against sysfs, lsblk and what was set up for the test."""

import json
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.host import devices
from biotrail.recorder.schema.errors import ProbeError
from tests.support.devices import unmount


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def entry_of(name: str) -> dict[str, Any]:
    return next(entry for entry in devices.snapshot() if entry["name"] == name)


@pytest.fixture
def partitioned(loop_device: Any) -> Iterator[str]:
    """Name of a loop device with one partition, at sector 2048."""
    master_boot_record = bytearray(512)
    struct.pack_into("<4xB3xII", master_boot_record, 446, 0x83, 2048, 8192)
    master_boot_record[510:] = b"\x55\xaa"
    with open(loop_device.path, "r+b") as disk:
        disk.write(master_boot_record)
    run("partx", "--add", loop_device.path)
    yield loop_device.name
    run("partx", "--delete", loop_device.path)


@pytest.mark.alone  # others make devices and take them away
def test_every_device_of_sysfs_is_in_the_snapshot() -> None:
    # GIVEN what sysfs lists
    listed = set(os.listdir("/sys/dev/block"))
    # WHEN a snapshot is taken
    entries = devices.snapshot()
    # THEN nothing is missing, and sizes are those of sysfs
    found = {f"{entry['dev'] >> 20}:{entry['dev'] & 0xFFFFF}": entry for entry in entries}
    assert set(found) & listed == listed & set(os.listdir("/sys/dev/block"))
    for number, entry in found.items():
        size = Path(f"/sys/dev/block/{number}/size")
        if size.exists() and entry["kind"] != "loop":
            assert int(size.read_text()) == entry["sectors"]
    assert json.loads(json.dumps(entries)) == entries


def test_the_root_file_system_names_its_device() -> None:
    # GIVEN the device that "/" is on
    status = os.stat("/")
    dev = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    entry = next((entry for entry in devices.snapshot() if entry["dev"] == dev), None)
    if entry is None:
        pytest.skip("needs / on one block device: it is on none here, or on several")
    # WHEN it is named by mount point, name, path and number
    specs = ["/", entry["name"], f"/dev/{entry['name']}", f"{dev >> 20}:{dev & 0xFFFFF}"]
    # THEN all mean the same
    assert {devices.resolve(spec) for spec in specs if not spec.startswith("/dev/")
            or os.path.exists(spec)} == {devices.resolve("/")}  # fmt: skip
    assert "/" in entry["mounts"]


def test_a_loop_device_and_its_partition(partitioned: str, loop_device: Any) -> None:
    # GIVEN a loop device with a partition
    # WHEN a snapshot is taken
    disk, part = entry_of(partitioned), entry_of(f"{partitioned}p1")
    # THEN both are in it, the file behind it too
    assert disk["dev"] == loop_device.dev
    assert disk["kind"] == "loop"
    assert disk["sectors"] == loop_device.size // 512
    assert disk["loop"]["file"] == str(loop_device.backing)
    assert disk["loop"]["direct_io"] is False
    assert "backing_dev" not in disk["loop"]  # the file is in memory
    assert disk["queue"]["nr_hw_queues"] >= 1
    assert (part["kind"], part["disk"]) == ("partition", disk["dev"])
    assert (part["start"], part["sectors"]) == (2048, 8192)
    # and the names mean them
    assert devices.resolve(partitioned) == (disk["dev"], 0)
    assert devices.resolve(f"{partitioned}p1") == (disk["dev"], part["dev"])
    assert devices.resolve(loop_device.path) == (disk["dev"], 0)


def test_a_loop_file_on_a_disk_names_the_disk(
    make_loop: Callable[..., Any], tmp_path: Path
) -> None:
    # GIVEN a loop device over a file in a directory that is on a block device
    status = os.stat(tmp_path)
    dev = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    if dev not in {entry["dev"] for entry in devices.snapshot()}:
        pytest.skip("needs the temporary directory on a block device")
    loop = make_loop(size=1 << 20, directory=tmp_path)
    # WHEN a snapshot is taken
    # THEN the device below is that one
    assert entry_of(loop.name)["loop"]["backing_dev"] == dev


def test_a_link_and_a_mounted_loop_device(loop_device: Any, tmp_path: Path) -> None:
    # GIVEN a file system on a loop device, mounted, and a link to the device
    mount_point = tmp_path / "with space"
    mount_point.mkdir()
    link = tmp_path / "link"
    link.symlink_to(loop_device.path)
    run("mkfs.ext4", "-q", loop_device.path)
    run("mount", loop_device.path, str(mount_point))
    try:
        # WHEN it is named by its mount point, or the link
        # THEN it is the loop device, and the snapshot knows the mount
        assert devices.resolve(str(mount_point)) == (loop_device.dev, 0)
        assert devices.resolve(str(link)) == (loop_device.dev, 0)
        assert entry_of(loop_device.name)["mounts"] == [str(mount_point)]
        # and a file in it is refused, with the name of the device
        file = mount_point / "file"
        file.touch()
        with pytest.raises(ProbeError, match=f"it lies on {loop_device.name}: name that"):
            devices.resolve(str(file))
    finally:
        unmount(mount_point)


def test_zram_takes_no_requests() -> None:
    # GIVEN a zram device, which is bio-based
    entries = [entry for entry in devices.snapshot() if entry["kind"] == "zram"]
    if not entries:
        pytest.skip("needs a zram device")
    # WHEN its facts are read
    # THEN it has no hardware queues and no scheduler
    entry = entries[0]
    assert "nr_hw_queues" not in entry["queue"]
    assert "scheduler" not in entry
