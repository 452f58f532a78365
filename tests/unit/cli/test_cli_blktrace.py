# SPDX-License-Identifier: Apache-2.0
"""blktrace's files on the command line: read like a log, and written for blkparse."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from biotrail.cli import convert, dump, info
from biotrail.converters.pipeline import Trace
from tests.support import captures, paths

DATA = paths.DATA / "blktrace"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the set loop1.blktrace.*."""
    for file in DATA.glob("loop1.blktrace.*"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]


def test_a_set_is_found_by_its_device(folder: Path) -> None:
    # GIVEN loop1.blktrace.0 and .1 in the working directory
    # WHEN the device's name is given
    done = _run(convert.command, "loop1")
    # THEN both files are read, and the trace is named after the device
    assert done.exit_code == 0
    assert (folder / "loop1.pftrace").stat().st_size > 0
    assert "interval" in done.output


def test_info_says_how_certain_it_is(folder: Path) -> None:
    # GIVEN records without kernel pointers
    # WHEN their account is asked for
    account = json.loads(_run(info.command, "--json", "loop1").output)["account"]
    # THEN nothing is called exact
    assert account["edges"]["exact"] == 0
    assert account["edges"]["interval"] > 0


def test_a_log_becomes_what_blkparse_reads(tmp_path: Path) -> None:
    # GIVEN a log
    log = tmp_path / "a.biotrail"
    captures.write_log(log, captures.load("ext4-journal-on-loop"))
    # WHEN it is converted to blktrace's files and these are read again
    done = _run(convert.command, str(log), "-o", str(tmp_path / "a.blktrace"))
    again = Trace(tmp_path / "a.blktrace" / "loop1")
    for _ in again.lifecycles():
        pass
    # THEN they hold the same queue, issue and completion events of that device
    assert done.exit_code == 0
    assert "left out" in done.output
    trace = Trace(log)
    for _ in trace.lifecycles():
        pass
    loop1 = captures.device_number("7:1")
    for letter in "QDC":
        assert again.account.devices[loop1, letter] == trace.account.devices[loop1, letter]


def test_a_directory_with_other_things_is_not_replaced(tmp_path: Path) -> None:
    # GIVEN an output directory that holds something else
    log = tmp_path / "a.biotrail"
    captures.write_log(log, captures.load("fsync-virtio"))
    out = tmp_path / "out.blktrace"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    # WHEN the log is converted there, by force
    with pytest.raises(Exception, match="holds other things"):
        _run(convert.command, str(log), "-o", str(out), "--force")
    # THEN what was there is there
    assert (out / "mine.txt").read_text() == "keep"


def test_dump_prints_blkparses_lines(folder: Path) -> None:
    # GIVEN a set whose lines blkparse printed
    expected = (DATA / "loop1.txt").read_text().splitlines()
    # WHEN it is dumped in that form
    lines = _run(dump.command, "--format", "blkparse", "--limit", "20", "loop1").stdout
    # THEN they are the same
    assert [line.rstrip() for line in lines.splitlines()] == [
        line.rstrip() for line in expected[:20]
    ]


@pytest.mark.parametrize("how", ["identity", "intervals"])
def test_one_log_associated_either_way(tmp_path: Path, how: str) -> None:
    # GIVEN a log with kernel pointers
    log = tmp_path / "a.biotrail"
    captures.write_log(log, captures.load("plugged-merge-loop"))
    # WHEN it is associated as asked for
    told = json.loads(_run(info.command, "--json", "--associate", how, str(log)).output)
    # THEN the edges say how they are known
    known = "exact" if how == "identity" else "interval"
    assert told["account"]["edges"][known] == 16


def test_what_is_no_damage_is_not_called_so(folder: Path) -> None:
    # GIVEN a set without one CPU's file
    (folder / "loop1.blktrace.0").unlink()
    # WHEN its account is asked for
    said = _run(info.command, "loop1").output
    # THEN that is a note, and a loss for all of the recording
    assert "note: loop1: no file for CPU 0" in said
    assert "an unknown number of events lost, in 1 window, on CPU 0" in said
    assert "damaged" not in said
    # AND what lived through it is marked: all I/O
    told = json.loads(_run(info.command, "--json", "loop1").output)
    bios = told["account"]["bios"]
    assert bios["lost"] > 0 and bios["interval"] == bios["ambiguous"] == 0
