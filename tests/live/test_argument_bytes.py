# SPDX-License-Identifier: Apache-2.0
"""Names of any bytes as arguments, on a live device: a task's, and a file's."""

import os
import sys
from pathlib import Path

import pytest

from biotrail.converters.pipeline import Trace
from tests.support.devices import LoopDevice
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

NAME = os.fsdecode(b"a\xff")
"""Of a task: bytes that are no UTF-8."""
READS = 50
READER = f"""
import ctypes, mmap, os, sys
ctypes.CDLL(None).prctl(15, {os.fsencode(NAME)!r}, 0, 0, 0)  # PR_SET_NAME
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
for number in range({READS}):
    os.preadv(file, [page], 4096 * number)
"""
"""Direct reads by a task that calls itself NAME."""


def test_a_task_is_chosen_by_the_bytes_of_its_name(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a task whose name is no UTF-8, and one with another name
    log = tmp_path / os.fsdecode(b"b\xff.biotrail")
    (tmp_path / "reader.py").write_text(READER)
    others = "dd if=$1 of=/dev/null bs=4k count=9 iflag=direct status=none"
    script = ("sh", "-c", f'{others}; exec {sys.executable} "$0" "$1"', tmp_path / "reader.py")
    # WHEN I/O of that name is recorded, to a log whose name is no UTF-8 either
    biotrail(
        *("record", "-d", loop_device.path, "--comm", NAME, "-o", log),
        *("--", *script, loop_device.path),
    )
    # THEN the log has that task's I/O alone
    assert sum(len(window.bios) for window in Trace(log).lifecycles()) == READS
    # AND what is made of it chooses by the name, too
    assert f'"ios": {READS}' in biotrail("report", "--json", "--comm", NAME, log).stdout


def test_pairs_and_follow_take_names_of_any_bytes() -> None:
    # GIVEN a name that is no UTF-8 WHEN live commands choose by it THEN they run
    for words in (
        ("pairs", "softirq", "--comm", NAME, "--for", "100ms"),
        ("pairs", "softirq", "--where", f"vec == '{NAME}'", "--for", "100ms"),
        ("follow", "request", "--comm", NAME, "--for", "100ms"),
        ("top", "--comm", NAME, "--duration", "0.2s"),
        (
            "metrics",
            "--comm",
            NAME,
            "--events",
            "lifecycle",
            "--duration",
            "0.2s",
            "--listen",
            ":0",
        ),
        ("record", "--print", "--path", "--comm", NAME, "--duration", "0.2s"),
    ):
        done = biotrail(*words)
        assert "Traceback" not in done.stderr, words
    # AND a struct, which is no name of these, is refused
    assert "is not UTF-8" in biotrail("follow", NAME, "--dry-run", status=2).stderr
