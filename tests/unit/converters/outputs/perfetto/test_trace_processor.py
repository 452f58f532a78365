# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own engine imports our traces, and answers what the docs ask of them."""

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
from tests.support.hosts_logs import SECOND, Machine
from tests.support.paths import ROOT
from tests.support.perfetto_check import read
from tests.support.perfetto_engine import PROBLEMS, Engine
from tests.support.system_traces import SystemTrace, of_machine

PATH_LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
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
