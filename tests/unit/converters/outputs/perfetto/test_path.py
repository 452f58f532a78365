# SPDX-License-Identifier: Apache-2.0
"""The path in Perfetto traces: calls on their threads' tracks, arguments of bios and requests."""

import io
from typing import Any

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import ARGUMENTS, BIO, CALL, REQUEST, Options
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.schema.syscalls import KERNEL_THREAD
from tests.support.path_logs import FSYNC, WRITE, PathLog
from tests.support.perfetto_check import Read, Slice, read
from tests.support.stack_logs import DEV, START


def trace_of(log: PathLog, size: int = 1_000_000, **how: Any) -> Read:
    source, out = Trace(io.BytesIO(log.data(**how))), io.BytesIO()
    convert(source.lifecycles(size), source.context, out, options=Options(every_call=True))
    return read(out.getvalue())


def spans(one: Slice) -> list[tuple[str, int, int]]:
    """The slices within, by name and times since START."""
    return [(child.name, child.start - START, child.end - START) for child in one.children]


def sample() -> PathLog:
    """A read that waits twice, a write that fails, by two threads of fio; a request."""
    log = PathLog()
    log.task(42, b"fio", pid=40)
    log.task(43, b"fio-log", pid=40)
    log.bio(1000, 5000, entry=500)
    log.waits(500, 1200, 5100, 5300)
    log.waits(500, 6000, 7000, 7000)
    log.returns(500, 9500, blocked=4900, runnable=200, queued=1, waits=2, fd=3)
    log.returns(8000, 9000, 43, number=FSYNC, result=-5, fd=7)
    return log


def test_a_log_without_the_path_has_no_calls() -> None:
    # GIVEN a log without the path WHEN it is converted
    log = PathLog()
    log.bio(1000, 5000, call=None)
    trace = trace_of(log, parts=())
    # THEN no slice is a call, and no track a thread's
    assert trace.slices(CALL) == []
    assert not any(t.descriptor.HasField("thread") for t in trace.tracks.values())
    (bio,) = trace.slices(BIO)
    assert {"call", "fd", "dirtied_by"}.isdisjoint(bio.args)


def test_calls_are_on_their_threads_own_tracks() -> None:
    # GIVEN calls of two threads of a process WHEN they are converted
    trace = trace_of(sample())
    # THEN each is a slice with the call's name and times, on its thread's track
    calls = {one.name: one for one in trace.slices(CALL)}
    assert {name: (c.start - START, c.end - START) for name, c in calls.items()} == {
        "pread64": (500, 9500),
        "fsync": (8000, 9000),
    }
    threads = {name: trace.tracks[call.track].descriptor.thread for name, call in calls.items()}
    assert (threads["pread64"].pid, threads["pread64"].tid) == (40, 42)
    assert (threads["fsync"].pid, threads["fsync"].tid) == (40, 43)
    assert threads["fsync"].thread_name == "fio-log"


def test_a_call_has_its_waits_within() -> None:
    # GIVEN a call with two waits, of which the second ran at once WHEN it is converted
    (call,) = (one for one in trace_of(sample()).slices(CALL) if one.name == "pread64")
    # THEN both are within, off the CPU until woken and then ready to run; nothing of no length
    assert spans(call) == [
        ("blocked", 1200, 5100),
        ("runnable", 5100, 5300),
        ("blocked", 6000, 7000),
    ]


def test_a_call_says_where_its_time_went() -> None:
    # GIVEN a call that returned bytes and one that failed WHEN they are converted
    calls = {one.name: one.args for one in trace_of(sample()).slices(CALL)}
    # THEN their arguments say so, and what is 0 is left out
    assert calls["pread64"] == {
        "tid": 42,
        "fd": 3,
        "result": 4096,
        "blocked_ns": 4900,
        "runnable_ns": 200,
        "running_ns": 9000 - 4900 - 200,
        "queued_bios": 1,
        "waits": 2,
    }
    assert calls["fsync"] == {"tid": 43, "fd": 7, "error": "EIO", "running_ns": 1000}
    known = {argument.name for argument in ARGUMENTS[CALL]}
    assert known >= calls["pread64"].keys() | calls["fsync"].keys()


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (0, {"result": 0}),
        (-1, {"error": "EPERM"}),
        (-529, {"error": "EIOCBQUEUED"}),  # the kernel's own
        (-600, {"error": "errno 600"}),
        (-4095, {"error": "errno 4095"}),
        (-4096, {"result": -4096}),
        (-(2**31), {"result": -(2**31)}),
    ],
)
def test_only_the_last_4095_results_are_errors(result: int, shown: dict[str, object]) -> None:
    # GIVEN a call with a result (MAX_ERRNO is 4095) WHEN it is converted
    log = PathLog()
    log.returns(500, 900, result=result)
    (call,) = trace_of(log).slices(CALL)
    # THEN it is an error by its name, or a result
    found = {name: call.args[name] for name in ("result", "error") if name in call.args}
    assert found == shown


@pytest.mark.parametrize("cut", [300, 1100, 5200, 5300, 6500, 7000, 9000])
def test_waits_find_their_call_in_a_later_window(cut: int) -> None:
    # GIVEN a log that is read in windows with a border anywhere in a call
    whole, parts = trace_of(sample()), trace_of(sample(), size=1, cuts=[cut])
    # WHEN it is converted THEN the calls and the waits within are the same
    both = [
        [(one.name, one.start, one.end, one.args, spans(one)) for one in trace.slices(CALL)]
        for trace in (whole, parts)
    ]
    assert both[0] == both[1]


def test_waits_of_threads_that_entered_at_once_are_kept_apart() -> None:
    # GIVEN two threads that entered in the same nanosecond and waited WHEN they are converted
    log = PathLog()
    for tid in (42, 43):
        log.waits(500, 1000 + tid, 2000 + tid, 2000 + tid, tid=tid)
        log.returns(500, 4000, tid, blocked=1000, waits=1)
    calls = trace_of(log).slices(CALL)
    # THEN each has its own
    assert sorted(one.args["tid"] for one in calls) == [42, 43]
    for one in calls:
        tid = one.args["tid"]
        assert spans(one) == [("blocked", 1000 + tid, 2000 + tid)]


def test_a_wait_without_a_call_is_not_drawn() -> None:
    # GIVEN a wait whose call never returned WHEN the log is converted
    log = sample()
    log.waits(400, 450, 460, 470, tid=99)
    # THEN there are the calls of before, and no track of that thread
    trace = trace_of(log)
    assert len(trace.slices(CALL)) == 2
    assert 99 not in {t.descriptor.thread.tid for t in trace.tracks.values()}


def test_bios_name_their_call_and_who_dirtied_them() -> None:
    # GIVEN bios by calls, by a 32-bit program, by a page fault, of write-back WHEN they are drawn
    log = PathLog()
    log.bio(1000, 9000)
    log.bio(2000, 9000, call=4, foreign=True)
    log.bio(3000, 9000, call=-1)
    log.bio(4000, 9000, call=None, opf=WRITE, dirtied=(700, 811, b"postgres"), dirtied_in=77)
    log.bio(5000, 9000, call=None, opf=1 << 19)
    found = [one.args for one in trace_of(log).slices(BIO)]
    # THEN each says what is known, and no more
    assert [args.get("call") for args in found] == [
        "pread64",
        "32-bit system call",
        "page fault",
        None,
        None,
    ]
    assert ["fd" in args for args in found] == [True, True, False, False, False]
    who = [(a.get("dirtied_by"), a.get("dirtied_pid"), a.get("dirtied_before_ns")) for a in found]
    assert who == [(None, None, None)] * 3 + [("postgres", 811, 700)] + [(None, None, None)]
    assert [args.get("dirtied_in") for args in found] == [None, None, None, "id 77", None]
    # AND a bio that is for anything but data says for what
    assert [args.get("purpose") for args in found] == [None, None, None, None, "readahead"]


def ended(log: PathLog, issue: int, end: int, **interrupt: int) -> None:
    """Add a bio with a request that ended as the fields of its INTERRUPT record say, if any."""
    log.bios += 1
    bio = {"bio": log.bios << 6, "sector": 8 * log.bios, "bytes": 4096, "dev": DEV}
    rq = {"rq": log.bios << 10}
    log.add(Kind.Q, issue - 2, **bio, part=DEV, tid=42)
    log.add(Kind.START, issue - 1, **rq, **bio)
    log.add(Kind.D, issue, **rq, **bio, nr_bios=1)
    log.add(Kind.C, end, **rq, **bio)
    if interrupt:
        log.add(Kind.INTERRUPT, end, **rq, **interrupt)


def test_requests_say_how_they_were_completed() -> None:
    # GIVEN requests that ended in a softirq after an interrupt, in an interrupt, in a task, unknown
    none = 0xFFFFFFFF
    log = PathLog()
    ended(log, 1000, 5000, hard=900, raised=800, soft=300, irq=27, context=1)
    ended(log, 11_000, 15_000, hard=900, raised=none, soft=none, irq=28, context=2)
    ended(log, 21_000, 25_000, hard=none, raised=none, soft=none, context=0)
    ended(log, 31_000, 35_000)
    # WHEN they are drawn
    names = {
        "completed_in",
        "irq",
        "issue_to_interrupt_ns",
        "interrupt_to_softirq_ns",
        "softirq_to_complete_ns",
    }
    known = {argument.name for argument in ARGUMENTS[REQUEST]}
    assert names <= known
    slices = trace_of(log).slices(REQUEST)
    found = [{name: s.args[name] for name in names & s.args.keys()} for s in slices]
    # THEN the steps from issue to completion add up, as far as there are any
    assert found == [
        {
            "completed_in": "softirq",
            "irq": 27,
            "issue_to_interrupt_ns": 3100,
            "interrupt_to_softirq_ns": 600,
            "softirq_to_complete_ns": 300,
        },
        {"completed_in": "interrupt", "irq": 28, "issue_to_interrupt_ns": 3100},
        {"completed_in": "task"},
        {},
    ]
    assert sum(v for k, v in found[0].items() if k.endswith("_ns")) == 4000


def test_calls_that_only_wait_long_are_drawn_on_request() -> None:
    # GIVEN a call that queued a bio, and one that waited for none WHEN they are converted
    log = sample()
    source = Trace(io.BytesIO(log.data()))
    drawn = {}
    for every in (False, True):
        out = io.BytesIO()
        convert(source.lifecycles(), source.context, out, options=Options(every_call=every))
        drawn[every] = [one.name for one in read(out.getvalue()).slices(CALL)]
    # THEN the second is drawn where all calls are asked for
    assert drawn == {False: ["pread64"], True: ["pread64", "fsync"]}


def test_processes_have_their_names() -> None:
    # GIVEN calls of two threads of a process, of which the first thread is known
    log = sample()
    log.task(40, b"fio-main", pid=40)
    log.returns(9000, 9400, 40, queued=1)
    # WHEN they are converted THEN the process is called as its first thread is
    trace = trace_of(log)
    named = [
        t.descriptor.process for t in trace.tracks.values() if t.descriptor.HasField("process")
    ]
    assert [(one.pid, one.process_name) for one in named] == [(40, "fio-main")]


def test_the_slowest_calls_say_why() -> None:
    # GIVEN a call that waited for its bio most of the time WHEN it is converted
    (slow, *_) = trace_of(sample()).slices("slowest call")
    # THEN its slice among the slowest says so, and holds its waits
    assert slow.name == "pread64 fio"
    assert slow.args["why"] == "waited 3.9 µs of 9 µs: own I/O"
    assert [one.name for one in slow.children] == ["blocked", "runnable", "blocked"]


def test_the_slowest_calls_say_whose_io_the_device_had() -> None:
    # GIVEN a call that waited for its bio, beside that of another thread WHEN it is converted
    log = sample()
    log.bio(1100, 5000, 43, call=None)
    (slow, *_) = trace_of(log).slices("slowest call")
    # THEN it says whose I/O the device had meanwhile, but for its own
    told = "; meanwhile vda had 1 read (4 KiB) of fio-log"
    assert slow.args["why"] == f"waited 3.9 µs of 9 µs: own I/O{told}"


def test_kernel_threads_take_one_place_of_a_burst() -> None:
    # GIVEN a burst in which three kernel threads waited longest, and two calls of a program less
    log = sample()
    for tid in (50, 51, 52):
        log.task(tid, b"kworker/u8:1")
        log.waits_alone(100, 20_000 + tid, 20_100 + tid, tid, number=KERNEL_THREAD)
    # WHEN it is converted
    slow = sorted(trace_of(log).slices("slowest call"), key=lambda one: one.start - one.end)
    # THEN the longest of these is there, and both calls
    assert [one.name.partition(" kworker")[0] for one in slow] == [
        "(kernel thread)",
        "pread64 fio",
        "fsync fio-log",
    ]


def test_writes_to_sysfs_and_procfs_are_not_among_the_slowest() -> None:
    # GIVEN a write to a file of sysfs that waited longest, and one likewise to a disk's file
    for mount, there in (("/sys", False), ("/proc", False), ("/srv", True)):
        log = sample()
        log.name(77, b"queue", b"scheduler")
        log.waits(500, 600, 20_000, 20_100, 44)
        log.returns(500, 30_000, 44, number=WRITE, blocked=19_400, waits=1, file=77)
        # WHEN it is converted
        trace = trace_of(log, notes={"mounts": {str(DEV): [["/", mount]]}}, files={})
        names = [one.name for one in trace.slices("slowest call")]
        # THEN that to the disk is among the slowest; both are drawn as calls
        assert ("write" in names) == there, mount
        assert "write" in [one.name for one in trace.slices(CALL)]
