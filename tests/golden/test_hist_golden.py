# SPDX-License-Identifier: Apache-2.0
"""`biotrail hist` of known logs, as people see it. `--update` rewrites what is expected."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from biotrail.cli.hist import command
from tests.support import captures
from tests.support.golden_files import Expect
from tests.support.paths import ROOT

EXPECTED = Path(__file__).parent / "hist"
SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "latency": ("ext4-journal-on-loop", ()),
    "stage": ("plugged-merge-loop", ("--stage", "M2D", "--in", "ns")),
    "size": ("split-write-loop", ("--size",)),
    "depth": ("kyber-loop-and-virtio", ("--depth", "--linear", "1")),
    "linear": ("sample", ("--linear", "1ms", "--op", "read")),
    "heatmap": ("sample", ("--heatmap", "--stage", "D2C")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_histograms_of_a_log(
    name: str, tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log, and a terminal of 80 columns
    source, options = CASES[name]
    log = SAMPLE
    if source != "sample":
        log = captures.write_log(tmp_path / "a.biotrail", captures.load(source))
    monkeypatch.setenv("COLUMNS", "80")
    # WHEN it is asked for
    done = CliRunner().invoke(command, [*options, str(log)])
    assert done.exit_code == 0, done.output
    # THEN it looks as on file
    expect(EXPECTED / f"{name}.txt", done.output)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted(CASES)
