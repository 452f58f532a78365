# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own engine imports our traces, and the documented queries find what they hold."""

import json
import re
from dataclasses import fields

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as RawTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.cli.main import main
from biotrail.converters.calls.reason_rules import WaitReason
from biotrail.converters.events.path_tables import NO_STACK, Waits
from biotrail.converters.outputs.perfetto.packets import BlockedReasons
from biotrail.converters.pipeline import Trace
from tests.support import captures, doubt_logs, perfetto_check
from tests.support.hosts_logs import SECOND, Machine
from tests.support.paths import ROOT, SAMPLE
from tests.support.perfetto_check import read
from tests.support.perfetto_engine import PROBLEMS, Engine
from tests.support.system_traces import SystemTrace, of_machine

DOCS = ROOT / "docs"
HOSTS = ("db1", "db2")
CAPTURE = "kyber-loop-and-virtio"
PATH_LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
PAGES = {"perfetto.md": 18, "hosts.md": 4}
"""Pages with queries, and how many each has."""


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
    assert len(found) == PAGES[page]
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


# Perfetto's own engine imports our traces, and answers what the docs ask of them.

T = 1_000_000_000
BOOTTIME = 500_000_000
"""BOOTTIME minus MONOTONIC in the header that perfetto_make writes."""


SPAN = (0, 2 * SECOND)
BIOS = list(range(SECOND // 10, 2 * SECOND, SECOND // 7))
DB1, DB2 = Machine("db1"), Machine("db2", "2" * 32, -77 * SECOND, fast=50e-6, seed=1)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Paths of a trace of two hosts, and of one of a third."""
    folder = tmp_path_factory.mktemp("hosts")
    logs = [m.write(folder / f"{m.host}.biotrail", BIOS, span=SPAN) for m in (DB1, DB2)]
    third = Machine("db3", "3" * 32, seed=3).write(folder / "db3.biotrail", BIOS, span=SPAN)
    for arguments in ([*logs, "-o", folder / "both.pftrace"], [third]):
        with pytest.raises(SystemExit, match="0"):
            main(["convert", *map(str, arguments)])
    return folder / "both.pftrace", third.with_suffix(".pftrace")


def test_several_hosts_are_on_one_timeline(traces):
    # GIVEN a trace of two hosts that did the same at the same time / WHEN it is imported
    with Engine(traces[0]) as found:
        # THEN nothing is wrong with it, and both stand where they were to the microsecond
        assert found.rows(PROBLEMS) == []
        for host in ("db1", "db2"):
            told = found.rows(
                "SELECT ts FROM slice WHERE category = 'bio' "
                f"AND EXTRACT_ARG(arg_set_id, 'debug.host') = '{host}' ORDER BY ts"
            )
            off = [r["ts"] - DB1.boottime(at) for r, at in zip(told, BIOS, strict=True)]
            assert max(map(abs, off)) < 1000, host
        # AND the slowest of each are on a track that is named by it
        named = found.rows("SELECT DISTINCT name FROM track WHERE name GLOB 'slowest*'")
        assert {r["name"] for r in named} == {"slowest I/Os of db1", "slowest I/Os of db2"}


def test_traces_behind_each_other_are_imported(traces, tmp_path):
    # GIVEN two traces, put behind each other as `cat` does / WHEN that is imported
    path = tmp_path / "all.pftrace"
    path.write_bytes(b"".join(trace.read_bytes() for trace in traces))
    with Engine(path) as found:
        # THEN all is there, and no clock contradicts another
        assert found.rows(PROBLEMS) == []
        (counted,) = found.rows("SELECT COUNT(*) AS bios FROM slice WHERE category = 'bio'")
        assert counted["bios"] == 3 * len(BIOS)


@pytest.mark.parametrize("read_on", [False, True])
def test_a_log_beside_another_trace_is_imported(tmp_path, read_on):
    # GIVEN a log, and a trace of the same boot, read while it recorded or not
    log = DB1.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)
    theirs = of_machine(DB1, SPAN)
    if read_on:
        theirs.add().service_event.read_tracing_buffers_completed = True
    system, both = theirs.write(tmp_path / "system.pftrace"), tmp_path / "both.pftrace"
    # WHEN the log is written into it, and that is imported
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(log), "--with", str(system), "-o", str(both)])
    with Engine(both) as found:
        # THEN nothing is wrong with it, and the bios and the other's events are on one clock
        assert found.rows(PROBLEMS) == []
        told = found.rows("SELECT ts FROM slice WHERE category = 'bio' ORDER BY ts")
        assert [r["ts"] for r in told] == [DB1.boottime(at) for at in BIOS]
        (woken,) = found.rows("SELECT COUNT(*) AS woken FROM ftrace_event")
        assert woken["woken"] == 20


def test_the_engine_s_own_tables_of_block_io_are_filled(tmp_path, cli):
    # GIVEN a trace with requests as ftrace's events, too / WHEN the standard library is asked
    out = tmp_path / "a.pftrace"
    assert cli("convert", "--ftrace", PATH_LOG, "-o", out).status == 0
    with Engine(out) as found:
        assert found.rows(PROBLEMS) == []
        told = found.rows(
            "INCLUDE PERFETTO MODULE linux.block_io; SELECT linux_device_major_id(dev) AS major, "
            "linux_device_minor_id(dev) AS minor, COUNT(*) AS changes, "
            "MIN(ops_in_queue_or_device) AS least "
            "FROM linux_active_block_io_operations_by_device GROUP BY dev ORDER BY dev"
        )
        (ours,) = found.rows(
            "SELECT COUNT(*) AS n, SUM(dur) AS ns FROM slice WHERE category = 'request'"
        )
        (theirs,) = found.rows(
            "SELECT COUNT(*) AS n, SUM(dur) AS ns FROM slice JOIN track ON track.id = track_id "
            "WHERE type = 'block_io'"
        )
    # THEN each request of the log is there, for as long, on the devices that the log has
    requests = sum(len(window.requests) for window in Trace(str(PATH_LOG)).lifecycles())
    assert theirs == ours and ours["n"] == requests
    assert [(one["major"], one["minor"]) for one in told] == [(7, 0), (254, 0)]
    assert all(one["least"] == 0 for one in told)
    # AND where requests are not drawn, or another format is asked for, that is refused
    refused = cli("convert", "--ftrace", "--detail", "bios", PATH_LOG, "-o", tmp_path / "b.pftrace")
    assert refused.status == 2 and "--ftrace is of requests" in refused.err
    assert cli("convert", "--ftrace", PATH_LOG, "-o", tmp_path / "b.otf2").status == 2


def test_ftrace_s_events_have_their_times_without_readings_of_clocks(tmp_path, cli):
    # GIVEN another tool's recording, whose clock nothing relates to BOOTTIME
    text = ROOT / "tests" / "data" / "ftrace" / "since-4.11.txt"
    out = tmp_path / "a.pftrace"
    # WHEN it is converted with ftrace's events
    assert cli("convert", "--ftrace", text, "-o", out).status == 0
    with Engine(out) as found:
        # THEN they begin and end with the requests
        ours, theirs = (
            found.rows(
                "SELECT MIN(ts) AS first, COUNT(*) AS n, SUM(dur) AS ns FROM slice "
                f"JOIN track ON track.id = track_id WHERE {which}"
            )
            for which in ("category = 'request'", "type = 'block_io'")
        )
        assert theirs == ours and ours[0]["n"] > 0 and found.rows(PROBLEMS) == []


def test_states_of_threads_have_what_they_waited_for(tmp_path, cli):
    # GIVEN a trace of the scheduling of threads whose waits a log has
    source = Trace(str(PATH_LOG))
    waits = [w.path.waits for w in source.lifecycles() if w.path is not None]
    told = Waits.concatenate(waits)
    offset = source.context.clocks[0]["boottime"] - source.context.clocks[0]["monotonic"]
    system = SystemTrace()
    for reading in source.context.clocks:
        system.clocks(reading)
    events = []
    for tid, out, run in zip(told.tid.tolist(), told.out.tolist(), told.run.tolist(), strict=True):
        away = {"prev_pid": tid, "prev_comm": "t", "prev_state": 2, "next_pid": 0}
        events.append((out + offset, tid, "sched_switch", {**away, "next_comm": "idle"}))
        back = {"prev_pid": 0, "prev_comm": "idle", "prev_state": 0, "next_pid": tid}
        events.append((run + offset, 0, "sched_switch", {**back, "next_comm": "t"}))
    for cpu, tid in enumerate(sorted(set(told.tid.tolist()))):
        its = [one for one in events if tid in (one[3]["prev_pid"], one[3]["next_pid"])]
        system.events(cpu, sorted(its, key=lambda one: one[0]))
    both = tmp_path / "both.pftrace"
    # WHEN the log is written into it
    theirs = system.write(tmp_path / "system.pftrace")
    assert cli("convert", PATH_LOG, "--with", theirs, "-o", both).status == 0
    # THEN the threads' states in D are those waits, and say whether each was for I/O
    with Engine(both) as found:
        assert found.rows(PROBLEMS) == []
        states = found.rows(
            "SELECT tid, ts, io_wait FROM thread_state JOIN thread USING (utid) "
            "WHERE state = 'D' AND io_wait IS NOT NULL"
        )
    asked = told.take(np.flatnonzero((told.state & 2 != 0) | told.io_wait))
    expected = zip(
        asked.tid.tolist(), (asked.out + offset).tolist(), asked.io_wait.tolist(), strict=True
    )
    assert sorted((s["tid"], s["ts"], s["io_wait"]) for s in states) == sorted(expected)
    # AND where the other trace has them itself, ours are not added
    theirs_reason = {"pid": 7, "io_wait": 1}
    system.events(0, [(events[0][0] + 1, 7, "sched_blocked_reason", theirs_reason)])
    theirs = system.write(tmp_path / "system.pftrace")
    assert cli("convert", "-f", PATH_LOG, "--with", theirs, "-o", both).status == 0
    packets = RawTrace.FromString(both.read_bytes()).packet
    found = [
        e for p in packets for e in p.ftrace_events.event if e.HasField("sched_blocked_reason")
    ]
    assert [e.sched_blocked_reason.pid for e in found] == [7]


def test_a_blocked_reason_names_where_the_thread_waited(tmp_path):
    # GIVEN waits with a kernel stack, with a reason alone, with neither, and one that no I/O ends
    columns = {one.name: np.zeros(4, dtype=np.int64) for one in fields(Waits)}
    columns["tid"][:] = 7
    columns["out"] = T + np.arange(0, 400, 100)
    columns["woken"], columns["run"] = columns["out"] + 9, columns["out"] + 20
    columns["stack"] = np.array([3, NO_STACK, NO_STACK, NO_STACK])
    columns["reason"][1] = WaitReason.JOURNAL_COMMIT
    columns["state"] = np.array([2, 2, 2, 1])
    columns["io_wait"] = np.array([True, False, False, False])
    waits = Waits(**columns)
    stacks = {3: ("io_schedule", "folio_wait_bit_common", "filemap_fault")}
    # WHEN they are made events of the kernel's
    (packet,) = BlockedReasons(stacks).packets(waits, 5)
    names = {one.iid: one.str.decode() for one in packet.interned_data.kernel_symbols}
    told = [e.sched_blocked_reason for e in packet.ftrace_events.event]
    # THEN each of state D has its function, as the kernel's wchan would, else its reason
    found = [names.get(one.caller) for one in told]
    assert found == ["folio_wait_bit_common", "journal commit", None]
    assert [one.io_wait for one in told] == [1, 0, 0]
    assert [e.timestamp for e in packet.ftrace_events.event] == [T + 14, T + 114, T + 214]
    # AND beside the scheduler's events, the engine has them as states of the thread
    system = SystemTrace()
    events = []
    for out, run in zip((waits.out + 5).tolist(), (waits.run + 5).tolist(), strict=True):
        away = {"prev_pid": 7, "prev_comm": "t", "prev_state": 2, "next_pid": 0}
        events.append((out, 7, "sched_switch", {**away, "next_comm": "idle"}))
        back = {"prev_pid": 0, "prev_comm": "idle", "prev_state": 0, "next_pid": 7}
        events.append((run, 0, "sched_switch", {**back, "next_comm": "t"}))
    system.events(1, events)
    packet.trusted_packet_sequence_id = 9
    packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    system.packets.append(packet)
    with Engine(system.write(tmp_path / "a.pftrace")) as engine:
        assert engine.rows(PROBLEMS) == []
        states = engine.rows(
            "SELECT io_wait, blocked_function FROM thread_state JOIN thread USING (utid) "
            "WHERE tid = 7 AND state = 'D' ORDER BY ts"
        )
    assert [tuple(state.values()) for state in states] == [
        (1, "folio_wait_bit_common"),
        (0, "journal commit"),
        (0, None),
        (None, None),
    ]


@pytest.fixture(scope="module")
def path_processor(tmp_path_factory):
    """A recording with system calls, waits and interrupts."""
    out = tmp_path_factory.mktemp("path") / "a.pftrace"
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(PATH_LOG), "-o", str(out)])
    with Engine(out) as found:
        yield found, read(out.read_bytes(), boottime=True)


def test_the_path_is_imported(path_processor):
    # GIVEN a trace with system calls / WHEN it is imported
    found, trace = path_processor
    # THEN nothing is wrong with it, arrows join the slices that they join for us, and calls are on
    # the tracks of their threads
    assert found.rows(PROBLEMS) == []
    pairs = found.rows(
        "SELECT a.ts AS first, a.category AS of, b.ts AS second, b.category AS to_ FROM flow "
        "JOIN slice AS a ON a.id = flow.slice_out JOIN slice AS b ON b.id = flow.slice_in"
    )
    expected = [(a.start, a.category, b.start, b.category) for a, b in trace.arrows(marks=True)]
    assert sorted(tuple(row.values()) for row in pairs) == sorted(expected)
    threads = found.rows(
        "SELECT COUNT(*) AS calls FROM slice JOIN thread_track ON thread_track.id = slice.track_id "
        "WHERE slice.category = 'call'"
    )
    assert threads[0]["calls"] == len(trace.slices("call"))
