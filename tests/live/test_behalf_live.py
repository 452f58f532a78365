# SPDX-License-Identifier: Apache-2.0
"""What the worker of a loop device does is of whoever used the loop device."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices
from tests.support.devices import LoopDevice
from tests.support.record_command import biotrail, recorder

pytestmark = pytest.mark.usefixtures("needs_bpf")


@pytest.mark.parametrize("path", [(), ("--path",)])
def test_a_loop_devices_lower_bios_are_its_users(
    loop_device: LoopDevice, fio: Callable[..., dict[str, Any]], tmp_path: Path, path: tuple[str]
) -> None:
    # GIVEN direct writes to a loop device with direct I/O, on another one
    with devices.loop_over(loop_device.path, direct_io=True) as upper:
        chosen = ("-d", upper.path, "-d", loop_device.path)
        with recorder(*chosen, *path, "-o", tmp_path / "log") as recording:
            done = fio(upper.path, rw="randwrite", bs="16k", size="4m", ioengine="psync")
            recording.terminate()
            recording.communicate(timeout=120)
    of_fio = done["jobs"][0]["write"]
    # WHEN a report is made of the lower device's writes
    options = ("--json", "-d", loop_device.name, "--op", "write")
    told = json.loads(biotrail("report", *options, tmp_path / "log").stdout)
    # THEN they are fio's, each queued by a worker for it
    by_name: dict[str, int] = {}
    for one in told["processes"]:
        by_name[one["process"]] = by_name.get(one["process"], 0) + one["bytes"]
        if one["process"] == "fio":
            assert one["by_workers"] == one["ios"]
    assert by_name["fio"] == of_fio["io_bytes"]
    # AND no worker has any of its own
    assert not any(name and name.startswith(("kworker", "loop")) for name in by_name)
