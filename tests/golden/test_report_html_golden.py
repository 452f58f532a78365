# SPDX-License-Identifier: Apache-2.0
"""The data of pages of captured sequences. `--update` rewrites what is expected."""

import json
import re
from pathlib import Path

import pytest

from biotrail.cli.reporting.page import collect
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.golden_files import Expect

EXPECTED = Path(__file__).parent / "html"
CASES = ("partial-completion-error-loop", "plugged-merge-loop")


def one_line_each(text: str) -> str:
    """The JSON with each list of numbers in a line."""
    return re.sub(r"\[[^\[\]{}\"]*\]", lambda found: re.sub(r"\s+", "", found[0]), text)


@pytest.mark.parametrize("name", CASES)
def test_the_data_of_a_page(name: str, tmp_path: Path, expect: Expect) -> None:
    # GIVEN the log of a sequence
    log = captures.write_log(tmp_path / "a.biotrail", captures.load(name))
    # WHEN the data of its page is collected
    data = collect(lambda: Trace(str(log)))
    del data["words"], data["operations"]  # texts; what the report's JSON has, too
    report = data.pop("report")  # equal to --json: tests/unit/cli/reporting/test_report_html.py
    assert report["format"] == 2
    # THEN it is as on file
    told = one_line_each(json.dumps(data, indent=1)) + "\n"
    expect(EXPECTED / f"{name}.json", told)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.json")) == sorted(CASES)
