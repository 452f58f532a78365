# SPDX-License-Identifier: Apache-2.0
"""`biotrail.open`: a recording as Arrow tables, which say what the commands say."""

import errno
import io
import json
from pathlib import Path

import nbformat
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from nbclient import NotebookClient

import biotrail
from biotrail.recorder.schema.errors import LogFormatError
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = Path(biotrail.__file__).parent / "data" / "demo.biotrail"


def test_columns_say_what_the_report_says(cli: Cli) -> None:
    # GIVEN the report of a recording
    report = json.loads(cli("report", "--json", SAMPLE).out)
    # WHEN its bios are read as a table
    bios = biotrail.open(SAMPLE).bios
    # THEN counts, bytes and certainty are the same
    total = report["total"]
    assert len(bios) == total["ios"]
    assert pc.sum(bios["bytes"]).as_py() == total["bytes"]
    assert pc.sum(bios["done_bytes"]).as_py() == total["done_bytes"]
    assert len(bios["latency_ns"].drop_null()) == total["ended"]
    for name in ("exact", "incomplete", "lost"):
        assert pc.sum(pc.equal(bios["certainty"], name)).as_py() == total[name]
    # AND latencies of each operation, within what the report states of its percentiles
    error = report["percentiles"]["relative_error"]
    for operation in report["devices"][0]["operations"]:
        q2c = operation["latency"]
        mine = bios.filter(pc.equal(bios["op"], operation["operation"]))["latency_ns"].drop_null()
        assert len(mine) == q2c["count"]
        assert pc.sum(mine).as_py() == q2c["sum_ns"]
        exact = np.quantile(mine, [0.5, 0.99], method="inverted_cdf")
        assert [q2c["p50_ns"], q2c["p99_ns"]] == pytest.approx(exact, rel=error)


def test_calls_and_waits_say_what_the_report_says(cli: Cli) -> None:
    # GIVEN a recording with the path, and its report  WHEN its calls and waits are read as tables
    log = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
    report = json.loads(cli("report", "--json", log).out)["calls"]
    recording = biotrail.open(log)
    calls, waits = recording.calls, recording.waits
    # THEN counts and times of each name are the same
    for call in report:
        mine = calls.filter(pc.equal(calls["call"], call["call"]))
        assert len(mine) == call["count"]
        assert pc.sum(mine["duration_ns"]).as_py() == call["time"]["sum_ns"]
        parts = {part["part"]: part["sum_ns"] for part in call["parts"]}
        for part in ("running", "runnable", "own_io", "other_io", "otherwise", "undivided"):
            assert pc.sum(mine[f"{part}_ns"]).as_py() == parts.get(part, 0)
    # AND waits for own I/O are those of the calls, by their key
    own = waits.filter(pc.equal(waits["cause"], "own I/O"))
    assert pc.sum(own["blocked_ns"]).as_py() == pc.sum(calls["own_io_ns"]).as_py()
    keys = set(zip(*(calls[name].to_pylist() for name in ("tid", "entry_ns")), strict=True))
    assert keys >= set(zip(*(own[name].to_pylist() for name in ("tid", "entry_ns")), strict=True))


def test_windows_and_stages_hold_what_the_tables_hold() -> None:
    # GIVEN the sample  WHEN its calls are asked for  THEN the tables are empty, columns and all
    recording = biotrail.open(SAMPLE)
    assert (len(recording.calls), len(recording.waits)) == (0, 0)
    assert "own_io_ns" in recording.calls.column_names
    # GIVEN the bios that ended
    bios = biotrail.open(SAMPLE).bios
    bios = bios.filter(pc.is_valid(bios["latency_ns"]))
    # WHEN the columns of their stages are added
    meant = {f.name for f in bios.schema if f.metadata[b"meaning"].startswith(b"time in the stage")}
    stages = [pc.fill_null(bios[name], 0).to_numpy() for name in meant]
    # THEN that is the latency, to the nanosecond
    assert np.array_equal(sum(stages), bios["latency_ns"].to_numpy())
    # GIVEN a recording
    t = biotrail.open(SAMPLE)
    # WHEN it is read in pieces
    bios, requests = zip(*t.windows(), strict=True)
    # THEN together they are the tables
    assert sum(map(len, bios)) == len(t.bios)
    assert sum(map(len, requests)) == len(t.requests)
    assert {n for part in bios for n in part["number"].to_pylist()} == set(
        t.bios["number"].to_pylist()
    )


def test_an_archive_gives_the_same_tables(cli: Cli, tmp_path: Path) -> None:
    # GIVEN an archive of a log
    assert cli("archive", SAMPLE, "-o", tmp_path / "x.parquet").status == 0
    # WHEN both are opened
    log, archive = biotrail.open(SAMPLE), biotrail.open(tmp_path / "x.parquet")
    # THEN their tables are equal, and so is what they say is missing
    assert log.bios.equals(archive.bios)
    assert log.requests.equals(archive.requests)
    assert log.events.equals(archive.events)
    assert log.missing == archive.missing != []


def test_events_are_in_order_and_bios_are_numbered_by_theirs() -> None:
    # GIVEN a recording
    t = biotrail.open(SAMPLE)
    # WHEN its events are read
    numbers, times = t.events["number"].to_numpy(), t.events["time_ns"].to_numpy()
    # THEN they are in the order of time, and a bio's number is that of the event that began it
    assert (np.diff(numbers) > 0).all()
    assert (np.diff(times) >= 0).all()
    first = t.events.take(np.searchsorted(numbers, t.bios["number"].to_numpy()))
    queued = pc.equal(first["event"], "queue")
    begun = t.bios.filter(queued)["queue_ns"].to_pylist()
    assert first.filter(queued)["time_ns"].to_pylist() == begun


def test_a_stream_can_be_read_once() -> None:
    # GIVEN a log in a stream
    t = biotrail.open(io.BytesIO(SAMPLE.read_bytes()))
    # WHEN bios, and then events are asked for
    bios = t.bios
    # THEN bios and requests are there, and for the events it says what to do
    assert isinstance(bios, pa.Table)
    assert len(t.requests) > len(bios)
    with pytest.raises(ValueError, match="read once: open a file"):
        _ = t.events


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    # GIVEN a name without a file  WHEN it is opened
    path = tmp_path / "none.biotrail"
    with pytest.raises(FileNotFoundError) as told:
        biotrail.open(path)
    # THEN it is Python's own error, and ours, and says which file
    assert isinstance(told.value, LogFormatError)
    assert (told.value.errno, told.value.filename) == (errno.ENOENT, str(path))
    assert str(told.value).startswith(f"{path}: cannot be opened: No such file or directory; ")
    # GIVEN something else
    path = tmp_path / "x"
    path.write_text("hello")
    # WHEN it is opened THEN the error names it
    with pytest.raises(LogFormatError, match="x"):
        biotrail.open(path)


# docs/notebook.ipynb runs, and its plots are made.
#
# What it shows is renewed by: jupyter execute --inplace docs/notebook.ipynb

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]


def plots(notebook: nbformat.NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_the_notebook_runs_and_shows_plots(tmp_path: Path) -> None:
    # GIVEN the notebook as it is shown
    shown = nbformat.read(NOTEBOOK, as_version=4)
    there, said = plots(shown), len(outputs(shown))
    # WHEN all of it is run (a cell that fails raises)
    run = NotebookClient(shown, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    run.execute()
    # THEN it has as many plots and outputs as before
    assert plots(run.nb) == there >= 2
    assert len(outputs(run.nb)) == said
