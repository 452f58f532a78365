# SPDX-License-Identifier: Apache-2.0
"""The path in Perfetto traces: calls on their threads' tracks, arguments of bios and requests."""

import io
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.main import main
from biotrail.converters.outputs.perfetto.convert import convert_parts
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENTS,
    BIO,
    CALL,
    COMMIT,
    COMMIT_PHASES,
    INTERRUPT,
    Detail,
    Options,
)
from biotrail.converters.outputs.perfetto.tracks import Identity
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.syscalls import KERNEL_THREAD
from tests.support.path_logs import FSYNC, WITH_REASONS, WRITE, PathLog
from tests.support.perfetto_check import Read, Slice, read
from tests.support.perfetto_make import traced
from tests.support.stack_logs import DEV, START


def trace_of(log: PathLog, size: int = 1_000_000, **how: Any) -> Read:
    return traced(log.data(**how), size, every_call=True)


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
    calls = [args.get("call") for args in found]
    assert calls == ["pread64", "32-bit system call", "page fault", None, None]
    assert ["fd" in args for args in found] == [True, True, False, False, False]
    who = [(a.get("dirtied_by"), a.get("dirtied_pid"), a.get("dirtied_before_ns")) for a in found]
    assert who == [(None, None, None)] * 3 + [("postgres", 811, 700)] + [(None, None, None)]
    assert [args.get("dirtied_in") for args in found] == [None, None, None, "id 77", None]
    # AND a bio that is for anything but data says for what
    assert [args.get("purpose") for args in found] == [None, None, None, None, "readahead"]


def test_processes_have_their_names_and_a_log_without_the_path_has_none() -> None:
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
    # GIVEN a log without the path WHEN it is converted
    log = PathLog()
    log.bio(1000, 5000, call=None)
    trace = trace_of(log, parts=())
    # THEN no slice is a call, and no track a thread's
    assert trace.slices(CALL) == []
    assert not any(t.descriptor.HasField("thread") for t in trace.tracks.values())
    (bio,) = trace.slices(BIO)
    assert {"call", "fd", "dirtied_by"}.isdisjoint(bio.args)


def test_the_slowest_calls_say_whose_io_the_device_had() -> None:
    # GIVEN a call that waited for its bio, beside that of another thread WHEN it is converted
    log = sample()
    log.bio(1100, 5000, 43, call=None)
    (slow, *_) = trace_of(log).slices("slowest call")
    # THEN it says whose I/O the device had meanwhile, but for its own
    told = "; meanwhile vda had 1 read (4 KiB) of fio-log"
    assert slow.args["why"] == f"waited 3.9 µs of 9 µs: own I/O{told}"
    # GIVEN a burst in which three kernel threads waited longest, and two calls of a program less
    log = sample()
    for tid in (50, 51, 52):
        log.task(tid, b"kworker/u8:1")
        log.waits_alone(100, 20_000 + tid, 20_100 + tid, tid, number=KERNEL_THREAD)
    # WHEN it is converted / THEN the longest of these is there, and both calls
    slow = sorted(trace_of(log).slices("slowest call"), key=lambda one: one.start - one.end)
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
        # WHEN it is converted / THEN that to the disk is among the slowest; both are drawn as calls
        trace = trace_of(log, notes={"mounts": {str(DEV): [["/", mount]]}}, files={})
        names = [one.name for one in trace.slices("slowest call")]
        assert ("write" in names) == there, mount
        assert "write" in [one.name for one in trace.slices(CALL)]


# Arrows from calls to their I/O and back to the waits that it ended, and slices of interrupts.


SOFTIRQ = {"hard": 900, "raised": 800, "soft": 300, "irq": 27, "context": 1}
"""How a completion came: its INTERRUPT record."""


def arrows_of(data: bytes | Path, size: int = 1_000_000, detail: Detail = Detail.FULL) -> Read:
    return traced(data, size, detail=detail, every_arrow=True)


def said(one: Slice) -> str:
    """A slice's category, or the name of what is nested, and when it begins."""
    return f"{one.name if one.category == 'stage' else one.category} {one.start - START}"


def arrows(trace: Read) -> list[tuple[str, str]]:
    return sorted((said(one), said(other)) for one, other in along(trace))


def along(trace: Read) -> list[tuple[Slice, Slice]]:
    """The arrows along calls and I/O, without those to the slowest."""
    return [pair for pair in trace.arrows() if pair[1].category != "slowest"]


def interrupts(trace: Read) -> list[tuple[Any, ...]]:
    return [
        (
            one.name,
            one.start - START,
            one.end - START,
            one.args,
            [(inner.name, inner.dur) for inner in one.children],
        )
        for one in trace.slices(INTERRUPT)
    ]


def irq_sample() -> PathLog:
    """A read that waits for its bio."""
    log = PathLog()
    log.task(42, b"fio", pid=40)
    log.request(1000, 5000, entry=500, **SOFTIRQ)
    log.waits(500, 1200, 5100, 5300, context=1)
    log.returns(500, 5900, blocked=3900, runnable=200, queued=1, waits=1)
    return log


def test_arrows_lead_from_a_call_to_the_wait_that_its_bio_ended() -> None:
    # GIVEN a read whose bio's completion woke it WHEN it is converted
    trace = arrows_of(irq_sample().data())
    # THEN arrows lead from the call to its bio, to its request, and to the thread's being woken
    assert arrows(trace) == [
        ("bio 998", "request 999"),
        ("call 500", "bio 998"),
        ("request 999", "runnable 5100"),
    ]


@pytest.mark.parametrize("cut", [600, 998, 999, 1000, 1500, 5000, 5100, 5300, 5900])
def test_arrows_do_not_depend_on_windows(cut: int) -> None:
    # GIVEN a log that is read in windows with a border anywhere in a call WHEN it is converted
    parts = arrows_of(irq_sample().data(cuts=[cut]), size=1)
    # THEN the arrows and interrupts are those of the log read at once
    whole = arrows_of(irq_sample().data())
    assert arrows(parts) == arrows(whole)
    assert interrupts(parts) == interrupts(whole)


@pytest.mark.parametrize("detail", [Detail.STAGES, Detail.BIOS])
def test_less_detail_has_no_arrows(detail: Detail) -> None:
    # GIVEN the same log WHEN less is drawn of each bio
    # THEN no arrow is, and with bios alone no call
    trace = arrows_of(irq_sample().data(), detail=detail)
    assert (len(trace.slices(BIO)), len(trace.slices(CALL))) == (1, detail == Detail.STAGES)
    assert trace.arrows() == []
    assert trace.slices(INTERRUPT) == []


def woken(*, context: int = 1, out: int = 1200, at: int = 5100, run: int = 5300) -> list[Slice]:
    """What arrows lead to within a call whose bio is queued at 998 and complete at 5000."""
    log = PathLog()
    log.request(1000, 5000, entry=500, **SOFTIRQ)
    log.waits(500, out, at, run, context=context)
    log.returns(500, 900_000, queued=1, waits=1)
    return [other for _, other in arrows_of(log.data()).arrows() if other.category == "stage"]


def test_only_a_certain_cause_has_an_arrow_to_the_wait() -> None:
    # GIVEN a wait that a bio's completion ended, and others that it may not have ended
    # WHEN they are converted THEN only the first has an arrow
    assert len(woken()) == 1
    assert woken(context=0) == []  # the wake-up came from a thread, the completion in a softirq
    assert woken(run=5100) == []  # the wake-up was not recorded
    assert woken(at=105_001, run=105_300) == []  # long after the completion
    assert woken(out=5010) == []  # the bio was complete when the wait began
    assert woken(out=900) == []  # it was queued while the thread waited: not by this wait's call
    # GIVEN two bios in flight: both complete, one completes, and the first of three
    # WHEN they are converted THEN the one that completed last, or alone, has the arrow
    assert two_bios(5000, 7000, 7100) == ["request 1099"]
    assert two_bios(7000, 5000, 7100) == ["request 999"]
    assert two_bios(5000, 9000, 5100) == ["request 999"]
    # GIVEN a wait in which two of three bios complete WHEN it is converted
    log = PathLog()
    for issue, end in ((1000, 5000), (1100, 5050), (1150, 9000)):
        log.request(issue, end, entry=500, **SOFTIRQ)
    log.waits(500, 1200, 5100, 5300, context=1)
    log.returns(500, 9500, queued=3, waits=1)
    # THEN no arrow leads to it, and each bio has its arrow from the call
    found = arrows(arrows_of(log.data()))
    assert [one for one in found if one[1].startswith("runnable")] == []
    assert len([one for one in found if one[0] == "call 500"]) == 3


def two_bios(first: int, second: int, at: int) -> list[str]:
    """What leads to a wait, by two bios queued at 998 and 1098, that is woken at `at`."""
    log = PathLog()
    log.request(1000, first, entry=500, **SOFTIRQ)
    log.request(1100, second, entry=500, **SOFTIRQ)
    log.waits(500, 1200, at, at + 200, context=1)
    log.returns(500, 90_000, queued=2, waits=1)
    return [one for one, other in arrows(arrows_of(log.data())) if other == f"runnable {at}"]


def test_bios_have_the_arrows_of_their_own_calls() -> None:
    # GIVEN a write that returns while its bio is in flight, and one whose bio never ends
    log = PathLog()
    log.request(1000, 9000, entry=500, **SOFTIRQ)
    log.bio(1300, None, entry=500)
    log.returns(500, 2000, queued=2)
    # WHEN it is converted, in windows of any size
    for size in (1, 1_000_000):
        found = arrows(arrows_of(log.data(cuts=[2100, 5000]), size=size))
        # THEN both bios have their arrow
        assert [other for one, other in found if one == "call 500"] == ["bio 1300", "bio 998"]
    # GIVEN two threads that entered in the same nanosecond WHEN they are converted
    log = PathLog()
    for tid, at in ((42, 1000), (43, 1100)):
        log.request(at, at + 4000, tid=tid, entry=500, **SOFTIRQ)
        log.returns(500, 9000, tid, queued=1)
    trace = arrows_of(log.data())
    # THEN each call has an arrow to its own thread's bio
    pairs = [(one, other) for one, other in trace.arrows() if one.category == CALL]
    assert len(pairs) == 2
    assert all(one.args["tid"] == other.args["tid"] for one, other in pairs)


def test_interrupts_are_slices_of_their_device() -> None:
    # GIVEN completions in a softirq, in an interrupt, in a softirq without one, and in a task
    log = PathLog()
    log.request(1000, 5000, **SOFTIRQ)
    log.request(11_000, 15_000, hard=900, irq=28, context=2)
    log.request(21_000, 25_000, raised=800, soft=300, context=1)
    log.request(31_000, 35_000, context=0)
    # WHEN they are converted / THEN each is a slice with its steps; a task's completion has none
    trace = arrows_of(log.data())
    softirq, interrupt, without = interrupts(trace)
    steps = [("hard irq", 100), ("raised", 500), ("softirq", 300)]
    assert softirq == ("interrupt", 4100, 5000, {"irq": 27}, steps)
    assert interrupt == ("interrupt", 14_100, 15_000, {"irq": 28}, [])
    assert without == ("softirq without interrupt", 24_200, 25_000, {}, steps[1:])
    # AND they are below their device, on a track of their own
    paths = {trace.path(one.track) for one in trace.slices(INTERRUPT)}
    assert len(paths) == 1
    (path,) = paths
    assert path.endswith("/interrupts")
    assert f"({DEV >> 20}:{DEV & 0xFFFFF})" in path
    assert {"irq", "completions"} == {argument.name for argument in ARGUMENTS[INTERRUPT]}
    # GIVEN a request whose CPU knew of an older interrupt alone WHEN it is converted
    log = PathLog()
    log.request(3000, 5000, hard=4000, raised=800, soft=300, irq=27, context=1)
    # THEN the slice begins with what led to the completion
    (found,) = interrupts(arrows_of(log.data()))
    assert found[:4] == ("softirq without interrupt", 4200, 5000, {})


def test_flows_of_merged_logs_are_apart(tmp_path: Path) -> None:
    # GIVEN two logs with bios of the same numbers WHEN they are one trace
    logs = []
    for number, host in enumerate(("db1", "db2"), 1):
        header = {"log_id": str(number) * 32, "host": {"name": host, "machine": "x86_64"}}
        logs.append(irq_sample().write(tmp_path / f"{host}.biotrail", **header))
    with pytest.raises(SystemExit, match="0"):
        main(["convert", *map(str, logs), "-o", str(tmp_path / "both.pftrace")])
    trace = read((tmp_path / "both.pftrace").read_bytes())
    # THEN arrows join slices of one log alone
    pairs = [(one, other) for one, other in trace.arrows() if other.category == BIO]
    assert len(pairs) == 2
    roots = [{trace.path(s.track).split("/")[0] for s in pair} for pair in pairs]
    assert all(len(root) == 1 for root in roots)
    assert roots[0] != roots[1]
    # GIVEN two logs WHEN their first flow's ids are asked for THEN they are far apart
    one, other = Identity("a" * 32).flow, Identity("b" * 32).flow
    assert abs(one - other) > 1 << 50


def test_calls_behind_the_last_bio_are_in_a_part_of_their_own() -> None:
    # GIVEN a log whose I/O ends long before its calls do
    log = PathLog()
    log.request(1000, 5000, entry=500, **SOFTIRQ)
    log.returns(500, 6000, queued=1)
    for second in range(1, 4):
        log.returns(second * 10**9, second * 10**9 + 500)
    source = Trace(io.BytesIO(log.data(cuts=[second * 10**9 - 1 for second in range(1, 4)])))
    # WHEN it is written in parts, one for each window with something in it
    files: list[io.BytesIO] = []

    def opened(_: int) -> io.BytesIO:
        files.append(io.BytesIO())
        return files[-1]

    convert_parts(source.lifecycles(1), source.context, opened, 1, options=Options(every_call=True))
    # THEN each call is in one of the parts
    calls = [call for file in files for call in read(file.getvalue()).slices(CALL)]
    assert sorted(call.start - START for call in calls) == [500, 10**9, 2 * 10**9, 3 * 10**9]


# Perfetto traces: waits named by what they were for, commits on their journals' tracks.

NOTES = {"stacks": {"wait": {"7": [["jbd2_log_wait_commit", "", 1]], "8": [["odd", "", 1]]}}}


def waits_of(log: PathLog, size: int = 1_000_000, **how: Any) -> Read:
    return traced(log.data(notes=NOTES, **how), size)


def waits_sample() -> PathLog:
    """A call that waits for a commit, for what no rule knows, and without a stack; two journals."""
    log = PathLog()
    log.task(42, b"db")
    log.waits(500, 600, 900, 950, stack=7, waker=900)
    log.waits(500, 1000, 1100, 1100, stack=8)
    log.waits(500, 1200, 1300, 1300, stack=-17)
    log.returns(500, 2000, number=FSYNC, blocked=500, runnable=50, waits=3)
    log.commit(11, 400, 410, 420, 430, 890)
    log.commit(12, 900, 910, 910, 930, 1500)
    log.commit(5, -1, -1, 700, 800, 900, tid=901, dev=DEV + 1)
    return log


@pytest.mark.parametrize("cuts", [[], [450, 920, 1150]])
def test_waits_are_named_by_their_reasons(cuts: list[int]) -> None:
    # GIVEN a log that says what waits are for, in one window or several  WHEN it is drawn
    size = 1 if cuts else 1_000_000
    (call,) = waits_of(waits_sample(), size, cuts=cuts, parts=WITH_REASONS).slices(CALL)
    # THEN each wait has its reason, `blocked` where it is unknown, and times as ever
    assert spans(call) == [
        ("journal commit", 600, 900),
        ("runnable", 900, 950),
        ("other", 1000, 1100),
        ("blocked", 1200, 1300),
    ]
    # AND the call names the transaction that it waited for
    assert call.args["commit"] == 11
    assert "commit" in {argument.name for argument in ARGUMENTS[CALL]}
    # GIVEN a log whose header does not have the part  WHEN it is drawn
    (call,) = waits_of(waits_sample(), parts=("time", "wait")).slices(CALL)
    # THEN waits are named as of old
    assert {name for name, _, _ in spans(call)} == {"blocked", "runnable"}


def test_commits_are_on_tracks_of_their_journals() -> None:
    # GIVEN commits of two file systems  WHEN they are drawn
    trace = waits_of(waits_sample(), parts=WITH_REASONS)
    found: dict[str, list[Slice]] = {}
    for one in trace.slices(COMMIT):
        found.setdefault(trace.tracks[one.track].descriptor.name, []).append(one)
    # THEN each journal has its track, with a slice for each commit
    assert len(found) == 2
    assert all(name.startswith("journal of ") for name in found)
    mine, other = sorted(found.values(), key=len, reverse=True)
    assert [one.args for one in mine] == [
        {"transaction": 11, "tid": 900},
        {"transaction": 12, "tid": 900},
    ]
    assert [(one.name, one.start - START, one.end - START) for one in mine] == [
        (COMMIT, 400, 890),
        (COMMIT, 900, 1500),
    ]
    # AND phases within, without those of no length, or not seen
    starting, locking, flushing, logging = COMMIT_PHASES
    assert spans(mine[0]) == [
        (starting, 400, 410),
        (locking, 410, 420),
        (flushing, 420, 430),
        (logging, 430, 890),
    ]
    assert spans(mine[1]) == [(starting, 900, 910), (flushing, 910, 930), (logging, 930, 1500)]
    assert (other[0].start - START, spans(other[0])) == (
        700,
        [(flushing, 700, 800), (logging, 800, 900)],
    )
    assert {argument.name for argument in ARGUMENTS[COMMIT]} == {"transaction", "tid"}
