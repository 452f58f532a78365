# SPDX-License-Identifier: Apache-2.0
"""What a bio is for, by its flags, its page, its thread and its device."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, purposes
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import FLAGS
from biotrail.recorder.schema.records import Q_FLAG_DEVICE, Q_FLAG_FILE, Q_FLAG_SWAP
from tests.support.cli_runner import Cli
from tests.support.path_logs import PathLog
from tests.support.stack_logs import DEV

READ, WRITE, DISCARD = 0, 1, 3
JBD2, KWORKER, LAZY, PROGRAM = 7, 8, 9, 42
MOUNTED, SWAPPED, BARE = DEV + 1, DEV + 2, DEV + 3
DEVICES = [
    {"dev": DEV, "name": "vda"},
    {"dev": MOUNTED, "name": "vda1", "disk": DEV, "mounts": ["/"]},
    {"dev": SWAPPED, "name": "vda2", "disk": DEV, "mounts": ["[SWAP]"]},
    {"dev": BARE, "name": "vda3", "disk": DEV},
]


BITS = {**FLAGS, "SWAP": 25}


def flags(*names: str) -> int:
    return sum(1 << BITS[name] for name in names)


SYNCED = flags("META", "SYNC", "IDLE")


def purpose(tmp_path: Path, **bio: Any) -> str | None:
    """The purpose of the one bio of a log."""
    log = PathLog()
    log.task(JBD2, b"jbd2/vda1-8")
    log.task(KWORKER, b"kworker/u8:1")
    log.task(LAZY, b"ext4lazyinit")
    log.task(PROGRAM, b"db")
    log.bio(100, 200, **bio)
    kernel = {"flag_bits": BITS}
    trace = Trace(log.write(tmp_path / "log", devices=DEVICES, kernel=kernel))
    (window,) = [w for w in trace.lifecycles() if len(w.bios)]
    (found,) = purposes(window.bios, window.tasks, trace.context).tolist()
    return PURPOSE_NAMES.get(found)


@pytest.mark.parametrize(
    ("bio", "expected"),
    [
        ({"opf": READ}, "data"),
        ({"opf": WRITE | flags("SYNC"), "tid": KWORKER, "flags": Q_FLAG_FILE}, "data"),
        ({"opf": READ | flags("RAHEAD")}, "readahead"),
        ({"opf": READ | flags("META", "PRIO")}, "metadata"),
        ({"opf": READ | flags("META", "RAHEAD")}, "metadata"),
        ({"opf": WRITE | flags("SYNC"), "tid": JBD2}, "journal"),
        ({"opf": WRITE | SYNCED}, "journal"),
        ({"opf": WRITE, "tid": LAZY}, "metadata"),
        ({"opf": READ | SYNCED}, "metadata"),
        ({"opf": WRITE | flags("SWAP")}, "swap"),
        ({"opf": READ, "part": SWAPPED}, "swap"),
        ({"opf": READ, "flags": Q_FLAG_SWAP}, "swap"),
    ],
)
def test_flags_thread_and_device_say_the_purpose(
    tmp_path: Path, bio: dict[str, Any], expected: str
) -> None:
    # GIVEN a bio  WHEN its purpose is asked for  THEN it is the first that holds
    assert purpose(tmp_path, **bio) == expected


@pytest.mark.parametrize(
    ("bio", "expected"),
    [
        # Data that the journal's thread writes back before it commits.
        ({"opf": WRITE, "tid": JBD2, "flags": Q_FLAG_FILE}, "data"),
        # A checkpoint: from the journal to its place.
        ({"opf": WRITE | SYNCED, "flags": Q_FLAG_DEVICE, "part": MOUNTED}, "metadata"),
        ({"opf": WRITE, "flags": Q_FLAG_DEVICE, "part": MOUNTED}, "metadata"),
        # A program that writes a device through the page cache.
        ({"opf": WRITE, "flags": Q_FLAG_DEVICE, "part": BARE}, "data"),
    ],
)
def test_what_the_page_is_makes_it_surer(
    tmp_path: Path, bio: dict[str, Any], expected: str
) -> None:
    # GIVEN a bio whose page the kernel told  WHEN its purpose is asked for  THEN the page decides
    assert purpose(tmp_path, **bio) == expected


@pytest.mark.parametrize("bio", [{"opf": DISCARD}, {"opf": WRITE | flags("PREFLUSH"), "size": 0}])
def test_what_moves_no_data_has_no_purpose(tmp_path: Path, bio: dict[str, Any]) -> None:
    # GIVEN a discard, or the empty write of an fsync  WHEN it is asked for  THEN there is none
    assert purpose(tmp_path, **bio) is None


def test_flags_that_a_kernel_lacks_never_hold(tmp_path: Path) -> None:
    # GIVEN a log of a kernel without one of the flags META, SYNC and IDLE
    log = PathLog()
    log.bio(100, 200, opf=WRITE | 1 << 30)
    kernel = {"flag_bits": {"META": 30}, "op_enum": {"READ": 0, "WRITE": 1}}
    trace = Trace(log.write(tmp_path / "log", kernel=kernel))
    (window,) = [w for w in trace.lifecycles() if len(w.bios)]
    # WHEN a write has those that there are  THEN it is metadata, not the journal's
    (found,) = purposes(window.bios, window.tasks, trace.context).tolist()
    assert PURPOSE_NAMES[found] == "metadata"


def test_a_report_groups_by_purpose_without_the_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log without the path
    log = PathLog()
    log.bio(100, 200, call=None)
    log.bio(300, 400, call=None, opf=READ | flags("RAHEAD"))
    log.bio(500, 600, call=None, opf=WRITE | flags("PREFLUSH"), size=0)
    path = log.write(tmp_path / "log", path=None)
    # WHEN its I/O is grouped by purpose  THEN each has its group
    found = json.loads(Cli(capsys)("report", "--by", "purpose", "--json", path).out)
    groups = {group["purpose"]: group["ios"] for group in found["groups"]}
    assert groups == {"data": 1, "readahead": 1, "no data": 1}
