# SPDX-License-Identifier: Apache-2.0
"""Files by their names, with every byte: through the page cache, and directly where it is told."""

import json

import pytest

from tests.vm.machine import Machine, biotrail


def test_files_have_their_bytes(vm: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a file that was written and read through the page cache, and one directly
    case = vm.case("files")
    # WHEN I/O is added up by file
    assert biotrail("report", "--by", "file", "--json", case.log.path) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    files = {group["file"]: group for group in groups if group["file_kind"] == "file"}
    # THEN each has its bytes, written once and read once
    assert files["/mnt/cached"]["bytes"] == 2 * case.told["cached"]
    assert files["/mnt/direct"]["bytes"] == 2 * case.told["direct"]
    # AND what was direct has an I/O for each call: eight writes, 32 reads
    assert files["/mnt/direct"]["ios"] == 8 + 32
    # AND nothing else but the file system's own blocks was read or written
    assert files.keys() == {"/mnt/cached", "/mnt/direct"}
    assert {group["file_kind"] for group in groups} <= {"file", "device", "no data"}
