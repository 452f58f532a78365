# SPDX-License-Identifier: Apache-2.0
"""Processes are shown by what they call themselves, in every form of output."""

import csv
import io
import json
from pathlib import Path

import pytest

import biotrail
from biotrail.converters.events.titles import Titles, called
from tests.support import named_logs
from tests.support.cli_runner import Cli
from tests.support.fleet_archives import archive_of
from tests.support.path_logs import ALL_PARTS, PathLog
from tests.support.perfetto_check import read

TITLE = "reader: of <pages>"
TITLES = {"42": {"comm": "reader", "title": TITLE}}


@pytest.fixture(params=[False, True], ids=["before", "after"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A log with a title, which is known before the events or after them."""
    path = tmp_path / "x.biotrail"
    return named_logs.write(path, [1, 1, 1], {1: "/"}, titles=TITLES, late=request.param)


def test_text_shows_the_title(cli: Cli, log: Path) -> None:
    # WHEN processes are reported / THEN their title stands for the name, in the sentences, too
    for options in ((), ("--by", "process")):
        assert TITLE in cli("report", *options, log).out
    assert f"all time is of {TITLE} (pid 42)" in cli("report", log).out


def test_machines_have_name_and_title(cli: Cli, log: Path, tmp_path: Path) -> None:
    # WHEN read by programs / THEN the thread's name stays what it was, beside the title
    told = json.loads(cli("report", "--json", "--by", "process", log).out)
    for group in (told["processes"][0], told["groups"][0]):
        assert (group["process"], group["pid"], group["title"]) == ("reader", 42, TITLE)
    rows = csv.DictReader(io.StringIO(cli("report", "--csv", log).out))
    found = {(row["process"], row["title"]) for row in rows if row["section"] == "processes"}
    assert found == {("reader", TITLE)}
    # AND in the page, in which it is no markup
    cli("report", "--html", tmp_path / "x.html", log)
    page = (tmp_path / "x.html").read_text()
    assert "<pages>" not in page
    assert "reader: of " in page


def test_tables_and_traces_have_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with a title, and one without
    for name, titles, expected in (("a", TITLES, TITLE), ("b", None, None)):
        log = named_logs.write(tmp_path / f"{name}.biotrail", [1], {1: "/"}, titles=titles)
        # WHEN read as a table, from an archive too, and as a trace / THEN the first one has it
        table = biotrail.open(log).bios.select(["comm", "title"]).to_pylist()
        assert table == [{"comm": "reader", "title": expected}]
        archive = archive_of(log, tmp_path / f"{name}.parquet")
        assert biotrail.open(archive).bios.select(["comm", "title"]).to_pylist() == table
        trace = tmp_path / f"{name}.pftrace"
        assert cli("convert", log, "-o", trace).status == 0
        (bio,) = read(trace.read_bytes()).slices("bio")
        assert bio.args["process"] == "reader"
        assert bio.args.get("title") == expected


def test_slow_ios_and_calls_have_it(cli: Cli, log: Path, tmp_path: Path) -> None:
    # WHEN the slowest I/Os are asked for / THEN they are of what the process calls itself
    assert f"{TITLE} (42)" in cli("slow", log).out
    told = json.loads(cli("slow", "--json", log).out)["ios"][0]["io"]
    assert (told["comm"], told["title"]) == ("reader", TITLE)
    # GIVEN a call with a wait
    path = PathLog()
    path.task(42, b"reader")
    path.bio(1_000, 9_000, entry=0)
    path.waits(0, 2_000, 9_000, 9_500)
    path.returns(0, 10_000, blocked=7_000, runnable=500)
    calls = path.write(tmp_path / "calls.biotrail", (), ALL_PARTS, {"titles": TITLES})
    # WHEN it is shown, and as tables / THEN they have it, too
    assert f"{TITLE} (42)" in cli("slow", "--calls", calls).out
    told = json.loads(cli("slow", "--calls", "--json", calls).out)["calls"][0]["call"]
    assert (told["comm"], told["title"]) == ("reader", TITLE)
    for table in (biotrail.open(calls).calls, biotrail.open(calls).waits):
        assert table.select(["comm", "title", "file_was"]).to_pylist() == [
            {"comm": "reader", "title": TITLE, "file_was": None}
        ]


def test_a_title_is_of_the_process_that_set_it() -> None:
    # GIVEN a number that two processes had, one after the other
    titles = Titles()
    titles.add({"7": {"comm": "postgres", "title": "postgres: walwriter"}})
    titles.add({"7": {"comm": "dd", "title": ""}})
    # WHEN asked / THEN each has its own, and threads of other names the newest
    assert titles.title(7, "postgres") == "postgres: walwriter"
    assert titles.title(7, "dd") is None
    assert titles.title(7, "io worker") is None
    assert titles.title(8, "dd") is None
    assert titles.title(None, "dd") is None


@pytest.mark.parametrize(
    ("process", "title", "expected"),
    [
        ("postgres", "postgres: walwriter", "postgres: walwriter"),
        ("backup.py", "python3 backup.py", "python3 backup.py"),
        ("GC Thread#0", "java -jar kafka.jar", "GC Thread#0 (java -jar kafka.jar)"),
        ("cat", None, "cat"),
    ],
)
def test_a_thread_of_another_name_keeps_it(process: str, title: str | None, expected: str) -> None:
    assert called(process, title) == expected
