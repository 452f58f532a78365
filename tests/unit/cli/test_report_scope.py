# SPDX-License-Identifier: Apache-2.0
"""Of what time and of which I/O a report says that it is."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.options import report_scope
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli

LOAD = """
0       Q R 0+8 bio=1 pid=11 comm=fio
1       G R 0+8 bio=1
2       s R 0+8 bio=1 rq=1
3       D R 0+8 bio=1 rq=1 tag=1/1
900     C R 0+8 bio=1 rq=1
1000    Q R 8+8 bio=2 pid=11 comm=fio
1001    G R 8+8 bio=2
1002    s R 8+8 bio=2 rq=2
1003    D R 8+8 bio=2 rq=2 tag=1/2
1250    C R 8+8 bio=2 rq=2
"""
"""Times are µs."""
FILTERS = {
    "devices": [{"spec": "vda", "disk": 1, "part": 0}, {"disk": 2, "part": 0}],
    "ops": ["read"],
    "comms": ["a*"],
}


def write(path: Path, text: str = LOAD, **header: Any) -> Path:
    captures.write_log(path, events_of(text), header)
    return path


def told(cli: Cli, *arguments: str | Path) -> Any:
    return json.loads(cli(*arguments).out)


def test_an_empty_log_begins_when_its_recording_did(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log without events, whose header says when recording began
    path = write(tmp_path / "empty.biotrail", "")
    clock = captures.clock()
    # WHEN it is reported on THEN that is its beginning, not the host's boot
    time = told(cli, "report", "--json", path)["time"]
    assert (time["begin_ns"], time["end_ns"]) == (clock["monotonic"], clock["monotonic"])
    seen = told(cli, "report", "--json", write(tmp_path / "some.biotrail"))["time"]["begin"]
    assert time["begin"][:10] == seen[:10]
    assert time["begin"][:16] in cli("report", path).out
    # AND so it is where it is compared
    assert told(cli, "diff", "--json", path, path)["a"]["begin"] == time["begin"]


def test_an_empty_log_of_an_unknown_time_says_so(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log without events, whose header has no clocks
    path = write(tmp_path / "empty.biotrail", "", clocks={})
    # WHEN it is reported on THEN no time is made up
    assert told(cli, "report", "--json", path)["time"]["begin"] is None
    assert "from an unknown time" in cli("report", path).out


def test_the_last_interval_ends_with_the_log(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log that ends a quarter into its second interval
    path = write(tmp_path / "log.biotrail")
    # WHEN its report has a time series
    found = told(cli, "report", "--interval", "1ms", "--json", path)
    first, last = found["intervals"]
    # THEN the last interval ends with the log, and its rates are of the time that it had
    assert first["end_ns"] - first["begin_ns"] == 1_000_000
    assert (last["begin_ns"], last["end_ns"]) == (first["end_ns"], found["time"]["end_ns"])
    assert first["groups"][0]["ios_per_s"] == 1000
    # which ends right after its last event
    assert last["groups"][0]["ios_per_s"] == pytest.approx(4000, rel=1e-5)
    assert last["groups"][0]["bytes_per_s"] == pytest.approx(4000 * 4096, rel=1e-5)
    # AND the CSV says the same
    rows = list(csv.DictReader(io.StringIO(cli("report", "--interval", "1ms", "--csv", path).out)))
    ends = {row["end_ns"] for row in rows if row["section"] == "intervals"}
    assert ends == {str(first["end_ns"]), str(last["end_ns"])}


def test_intervals_of_a_cut_begin_and_end_with_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a cut that begins when nothing happens, 400 µs before the second I/O
    path = write(tmp_path / "log.biotrail")
    start = captures.clock()["monotonic"]
    base = captures.BASE_NS - start
    begin, end = ((base + us * 1000) / 1e9 for us in (950, 1300))
    # WHEN its report has a time series
    found = told(
        cli,
        *("report", "--from", f"{begin:.9f}s", "--to", f"{end:.9f}s"),
        *("--interval", "200us", "--json", path),
    )
    # THEN the intervals begin with the cut, and the last one ends with it
    intervals = found["intervals"]
    assert intervals[0]["begin_ns"] == found["time"]["begin_ns"]
    assert intervals[-1]["end_ns"] == found["time"]["end_ns"]
    assert found["time"]["begin_ns"] == captures.BASE_NS + 950_000
    busy = sum(depth["active_ns"] for one in intervals for depth in one["depths"])
    assert busy == 250_000
    [device] = found["devices"]
    depth = device["depth"]["queue"]
    assert depth["active_ns"] + depth["idle_ns"] == pytest.approx(found["time"]["span_ns"], abs=2)


def test_a_filtered_log_says_so_in_every_form(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log that was recorded with filters
    path = write(tmp_path / "log.biotrail", filters=FILTERS)
    # WHEN it is reported on
    options = "-d vda --comm a* --op read"
    # THEN the JSON has them, as options and one by one
    found = told(cli, "report", "--json", path)["filters"]
    assert (found["options"], found["devices"], found["ops"]) == (options, ["vda"], ["read"])
    # AND the text says so at its top
    head = cli("report", path).out.splitlines()[:4]
    assert f"recorded with filters: {options}" in head
    # AND so does each line of the CSV
    rows = list(csv.DictReader(io.StringIO(cli("report", "--csv", "--no-guard", path).out)))
    assert {row["filters"] for row in rows} == {options}
    # AND so does the page
    page = tmp_path / "out.html"
    assert cli("report", "--html", page, path).status == 0
    assert f'"options":"{options}"' in page.read_text()


def test_what_a_filter_left_out_is_counted() -> None:
    # GIVEN what a report says of filters that left out 1,234 bios, and of an interrupted log
    told = {"options": "-d vda", "left_out_bios": 1234}
    # WHEN it is put in words THEN the count is there where it is known
    [line] = report_scope.lines({"filters": told})
    assert line == "recorded with filters: -d vda (1,234 bios left out while recording)"
    [line] = report_scope.lines({"filters": {**told, "left_out_bios": None}})
    assert line == "recorded with filters: -d vda"


def test_an_unfiltered_log_says_nothing(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of all devices WHEN it is reported on THEN there are no filters
    path = write(tmp_path / "log.biotrail")
    assert told(cli, "report", "--json", path)["filters"] is None
    assert "filters" not in cli("report", path).out


def test_what_was_chosen_is_said_at_the_top(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log WHEN a part of it is reported on
    path = write(tmp_path / "log.biotrail")
    head = cli("report", "--op", "read", "--from", "0s", path).out.splitlines()[:3]
    # THEN the text says so at its top, and each line of the CSV
    assert any(line.startswith("a part of the log: ") and "--op=read" in line for line in head)
    text = cli("report", "--csv", "--no-guard", "--op", "read", path).out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["chosen"] for row in rows} == {"--op=read"}


def test_each_operation_has_its_own_depth(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a read that takes 900 µs while two writes are queued for 300 µs each, one by one
    path = write(
        tmp_path / "log.biotrail",
        """
        0       Q R 0+8 bio=1 pid=11 comm=fio
        100     Q W 100+8 bio=2 pid=11 comm=fio
        400     c W 100+8 bio=2
        500     Q W 200+8 bio=3 pid=11 comm=fio
        800     c W 200+8 bio=3
        900     c R 0+8 bio=1
        1000    Q W 300+8 bio=4 pid=11 comm=fio
        1000    c W 300+8 bio=4
        """,
    )
    # WHEN it is reported on
    [device] = told(cli, "report", "--json", path)["devices"]
    # THEN the device had two in flight, and each operation one of its own
    assert device["depth"]["queue"]["max"] == 2
    depths = {one["operation"]: one["depth"]["queue"] for one in device["operations"]}
    assert {op: depth["max"] for op, depth in depths.items()} == {"read": 1, "write": 1}
    assert depths["read"]["active_ns"] == 900_000
    assert depths["write"]["active_ns"] == 600_000
    # AND active and idle are all of the time, as for the device
    whole = device["depth"]["queue"]
    for depth in depths.values():
        assert depth["active_ns"] + depth["idle_ns"] == whole["active_ns"] + whole["idle_ns"]
    assert depths["write"]["at_start"]["sum"] == 0
