# SPDX-License-Identifier: Apache-2.0
"""A mean of nothing is no figure: I/O of which none has a latency, in every form of a report."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runner import Cli, page_data

TEXT = (
    "              dd   500 [000]    10.000000: block:block_bio_queue: 8,0 R 1000 + 8 [dd]\n"
    "              dd   500 [000]    10.000002: block:block_rq_issue: 8,0 R 4096 () 1000 + 8 [dd]\n"
)
FIGURES = ("mean", "min", "p50", "p90", "p99", "p99_9", "max")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of one read that does not end."""
    path = tmp_path / "perf.txt"
    path.write_text(TEXT)
    return path


def summaries(value: Any) -> Iterator[dict[str, Any]]:
    """Every summary within a report's JSON."""
    if isinstance(value, dict):
        if "count" in value and any(key.startswith("sum") for key in value):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from summaries(one)


def test_every_form_leaves_empty_what_has_no_value(
    recording: Path, cli: Cli, tmp_path: Path
) -> None:
    # GIVEN I/O without an end / WHEN it is reported
    done = cli("report", recording)
    # THEN no line speaks of a mean of 0
    assert done.status == 0
    assert "on average" not in done.out
    [heading] = [line for line in done.out.splitlines() if "mean seek" in line]
    row = done.out.splitlines()[done.out.splitlines().index(heading) + 2]
    assert row.split()[-1] == "-"
    assert "0 B" not in row
    # AND as JSON a summary of no values has its count and null, and no finding a mean of 0
    told = json.loads(cli("report", "--json", recording).out)
    found = list(summaries(told))
    assert not all(one["count"] for one in found)
    for one in found:
        if one["count"]:
            assert None not in one.values()
        else:
            known = {key for key, value in one.items() if value is not None}
            assert not any(key.startswith(FIGURES) for key in known), one
    assert told["verdict"]
    assert all(finding.get("mean_ns") != 0 for finding in told["verdict"])
    assert "0 ns on average" not in str(told["verdict"])
    # AND as CSV the figures of no values are empty
    lines = list(csv.DictReader(io.StringIO(cli("report", "--csv", recording).out)))
    none = [line for line in lines if line["count"] == "0"]
    assert none
    assert all(line[f"{figure}_ns"] == "" for line in none for figure in FIGURES)
    # AND the page's data, in which every figure is looked up, have none where there is no value
    page = tmp_path / "page.html"
    assert cli("report", "--html", page, recording).status == 0
    empty = [one for one in summaries(page_data(page)) if not one["count"]]
    assert empty
    assert all(one["mean_ns"] is None for one in empty if "mean_ns" in one)
