# SPDX-License-Identifier: Apache-2.0
"""Commands on a recording of perf. `--update` rewrites what is expected."""

from pathlib import Path

import pytest

from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect
from tests.support.paths import DATA

EXPECTED = Path(__file__).parent / "perf_input"
NAME = "ext4-on-loop.data"
CASES = {
    "info": ["info", NAME],
    "report": ["report", NAME],
    "slow": ["slow", "-n", "3", NAME],
    "bios": ["export", "--what", "bios", "--format", "csv", NAME],
    "requests": ["export", "--what", "requests", "--format", "csv", NAME],
}


@pytest.mark.parametrize("name", CASES)
def test_a_command_on_the_recording(
    name: str, cli: Cli, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN the recording, and a terminal of 100 columns
    monkeypatch.chdir(DATA / "perf")
    monkeypatch.setenv("COLUMNS", "100")
    # WHEN a command reads it
    done = cli(*CASES[name])
    # THEN what it says is on file
    assert done.status == 0, done.err
    expect(EXPECTED / f"{name}.txt", done.out)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted(CASES)
