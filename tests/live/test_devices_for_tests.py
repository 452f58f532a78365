# SPDX-License-Identifier: Apache-2.0
"""The fixtures that live tests stand on do what they promise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("loop_device", [{}, {"direct_io": True}], indirect=True)
def test_fio_reads_as_much_as_it_was_told(loop_device: Any, fio: Callable[..., Any]) -> None:
    # GIVEN a loop device over a file in memory
    sysfs = Path("/sys/block") / loop_device.name
    # WHEN fio reads a mebibyte of it in 4 KiB pieces
    result = fio(loop_device.path, rw="randread", bs="4k", size="1m")
    # THEN fio and the kernel agree on what the device is and on what was done
    major, minor = loop_device.dev >> 20, loop_device.dev & 0xFFFFF
    assert (sysfs / "dev").read_text().strip() == f"{major}:{minor}"
    assert int((sysfs / "size").read_text()) * 512 == loop_device.size
    assert result["jobs"][0]["read"]["total_ios"] == 256
