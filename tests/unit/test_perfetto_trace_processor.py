# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own importer reads our traces: runs where BIOTRAIL_TRACE_PROCESSOR is its path."""

import io
import os
import re
from pathlib import Path

import pytest
from perfetto_make import Scene, context, direct, request

from converters.perfetto import convert

T = 1_000_000_000
BOOTTIME = 500_000_000
"""BOOTTIME minus MONOTONIC in the header that perfetto_make writes."""


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    binary = os.environ.get("BIOTRAIL_TRACE_PROCESSOR")
    if not binary:
        pytest.skip("BIOTRAIL_TRACE_PROCESSOR is not set")
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    scene = Scene(
        bios=[direct(n, T + 700 * n, 9_000 + n % 7, request=500 + n) for n in range(200)],
        requests=[request(500 + n, T + 700 * n + 1_000, complete=T + 700 * n + 9_000)
                  for n in range(200)],
        losses=[{"start": T + 50, "end": T + 900, "cpu": 0, "kind": 14, "count": 3}],
    )  # fmt: skip
    out = io.BytesIO()
    convert(scene.windows(range(T, T + 200_000, 31_000)), context(), out)
    path = tmp_path_factory.mktemp("trace") / "trace.pftrace"
    path.write_bytes(out.getvalue())
    with TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=binary)) as opened:
        yield opened


def rows(processor, sql):
    return [dict(row.__dict__) for row in processor.query(sql)]


def test_the_importer_reports_no_error(processor):
    # GIVEN a trace / WHEN it is imported / THEN no statistic of errors or loss is above zero
    sql = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
    assert rows(processor, sql) == []


def test_slices_have_their_times_and_stages(processor):
    # GIVEN 200 bios / WHEN their slices are read / THEN times are BOOTTIME's, and all are there
    found = rows(processor, "SELECT ts, dur FROM slice WHERE category = 'bio' ORDER BY ts")
    expected = [(T + BOOTTIME + 700 * n, 12_000 + n % 7) for n in range(200)]
    assert [(r["ts"], r["dur"]) for r in found] == expected
    nested = "SELECT SUM(dur) AS total, parent_id FROM slice WHERE depth = 1 GROUP BY parent_id"
    assert sorted(r["total"] for r in rows(processor, nested)) == sorted(d for _, d in expected)


def test_documented_queries_run(processor):
    # GIVEN the queries of docs/perfetto.md / WHEN they run / THEN none fails
    page = (Path(__file__).parents[2] / "docs" / "perfetto.md").read_text(encoding="utf-8")
    queries = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    assert len(queries) >= 5
    for query in queries:
        list(processor.query(query))
