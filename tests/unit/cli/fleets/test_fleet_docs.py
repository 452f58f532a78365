# SPDX-License-Identifier: Apache-2.0
"""docs/fleet.md: its queries run on a dataset, and agree with each other."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runner import Cli
from tests.support.fleet_archives import host_archive
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "fleet.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_queries_of_the_page_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a dataset of two hosts, with reads
    paths = [host_archive(tmp_path, name, "split-write-loop", 2) for name in ("db1", "db2")]
    assert Cli(capsys)("archive", *paths, "-o", tmp_path / "archive").status == 0
    monkeypatch.chdir(tmp_path)
    # WHEN the page's queries run, for writes, of which the sample consists
    answers = []
    for text in BLOCK.findall(PAGE.read_text()):
        scope: dict[str, Any] = {}
        exec(text.replace("'read'", "'write'").replace('"read"', '"write"'), scope)
        answers.append(scope["answer"])
    # THEN DuckDB and Polars have the same hosts, counts and percentiles, and events as many bytes
    duckdb, polars, events = answers
    assert [row[0] for row in duckdb] == ["db1", "db2"]
    assert [tuple(row) for row in duckdb] == [tuple(row) for row in polars]
    assert [row[0] for row in events] == ["db1", "db2"]
    assert events[0][1:] == events[1][1:]
