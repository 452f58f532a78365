# SPDX-License-Identifier: Apache-2.0
"""Devices of this machine, held against sysfs, lsblk and what was set up for the test."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.host import devices
from biotrail.recorder.schema.errors import ProbeError
from tests.support.block_loads import partitioned
from tests.support.devices import MakeLoop, make_ext4, mounted


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def entry_of(name: str) -> dict[str, Any]:
    return next(entry for entry in devices.snapshot() if entry["name"] == name)


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


def test_a_loop_device_and_its_partition() -> None:
    # GIVEN a loop device with a partition
    with partitioned() as (loop, _):
        # WHEN a snapshot is taken
        disk, part = entry_of(loop.name), entry_of(f"{loop.name}p1")
        # THEN both are in it, the file behind it too
        assert disk["dev"] == loop.dev
        assert disk["kind"] == "loop"
        assert disk["sectors"] == loop.size // 512
        assert disk["loop"]["file"] == str(loop.backing)
        assert disk["loop"]["direct_io"] is False
        assert "backing_dev" not in disk["loop"]  # the file is in memory
        assert disk["queue"]["nr_hw_queues"] >= 1
        assert (part["kind"], part["disk"]) == ("partition", disk["dev"])
        assert (part["start"], part["sectors"]) == (2048, 30720)
        # and the names mean them
        assert devices.resolve(loop.name) == (disk["dev"], 0)
        assert devices.resolve(f"{loop.name}p1") == (disk["dev"], part["dev"])
        assert devices.resolve(loop.path) == (disk["dev"], 0)


def test_a_loop_file_on_a_disk_names_the_disk(make_loop: MakeLoop, tmp_path: Path) -> None:
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
    link = tmp_path / "link"
    link.symlink_to(loop_device.path)
    make_ext4(loop_device.path)
    with mounted(loop_device.path, tmp_path / "with space") as mount_point:
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
