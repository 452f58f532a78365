# SPDX-License-Identifier: Apache-2.0
"""`--sort` and `--limit`: the same order, and the same word on what was left out, everywhere."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from biotrail.cli import main
from biotrail.text.rows import Order, left_out
from biotrail.text.top.top import fitting, parts
from tests.support.cli_runner import Cli
from tests.support.followed_logs import COST, follow, patient
from tests.support.paths import ROOT

__all__ = ["patient"]
SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
WITH_TABLES = ("report", "hist", "stacks", "slow", "top")


def asked(cli: Cli, *arguments: str | Path) -> Any:
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
    # WHEN its report is sorted
    found = asked(cli, "report", "--json", "--by", "process", "--sort", order, SAMPLE)
    # THEN every list of groups is, the largest first, and none is left out
    for name in ("processes", "cgroups", "cpus", "groups"):
        values = [value(one) for one in found[name]]
        assert values == sorted(values, reverse=True), name
    values = [value(one) for one in found["devices"][0]["operations"]]
    assert values == sorted(values, reverse=True)
    whole = asked(cli, "report", "--json", "--by", "process", SAMPLE)
    for name in ("processes", "cgroups", "cpus", "groups"):
        assert len(found[name]) == len(whole[name])


def test_a_report_says_what_it_leaves_out(cli: Cli) -> None:
    # GIVEN a log of seven processes
    whole = asked(cli, "report", "--json", SAMPLE)
    more = len(whole["processes"]) - 2
    assert more > 2
    # WHEN two rows of each table are asked for
    said = cli("report", "-n", "2", SAMPLE).out
    told = asked(cli, "report", "-n", "2", "--json", SAMPLE)
    rows = csv.DictReader(io.StringIO(cli("report", "-n", "2", "--csv", SAMPLE).out))
    # THEN two are there, in every form, and the rest is counted
    assert left_out(more) in said.split("Processes")[1]
    assert told["processes"] == whole["processes"][:2]
    assert told["left_out"]["processes"] == more
    names = {row["process"] for row in rows if row["section"] == "processes"}
    assert names == {one["process"] for one in told["processes"]}
    # AND 0 shows all of them
    assert "more row" not in cli("report", "--limit", "0", SAMPLE).out
    assert asked(cli, "report", "--limit", "0", "--json", SAMPLE) == whole


@pytest.mark.parametrize("order", ["count", "bytes", "mean", "p99", "total"])
def test_histograms_are_sorted(cli: Cli, order: str) -> None:
    # GIVEN a report of the same I/O, which has the figures
    report = asked(cli, "report", "--json", SAMPLE)
    value = VALUES[order]
    wanted = sorted(report["devices"][0]["operations"], key=value, reverse=True)
    # WHEN histograms are sorted  THEN they stand in the order of these
    found = asked(cli, "hist", "--json", "--sort", order, SAMPLE)["histograms"]
    assert [one["operation"] for one in found] == [one["operation"] for one in wanted]
    # AND of one alone the others are counted
    told = asked(cli, "hist", "--json", "--sort", order, "-n", "1", SAMPLE)
    assert told["histograms"] == found[:1]
    assert told["histograms_left_out"] == len(found) - 1
    assert left_out(len(found) - 1, "histogram") in cli("hist", "-n", "1", SAMPLE).out


def test_slow_says_what_it_leaves_out(cli: Cli) -> None:
    # GIVEN a log of many I/Os  WHEN the three slowest are asked for
    told = asked(cli, "slow", "--json", "-n", "3", SAMPLE)
    said = cli("slow", "-n", "3", "--brief", SAMPLE).out.splitlines()
    # THEN the head counts them all
    total = told["counts"]["matching"]
    assert said[0] == f"the slowest 3 of {total:,} I/Os (--limit 0 shows all)"
    # AND, of a choice, also what it was made from
    few = asked(cli, "slow", "--json", "--over", "1ms", SAMPLE)["counts"]
    assert cli("slow", "-n", "3", "--brief", "--over", "1ms", SAMPLE).out.startswith(
        f"the slowest 3 of {few['matching']:,} I/Os of 1 ms or more, among {few['ios']:,} I/Os "
        "(--limit 0 shows all)"
    )
    # AND by size they stand by size
    sizes = [
        s["io"]["bytes"] for s in asked(cli, "slow", "--json", "--sort", "bytes", SAMPLE)["ios"]
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 20
    # AND 0 gives as many as are kept, and says that there are more
    assert len(asked(cli, "slow", "--json", "-n", "0", SAMPLE)["ios"]) == 1000
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
