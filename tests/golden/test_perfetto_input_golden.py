# SPDX-License-Identifier: Apache-2.0
"""Commands on a Perfetto trace of the kernel's own events. `--update` rewrites what is expected."""

from pathlib import Path

import pytest

from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect
from tests.support.paths import DATA
from tests.support.perfetto_check import read, render

EXPECTED = Path(__file__).parent / "perfetto_input"
NAME = "ext4-on-loop.pftrace"
CASES = {
    "info": ["info", NAME],
    "report": ["report", NAME],
    "slow": ["slow", "-n", "3", NAME],
    "bios": ["export", "--what", "bios", "--format", "csv", NAME],
    "requests": ["export", "--what", "requests", "--format", "csv", NAME],
}


@pytest.mark.parametrize("name", CASES)
def test_a_command_on_the_trace(
    name: str, cli: Cli, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN the trace, and a terminal of 100 columns
    monkeypatch.chdir(DATA / "perfetto")
    monkeypatch.setenv("COLUMNS", "100")
    # WHEN a command reads it
    done = cli(*CASES[name])
    # THEN what it says is on file
    assert done.status == 0, done.err
    expect(EXPECTED / f"{name}.txt", done.out)


def test_the_trace_and_its_bios(cli: Cli, tmp_path: Path, expect: Expect) -> None:
    # GIVEN the trace
    source = DATA / "perfetto" / NAME
    # WHEN it is converted
    both = tmp_path / "both.pftrace"
    assert cli("convert", source, "-o", both).status == 0
    # THEN its own bytes come first, unchanged, and what is made of them is on file
    data, theirs = both.read_bytes(), source.read_bytes()
    assert data.startswith(theirs)
    expect(EXPECTED / "tracks.txt", render(read(data[len(theirs) :])))


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted([*CASES, "tracks"])
