# SPDX-License-Identifier: Apache-2.0
"""What the recorder asks a disk about (its serial number, by a driver's command) is in no log."""

from pathlib import Path

import pytest

from biotrail.converters.pipeline import Trace
from tests.support.record_command import biotrail

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.alone]

DRIVER_COMMANDS = ("drv_in", "drv_out")


def virtio_disk() -> str:
    """A disk that is asked for its serial number by a request whenever the attribute is read."""
    for serial in sorted(Path("/sys/block").glob("vd*/serial")):
        return serial.parent.name
    pytest.skip("needs a virtio disk")


def commands(log: Path) -> int:
    """Requests of the log that are commands of a driver."""
    trace = Trace(log)
    found = 0
    for window in trace.lifecycles():
        operations, names = trace.context.op_codes(window.requests.opf)
        found += sum(names[code] in DRIVER_COMMANDS for code in operations.tolist())
    return found


@pytest.mark.parametrize("options", [(), ("--path", "--files")])
def test_the_recorders_own_question_is_in_no_log(tmp_path: Path, options: tuple[str, ...]) -> None:
    # GIVEN a disk that answers the question for its serial number by a request
    disk = virtio_disk()
    log = tmp_path / "log.biotrail"
    asked = f"cat /sys/block/{disk}/serial"
    # WHEN nobody else asks during a recording, and when somebody does
    biotrail("record", "-d", disk, *options, "-o", log, "--", "sleep", "1")
    [quiet] = tmp_path.glob("log*.biotrail")
    unasked = commands(quiet)
    quiet.unlink()
    biotrail("record", "-d", disk, *options, "-o", log, "--", "sh", "-c", asked)
    # THEN only the latter is recorded
    [other] = tmp_path.glob("log*.biotrail")
    assert unasked == 0
    assert commands(other) > 0
