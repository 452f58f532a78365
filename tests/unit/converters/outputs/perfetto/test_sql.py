# SPDX-License-Identifier: Apache-2.0
"""The documented queries on a trace of two hosts, in tables as trace processor makes them.

Trace processor is sqlite with functions of its own; where there is one, its own tests run too
(test_trace_processor.py).
"""

import json
import re
import sqlite3

import pytest

from biotrail.cli.main import main
from tests.support import captures, doubt_logs, perfetto_check
from tests.support.paths import ROOT

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
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    logs = []
    for number, host in enumerate(HOSTS, 1):
        header = {"log_id": str(number) * 32, "host": {"name": host, "boot_id": str(number) * 32}}
        path = folder / f"{host}.biotrail"
        logs.append(captures.write_log(path, captures.load(CAPTURE), header))
    with pytest.raises(SystemExit, match="0"):
        main(["convert", *map(str, logs), "-o", str(folder / "both.pftrace")])
    return perfetto_check.read((folder / "both.pftrace").read_bytes(), boottime=True)


@pytest.fixture(scope="module")
def tables(trace):
    return database_of(trace)


@pytest.fixture(scope="module")
def path_trace(tmp_path_factory):
    """A recording with system calls, waits and interrupts."""
    out = tmp_path_factory.mktemp("path") / "a.pftrace"
    with pytest.raises(SystemExit, match="0"):
        main(["convert", "--flows", str(PATH_LOG), "-o", str(out)])
    return perfetto_check.read(out.read_bytes(), boottime=True)


@pytest.fixture(scope="module")
def path_tables(path_trace):
    return database_of(path_trace)


def database_of(trace):
    """The trace in tables as trace processor makes them."""
    database = sqlite3.connect(":memory:")
    database.create_function("EXTRACT_ARG", 2, extract_arg)
    database.executescript(
        "CREATE TABLE slice (id INTEGER PRIMARY KEY, ts, dur, name, category, arg_set_id, track_id,"
        " parent_id);"
        "CREATE TABLE track (id, name, parent_id);"
        "CREATE TABLE thread_track (id, name, utid);"
        "CREATE TABLE thread (utid, tid, name);"
        "CREATE TABLE flow (slice_out, slice_in);"
        "CREATE TABLE counter (ts, value, track_id);"
        "CREATE TABLE metadata (name, str_value, int_value);"
    )
    ids = {}
    for uuid, track in trace.tracks.items():
        above = track.descriptor.parent_uuid or None
        database.execute(
            "INSERT INTO track VALUES (?, ?, ?)", (str(uuid), track.name, above and str(above))
        )
        if track.descriptor.HasField("thread"):
            thread = track.descriptor.thread
            row = (str(uuid), track.name, thread.tid)
            database.execute("INSERT INTO thread_track VALUES (?, ?, ?)", row)
            row = (thread.tid, thread.tid, thread.thread_name)
            database.execute("INSERT INTO thread VALUES (?, ?, ?)", row)
        for s in track.slices:
            ids[id(s)] = outer = insert(database, s, str(uuid), None)
            for stage in (*s.children, *s.marks):
                ids[id(stage)] = insert(database, stage, str(uuid), outer)
        for at, value in track.samples:
            database.execute("INSERT INTO counter VALUES (?, ?, ?)", (at, value, str(uuid)))
    for one, other in trace.arrows(marks=True):
        database.execute("INSERT INTO flow VALUES (?, ?)", (ids[id(one)], ids[id(other)]))
    for name, value in trace.attributes.items():
        values = (None, value) if isinstance(value, int) else (value, None)
        database.execute(
            "INSERT INTO metadata VALUES (?, ?, ?)", (f"trace_attribute.{name}", *values)
        )
    database.row_factory = sqlite3.Row
    return database


def insert(database, s, track, parent):
    """The id of a slice's row."""
    row = (None, s.start, s.dur, s.name, s.category, json.dumps(s.args), track, parent)
    return database.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid


def extract_arg(arguments, name):
    return json.loads(arguments).get(name.removeprefix("debug."))


@pytest.mark.parametrize("page", PAGES)
def test_every_documented_query_runs(tables, page):
    # GIVEN a trace of two hosts / WHEN the page's queries run / THEN none fails
    found = queries(page)
    assert len(found) >= 5
    for text in found:
        tables.execute(text).fetchall()


def test_latency_by_host(trace, tables):
    # GIVEN two hosts with a device of the same name / WHEN latency is asked for by host
    rows = tables.execute(query("hosts.md", "Latency by host, device and operation:")).fetchall()
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


def test_who_was_busy_beside_the_slowest(trace, tables):
    # GIVEN two hosts / WHEN it is asked what the other did while one was slow
    text = query("hosts.md", "What the other hosts had in flight")
    rows = tables.execute(text).fetchall()
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


def test_requests_are_found_on_their_own_host(trace, tables):
    # GIVEN numbers that both hosts' logs have / WHEN bios are joined with their requests
    text = query("perfetto.md", "The requests that finished bios which waited")
    rows = tables.execute(text.replace("> 1000000", ">= 0")).fetchall()
    # THEN each bio is there once
    waited = [s for s in trace.slices("bio") if "I2D_ns" in s.args and "request" in s.args]
    shared = {s.args["number"] for s in waited if s.args["host"] == "db1"}
    assert shared & {s.args["number"] for s in waited if s.args["host"] == "db2"}
    assert len(rows) == len(waited)
    assert all(row["request_ts"] < row["bio_ts"] + row["bio_dur"] for row in rows)


def test_depth_and_attributes_have_their_host(trace, tables):
    # GIVEN two hosts / WHEN the depth, and which log is which, are asked for / THEN hosts are named
    rows = tables.execute(query("hosts.md", "Queue depth by host and device")).fetchall()
    assert {row["host"] for row in rows} == set(HOSTS)
    for row in rows:
        samples = trace.counter(f"{row['host']}/{row['device']}/in device")
        assert row["deepest"] == max(value for _, value in samples)
    found = dict(tuple(row) for row in tables.execute(query("hosts.md", "Which log is which:")))
    assert found["trace_attribute.biotrail.host"] == "db1"
    assert found["trace_attribute.biotrail.2.host"] == "db2"


def test_stages_are_told_apart_from_what_they_are_part_of(trace, tables):
    # GIVEN bios and requests with stages / WHEN time is asked for by stage
    rows = tables.execute(query("perfetto.md", "Time by stage")).fetchall()
    # THEN it is that of the category's slices, and no name stands for both
    for category in ("bio", "request"):
        inner = [c.dur for s in trace.slices(category) for c in s.children]
        found = [row["total"] for row in rows if row["part_of"] == category]
        assert sum(found) == sum(inner) > 0
    assert not {row["name"] for row in rows} & {s.name for s in trace.slices("bio")}


def test_the_slowest_are_a_list(trace, tables):
    # GIVEN traces of two hosts / WHEN the slowest are asked for / THEN each bio there is one
    rows = tables.execute(query("perfetto.md", "The slowest, as their track")).fetchall()
    bios = {(s.start, s.dur) for s in trace.slices("bio")}
    assert len(rows) > 5
    assert {(row["ts"], row["dur"]) for row in rows} <= bios
    assert [row["dur"] for row in rows] == sorted((row["dur"] for row in rows), reverse=True)


def test_the_slowest_calls_have_their_threads(path_trace, path_tables):
    # GIVEN a trace with system calls / WHEN the slowest are asked for / THEN each is its thread's
    rows = path_tables.execute(query("perfetto.md", "The slowest system calls")).fetchall()
    calls = {(s.start, s.name): s for s in path_trace.slices("call")}
    assert len(rows) == 20
    assert [row["dur"] for row in rows] == sorted((s.dur for s in calls.values()), reverse=True)[
        :20
    ]
    for row in rows:
        call = calls[row["ts"], row["name"]]
        thread = path_trace.tracks[call.track].descriptor.thread
        assert (row["tid"], row["thread"]) == (call.args["tid"], thread.thread_name)


def test_waits_add_up_to_what_calls_say(path_trace, path_tables):
    # GIVEN the same / WHEN waits are asked for / THEN they are the sums of the calls' arguments
    rows = path_tables.execute(query("perfetto.md", "How long calls waited")).fetchall()
    calls = path_trace.slices("call")
    for row in rows:
        ours = [s.args.get(f"{row['wait']}_ns", 0) for s in calls if s.name == row["name"]]
        # Preempted, a call is ready to run without a wait.
        assert row["total"] <= sum(ours)
    assert {row["wait"] for row in rows} == {"blocked", "runnable"}


def test_calls_lead_to_their_bios_and_back(path_trace, path_tables):
    # GIVEN the same / WHEN bios are asked for by their call, and calls by their bio
    there = path_tables.execute(query("perfetto.md", "From calls to the bios")).fetchall()
    text = query("perfetto.md", "From the slowest bios back").replace("LIMIT 20", "")
    back = path_tables.execute(text).fetchall()
    # THEN both name the same pairs, and each bio's argument says the same
    assert sorted((r["call"], r["ts"]) for r in there) == sorted((r["call"], r["ts"]) for r in back)
    bios = {s.args["number"]: s for s in path_trace.slices("bio")}
    assert len({row["number"] for row in there}) == len(there) > 50
    for row in there:
        assert bios[row["number"]].args["call"] == row["call"]
        assert row["call_ts"] <= row["ts"] <= row["call_ts"] + row["call_dur"]


def test_waits_lead_to_what_ended_them(path_trace, path_tables):
    # GIVEN the same / WHEN it is asked what ended waits / THEN it is a request, just before
    text = query("perfetto.md", "From waits to the requests").replace("LIMIT 20", "")
    rows = path_tables.execute(text).fetchall()
    assert len(rows) > 20
    known = {s.args["number"] for s in path_trace.slices("request")}
    assert {row["number"] for row in rows} <= known
    assert all(0 <= row["to_wake_up"] <= 100_000 for row in rows)


def test_interrupts_are_counted_by_device(path_trace, path_tables):
    # GIVEN the same / WHEN interrupts are asked for / THEN each slice counts for its device
    rows = path_tables.execute(query("perfetto.md", "Interrupts that led to")).fetchall()
    assert sum(row["times"] for row in rows) == len(path_trace.slices("interrupt")) > 0
    assert {row["device"] for row in rows} == {"loop0 (7:0)", "vda (254:0)"}


@pytest.fixture(params=["full", "standard", "stages", "bios"])
def doubt_trace(request, tmp_path):
    """Reads of which two have a latency that is in doubt, at each level of detail."""
    log, out = doubt_logs.write(tmp_path / "x.biotrail"), tmp_path / "a.pftrace"
    with pytest.raises(SystemExit, match="0"):
        options = [*doubt_logs.BY_INTERVALS, "--detail", request.param]
        main(["convert", *options, str(log), "-o", str(out)])
    return perfetto_check.read(out.read_bytes(), boottime=True)


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


def test_documented_queries_leave_out_what_is_in_doubt(doubt_trace):
    # GIVEN the same / WHEN the pages' queries of times run
    tables = database_of(doubt_trace)
    known = doubt_logs.KNOWN_NS

    def found(page, title):
        return tables.execute(query(page, title)).fetchall()

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
