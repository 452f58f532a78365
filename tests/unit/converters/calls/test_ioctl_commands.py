# SPDX-License-Identifier: Apache-2.0
"""What an ioctl asked for is in its name."""

import json
from pathlib import Path

import pytest

from biotrail.recorder.schema.syscalls import IOCTLS, call_name, plain_number, with_command
from tests.support.cli_runner import Cli
from tests.support.path_logs import PathLog

IOCTL = {"x86_64": 16, "aarch64": 29}


@pytest.mark.parametrize("machine", sorted(IOCTL))
def test_commands_have_names(machine: str) -> None:
    # GIVEN ioctl with each known command, and with another WHEN named THEN the command is told
    number = IOCTL[machine]
    for name, command in IOCTLS.items():
        told = with_command(number, command)
        assert call_name(told, machine) == f"ioctl {name}"
        assert plain_number(told) == number
    assert call_name(with_command(number, 0x5401), machine) == "ioctl"
    assert (plain_number(-1), call_name(-1, machine)) == (-1, "page fault")


def test_ioctls_are_rows_by_command(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a trim that queued a bio, two of another command, and one of a 32-bit program
    log, number = PathLog(), IOCTL["x86_64"]
    trim, scrub = IOCTLS["FITRIM"], IOCTLS["BTRFS_SCRUB"]
    log.bio(120, 180, call=number, entry=100, args=(5, trim))
    log.returns(100, 200, number=number, queued=1, length=trim, fd=5)
    for at in (300, 500):
        log.returns(at, at + 100, number=number, length=scrub)
    log.returns(700, 800, number=number, length=trim, foreign=1)
    log.returns(900, 990, number=number, length=0x5401)
    path = tmp_path / "x.biotrail"
    path.write_bytes(log.data())
    # WHEN they are reported THEN each command has its row, of calls and of their bios
    told = json.loads(cli("report", "--by", "call", "--json", path).out)
    assert {one["call"]: one["count"] for one in told["calls"]} == {
        "ioctl FITRIM": 1,
        "ioctl BTRFS_SCRUB": 2,
        "ioctl": 1,
        f"32-bit syscall {number}": 1,
    }
    assert [one["call"] for one in told["groups"]] == ["ioctl FITRIM"]
    # AND exported with the call's own number
    rows = cli("export", "--what", "calls", "--format", "jsonl", "-o", "-", path).out.splitlines()
    assert {json.loads(row)["number"] for row in rows} == {number}
