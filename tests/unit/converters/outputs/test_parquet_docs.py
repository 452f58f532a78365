# SPDX-License-Identifier: Apache-2.0
"""docs/parquet.md: its tables are the code's, its queries run and agree."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.calls.arrow import CALLS, COMMITS, WAITS
from biotrail.converters.events.context import Context
from biotrail.converters.lifecycles.arrow.columns import BIOS, NAME, REQUESTS, Column
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.arrow import HITS, LIVES, PAIRS, SPANS
from biotrail.converters.submissions.arrow import SUBMISSIONS
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "parquet.md"
SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
TABLES = {
    "bios": BIOS,
    "requests": REQUESTS,
    "calls": CALLS,
    "waits": WAITS,
    "commits": COMMITS,
    "submissions": SUBMISSIONS,
    "pairs": PAIRS,
    "lives": LIVES,
    "spans": SPANS,
    "hits": HITS,
}


def rendered(columns: tuple[Column, ...]) -> str:
    rows = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    for column in columns:
        kind = "text" if column.type == NAME else str(column.type)
        meaning = column.meaning.replace("|", "\\|")
        rows.append(f"| `{column.name}` | {kind} | {column.unit} | {meaning} |")
    return "\n".join(rows)


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_documented_as_they_are(table: str, request: pytest.FixtureRequest) -> None:
    # GIVEN the code's columns  WHEN they are put as a table (--update puts it into the page)
    wanted = f"<!-- {table} -->\n{rendered(TABLES[table])}\n<!-- end -->"
    if request.config.getoption("--update"):
        text = re.sub(
            rf"<!-- {table} -->\n.*?<!-- end -->", lambda _: wanted, PAGE.read_text(), flags=re.S
        )
        PAGE.write_text(text)
    # THEN the page has it
    assert wanted in PAGE.read_text()


@pytest.fixture
def dataset(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample as the page's `archive/`, in the current directory."""
    assert Cli(capsys)("archive", SAMPLE, "-o", tmp_path / "archive").status == 0
    monkeypatch.chdir(tmp_path)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(PAGE.read_text()) if name == language]


def reads() -> list[tuple[str, int, float]]:
    """The answer of the page's first question, from the model."""
    trace = Trace(SAMPLE)
    latencies: dict[str, list[int]] = {}
    for window in trace.lifecycles():
        bios, context = window.bios, Context(trace.context.header)
        for dev, opf, queue, complete in zip(
            bios.dev, bios.opf, bios.queue, bios.complete, strict=True
        ):
            if context.op_name(int(opf)) == "read" and queue >= 0 and complete >= 0:
                latencies.setdefault(context.device_name(int(dev)), []).append(complete - queue)
    return [
        (name, len(ns), float(np.quantile(ns, 0.99, method="higher")) / 1e3)
        for name, ns in sorted(latencies.items())
    ]


@pytest.mark.usefixtures("dataset")
@pytest.mark.parametrize("tool", ["duckdb", "polars", "pandas"])
def test_the_first_question_is_answered_alike(tool: str) -> None:
    # GIVEN a dataset, and the page's code for a tool
    pytest.importorskip(tool, reason=f"needs {tool}")
    [code] = [block for block in blocks("python") if f"import {tool}" in block]
    # WHEN it runs  THEN it gives what the model gives
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    answer = [(device, ios, pytest.approx(p99)) for device, ios, p99 in reads()]
    assert [tuple(row) for row in names["answer"]] == answer
    assert answer[0][1] > 100


@pytest.mark.usefixtures("dataset")
def test_who_waited_counts_bios_without_some_stages() -> None:
    # GIVEN a dataset whose bios have some stages and not others
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    [query] = [text for text in blocks("sql") if "as scheduler" in text]
    source = "read_parquet('archive/bios/**/*.parquet', hive_partitioning = true)"
    parts = duckdb.sql(
        f"select comm, sum(g2i_ns), sum(i2d_ns), sum(d2c_ns) from {source} group by comm"
    ).fetchall()
    wanted = {
        comm: (((held or 0) + (queued or 0)) / 1e6, (device or 0) / 1e6)
        for comm, held, queued, device in parts
    }
    uneven = f"select count(*) from {source} where (g2i_ns is null) <> (i2d_ns is null)"
    assert duckdb.sql(uneven).fetchall()[0][0] > 0
    # WHEN the page's question who waited for what is asked  THEN each stage counts by itself
    rows = duckdb.sql(query).fetchall()
    assert {comm: (held, device) for comm, _, _, held, device in rows} == {
        comm: (pytest.approx(held), pytest.approx(device))
        for comm, (held, device) in wanted.items()
        if comm in {row[0] for row in rows}
    }


@pytest.mark.usefixtures("dataset")
def test_the_pages_sql_runs_and_finds_something() -> None:
    # GIVEN a dataset  WHEN each query of the page runs  THEN it gives rows
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    assert len(blocks("sql")) == 5
    for query in blocks("sql"):
        assert duckdb.sql(query).fetchall(), query
