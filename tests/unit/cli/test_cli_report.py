# SPDX-License-Identifier: Apache-2.0
"""biotrail report: text for people, JSON and CSV for scripts, one set of figures."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from biotrail.cli import main
from biotrail.cli.options import report_scope
from biotrail.text import units
from biotrail.text.rows import Order, left_out
from biotrail.text.top import fitting, parts
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.followed_logs import COST, follow, patient
from tests.support.paths import ROOT, SAMPLE

DOC = ROOT / "docs" / "report.md"
REPORT = [sys.executable, "-m", "biotrail.cli.main", "report"]


def report_of(cli: Cli, *arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json_of(cli, "report", "--json", *arguments)
    return found


def csv_of(cli: Cli, *arguments: str | Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cli("report", "--csv", *arguments).out)))


def test_text_json_and_csv_say_the_same(cli: Cli) -> None:
    # GIVEN the sample log WHEN it is reported on in three ways
    said, told = cli("report", SAMPLE).out, report_of(cli, SAMPLE)
    rows = csv_of(cli, SAMPLE)
    assert told["format"] == 2
    for device in told["devices"]:
        for operation in device["operations"]:
            if not operation["ios"]:
                continue
            mine = [
                row
                for row in rows
                if (row["section"], row["of"]) == ("devices", "bios")
                and (row["device"], row["operation"]) == (device["device"], operation["operation"])
            ]
            # THEN the CSV has a line for the whole and for each stage, with the JSON's figures
            stages = [{"stage": "Q2C"} | operation["latency"], *operation["stages"]]
            assert [row["stage"] for row in mine] == [stage["stage"] for stage in stages]
            for row, stage in zip(mine, stages, strict=True):
                assert row["ios"] == str(operation["ios"])
                for name in ("count", "sum_ns", "min_ns", "p50_ns", "p99_9_ns", "max_ns"):
                    assert row[name] == str(stage[name]), name
            # AND the text has them, rounded
            line = next(
                x for x in said.splitlines() if re.search(rf"\b{operation['operation']} +\d", x)
            )
            assert units.count(operation["ios"]) in line
            assert units.duration(operation["latency"]["p99_ns"]) in line
            assert units.duration(operation["latency"]["max_ns"]) in line


def test_a_series_and_groups_are_in_every_form(cli: Cli) -> None:
    # GIVEN the sample log WHEN a time series by process is asked for
    asked = ("--interval", "500ms", "--by", "process")
    told = report_of(cli, *asked, SAMPLE)
    # THEN the JSON has both
    assert told["interval_ns"] == 500_000_000 and told["by"] == "process"
    assert sum(g["ios"] for g in told["groups"]) == told["total"]["ios"]
    assert sum(g["ios"] for i in told["intervals"] for g in i["groups"]) == told["total"]["ios"]
    # AND so have the CSV and the text
    rows = csv_of(cli, *asked, SAMPLE)
    assert {"groups", "intervals"} <= {row["section"] for row in rows}
    said = cli("report", *asked, SAMPLE).out
    assert "By process" in said and "Over time, 500 ms each" in said
    assert "demo-database" in said


def test_losses_and_errors_are_named_and_names_are_text(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with a loss window, whose thread named itself with an escape sequence and markup
    path = tmp_path / "log.biotrail"
    window = {"start": 0, "end": 1 << 60, "cpu": 0, "level": 0, "kind": 14, "count": 3}
    events = captures.load("fsync-virtio")
    named = [dict(e, comm="\x1b[31m[b]x") if "comm" in e else e for e in events]
    captures.write_log(path, named, losses=[window])
    # WHEN it is reported on THEN both forms say what was lost
    said = cli("report", path).out
    assert "3 events lost while recording" in said
    told = report_of(cli, path)
    assert sum(told["loss"]["lost_records"].values()) == 3
    assert told["loss"]["loss_windows"] == 1
    # AND the sequence does not get through to the terminal
    assert "\x1b" not in said
    # GIVEN a log with an I/O that failed WHEN it is reported on THEN its status is named
    captures.write_log(path, captures.load("partial-completion-error-loop"))
    told = report_of(cli, path)
    assert sum(told["total"]["errors"].values()) == told["total"]["failed"] > 0
    [name] = told["total"]["errors"]
    assert f"{name} 1" in cli("report", path).out


def test_it_reads_blktrace_data_and_standard_input(cli: Cli) -> None:
    # GIVEN blktrace's files, and a log in a pipe
    found = report_of(cli, ROOT / "tests" / "data" / "blktrace" / "vda")
    assert found["total"]["ios"] > 0
    with SAMPLE.open("rb") as stream:
        done = subprocess.run(
            [*REPORT, "--json", "-"], stdin=stream, capture_output=True, cwd=ROOT, check=True
        )
    # THEN both are reported on
    assert json.loads(done.stdout) == report_of(cli, SAMPLE)
    assert done.stderr == b""


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_pipe_gets_plain_text_as_wide_as_it_is_told(width: int) -> None:
    # GIVEN a width WHEN a report goes to a pipe
    environment = os.environ | {"COLUMNS": str(width), "TERM": "xterm-256color"}
    done = subprocess.run(
        [*REPORT, SAMPLE], capture_output=True, cwd=ROOT, check=True, env=environment, text=True
    )
    # THEN it has no colours, and no line is wider
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= width
    assert "Q2G" in done.stdout or width < 80


def test_some_devices_alone(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of two devices
    path = tmp_path / "two.biotrail"
    captures.write_log(path, captures.load("kyber-loop-and-virtio"))
    whole = report_of(cli, path)
    assert len(whole["devices"]) == 2
    for device in whole["devices"]:
        # WHEN one is asked for, by its name, path or number
        for name in (device["device"], f"/dev/{device['device']}", device["dev"]):
            told = report_of(cli, "-d", name, path)
            # THEN its figures are those that it has in the whole report
            assert told["devices"] == [device]
            assert told["total"]["ios"] == device["total"]["ios"]
            assert told["total"]["latency"] == device["total"]["latency"]
    # AND a device that is not there is named, with those that are
    for name in ("sdz", "8:99", "1:2:3"):
        done = cli("report", "-d", name, path)
        assert (done.status, done.out) == (1, "")
        assert name in done.err and whole["devices"][0]["device"] in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-file",), "no-such-file"),
        ((str(ROOT / "pyproject.toml"),), "pyproject.toml"),
        (("--interval", "1us", str(SAMPLE)), "--interval 1s or longer"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    cli: Cli, arguments: tuple[str, ...], message: str
) -> None:
    done = cli("report", *arguments)
    assert (done.status, done.out) == (1, "")
    assert message in done.err
    assert "Traceback" not in done.err


def fields(value: Any, path: str = "") -> set[str]:
    """Every field of a JSON value: `devices[].depth.queue.mean`."""
    if isinstance(value, list):
        return set().union(*(fields(one, f"{path}[]") for one in value))
    if isinstance(value, dict) and value:
        inner = f"{path}." if path else ""
        return set().union(*(fields(one, f"{inner}{name}") for name, one in value.items()))
    return {path}


def test_every_field_is_in_the_documentation(cli: Cli) -> None:
    # GIVEN the documentation's tables
    cells = re.findall(r"^\| (`[^|]+) \|", DOC.read_text(), re.M)
    documented = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    # WHEN a report has all there is
    told = report_of(cli, "--interval", "1s", "--by", "cpu", SAMPLE)
    names = {part.removesuffix("[]") for field in fields(told) for part in field.split(".")}
    open_ended = {"errors", "events", "shared", "lost_records", "certainty"}
    known = {
        name
        for field in fields(told)
        for place, name in enumerate(field.split("."))
        if place and field.split(".")[place - 1].removesuffix("[]") in open_ended
    }
    # THEN each name stands in one of them
    assert {n for n in names if n.removesuffix("[]") not in documented | known} == set()


# Of what time and of which I/O a report says that it is.

LOAD = """
0 Q R 0+8 bio=1 pid=11 comm=fio
1 Gs R 0+8 bio=1 rq=1
3 D 900 C R 0+8 bio=1 rq=1 tag=1/1
1000 Q R 8+8 bio=2 pid=11 comm=fio
1001 Gs R 8+8 bio=2 rq=2
1003 D 1250 C R 8+8 bio=2 rq=2 tag=1/2
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


def test_an_empty_log_begins_when_its_recording_did_or_says_so(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log without events, whose header says when recording began
    path = write(tmp_path / "empty.biotrail", "")
    clock = captures.clock()
    # WHEN it is reported on THEN that is its beginning, not the host's boot
    time = report_of(cli, path)["time"]
    assert (time["begin_ns"], time["end_ns"]) == (clock["monotonic"], clock["monotonic"])
    seen = report_of(cli, write(tmp_path / "some.biotrail"))["time"]["begin"]
    assert time["begin"][:10] == seen[:10]
    assert time["begin"][:16] in cli("report", path).out
    # AND so it is where it is compared
    assert json_of(cli, "diff", "--json", path, path)["a"]["begin"] == time["begin"]
    # GIVEN a log without events, whose header has no clocks
    path = write(tmp_path / "empty.biotrail", "", clocks={})
    # WHEN it is reported on THEN no time is made up
    assert report_of(cli, path)["time"]["begin"] is None
    assert "from an unknown time" in cli("report", path).out


def test_the_last_interval_ends_with_the_log(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log that ends a quarter into its second interval
    path = write(tmp_path / "log.biotrail")
    # WHEN its report has a time series
    found = json_of(cli, "report", "--interval", "1ms", "--json", path)
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
    found = json_of(
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
    found = report_of(cli, path)["filters"]
    assert (found["options"], found["devices"], found["ops"]) == (options, ["vda"], ["read"])
    # AND the text says so at its top, and each line of the CSV, and the page
    head = cli("report", path).out.splitlines()[:4]
    assert f"recorded with filters: {options}" in head
    assert {row["filters"] for row in csv_of(cli, "--no-guard", path)} == {options}
    page = tmp_path / "out.html"
    assert cli("report", "--html", page, path).status == 0
    assert f'"options":"{options}"' in page.read_text()
    # GIVEN what a report says of filters that left out 1,234 bios, and of an interrupted log
    left = {"options": "-d vda", "left_out_bios": 1234}
    # WHEN it is put in words THEN the count is there where it is known
    [line] = report_scope.lines({"filters": left})
    assert line == "recorded with filters: -d vda (1,234 bios left out while recording)"
    [line] = report_scope.lines({"filters": {**left, "left_out_bios": None}})
    assert line == "recorded with filters: -d vda"


def test_what_was_chosen_is_said_at_the_top_and_nothing_else(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of all devices WHEN it is reported on THEN there are no filters
    path = write(tmp_path / "log.biotrail")
    assert report_of(cli, path)["filters"] is None
    assert "filters" not in cli("report", path).out
    # WHEN a part of it is reported on THEN the text says so at its top, and each line of the CSV
    head = cli("report", "--op", "read", "--from", "0s", path).out.splitlines()[:3]
    assert any(line.startswith("a part of the log: ") and "--op=read" in line for line in head)
    rows = csv_of(cli, "--no-guard", "--op", "read", path)
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
    [device] = report_of(cli, path)["devices"]
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


# `--sort` and `--limit`: the same order, and the same word on what was left out, everywhere.

__all__ = ["patient"]
WITH_TABLES = ("report", "hist", "stacks", "slow", "top")


def json_of(cli: Cli, *arguments: str | Path) -> Any:
    done = cli(*arguments)
    assert done.status == 0, done.err
    return json.loads(done.out)


VALUES = {
    "count": lambda one: one["ios"],
    "bytes": lambda one: one["bytes"],
    "mean": lambda one: one["latency"]["mean_ns"],
    "p99": lambda one: one["latency"]["p99_ns"],
    "total": lambda one: one["latency"]["sum_ns"],
}


@pytest.mark.parametrize("name", [*WITH_TABLES, "dump"])
def test_every_command_has_the_same_options(name: str) -> None:
    # GIVEN a command that prints rows  WHEN its options are looked at
    command = main.cli.get_command(click.Context(main.cli), name)
    assert command is not None
    shown = {one.name: one.opts for one in command.params if not getattr(one, "hidden", False)}
    # THEN how many is -n, --limit, and the order is --sort
    assert shown["limit"] == ["-n", "--limit"]
    assert name == "dump" or shown["order"] == ["--sort"]


@pytest.mark.parametrize(
    ("name", "former"), [("stacks", "--top"), ("slow", "--top"), ("slow", "--slowest")]
)
def test_former_names_go_on_working_unseen(cli: Cli, name: str, former: str) -> None:
    # GIVEN a name that the option had  WHEN help is read, and it is used
    said = cli(name, "--help").out
    # THEN it is not shown, and does what the new one does
    assert f" {former} " not in said
    if name == "slow":
        old, new = (cli(name, option, "3", "--brief", SAMPLE) for option in (former, "-n"))
        assert (old.status, old.out) == (0, new.out)
        assert len([line for line in old.out.splitlines() if line.startswith("#")]) == 3
    assert cli(name, former, "-1", SAMPLE).status == 2


@pytest.mark.parametrize("order", VALUES)
def test_a_report_is_sorted(cli: Cli, order: str) -> None:
    # GIVEN a log of several processes and operations
    value = VALUES[order]
    whole = report_of(cli, "--by", "process", SAMPLE)
    # WHEN its report is sorted
    found = report_of(cli, "--by", "process", "--sort", order, SAMPLE)
    # THEN every list of groups is, the largest first, and none is left out
    for name in ("processes", "cgroups", "cpus", "groups"):
        values = [value(one) for one in found[name]]
        assert values == sorted(values, reverse=True), name
        assert len(found[name]) == len(whole[name])
    values = [value(one) for one in found["devices"][0]["operations"]]
    assert values == sorted(values, reverse=True)


def test_a_report_says_what_it_leaves_out(cli: Cli) -> None:
    # GIVEN a log of seven processes
    whole = report_of(cli, SAMPLE)
    more = len(whole["processes"]) - 2
    assert more > 2
    # WHEN two rows of each table are asked for
    found = report_of(cli, "-n", "2", SAMPLE)
    # THEN two are there, in every form, and the rest is counted
    assert left_out(more) in cli("report", "-n", "2", SAMPLE).out.split("Processes")[1]
    assert found["processes"] == whole["processes"][:2]
    assert found["left_out"]["processes"] == more
    names = {
        row["process"] for row in csv_of(cli, "-n", "2", SAMPLE) if row["section"] == "processes"
    }
    assert names == {one["process"] for one in found["processes"]}
    # AND 0 shows all of them
    assert "more row" not in cli("report", "--limit", "0", SAMPLE).out
    assert report_of(cli, "--limit", "0", SAMPLE) == whole


@pytest.mark.parametrize("order", ["count", "bytes", "mean", "p99", "total"])
def test_histograms_are_sorted(cli: Cli, order: str) -> None:
    # GIVEN a report of the same I/O, which has the figures
    report = report_of(cli, SAMPLE)
    value = VALUES[order]
    wanted = sorted(report["devices"][0]["operations"], key=value, reverse=True)
    # WHEN histograms are sorted  THEN they stand in the order of these
    found = json_of(cli, "hist", "--json", "--sort", order, SAMPLE)["histograms"]
    assert [one["operation"] for one in found] == [one["operation"] for one in wanted]
    # AND of one alone the others are counted
    told = json_of(cli, "hist", "--json", "--sort", order, "-n", "1", SAMPLE)
    assert told["histograms"] == found[:1]
    assert told["histograms_left_out"] == len(found) - 1
    assert left_out(len(found) - 1, "histogram") in cli("hist", "-n", "1", SAMPLE).out


def test_slow_says_what_it_leaves_out(cli: Cli) -> None:
    # GIVEN a log of many I/Os  WHEN the three slowest are asked for
    told = json_of(cli, "slow", "--json", "-n", "3", SAMPLE)
    said = cli("slow", "-n", "3", "--brief", SAMPLE).out.splitlines()
    # THEN the head counts them all
    total = told["counts"]["matching"]
    assert said[0] == f"the slowest 3 of {total:,} I/Os (--limit 0 shows all)"
    # AND, of a choice, also what it was made from
    few = json_of(cli, "slow", "--json", "--over", "1ms", SAMPLE)["counts"]
    assert cli("slow", "-n", "3", "--brief", "--over", "1ms", SAMPLE).out.startswith(
        f"the slowest 3 of {few['matching']:,} I/Os of 1 ms or more, among {few['ios']:,} I/Os "
        "(--limit 0 shows all)"
    )
    # AND by size they stand by size
    sizes = [
        s["io"]["bytes"] for s in json_of(cli, "slow", "--json", "--sort", "bytes", SAMPLE)["ios"]
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 20
    # AND 0 gives as many as are kept, and says that there are more
    assert len(json_of(cli, "slow", "--json", "-n", "0", SAMPLE)["ios"]) == 1000
    assert (
        " I/Os (1,000 at most: choose a part, docs/cuts.md)" in cli("slow", "-n", "0", SAMPLE).out
    )


def test_dump_says_that_more_follows(cli: Cli) -> None:
    # GIVEN a log  WHEN five of its records are printed, and all
    done, whole = cli("dump", "-n", "5", SAMPLE), cli("dump", "--limit", "0", SAMPLE)
    # THEN standard error says that there are more
    assert done.out.splitlines() == whole.out.splitlines()[:5]
    assert "more records follow: --limit 0 shows all" in done.err
    assert whole.err == ""
    assert len(whole.out.splitlines()) > 13_000


def drawn(height: int | None, limit: int | None = None, order: Order | None = None) -> list[str]:
    """Lines of the sample's last snapshot on a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80, emoji=False, markup=False, highlight=False)
    for part in parts(follow(SAMPLE)[-1], COST, 80, height, limit, order):
        console.print(part)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("height", [10, 14, 20, 24, 31, 50])
def test_top_fits_and_says_what_it_hides(height: int) -> None:
    # GIVEN a terminal's height  WHEN a snapshot is drawn, and all of it
    lines, whole = drawn(height), drawn(None, 0)
    # THEN it fits, and its rows and those that it says to hide are all that there are
    assert len(lines) <= height
    hidden = sum(int(line.split()[1]) for line in lines if line.endswith(("more row", "more rows")))
    assert hidden > 0 or len(whole) <= height
    for head in ("in flight", "Q to C", "stages", "process", "slowest"):
        shown = any(line.startswith(head) for line in lines)
        assert shown or any("no room for: " in line and head in line for line in lines)


@pytest.mark.usefixtures("patient")
def test_top_is_sorted_and_limited() -> None:
    # GIVEN a snapshot  WHEN it is sorted by p99  THEN processes stand by that
    last = follow(SAMPLE)[-1]
    wanted = sorted(last.minute.processes, key=lambda one: -one.latency.p99)
    lines = drawn(None, 2, Order.P99)
    at = next(place for place, line in enumerate(lines) if line.startswith("process "))
    names = [line.split()[0] for line in lines[at + 2 : at + 4]]
    assert names == [str(one.name["process"]) for one in wanted[:2]]
    assert lines[at + 4] == left_out(len(wanted) - 2)


def test_room_is_shared() -> None:
    # GIVEN tables of some rows, and room  WHEN it is shared  THEN all that fits is used, evenly
    assert fitting([1, 3, 16, 7, 10], 0, 100) == [1, 3, 16, 7, 10]
    assert fitting([1, 3, 16, 7, 10], 2, 100) == [1, 2, 2, 2, 2]
    assert fitting([1, 3, 16, 7, 10], 0, 22) == [1, 3, 2, 2, 1]
    assert fitting([1, 3], 0, 3) == []
    assert fitting([], 0, 3) == []
