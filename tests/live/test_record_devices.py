# SPDX-License-Identifier: Apache-2.0
"""`record -d`: a device by each of its names, and nothing else than it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import block_loads, devices
from tests.support.devices import MakeLoop
from tests.support.path_disks import Disk
from tests.support.record_command import biotrail, read

pytestmark = pytest.mark.usefixtures("needs_bpf", "fio")


def reading(path: str | Path) -> list[str]:
    return ["dd", f"if={path}", "of=/dev/null", "bs=64k", "count=16", "iflag=direct"]


@pytest.mark.parametrize("form", ["name", "path", "numbers", "link"])
def test_a_device_by_its_names(
    tmp_path: Path, loop_device: Any, make_loop: MakeLoop, form: str
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


def test_a_device_by_its_mount_point(tmp_path: Path, disk: Disk, make_loop: MakeLoop) -> None:
    # GIVEN a mounted file system and another device
    other, log = make_loop(), tmp_path / "log"
    # WHEN the mount point is recorded while both are used
    both = f"dd if=/dev/zero of={disk.mount}/file bs=64k count=16 oflag=direct && " + " ".join(
        reading(other.path)
    )
    biotrail("record", "-d", disk.mount, "-o", log, "--", "sh", "-c", both)
    # THEN the log holds what went to the file system's device
    found = read(log)
    assert found.devices() == {disk.device.dev}
    assert int(found.by("dd").bytes.sum()) >= 1 << 20


def test_several_devices(tmp_path: Path, loop_device: Any, make_loop: MakeLoop) -> None:
    # GIVEN three devices
    second, third, log = make_loop(), make_loop(), tmp_path / "log"
    # WHEN two are recorded while all are read
    every = " && ".join(" ".join(reading(d.path)) for d in (loop_device, second, third))
    chosen = ["-d", loop_device.name, "-d", second.name]
    biotrail("record", *chosen, "-o", log, "--", "sh", "-c", every)
    # THEN the log holds those two
    assert read(log).devices() == {loop_device.dev, second.dev}


def test_a_partition(tmp_path: Path) -> None:
    # GIVEN a device with a partition
    log = tmp_path / "log"
    with block_loads.partitioned() as (disk, (partition, _)):
        # WHEN it is recorded while the disk is read before it and in it
        both = f"{' '.join(reading(disk.path))}; {' '.join(reading(partition))}"
        name, part = Path(partition).name, devices.dev_of(partition)
        biotrail("record", "-d", name, "-o", log, "--", "sh", "-c", both)
    # THEN the log holds what is inside, with the partition's number
    bios = read(log).by("dd")
    assert len(bios) == 16
    assert set(bios.dev.tolist()) == {disk.dev}
    assert set(bios.part.tolist()) == {part}
    assert int(bios.sector.min()) == 2048


@pytest.mark.parametrize("words", [("record",), ("record", "--print"), ("top",)], ids=" ".join)
def test_a_device_that_is_not_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    # GIVEN no such device WHEN it is recorded THEN the error names it, and no log is left
    done = biotrail(*words, "-d", "no-such-disk", "-o", tmp_path / "log", status=1)
    assert done.stderr.count("no-such-disk") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "log").exists()
