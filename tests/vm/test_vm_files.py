# SPDX-License-Identifier: Apache-2.0
"""Files by their names, with every byte: through the page cache, and directly where it is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.vm.machine import Machine, biotrail

KINDS = ("files", "files_xfs", "files_btrfs")
UNTOLD = {("5.10", "files_btrfs")}
"""Where direct I/O has no file: no registers, and no types of modules."""


def by_file(log: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert biotrail("report", "--by", "file", "--json", log) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["groups"]
    return found


def inside(group: dict[str, Any]) -> bool:
    """Whether this is a file with a name: not btrfs's metadata."""
    return group["file_kind"] == "file" and str(group["file"]).startswith("/mnt/")


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_their_bytes(vm: Machine, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    # GIVEN a file that was written and read through the page cache, and one directly
    case = vm.case(kind)
    # WHEN I/O is added up by file
    groups = by_file(case.log.path, capsys)
    files = {group["file"]: group for group in groups if inside(group)}
    # THEN each has its bytes, written once and read once
    assert files["/mnt/cached"]["bytes"] == 2 * case.told["cached"]
    if (vm.branch, kind) in UNTOLD:
        assert files.keys() == {"/mnt/cached"}
        return
    # btrfs does the first direct read, into memory that is not there yet, through the page cache,
    # with all that it reads ahead
    ahead = files["/mnt/direct"]["bytes"] - 2 * case.told["direct"]
    assert 0 <= ahead <= (128 << 10 if kind == "files_btrfs" else 0)
    # AND nothing else but the file system's own blocks was read or written
    assert files.keys() == {"/mnt/cached", "/mnt/direct"}
    if kind == "files":
        # AND what was direct has an I/O for each call: eight writes, 32 reads
        assert files["/mnt/direct"]["ios"] == 8 + 32
        assert {group["file_kind"] for group in groups} <= {"file", "device", "no data"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_alone(vm: Machine, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    # GIVEN a recording of the files below one directory
    case = vm.case(kind)
    if (vm.branch, kind) in UNTOLD:
        # THEN where subvolumes cannot be told apart it was refused
        assert "refused" in case.told
        return
    assert "refused" not in case.told, case.told["refused"]
    # WHEN it is added up by file THEN those files are there with their bytes, and no others
    log = case.directory / "below.biotrail"
    found = {group["file"]: group["bytes"] for group in by_file(log, capsys)}
    assert found == case.told["below"]
    # AND the others were counted
    with LogReader(log) as reader:
        assert reader.end["left_out"]["bios"]["file"] > 0


def test_ways_are_named(vm: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a log with files WHEN info is asked
    case = vm.case("files_btrfs", lossy=True)
    assert biotrail("info", case.log.path) == 0
    said = " ".join(capsys.readouterr().out.split())
    # THEN it says by what the files of direct I/O are known here
    ways = case.log.reader.header["files"]["ways"]
    assert "where iomap does it" in said
    assert ("call" in ways) == (vm.branch != "5.10")
    assert ("btrfs" in ways) == (vm.branch not in {"5.10", "6.1"})
