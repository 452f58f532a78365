# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow` of captured sequences, as people see it. `--update` rewrites what is expected."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from biotrail.cli.slow import command
from tests.scenarios.causes import FLOOD
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.golden_files import Expect

EXPECTED = Path(__file__).parent / "slow"
CASES = {
    name: captures.load(name)
    for name in (
        "bio-based-zram",
        "ext4-journal-on-loop",
        "partial-completion-error-loop",
        "plugged-merge-loop",
        "split-write-loop",
    )
} | {"flood": events_of(FLOOD)}


@pytest.mark.parametrize("name", CASES)
def test_the_slowest_of_a_capture(name: str, tmp_path: Path, expect: Expect) -> None:
    # GIVEN the log of a sequence
    log = captures.write_log(tmp_path / "a.biotrail", CASES[name])
    # WHEN its slowest I/Os are asked for
    done = CliRunner().invoke(command, ["--top", "2", str(log)])
    assert done.exit_code == 0, done.output
    # THEN they are told as on file
    expect(EXPECTED / f"{name}.txt", done.output)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted(CASES)
