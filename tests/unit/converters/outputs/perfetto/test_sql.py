# SPDX-License-Identifier: Apache-2.0
"""The documented queries in Perfetto's own engine: what they find is what the trace holds."""

import json
import re

import pytest

from biotrail.cli.main import main
from tests.support import captures, doubt_logs, perfetto_check
from tests.support.paths import ROOT, SAMPLE
from tests.support.perfetto_engine import PROBLEMS, Engine

DOCS = ROOT / "docs"
HOSTS = ("db1", "db2")
CAPTURE = "kyber-loop-and-virtio"
PATH_LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
PAGES = ("perfetto.md", "hosts.md")


def queries(page):
    return re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def query(page, title):
    """The query below a line of the page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(title)[2].partition("```sql\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Where a trace of two hosts is."""
    folder = tmp_path_factory.mktemp("hosts")
    logs = []
    for number, host in enumerate(HOSTS, 1):
        header = {"log_id": str(number) * 32, "host": {"name": host, "boot_id": str(number) * 32}}
        path = folder / f"{host}.biotrail"
        logs.append(captures.write_log(path, captures.load(CAPTURE), header))
    with pytest.raises(SystemExit, match="0"):
        main(["convert", *map(str, logs), "-o", str(folder / "both.pftrace")])
    return folder / "both.pftrace"


@pytest.fixture(scope="module")
def trace(path):
    return perfetto_check.read(path.read_bytes(), boottime=True)


@pytest.fixture(scope="module")
def tables(path):
    with Engine(path) as engine:
        yield engine


@pytest.fixture(scope="module")
def calls_path(tmp_path_factory):
    """Where a trace with system calls, waits and interrupts is."""
    out = tmp_path_factory.mktemp("path") / "a.pftrace"
    with pytest.raises(SystemExit, match="0"):
        main(["convert", "--flows", str(PATH_LOG), "-o", str(out)])
    return out


@pytest.fixture(scope="module")
def path_trace(calls_path):
    return perfetto_check.read(calls_path.read_bytes(), boottime=True)


@pytest.fixture(scope="module")
def path_tables(calls_path):
    with Engine(calls_path) as engine:
        yield engine


@pytest.mark.parametrize("page", PAGES)
def test_every_documented_query_runs(tables, path_tables, page):
    # GIVEN a trace of two hosts, and one with system calls
    found = queries(page)
    assert len(found) >= 5
    # WHEN the page's queries run / THEN none fails
    for text in found:
        tables.rows(text)
        path_tables.rows(text)


def test_queries_by_host_find_what_the_trace_holds(trace, tables):
    # GIVEN two hosts with a device of the same name / WHEN latency is asked for by host
    rows = tables.rows(query("hosts.md", "Latency by host, device and operation:"))
    # THEN each has its own figures
    bios = [s for s in trace.slices("bio") if "latency_ns" in s.args]
    for row in rows:
        ours = [
            s.dur
            for s in bios
            if (s.args["host"], s.args["device"], s.name)
            == (row["host"], row["device"], row["name"])
        ]
        assert (row["bios"], row["longest"]) == (len(ours), max(ours))
    assert sum(row["bios"] for row in rows) == len(bios)
    assert {row["host"] for row in rows} == set(HOSTS)
    # GIVEN two hosts / WHEN it is asked what the other did while one was slow
    text = query("hosts.md", "What the other hosts had in flight")
    rows = tables.rows(text)
    # THEN it is what overlaps
    slowest = max(trace.slices("bio"), key=lambda s: s.dur)
    others = [
        s
        for s in trace.slices("bio")
        if s.args["host"] != slowest.args["host"]
        and s.start < slowest.end
        and s.end > slowest.start
    ]
    assert others
    assert sum(row["bios"] for row in rows) == len(others)
    assert {row["slow_host"] for row in rows} == {slowest.args["host"]}
    # GIVEN two hosts / WHEN the depth, and which log is which, are asked for / THEN hosts are named
    rows = tables.rows(query("hosts.md", "Queue depth by host and device"))
    assert {row["host"] for row in rows} == set(HOSTS)
    for row in rows:
        samples = trace.counter(f"{row['host']}/{row['device']}/in device")
        assert row["deepest"] == max(value for _, value in samples)
    # AND the attributes, which this engine does not know yet
    assert trace.attributes["biotrail.host"] == "db1"
    assert trace.attributes["biotrail.2.host"] == "db2"


def test_queries_of_bios_and_requests_find_what_the_trace_holds(trace, tables):
    # GIVEN numbers that both hosts' logs have / WHEN bios are joined with their requests
    text = query("perfetto.md", "The requests that finished bios which waited")
    rows = tables.rows(text.replace("> 1000000", ">= 0"))
    # THEN each bio is there once
    waited = [s for s in trace.slices("bio") if "I2D_ns" in s.args and "request" in s.args]
    shared = {s.args["number"] for s in waited if s.args["host"] == "db1"}
    assert shared & {s.args["number"] for s in waited if s.args["host"] == "db2"}
    assert len(rows) == len(waited)
    assert all(row["request_ts"] < row["bio_ts"] + row["bio_dur"] for row in rows)
    # GIVEN bios and requests with stages / WHEN time is asked for by stage
    rows = tables.rows(query("perfetto.md", "Time by stage"))
    # THEN it is that of the category's slices, and no name stands for both
    for category in ("bio", "request"):
        inner = [c.dur for s in trace.slices(category) for c in s.children]
        found = [row["total"] for row in rows if row["part_of"] == category]
        assert sum(found) == sum(inner) > 0
    assert not {row["name"] for row in rows} & {s.name for s in trace.slices("bio")}
    # GIVEN traces of two hosts / WHEN the slowest are asked for / THEN each bio there is one
    rows = tables.rows(query("perfetto.md", "The slowest, as their track"))
    bios = {(s.start, s.dur) for s in trace.slices("bio")}
    assert len(rows) > 5
    assert {(row["ts"], row["dur"]) for row in rows} <= bios
    assert [row["dur"] for row in rows] == sorted((row["dur"] for row in rows), reverse=True)


def test_queries_of_calls_and_waits_find_what_the_trace_holds(path_trace, path_tables):
    # GIVEN a trace with system calls / WHEN the slowest are asked for / THEN each is its thread's
    rows = path_tables.rows(query("perfetto.md", "The slowest system calls"))
    calls = {(s.start, s.name): s for s in path_trace.slices("call")}
    assert len(rows) == 20
    assert [row["dur"] for row in rows] == sorted((s.dur for s in calls.values()), reverse=True)[
        :20
    ]
    for row in rows:
        call = calls[row["ts"], row["name"]]
        thread = path_trace.tracks[call.track].descriptor.thread
        assert (row["tid"], row["thread"]) == (call.args["tid"], thread.thread_name)
    # GIVEN the same / WHEN waits are asked for / THEN they are the sums of the calls' arguments
    rows = path_tables.rows(query("perfetto.md", "How long calls waited"))
    calls = path_trace.slices("call")
    for row in rows:
        ours = [s.args.get(f"{row['wait']}_ns", 0) for s in calls if s.name == row["name"]]
        # Preempted, a call is ready to run without a wait.
        assert row["total"] <= sum(ours)
    assert {row["wait"] for row in rows} == {"blocked", "runnable"}
    # GIVEN the same / WHEN bios are asked for by their call, and calls by their bio
    there = path_tables.rows(query("perfetto.md", "From calls to the bios"))
    text = query("perfetto.md", "From the slowest bios back").replace("LIMIT 20", "")
    back = path_tables.rows(text)
    # THEN both name the same pairs, and each bio's argument says the same
    assert sorted((r["call"], r["ts"]) for r in there) == sorted((r["call"], r["ts"]) for r in back)
    bios = {s.args["number"]: s for s in path_trace.slices("bio")}
    assert len({row["number"] for row in there}) == len(there) > 50
    for row in there:
        assert bios[row["number"]].args["call"] == row["call"]
        assert row["call_ts"] <= row["ts"] <= row["call_ts"] + row["call_dur"]
    # GIVEN the same / WHEN it is asked what ended waits / THEN it is a request, just before
    text = query("perfetto.md", "From waits to the requests").replace("LIMIT 20", "")
    rows = path_tables.rows(text)
    assert len(rows) > 20
    known = {s.args["number"] for s in path_trace.slices("request")}
    assert {row["number"] for row in rows} <= known
    assert all(0 <= row["to_wake_up"] <= 100_000 for row in rows)
    # GIVEN the same / WHEN interrupts are asked for / THEN each slice counts for its device
    rows = path_tables.rows(query("perfetto.md", "Interrupts that led to"))
    assert sum(row["times"] for row in rows) == len(path_trace.slices("interrupt")) > 0
    assert {row["device"] for row in rows} == {"loop0 (7:0)", "vda (254:0)"}


@pytest.fixture(params=["full", "standard", "stages", "bios"])
def doubt_path(request, tmp_path):
    """Reads of which two have a latency that is in doubt, at each level of detail."""
    log, out = doubt_logs.write(tmp_path / "x.biotrail"), tmp_path / "a.pftrace"
    with pytest.raises(SystemExit, match="0"):
        options = [*doubt_logs.BY_INTERVALS, "--detail", request.param]
        main(["convert", *options, str(log), "-o", str(out)])
    return out


@pytest.fixture
def doubt_trace(doubt_path):
    return perfetto_check.read(doubt_path.read_bytes(), boottime=True)


def test_a_doubtful_slice_says_so(doubt_trace):
    # GIVEN reads without pointers / WHEN drawn at any level of detail
    # THEN those in doubt have the argument, and no argument with a latency or a stage's time
    bios = sorted(doubt_trace.slices("bio"), key=lambda s: s.start)
    assert [s.dur for s in bios if "doubtful" not in s.args] == doubt_logs.KNOWN_NS
    doubtful = [s for s in bios if s.args.get("doubtful")]
    assert [s.dur for s in doubtful] == doubt_logs.DOUBTFUL_NS
    for s in (*doubtful, *(s for s in doubt_trace.slices("request") if "doubtful" in s.args)):
        assert not [name for name in s.args if name.endswith("_ns")]
    # THEN the track of the slowest has the others alone
    slowest = [s.dur for s in doubt_trace.slices("slowest")]
    assert sorted(slowest) == sorted(doubt_logs.KNOWN_NS)


@pytest.fixture
def doubt_tables(doubt_path):
    with Engine(doubt_path) as engine:
        yield engine


def test_documented_queries_leave_out_what_is_in_doubt(doubt_trace, doubt_tables):
    # GIVEN the same / WHEN the pages' queries of times run
    known = doubt_logs.KNOWN_NS

    def found(page, title):
        return doubt_tables.rows(query(page, title))

    # THEN none has a latency that is in doubt
    rows = found("perfetto.md", "The slowest bios, with where")
    assert [row["dur"] for row in rows] == sorted(known, reverse=True)
    for page, title in (
        ("perfetto.md", "Latency by device and operation"),
        ("hosts.md", "Latency by host, device"),
    ):
        (row,) = found(page, title)
        assert (row["bios"], row["mean"], row["longest"]) == (3, sum(known) / 3, max(known))
    assert max(row["dur"] for row in found("perfetto.md", "The slowest, as their")) == max(known)
    stages = [row for row in found("perfetto.md", "Time by stage") if row["part_of"] == "bio"]
    assert sum(row["total"] for row in stages) in (0, sum(known))  # bios alone have no stages
    # THEN the query of what is not known for certain has them
    numbers = {s.args["number"] for s in doubt_trace.slices("bio") if "number" in s.args}
    assert len(found("perfetto.md", "What failed, and what")) == 5
    assert numbers <= {row["number"] for row in found("perfetto.md", "What failed, and what")}


@pytest.fixture(scope="module", params=["full", "standard"])
def recorded(request, tmp_path_factory):
    """The demonstration's recording: its trace in the engine, the level of detail, its report."""
    out = tmp_path_factory.mktemp("demo") / "demo.pftrace"
    with pytest.raises(SystemExit, match="0"):
        main(["convert", "--detail", request.param, str(SAMPLE), "-o", str(out)])
    with Engine(out) as engine:
        yield engine, request.param


def test_tables_are_the_report_s(recorded, capsys):
    # GIVEN a real recording / WHEN the engine is asked what the report says
    engine, detail = recorded
    with pytest.raises(SystemExit, match="0"):
        main(["report", "--json", str(SAMPLE)])
    report = json.loads(capsys.readouterr().out)
    assert engine.rows(PROBLEMS) == []
    # THEN latencies by device and operation are equal to the nanosecond
    rows = engine.rows(query("perfetto.md", "Latency by device and operation"))
    found = {
        (row["device"], row["name"]): (row["bios"], round(row["mean"], 3), row["longest"])
        for row in rows
    }
    expected = {
        (f"{device['device']} ({device['dev']})", one["operation"]): tuple(
            one["latency"][name] for name in ("count", "mean_ns", "max_ns")
        )
        for device in report["devices"]
        for one in device["operations"]
    }
    assert found == expected and len(found) > 1
    # AND so is the slowest, with its stages
    (first, *_) = engine.rows(query("perfetto.md", "The slowest bios, with where"))
    assert first["dur"] == max(longest for _, _, longest in expected.values())
    stages = engine.rows(
        "SELECT SUM(stage.dur) AS total FROM slice AS stage JOIN slice AS bio "
        f"ON bio.id = stage.parent_id WHERE bio.category = 'bio' AND bio.ts = {first['ts']}"
    )
    assert stages == [{"total": first["dur"]}]
    # AND bytes, and those who moved them, where all arguments are drawn
    if detail == "full":
        rows = engine.rows(query("perfetto.md", "Bytes by process"))
        total = report["total"]
        assert sum(row["bios"] for row in rows) == total["ios"]
        assert sum(row["bytes"] for row in rows) == total["bytes"]
        assert {one["process"] for one in report["processes"]} <= {row["process"] for row in rows}
