# SPDX-License-Identifier: Apache-2.0
"""The command `export`: tables of bios, requests and events, and fio's iolog."""

import csv
import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from biotrail.converters.calls.arrow import CALL_SCHEMA, WAIT_SCHEMA
from biotrail.converters.lifecycles.arrow.columns import BIO_SCHEMA, REQUEST_SCHEMA
from biotrail.converters.lifecycles.arrow.events import EVENT_SCHEMA
from biotrail.converters.outputs.tables import convert
from biotrail.converters.pipeline import Trace
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT, SAMPLE

CALLS = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"

REPLAY = """
0 Q 5 Gs R 1000+8 bio=1 rq=1
9 D 100 C R 1000+8 bio=1 rq=1 tag=7/-1
20 Q 25 Gs W 16+8 bio=2 rq=2
29 D 40 C W 16+8 bio=2 rq=2 tag=8/-1
50 QGs FW 0+0 bio=3 rq=3
53 D 60 C FW 0+0 bio=3 rq=3 tag=9/-1
70 QGs D 2048+64 bio=4 rq=4
73 D 80 C D 2048+64 bio=4 rq=4 tag=9/-1
"""
"""The first ends last: it is to be replayed first all the same."""


@pytest.mark.parametrize(("what", "schema"), [("calls", CALL_SCHEMA), ("waits", WAIT_SCHEMA)])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "arrow"])
def test_calls_and_waits_in_every_format(
    what: str, schema: pa.Schema, ending: str, cli: Cli, tmp_path: Path
) -> None:
    # GIVEN a recording with the path, and one without
    out = tmp_path / f"x.{ending}"
    # WHEN its calls or waits are written  THEN every format has the documented columns
    done = cli("export", "--what", what, CALLS, "-o", out)
    assert done.status == 0
    read = {
        "csv": pyarrow.csv.read_csv,
        "jsonl": pyarrow.json.read_json,
        "parquet": pq.read_table,
        "arrow": lambda path: pyarrow.ipc.open_file(path).read_all(),
    }[ending]
    table = read(out)
    assert table.column_names == schema.names
    assert f"{len(table)} {what}" in done.err
    # AND of the one without there are no rows, and a line says why
    done = cli("export", "--what", what, SAMPLE, "-o", out, "-f")
    assert done.status == 0
    assert "record --path" in done.err


@pytest.mark.parametrize(
    ("what", "schema"),
    [("bios", BIO_SCHEMA), ("requests", REQUEST_SCHEMA), ("events", EVENT_SCHEMA)],
)
def test_a_table_has_its_columns_and_a_row_each(
    what: str, schema: object, cli: Cli, tmp_path: Path
) -> None:
    # GIVEN the sample  WHEN a table of it is printed, and written as Parquet
    printed = list(csv.DictReader(io.StringIO(cli("export", "--what", what, SAMPLE).out)))
    assert cli("export", "--what", what, SAMPLE, "-o", tmp_path / "x.parquet").status == 0
    # THEN both have the documented columns, and as many rows as the model
    table = pq.read_table(tmp_path / "x.parquet")
    trace = Trace(SAMPLE)
    windows = list(trace.lifecycles())
    rows = trace.account.total if what == "events" else sum(len(getattr(w, what)) for w in windows)
    assert list(printed[0]) == table.column_names == list(schema.names)  # type: ignore[attr-defined]
    assert len(printed) == len(table) == rows


def test_tables_of_stages_events_and_one_device(cli: Cli, tmp_path: Path) -> None:
    # GIVEN bios as JSON lines  WHEN their stages are added  THEN they are the latency
    assert cli("export", SAMPLE, "-o", tmp_path / "x.jsonl").status == 0
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    stages = BIO_SCHEMA.names[BIO_SCHEMA.names.index("family") + 1 : -1]
    ended = [row for row in rows if row["latency_ns"] is not None and row["certainty"] == "exact"]
    assert len(ended) > 1000
    for row in ended:
        assert sum(row[name] or 0 for name in stages) == row["latency_ns"], row
    # GIVEN a capture  WHEN its events are exported  THEN they stand as dump prints them
    log = captures.write_log(tmp_path / "x", captures.load("plugged-merge-loop"))
    rows = list(csv.DictReader(io.StringIO(cli("export", "--what", "events", log).out)))
    dumped = [json.loads(line) for line in cli("dump", "--format", "json", log).out.splitlines()]
    assert len(rows) == len(dumped) > 0
    for row, told in zip(rows, dumped, strict=True):
        assert int(row["time_ns"]) == told["time_ns"]
        assert row["kind"] == told["kind"]
        assert row["device"] == told.get("device", "")
        assert row["op"] == told.get("op", "")
        assert int(row["bytes"] or 0) == told.get("bytes", 0)
        assert (int(row["bio"], 10) if row["bio"] else 0) == int(told.get("bio") or "0", 16)
    # GIVEN a log of several devices  WHEN one is chosen  THEN the rows are its own
    log = captures.write_log(tmp_path / "x", captures.load("kyber-loop-and-virtio"))
    rows = list(csv.DictReader(io.StringIO(cli("export", "-d", "vda", log).out)))
    assert {row["device"] for row in rows} == {"vda"}
    done = cli("export", "-d", "sdz", log)
    assert (done.status, "has no device sdz" in done.err) == (1, True)
    # GIVEN a file  WHEN a table shall be there  THEN that takes --force
    (tmp_path / "x.csv").write_text("mine")
    assert cli("export", SAMPLE, "-o", tmp_path / "x.csv").status == 1
    assert (tmp_path / "x.csv").read_text() == "mine"


def test_an_iolog_has_the_ios_at_their_times(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a read that ends after a write, a flush and a discard  WHEN an iolog is made
    log = captures.write_log(tmp_path / "x", events_of(REPLAY))
    assert cli("export", log, "-o", tmp_path / "x.iolog").status == 0
    # THEN all are in it in the order of their queueing, in µs, bytes, and fio's words
    assert (tmp_path / "x.iolog").read_text().splitlines() == [
        "fio version 3 iolog",
        "1 /dev/vda add",
        "1 /dev/vda open",
        "1 /dev/vda read 512000 4096",
        "21 /dev/vda write 8192 4096",
        "51 /dev/vda sync 0 0",
        "71 /dev/vda trim 1048576 32768",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what", "events", "--format", "iolog"], "made of bios"),
        (["-o", "x.table"], "names no format"),
        (["--what", "events", "-d", "vda"], "dump -d"),
    ],
)
def test_what_does_not_fit_is_wrong_usage(arguments: list[str], said: str, cli: Cli) -> None:
    # GIVEN options that contradict each other  WHEN they are given  THEN that is said
    done = cli("export", *arguments, SAMPLE)
    assert (done.status, said in done.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("export", f"x.{ending}") for ending in ("csv", "jsonl", "parquet", "arrow", "iolog")),
        *(("archive", name) for name in ("x.parquet", "set")),
    ],
)
def test_a_full_disk_leaves_nothing_but_a_message(command: str, name: str, tmp_path: Path) -> None:
    # GIVEN room for 20 KB  WHEN more is written  THEN one message says so, and no part stays
    done = subprocess.run(
        [sys.executable, "-m", "biotrail.cli.main", command, SAMPLE, "-o", tmp_path / name],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("biotrail: error: cannot write ")
    assert "too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_json_lines_are_those_of_json(tmp_path: Path) -> None:
    # GIVEN a table of every type that rows have, with texts that JSON has to escape, and nulls
    rows = [
        {"n": 1 << 62, "ok": True, "text": 'a"\\\n\u2028ü', "list": [1, 2], "dict": "x"},
        {"n": None, "ok": None, "text": None, "list": None, "dict": None},
        {"n": -1, "ok": False, "text": "", "list": [], "dict": "x"},
    ]
    types = [
        *(("n", pa.int64()), ("ok", pa.bool_()), ("text", pa.string())),
        *(("list", pa.list_(pa.int64())), ("dict", pa.dictionary(pa.int32(), pa.string()))),
    ]
    table = pa.Table.from_pylist(rows, pa.schema(types))
    # WHEN it is written, also where it is a part of another
    for part, wanted in ((table, rows), (table.slice(1), rows[1:])):
        out = io.BytesIO()
        assert convert.write(iter([part]), table.schema, "jsonl", out) == len(wanted)
        # THEN each line is what json makes of the row
        assert out.getvalue().decode() == "".join(json.dumps(row) + "\n" for row in wanted)
