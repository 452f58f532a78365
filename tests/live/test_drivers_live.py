# SPDX-License-Identifier: Apache-2.0
"""What the loop driver did with requests of real I/O; nvme and scsi are in virtual machines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.path import DRIVERS
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.path_disks import Disk
from tests.support.path_tables import recorded_path
from tests.support.record_command import biotrail, fio_command

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOOP = DRIVERS.index("loop")
KIB = 1024


@pytest.fixture
def file(disk: Disk) -> Path:
    """A file of 8 MiB on an ext4 of its own, whose direct I/O is iomap's."""
    return disk.prepare("file", 8 << 20)


def counts_of(log: Path) -> Any:
    """Events by kind (256,)."""
    found = (np.bincount(events.kind, minlength=256) for events, _ in Trace(log).events())
    return sum(found, np.zeros(256, dtype=np.int64))


def load(device: devices.LoopDevice, report: Path) -> list[str]:
    job = {"rw": "randrw", "bs": "4k", "size": "4m", "ioengine": "libaio", "iodepth": 8}
    return fio_command(device.path, report, **job)


def test_loop_steps_of_every_request(tmp_path: Path, file: Path) -> None:
    # GIVEN a loop device that passes direct I/O on to a file, while fio reads and writes it
    log = tmp_path / "log"
    with devices.loop_over(file, direct_io=True) as device:
        record = ("record", "--path=driver,irq", "-d", device.path, "-o", log)
        biotrail(*record, "--", *load(device, tmp_path / "fio.json"))
    facts = LogReader(log).header["path"]
    assert facts["drivers"]["loop"] == ""
    # WHEN the steps of its requests are read
    found = recorded_path(log)
    data = found.requests.take((found.requests.bytes == 4 * KIB) & (found.requests.complete > 0))
    # THEN each has some, for the worker began its I/O on the file after the issue
    assert len(data) > 900
    steps = found.steps_of(data)
    assert set(steps.driver.tolist()) == {LOOP}
    assert (steps.begun >= data.issue).all()
    # AND where the end of that I/O was seen, it was before the completion
    answered = steps.answered != NEVER  # an interrupt may be closed to programs
    assert answered.mean() > 0.9
    assert (steps.answered >= steps.begun)[answered].all()
    assert (steps.answered <= data.complete)[answered].all()
    # AND the report has a row for each of the steps
    said = " ".join(biotrail("report", log).stdout.split())
    assert f"Steps of the driver: {device.name}" in said
    for step in ("D to file I/O", "file I/O to C"):
        assert step in said


def test_a_loop_device_with_the_page_cache_has_no_steps(tmp_path: Path, file: Path) -> None:
    # GIVEN a loop device that goes through the page cache, while fio reads and writes it
    log = tmp_path / "log"
    with devices.loop_over(file) as device:
        record = ("record", "--path=driver", "-d", device.path, "-o", log)
        biotrail(*record, "--", *load(device, tmp_path / "fio.json"))
    # WHEN its records are counted THEN completions have none of the driver
    counts = counts_of(log)
    assert counts[Kind.C] > 900
    assert counts[Kind.DRIVER] == 0


def test_with_a_filter_only_recorded_requests_have_steps(tmp_path: Path, file: Path) -> None:
    # GIVEN such a device WHEN reads of it alone are recorded
    log = tmp_path / "log"
    with devices.loop_over(file, direct_io=True) as device:
        record = ("record", "--path=driver", "-d", device.path, "--op", "read", "-o", log)
        biotrail(*record, "--", *load(device, tmp_path / "fio.json"))
    found = recorded_path(log)
    # THEN each recorded completion has its steps, and no other request's are in the log
    counts = counts_of(log)
    assert counts[Kind.DRIVER] == counts[Kind.C] > 300
    assert (found.requests.opf & 0xFF == 0).all()
    assert set(found.steps.number.tolist()) <= set(found.requests.number.tolist())


def test_doctor_says_which_drivers_have_steps() -> None:
    # GIVEN this machine WHEN doctor is asked THEN loop is among the drivers, or its lack is named
    said = biotrail("doctor").stdout
    (line,) = [line for line in said.splitlines() if "path driver " in line and "offered" in line]
    assert "loop" in line
