# SPDX-License-Identifier: Apache-2.0
"""docs/parquet.md: its tables are the code's, its queries run and agree."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import biotrail
from biotrail.converters.calls.arrow import CALLS, COMMITS, WAITS
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import STAGE_NAMES
from biotrail.converters.lifecycles.arrow.columns import BIOS, NAME, REQUESTS, Stage, stage_column
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.arrow import HITS, LIVES, PAIRS, SPANS
from biotrail.converters.submissions.arrow import SUBMISSIONS
from biotrail.recorder.schema.cgroup_paths import FIELDS
from tests.support import doubt_logs, otf2_archives
from tests.support.cli_runner import Cli
from tests.support.golden_files import expect_section
from tests.support.paths import ROOT, SAMPLE

PAGE = ROOT / "docs" / "parquet.md"
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


STAGE = re.compile(r"time in the stage \S+; null: none")


def rendered(name: str) -> str:
    """A table of columns; those of requests that bios have alike, and stages, share a row."""
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for column in TABLES[name]:
        kind = "text" if column.type == NAME else str(column.type)
        if name == "requests" and column in BIOS:
            row = ("", "", "as of bios")
        elif STAGE.fullmatch(column.meaning):
            row = (kind, column.unit, "time in the stage of that name; null: none")
        else:
            row = (kind, column.unit, column.meaning.replace("|", "\\|"))
        same = rows if row[2].startswith(("as of", "time in the stage")) else {}
        same.setdefault(row, []).append(f"`{column.name}`")
        if same is not rows:
            lines.append(f"| `{column.name}` | {' | '.join(row)} |")
    lines += [f"| {' '.join(names)} | {' | '.join(row)} |" for row, names in rows.items()]
    return "\n".join(lines)


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_documented_as_they_are(table: str, update: bool) -> None:
    # GIVEN the code's columns / WHEN they are put as a table / THEN the page has it
    expect_section(PAGE, table, rendered(table), update=update)


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
def test_the_pages_sql_runs_and_stages_count_by_themselves() -> None:
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
    # AND each query of the page gives rows
    assert len(blocks("sql")) == 5
    for query in blocks("sql"):
        assert duckdb.sql(query).fetchall(), query


# Latencies that are in doubt, in tables: a query that knows nothing of doubt is right.

STAGES = [stage_column(stage) for stage in Stage if stage in STAGE_NAMES]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return doubt_logs.write(tmp_path / "x.biotrail")


@pytest.mark.parametrize("what", ["bios", "requests"])
def test_a_latency_in_doubt_is_in_a_column_of_its_own(what: str, log: Path) -> None:
    # GIVEN reads of which two share completions that are far apart / WHEN read without pointers
    table = getattr(biotrail.open(log, "intervals"), what)
    # THEN `latency_ns` has those that are known, `doubtful_ns` the others as they were paired
    known = table["latency_ns"].drop_null().to_pylist()
    doubted = table["doubtful_ns"].drop_null().to_pylist()
    assert (len(known), len(doubted)) == (3, 2)
    if what == "bios":
        assert (known, doubted) == (doubt_logs.KNOWN_NS, doubt_logs.DOUBTFUL_NS)
    # THEN rows have one of the two, and only those whose latency is known have stages
    for row in table.to_pylist():
        assert (row["latency_ns"] is None) != (row["doubtful_ns"] is None)
        total = sum(row.get(name) or 0 for name in STAGES)
        assert total == (row["latency_ns"] or 0)
    # THEN it is behind all others but those that came later
    later = (
        ("m2i_ns", *FIELDS, "for_tid", "for_pid", "for_comm", "title", "file_was")
        if what == "bios"
        else ()
    )
    assert table.column_names[-1 - len(later)] == "doubtful_ns"


def test_with_pointers_on_demand_or_in_sums_nothing_is_in_doubt(log: Path) -> None:
    # GIVEN the same log / WHEN pointers are read / THEN every latency is what happened
    bios = biotrail.open(log).bios
    assert bios["doubtful_ns"].null_count == len(bios)
    assert bios["latency_ns"].to_pylist() == [100_000, 5_000_000, 990_000, 300_000, 307_000]
    # GIVEN the same log / WHEN doubtful latencies are asked for
    bios = biotrail.open(log, "intervals", include_ambiguous=True).bios
    # THEN they are among the others
    wanted = sorted(doubt_logs.KNOWN_NS + doubt_logs.DOUBTFUL_NS)
    assert sorted(bios["latency_ns"].to_pylist()) == wanted
    assert bios["doubtful_ns"].null_count == len(bios)
    # GIVEN the log's bios / WHEN Arrow adds up a column / THEN it is the sum of what is known
    bios = biotrail.open(log, "intervals").bios
    assert pc.sum(bios["latency_ns"]).as_py() == sum(doubt_logs.KNOWN_NS)


def test_latencies_in_doubt_of_datasets_and_text_formats(
    log: Path, cli: Cli, tmp_path: Path
) -> None:
    # GIVEN a dataset of the log / WHEN the mean is asked for, as one asks
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    out = tmp_path / "archive"
    done = cli("archive", *doubt_logs.BY_INTERVALS, log, "-o", f"{out}/")
    assert done.status == 0, done.err
    source = f"read_parquet('{out}/bios/**/*.parquet', hive_partitioning = true)"
    found = duckdb.sql(
        f"select count(*), avg(latency_ns), count(doubtful_ns), max(d2c_ns) from {source}"
    ).fetchall()
    # THEN those in doubt are not in it
    known = doubt_logs.KNOWN_NS
    assert found == [(5, pytest.approx(sum(known) / 3), 2, 305_000)]
    # GIVEN the log / WHEN its bios are CSV
    done = cli("export", *doubt_logs.BY_INTERVALS, log)
    header, *rows = csv.reader(io.StringIO(done.out))
    place, doubt = header.index("latency_ns"), header.index("doubtful_ns")
    # THEN a latency in doubt is an empty cell, and its own column has it
    known = [row[place] for row in rows if not row[doubt]]
    assert known == [str(ns) for ns in doubt_logs.KNOWN_NS]
    assert [row[place] for row in rows if row[doubt]] == ["", ""]


def test_an_end_in_doubt_says_so_in_otf2(log: Path, cli: Cli, tmp_path: Path) -> None:
    # GIVEN the log / WHEN it becomes an archive of OTF2
    pytest.importorskip("otf2", reason="needs the otf2 package")
    done = cli("convert", *doubt_logs.BY_INTERVALS, log, "-o", tmp_path / "x.otf2")
    assert done.status == 0, done.err
    found: dict[bool, list[int]] = {False: [], True: []}
    operations = otf2_archives.operations(tmp_path / "x.otf2" / "traces.otf2")
    for (location, _), operation in operations.items():
        if location.endswith(" bios"):
            at = dict(operation.events)
            doubtful = operation.attributes.get("complete", {}).get("doubtful") == 1
            found[doubtful].append(at["complete"] - at["begin"])
    # THEN ends whose latency is in doubt have the attribute, and no others
    assert sorted(found[False]) == doubt_logs.KNOWN_NS
    assert sorted(found[True]) == doubt_logs.DOUBTFUL_NS
