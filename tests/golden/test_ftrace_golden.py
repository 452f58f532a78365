# SPDX-License-Identifier: Apache-2.0
"""Commands on real recordings of ftrace. `--update` rewrites what is expected."""

import shutil
from pathlib import Path

import pytest

from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect

DATA = Path(__file__).parents[1] / "data" / "ftrace"
EXPECTED = Path(__file__).parent / "ftrace"
CASES = {
    "dat-info": ["info", "small.dat"],
    "dat-report": ["report", "small.dat"],
    "dat-bios": ["export", "--what", "bios", "--format", "csv", "small.dat"],
    "text-info": ["info", "small.trace.txt"],
    "text-report": ["report", "small.trace.txt"],
    "lossy-dat-info": ["info", "lossy.dat"],
    "lossy-text-info": ["info", "lossy.trace.txt"],
    "lossy-report-info": ["info", "lossy.report.txt"],
}


@pytest.mark.parametrize("name", CASES)
def test_a_command_on_a_recording_of_ftrace(
    name: str, cli: Cli, tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recording, and a terminal of 100 columns
    *command, file = CASES[name]
    shutil.copy(DATA / file, tmp_path / file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    # WHEN a command reads it
    out = cli(*command, file).out
    # THEN what it says is on file
    expect(EXPECTED / f"{name}.txt", out)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted(CASES)


def test_text_tells_what_the_file_tells() -> None:
    # GIVEN what is expected of a trace.dat and of its text
    one, other = ((EXPECTED / f"{form}-info.txt").read_text() for form in ("dat", "text"))
    # THEN the number of events and the certainty of all I/O are the same
    counts = [
        [line for line in text.splitlines() if line[:3] in ("eve", "  Q", "  C", "cer", "   ")]
        for text in (one, other)
    ]
    assert counts[0] == counts[1]
