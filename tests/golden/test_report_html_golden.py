# SPDX-License-Identifier: Apache-2.0
"""The data of pages of captured sequences. `--update` rewrites what is expected."""

import json
import re
from pathlib import Path

import pytest

from biotrail.cli.reporting.page import collect
from biotrail.converters.pipeline import Trace
from tests.support import captures

EXPECTED = Path(__file__).parent / "html"
CASES = ("partial-completion-error-loop", "plugged-merge-loop")


def one_line_each(text: str) -> str:
    """The JSON with each list of numbers in a line."""
    return re.sub(r"\[[^\[\]{}\"]*\]", lambda found: re.sub(r"\s+", "", found[0]), text)


@pytest.mark.parametrize("name", CASES)
def test_the_data_of_a_page(name: str, tmp_path: Path, update: bool) -> None:
    # GIVEN the log of a sequence
    log = captures.write_log(tmp_path / "a.biotrail", captures.load(name))
    # WHEN the data of its page is collected
    data = collect(lambda: Trace(str(log)))
    del data["words"], data["operations"]  # texts; what the report's JSON has, too
    assert (
        data.pop("report")["format"] == 2
    )  # equal to --json: tests/unit/cli/reporting/test_report_html.py
    # THEN it is as on file
    path = EXPECTED / f"{name}.json"
    told = one_line_each(json.dumps(data, indent=1)) + "\n"
    if update:
        path.write_text(told)
    assert json.loads(told) == json.loads(path.read_text())


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.json")) == sorted(CASES)
