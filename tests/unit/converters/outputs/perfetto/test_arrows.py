# SPDX-License-Identifier: Apache-2.0
"""Arrows from calls to their I/O and back to the waits that it ended, and slices of interrupts."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.cli.main import main
from biotrail.converters.outputs.perfetto.convert import convert, convert_parts
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENTS,
    BIO,
    CALL,
    INTERRUPT,
    Detail,
    Options,
)
from biotrail.converters.outputs.perfetto.tracks.tracks import Identity
from biotrail.converters.pipeline import Trace
from tests.support.path_logs import PathLog
from tests.support.path_tables import recorded_path
from tests.support.paths import ROOT
from tests.support.perfetto_check import Read, Slice, read
from tests.support.stack_logs import DEV, START

RECORDED = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
NONE = 0xFFFFFFFF
SOFTIRQ = {"hard": 900, "raised": 800, "soft": 300, "irq": 27, "context": 1}
"""How a completion came: its INTERRUPT record."""


def trace_of(data: bytes | Path, size: int = 1_000_000, detail: Detail = Detail.FULL) -> Read:
    source, out = Trace(io.BytesIO(data) if isinstance(data, bytes) else data), io.BytesIO()
    options = Options(detail=detail, every_arrow=True)
    convert(source.lifecycles(size), source.context, out, options=options)
    return read(out.getvalue())


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


def sample() -> PathLog:
    """A read that waits for its bio."""
    log = PathLog()
    log.task(42, b"fio", pid=40)
    log.request(1000, 5000, entry=500, **SOFTIRQ)
    log.waits(500, 1200, 5100, 5300, context=1)
    log.returns(500, 5900, blocked=3900, runnable=200, queued=1, waits=1)
    return log


def test_arrows_lead_from_a_call_to_the_wait_that_its_bio_ended() -> None:
    # GIVEN a read whose bio's completion woke it WHEN it is converted
    trace = trace_of(sample().data())
    # THEN arrows lead from the call to its bio, to its request, and to the thread's being woken
    assert arrows(trace) == [
        ("bio 998", "request 999"),
        ("call 500", "bio 998"),
        ("request 999", "runnable 5100"),
    ]


@pytest.mark.parametrize("cut", [600, 998, 999, 1000, 1500, 5000, 5100, 5300, 5900])
def test_arrows_do_not_depend_on_windows(cut: int) -> None:
    # GIVEN a log that is read in windows with a border anywhere in a call WHEN it is converted
    parts = trace_of(sample().data(cuts=[cut]), size=1)
    # THEN the arrows and interrupts are those of the log read at once
    whole = trace_of(sample().data())
    assert arrows(parts) == arrows(whole)
    assert interrupts(parts) == interrupts(whole)


@pytest.mark.parametrize("detail", [Detail.STAGES, Detail.BIOS])
def test_less_detail_has_no_arrows(detail: Detail) -> None:
    # GIVEN the same log WHEN less is drawn of each bio
    # THEN no arrow is, and with bios alone no call
    trace = trace_of(sample().data(), detail=detail)
    assert (len(trace.slices(BIO)), len(trace.slices(CALL))) == (1, detail == Detail.STAGES)
    assert trace.arrows() == []
    assert trace.slices(INTERRUPT) == []


def woken(*, context: int = 1, out: int = 1200, at: int = 5100, run: int = 5300) -> list[Slice]:
    """What arrows lead to within a call whose bio is queued at 998 and complete at 5000."""
    log = PathLog()
    log.request(1000, 5000, entry=500, **SOFTIRQ)
    log.waits(500, out, at, run, context=context)
    log.returns(500, 900_000, queued=1, waits=1)
    return [other for _, other in trace_of(log.data()).arrows() if other.category == "stage"]


def test_only_a_certain_cause_has_an_arrow_to_the_wait() -> None:
    # GIVEN a wait that a bio's completion ended, and others that it may not have ended
    # WHEN they are converted THEN only the first has an arrow
    assert len(woken()) == 1
    assert woken(context=0) == []  # the wake-up came from a thread, the completion in a softirq
    assert woken(run=5100) == []  # the wake-up was not recorded
    assert woken(at=105_001, run=105_300) == []  # long after the completion
    assert woken(out=5010) == []  # the bio was complete when the wait began
    assert woken(out=900) == []  # it was queued while the thread waited: not by this wait's call


def two_bios(first: int, second: int, at: int) -> list[str]:
    """What leads to a wait, by two bios queued at 998 and 1098, that is woken at `at`."""
    log = PathLog()
    log.request(1000, first, entry=500, **SOFTIRQ)
    log.request(1100, second, entry=500, **SOFTIRQ)
    log.waits(500, 1200, at, at + 200, context=1)
    log.returns(500, 90_000, queued=2, waits=1)
    return [one for one, other in arrows(trace_of(log.data())) if other == f"runnable {at}"]


def test_of_several_bios_the_last_ended_a_wait_for_all() -> None:
    # GIVEN two bios in flight: both complete, one completes, and the first of three
    # WHEN they are converted THEN the one that completed last, or alone, has the arrow
    assert two_bios(5000, 7000, 7100) == ["request 1099"]
    assert two_bios(7000, 5000, 7100) == ["request 999"]
    assert two_bios(5000, 9000, 5100) == ["request 999"]


def test_two_of_three_bios_leave_it_open_which_ended_the_wait() -> None:
    # GIVEN a wait in which two of three bios complete WHEN it is converted
    log = PathLog()
    for issue, end in ((1000, 5000), (1100, 5050), (1150, 9000)):
        log.request(issue, end, entry=500, **SOFTIRQ)
    log.waits(500, 1200, 5100, 5300, context=1)
    log.returns(500, 9500, queued=3, waits=1)
    # THEN no arrow leads to it, and each bio has its arrow from the call
    found = arrows(trace_of(log.data()))
    assert [one for one in found if one[1].startswith("runnable")] == []
    assert len([one for one in found if one[0] == "call 500"]) == 3


def test_a_bio_that_outlives_its_call_has_its_arrow() -> None:
    # GIVEN a write that returns while its bio is in flight, and one whose bio never ends
    log = PathLog()
    log.request(1000, 9000, entry=500, **SOFTIRQ)
    log.bio(1300, None, entry=500)
    log.returns(500, 2000, queued=2)
    # WHEN it is converted, in windows of any size
    for size in (1, 1_000_000):
        found = arrows(trace_of(log.data(cuts=[2100, 5000]), size=size))
        # THEN both bios have their arrow
        assert [other for one, other in found if one == "call 500"] == ["bio 1300", "bio 998"]


def test_threads_that_entered_at_once_have_their_own_bios() -> None:
    # GIVEN two threads that entered in the same nanosecond WHEN they are converted
    log = PathLog()
    for tid, at in ((42, 1000), (43, 1100)):
        log.request(at, at + 4000, tid=tid, entry=500, **SOFTIRQ)
        log.returns(500, 9000, tid, queued=1)
    trace = trace_of(log.data())
    # THEN each call has an arrow to its own thread's bio
    pairs = [(one, other) for one, other in trace.arrows() if one.category == CALL]
    assert len(pairs) == 2
    assert all(one.args["tid"] == other.args["tid"] for one, other in pairs)


def test_arrows_of_a_recording_are_those_of_its_tables() -> None:
    # GIVEN a recording on a loop device whose I/O is another disk's WHEN it is converted
    trace, tables = trace_of(RECORDED), recorded_path(RECORDED)
    pairs = [(one.category, other.category) for one, other in along(trace)]
    # THEN every bio of a timed call that returned has its arrow, and no other bio
    _, paths = tables.with_paths(np.ones(len(tables.bios), dtype=np.bool_))
    row = tables.call_of(paths, _tids(tables, paths.number))
    assert pairs.count((CALL, BIO)) == int((row >= 0).sum()) > 50
    for one, other in along(trace):
        if (one.category, other.category) == (CALL, BIO):
            assert one.args["tid"] == other.args["tid"]
            assert one.start <= other.start <= one.end
        elif other.category == "request":
            assert one.category != BIO or one.args["request"] == other.args["number"]
            assert one.start <= other.start
        elif other.category == BIO:
            assert other.args["parent"] is not None
            assert one.args["device"] != other.args["device"]
        else:
            assert other.name == "runnable"
            assert 0 <= other.start - one.end <= 100_000
    # AND most waits for a call's own I/O are known to be ended by it
    assert pairs.count(("request", "stage")) > 30


def _tids(tables: Any, number: Any) -> Any:
    order = np.argsort(tables.bios.number)
    return tables.bios.tid[order[np.searchsorted(tables.bios.number, number, sorter=order)]]


def test_interrupts_are_slices_of_their_device() -> None:
    # GIVEN completions in a softirq, in an interrupt, in a softirq without one, and in a task
    log = PathLog()
    log.request(1000, 5000, **SOFTIRQ)
    log.request(11_000, 15_000, hard=900, irq=28, context=2)
    log.request(21_000, 25_000, raised=800, soft=300, context=1)
    log.request(31_000, 35_000, context=0)
    # WHEN they are converted
    trace = trace_of(log.data())
    # THEN each is a slice with its steps; a task's completion has none
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


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_completions_of_a_softirq_share_its_slice(size: int) -> None:
    # GIVEN three requests that one softirq completed, the last after another interrupt came
    log = PathLog()
    log.request(1000, 5000, **SOFTIRQ)
    log.request(1100, 5200, **{**SOFTIRQ, "hard": 1100, "raised": 1000, "soft": 500})
    log.request(1200, 5400, hard=100, raised=50, soft=700, irq=27, context=1)
    # WHEN they are converted, in windows of any size
    found = interrupts(trace_of(log.data(cuts=[5100, 5300]), size))
    # THEN they are one slice, from the interrupt that led to it
    steps = [("hard irq", 100), ("raised", 500), ("softirq", 700)]
    assert found == [("interrupt", 4100, 5400, {"irq": 27, "completions": 3}, steps)]


def test_an_interrupt_of_before_the_issue_is_anothers() -> None:
    # GIVEN a request whose CPU knew of an older interrupt alone WHEN it is converted
    log = PathLog()
    log.request(3000, 5000, hard=4000, raised=800, soft=300, irq=27, context=1)
    # THEN the slice begins with what led to the completion
    (found,) = interrupts(trace_of(log.data()))
    assert found[:4] == ("softirq without interrupt", 4200, 5000, {})


def test_flows_of_merged_logs_are_apart(tmp_path: Path) -> None:
    # GIVEN two logs with bios of the same numbers WHEN they are one trace
    logs = []
    for number, host in enumerate(("db1", "db2"), 1):
        header = {"log_id": str(number) * 32, "host": {"name": host, "machine": "x86_64"}}
        logs.append(sample().write(tmp_path / f"{host}.biotrail", **header))
    with pytest.raises(SystemExit, match="0"):
        main(["convert", *map(str, logs), "-o", str(tmp_path / "both.pftrace")])
    trace = read((tmp_path / "both.pftrace").read_bytes())
    # THEN arrows join slices of one log alone
    pairs = [(one, other) for one, other in trace.arrows() if other.category == BIO]
    assert len(pairs) == 2
    roots = [{trace.path(s.track).split("/")[0] for s in pair} for pair in pairs]
    assert all(len(root) == 1 for root in roots)
    assert roots[0] != roots[1]


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


def test_ids_of_flows_are_hashed() -> None:
    # GIVEN two logs WHEN their first flow's ids are asked for THEN they are far apart
    one, other = Identity("a" * 32).flow(), Identity("b" * 32).flow()
    assert abs(one - other) > 1 << 50
