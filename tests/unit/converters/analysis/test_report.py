# SPDX-License-Identifier: Apache-2.0
"""The report's figures beside plain sums over the same log's tables."""

import io
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.cli.reporting.page import collect
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.select import Selection
from biotrail.converters.analysis.distributions import depth as depths
from biotrail.converters.analysis.distributions.groups import OTHERS, Groups, Series
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.fleet.part import read_part
from biotrail.converters.analysis.report.csv import lines
from biotrail.converters.analysis.report.devices import Stacked
from biotrail.converters.analysis.report.report import Reporter, make_report
from biotrail.converters.analysis.report.tree import GroupReport, Report
from biotrail.converters.analysis.stacks.stacks import StackTable
from biotrail.converters.events.tables import NEVER, STAGE_NAMES, Bios, RequestKind, Requests, Stage
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.lifecycles.cutting import Span
from biotrail.converters.lifecycles.operations import CLEARED
from biotrail.converters.lifecycles.windows import restricted
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.text.report import verdict
from tests.scenarios import stacks
from tests.scenarios.tools import Tables, events_of, read
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.followed_logs import follow, patient
from tests.support.path_logs import PathLog
from tests.support.paths import ROOT, SAMPLE
from tests.support.window_loads import HEADER, followed, loads, piece, write

BLKTRACE = ROOT / "tests" / "data" / "blktrace"
SECOND = 10**9
CAPTURES = sorted(path.stem for path in captures.DATA.glob("*.txt"))
"""Captured sequences of one thing each."""


def logs(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Every small log there is, with its name."""
    yield "sample", SAMPLE
    for name in ("vda", "loop1", "zram1", "zoned"):
        yield name, BLKTRACE / name
    for name in CAPTURES:
        path = tmp_path / f"{name}.biotrail"
        captures.write_log(path, followed(name))
        yield name, path


def both(path: Path, window: int = 1 << 20, **options: Any) -> tuple[Tables, Report]:
    """A log's tables, and its report."""
    trace = Trace(path)
    return read(path), make_report(trace, trace.lifecycles(window), **options)


def check_latencies(group: GroupReport, values: np.ndarray) -> None:
    assert group.latency.count == len(values)
    if len(values):
        assert (group.latency.sum, group.latency.min) == (int(values.sum()), int(values.min()))
        assert group.latency.max == int(values.max())


def data_of(tables: Tables, table: Bios | Requests) -> np.ndarray:
    """Bytes that each bio or request transfers."""
    names = [tables.context.op_name(opf) for opf in table.opf.tolist()]
    return np.where([name in CLEARED for name in names], 0, table.bytes).astype(np.int64)


def below_others(bios: Bios) -> np.ndarray:
    """Which bios stacked devices queued for others; of a whole log."""
    return np.asarray(bios.parent != NEVER)


def check_totals(tables: Tables, report: Report) -> None:
    every, total = tables.bios, report.total.bios
    lower = below_others(every)
    assert report.lower_bios == int(lower.sum())
    assert report.lower_bytes == int(data_of(tables, every)[lower].sum())
    without = (every.queue == NEVER) | (every.complete == NEVER)
    assert report.percentiles.without == int(without.sum())
    assert sum(report.certainty.values()) == len(every)
    bios = every.take(~lower)
    assert total.ios == len(bios)
    assert total.bytes == int(data_of(tables, bios).sum())
    ranges = sum(total.counters[name] for name in CLEARED.values())
    assert total.bytes + ranges == int(bios.bytes.sum(dtype=np.int64))
    assert total.counters["failed"] == int((bios.status != 0).sum())
    assert total.counters["requeues"] == int(bios.requeues.sum())
    ended = (bios.queue != NEVER) & (bios.complete != NEVER)
    check_latencies(total, (bios.complete - bios.queue)[ended])
    stages = tables.bio_stages
    stages = stages.take(np.isin(stages.owner, bios.number))
    took = stages.end - stages.start
    shown = {s.stage: s for s in total.stages}
    for stage in Stage:
        mine = took[stages.stage == stage]
        name = STAGE_NAMES[stage]
        assert (name in shown) == bool(len(mine)), name
        if len(mine):
            time = shown[name].time
            assert (time.count, time.sum) == (len(mine), int(mine.sum()))
            assert (time.min, time.max) == (int(mine.min()), int(mine.max()))
            if took.sum():
                assert shown[name].share == pytest.approx(time.sum / int(took.sum()))
    assert report.total.requests.ios == len(tables.requests)
    moved = int(data_of(tables, tables.requests).sum())
    assert report.total.requests.bytes == moved


def check_parts(tables: Tables, report: Report) -> None:
    """Devices hold every bio once, each other way of grouping those that were submitted."""
    by_device = {d.dev: d.total.bios.ios for d in report.devices}
    devices = Counter(tables.bios.dev.tolist())
    assert by_device == {f"{dev >> 20}:{dev & 0xFFFFF}": n for dev, n in devices.items()} | {
        dev: 0 for dev, n in by_device.items() if not n
    }
    operations = [o.bios for d in report.devices for o in d.operations]
    assert sum(g.bytes for g in operations) == int(data_of(tables, tables.bios).sum())
    for groups in (
        [one.bios for one in report.operations],
        report.processes,
        report.cgroups,
        report.cpus,
    ):
        for name in ("ios", "bytes", "unfinished", "failed"):
            assert sum(g.group[name] for g in groups) == report.total.bios.group[name], name
        assert sum(g.latency.sum for g in groups) == report.total.bios.latency.sum
    bios = tables.bios.take(~below_others(tables.bios))
    tasks = Counter(bios.task.tolist())
    counts = Counter[object]()
    known = tables.windows[-1].tasks
    leaders = {
        int(tgid): comm
        for tid, tgid, comm in zip(known.tid, known.tgid, known.comm, strict=True)
        if tid == tgid
    }
    for task, count in tasks.items():
        tgid = int(known.tgid[task]) if task >= 0 else -1
        counts[tgid or str(known.comm[task])] += count
    mine = Counter[object]()
    for g in report.processes:
        pid = g.name["pid"]
        mine[-1 if g.name["process"] is None else pid or g.name["process"]] += g.ios
        if pid in leaders and pid:
            assert g.name["process"] == leaders[pid]
    assert mine == counts
    cgroups = Counter(bios.cgroup.tolist())
    assert {g.name["cgroup_id"]: g.ios for g in report.cgroups} == cgroups


def test_totals_are_plain_sums_over_the_tables(tmp_path: Path) -> None:
    for name, path in logs(tmp_path):
        # GIVEN a log WHEN it is reported on
        tables, report = both(path)
        # THEN each figure is the sum over the log's tables
        assert len(tables.bios), name
        check_totals(tables, report)
        check_parts(tables, report)
        errors = Counter(tables.bios.status[tables.bios.status != 0].tolist())
        said = {tables.context.status_name(s): n for s, n in errors.items()}
        assert report.total.bios.errors == said


def brute_depth(
    start: list[int], stop: list[int], begin: int, end: int
) -> tuple[int, int, int, list[int]]:
    """Depth times time, time with any, the most, and what each met when it began."""
    marks = sorted({begin, end, *start, *(s for s in stop if s >= 0)})
    area = busy = most = 0
    for at, until in pairwise(marks):
        depth = sum(b <= at and (e < 0 or e > at) for b, e in zip(start, stop, strict=True))
        area += depth * (until - at)
        busy += (until - at) if depth else 0
        most = max(most, depth)
    order = sorted(range(len(start)), key=lambda i: start[i])
    met = []
    for place, row in enumerate(order):
        at = start[row]
        others = [i for i in order[:place] if stop[i] < 0 or stop[i] > at]
        met.append(len(others))
    return area, busy, most, sorted(met)


@pytest.mark.parametrize("name", CAPTURES)
def test_depth_is_what_counting_by_hand_gives(name: str, tmp_path: Path) -> None:
    # GIVEN a captured log WHEN it is reported on
    path = tmp_path / "log.biotrail"
    captures.write_log(path, followed(name))
    tables, report = both(path)
    bios, requests = tables.bios, tables.requests
    end = report.end_ns
    for device in report.devices:
        major, minor = map(int, device.dev.split(":"))
        dev = major << 20 | minor
        mine = bios.take((bios.dev == dev) & (bios.queue >= 0))
        theirs = requests.take((requests.dev == dev) & (requests.issue >= 0))
        for depth, start, stop in (
            (device.queue, mine.queue, mine.complete),
            (device.issued, theirs.issue, theirs.complete),
        ):
            # THEN depth, active time and what each met are those of a count by hand
            area, busy, _, met = brute_depth(start.tolist(), stop.tolist(), report.begin_ns, end)
            assert depth.mean == pytest.approx(area / (end - report.begin_ns))
            assert depth.active_ns == busy
            assert depth.at_start.count == len(met)
            assert depth.at_start.sum == sum(met)
            assert depth.max >= max(met, default=-1) + 1 - (not met)


def test_flushes_and_who_shared_them() -> None:
    # GIVEN the sample log, with a journal's commits
    tables, report = both(SAMPLE)
    [device] = [d for d in report.devices if d.flushes]
    flushes = device.flushes
    assert flushes is not None
    # THEN each flush request is counted, and each wait for one
    ended = (tables.requests.kind == RequestKind.FLUSH) & (tables.requests.complete >= 0)
    assert flushes.requests == int(ended.sum()) == sum(flushes.shared.values())
    waits = np.isin(tables.bio_stages.stage, [Stage.FLUSH, Stage.PRE_FLUSH, Stage.POST_FLUSH])
    assert flushes.waits == int(waits.sum())
    assert sum(bios * n for bios, n in flushes.shared.items()) == flushes.waits - flushes.unmatched
    # GIVEN the sample log without its flush requests, as a filter by process leaves it
    reporter = None
    trace = Trace(SAMPLE)
    for window in trace.lifecycles():
        reporter = reporter or Reporter(trace.context)
        kept = [np.ones(len(t), np.bool_) for t in (window.bios, window.open_bios)]
        data, open_ = (t.kind != RequestKind.FLUSH for t in (window.requests, window.open_requests))
        reporter.add(restricted(window, kept[0], data, kept[1], open_))
    # WHEN it is reported on THEN no device has flushes, whoever waited for them
    assert reporter is not None
    assert sum(flush.waits for flush in reporter.flushes.by_dev.values())
    assert not [d for d in reporter.finish(trace).devices if d.flushes]


def test_io_told_after_its_interval_was_closed_is_counted() -> None:
    # GIVEN a series of numbers whose first interval has been closed
    series = Series[int, tuple[int, int]](0, SECOND, lambda code, number: (code, number))
    for now, ended in (
        (SECOND, [SECOND // 2]),
        (30 * SECOND, [20 * SECOND]),
        # WHEN more I/O of it comes THEN it is counted as left out, and the series stays as it was
        (31 * SECOND, [SECOND // 3, 29 * SECOND]),
    ):
        codes = np.full(len(ended), 7)
        series.add(codes, np.array(ended), now, lambda _, place, __: np.bincount(place).tolist())
    series.finish()
    assert series.left_out == 1
    assert series.closed == {0: [(7, 1)], 20: [(7, 1)], 29: [(7, 1)]}


@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    pieces=st.lists(piece, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    window=st.integers(1, 60),
)
def test_windows_do_not_matter(
    tmp_path: Path, pieces: list[Any], cuts: list[int], window: int
) -> None:
    # GIVEN any log WHEN it is read in one window and in many
    events = loads(pieces)
    path = write(tmp_path / "log", events, [cut % len(events) for cut in cuts], [0, 0])
    (tables, one), (_, many) = both(path), both(path, window)
    # THEN the reports are the same
    first, second = as_json(one), as_json(many)
    if ends_are_open(tables, path, window):
        for device in (*first["devices"], *second["devices"]):
            device.pop("depth")
    assert first == second


def ends_are_open(tables: Tables, path: Path, window: int) -> bool:
    """Whether something never ends, or a window shows an end that a later C moves.

    What never ends is in flight until it is given up, which windows decide. So they do where
    only the first of several C (of a request completed in parts) lies before a window's end.
    """
    if (tables.bios.complete == NEVER).any() or (tables.requests.complete == NEVER).any():
        return True
    last = dict(
        zip(tables.requests.number.tolist(), tables.requests.complete.tolist(), strict=True)
    )
    return any(
        last[number] != end
        for found in Trace(path).lifecycles(window)
        for number, end in zip(
            found.open_requests.number.tolist(), found.open_requests.complete.tolist(), strict=True
        )
        if end != NEVER
    )


def test_groups_past_the_bound_are_no_device() -> None:
    # GIVEN a report that keeps one pair of device and operation apart
    trace = Trace(SAMPLE)
    reporter = Reporter(trace.context)
    reporter.bios, reporter.requests = Groups(1), Groups(1)
    for window in trace.lifecycles():
        reporter.add(window)
    # WHEN it is made / THEN the I/O of all others is in the total, and of no device
    report = reporter.finish(trace)
    assert OTHERS in reporter.bios.by_code
    known = {entry["name"] for entry in trace.context.devices.values()}
    assert {device.device for device in report.devices} <= known
    whole = sum(group["ios"] for group in reporter.bios.by_code.values())
    assert report.total.bios.ios == whole


def test_intervals_add_up_to_the_whole() -> None:
    # GIVEN the sample log WHEN its report has a time series
    _, report = both(SAMPLE, interval=50_000_000)
    # THEN all of it is in one interval or another
    groups = [group for interval in report.intervals for group in interval.groups]
    for name in ("ios", "bytes"):
        assert sum(getattr(g, name) for g in groups) == getattr(report.total.bios, name)
    for name in ("merged", "split"):
        assert sum(g.counters[name] for g in groups) == report.total.bios.counters[name]
    assert report.intervals_left_out == 0
    # AND intervals follow each other without a gap
    begins = [i.begin_ns for i in report.intervals]
    assert begins == [report.begin_ns + n * 50_000_000 for n in range(len(begins))]
    assert report.intervals[-1].end_ns == report.end_ns
    # AND so is the time that devices were active
    for device in report.devices:
        mine = [d for i in report.intervals for d in i.depths if d.device == device.device]
        assert sum(d.active_ns for d in mine) == device.queue.active_ns
        assert max(d.queue_max for d in mine) == device.queue.max


def test_a_log_without_events_has_a_report(tmp_path: Path) -> None:
    # GIVEN a log of no events WHEN it is reported on
    path = tmp_path / "empty.biotrail"
    captures.write_log(path, [])
    _, report = both(path, interval=10**9)
    # THEN the report says so
    assert report.total.bios.ios == 0
    assert report.devices == report.intervals == []
    assert as_json(report)["time"]["span_ns"] == 0


# Data is what is transferred: discards, write zeroes and secure erases are counted apart.

WRITE, DISCARD, SECURE_ERASE, WRITE_ZEROES = 1, 3, 5, 9
MIB = 1 << 20
OPERATIONS = [(DISCARD, "discarded"), (WRITE_ZEROES, "zeroed"), (SECURE_ERASE, "erased")]


def log(tmp_path: Path, op: int) -> Path:
    """A process that writes 1 MiB and acts on 8 MiB, the latter in flight all the time."""
    made = PathLog()
    made.task(42, b"rm")
    made.bio(100, 900, opf=op, size=8 * MIB)
    made.bio(200, 300, opf=WRITE, size=MIB)
    return made.write(tmp_path / "log.biotrail")


@pytest.mark.parametrize(("op", "word"), OPERATIONS)
def test_what_moves_no_data_is_no_data(tmp_path: Path, cli: Cli, op: int, word: str) -> None:
    # GIVEN a log with a write, and an operation on a range WHEN it is reported on
    path = log(tmp_path, op)
    report = make_report(Trace(path), by="process")
    # THEN every sum has the write as data, and the range by itself
    key = f"{word}_bytes"
    told = as_json(report)
    assert told["format"] == 2
    for group in (told["total"], told["devices"][0]["total"], *told["processes"], *told["groups"]):
        assert (group["bytes"], group["done_bytes"], group[key]) == (MIB, MIB, 8 * MIB)
        assert (group["size"]["count"], group["size"]["sum_bytes"]) == (1, MIB)
        assert (group["ranges"]["count"], group["ranges"]["sum_bytes"]) == (1, 8 * MIB)
    for line in lines(report):
        if line["section"] in ("total", "groups") and line["of"] == "bios":
            assert (line["bytes"], line[key]) == (MIB, 8 * MIB)
    # THEN nor was it data that was in flight beside the write
    [tail] = [one for one in report.tails if one.operation == "write"] or [None]
    assert tail is None or (tail.beside, tail.beside_others) == (0, 0)
    # THEN the text's head, and a column of each table, have the range
    text = cli("report", path, "--by", "process").out
    assert f"2 bios, 1.0 MiB, 8.0 MiB {word}" in text
    [head, row] = [
        x for x in text.split("By process")[1].splitlines() if "I/O/s" in x or x.startswith("rm")
    ][:2]
    assert word in head and "8.0 MiB" in row
    # THEN bytes of callers are those of the write
    trace = Trace(path)
    table = StackTable(trace.context)
    for window in trace.lifecycles():
        table.add(window)
    assert sum(one.bytes for one in table.callers()) == MIB


# The report's division of time among devices that stand on each other.


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """The log of one write to a volume on dm-crypt on a mirror on two disks: five bios."""
    case = next(c for c in stacks.CASES if "dm-crypt" in c.name)
    path = tmp_path / "log.biotrail"
    captures.write_log(path, events_of(case.given), HEADER)
    return path


def test_stacked_devices_tell_where_the_time_went(mirror: Path) -> None:
    # GIVEN a volume on dm-crypt on a mirror on two disks WHEN it is reported on
    tables, report = both(mirror)
    # THEN each child is under its parent, and the three parts add up to the parents' time
    children = tables.bios.take(tables.bios.parent != NEVER)
    assert sum(pair.children for pair in report.stacked) == len(children) > 0
    row = {number: i for i, number in enumerate(tables.bios.number.tolist())}
    parents = [row[number] for number in children.parent.tolist()]
    whole = (tables.bios.complete - tables.bios.queue)[parents].sum()
    parts = sum(p.to_child.sum + p.child.sum + p.from_child.sum for p in report.stacked)
    assert parts == whole


def test_a_flush_of_an_upper_device_is_a_flush_below_too() -> None:
    # GIVEN a bio that fsync queued on an upper device, empty and with REQ_PREFLUSH, and its child
    trace = Trace(SAMPLE)
    bios = next(w.bios for w in trace.lifecycles() if len(w.bios) > 1).take(np.arange(2))
    write, preflush = trace.context.op_number("write"), trace.context.flag_mask("PREFLUSH")
    bios.opf[:], bios.bytes[:], bios.dev[:] = write | preflush, 0, (1, 2)
    bios.parent[:] = (NEVER, bios.number[0])
    # WHEN its time is divided / THEN it is under flush, as it is in all other tables
    stacked = Stacked()
    stacked.add(SimpleNamespace(bios=bios), trace.context)  # type: ignore[arg-type]
    assert list(stacked.by_pair) == [(1, 2, trace.context.op_number("flush"))]


# I/O of stacked devices counts once, as it was submitted; by device each device's own.

__all__ = ["patient"]


def reported(path: Path, window: int = 1 << 20, devices: tuple[str, ...] = (), **how: Any) -> Any:
    trace = Trace(path)
    windows = Selection(Choice(trace.context, devices)).of(trace.lifecycles(window))
    return as_json(make_report(trace, windows, **how))


def test_a_write_to_a_mirror_is_one_write(cli: Cli, mirror: Path) -> None:
    # GIVEN a write that became four more bios WHEN it is reported on
    one = reported(mirror, by="process")
    size = one["total"]["bytes"]
    # THEN it is one bio of its size for all, and in each list
    assert one["total"]["ios"] == 1 and size > 0
    assert one["lower"] == {"bios": 4, "bytes": 4 * size}
    for name in ("processes", "cgroups", "cpus", "groups"):
        assert [(g["ios"], g["bytes"]) for g in one[name]] == [(1, size)], name
    # AND each device has its own, of which certainty is counted, too
    assert [d["total"]["ios"] for d in one["devices"]] == [1] * 5
    assert sum(one["certainty"].values()) == 5
    # AND read event by event the figures are the same
    assert reported(mirror, window=1, by="process") == one
    # AND the text says what is not in its head
    out = " ".join(cli("report", mirror).out.split())
    assert " 1 bio, " in out
    assert "4 further bios" in out and "I/O counts once, as it was submitted" in out


@pytest.mark.parametrize("by", ["device", None])
def test_groups_of_devices_have_each_devices_own(mirror: Path, by: str | None) -> None:
    # GIVEN the same WHEN it is grouped by device, and over time
    one = reported(mirror, by=by, interval=10**9)
    # THEN each device has its bio
    assert len(one["groups"]) == (5 if by else 0)
    assert len([g for i in one["intervals"] for g in i["groups"]]) == 5
    # AND groups of anything else over time have it once
    once = reported(mirror, by="op", interval=10**9)
    assert [g["ios"] for i in once["intervals"] for g in i["groups"]] == [1]


def test_a_lower_device_alone_has_its_bios(mirror: Path) -> None:
    # GIVEN the same WHEN devices are chosen whose upper bio is left out
    devices = reported(mirror)["devices"]
    lower = [d["device"] for d in devices if not d["stacked_on"]]
    one = reported(mirror, devices=tuple(lower))
    # THEN their bios count
    assert len(lower) == 2
    assert (one["total"]["ios"], one["lower"]["bios"]) == (2, 0)
    # AND with the uppermost beside them, whatever lies between, it is that one alone
    [top] = {d["device"] for d in devices} - {n for d in devices for n in d["stacked_on"]}
    one = reported(mirror, devices=(top, *lower))
    assert (one["total"]["ios"], one["lower"]["bios"]) == (1, 2)


def test_the_page_has_it_once(mirror: Path) -> None:
    # GIVEN the same WHEN its page is made
    data = collect(lambda: Trace(str(mirror)))
    # THEN all devices together have one write, over time too, and each device has its own
    assert [one["ios"] for one in data["operations"]] == [1]
    ios = {(s["device"], s["operation"]): sum(s["ios"]) for s in data["timeline"]["series"]}
    assert ios[None, None] == 1
    assert sorted(n for (device, op), n in ios.items() if device and not op) == [1] * 5


@pytest.mark.usefixtures("patient")
def test_top_has_it_once(mirror: Path) -> None:
    # GIVEN the same WHEN it is followed
    shown = [one.now for one in follow(mirror)]
    # THEN rates and processes have it once, the rows of devices each
    assert sum(one.total.bios.ios for one in shown) == 1
    assert sum(g.ios for one in shown for g in one.processes) == 1
    assert sum(o.bios.ios for one in shown for o in one.operations) == 5


@pytest.mark.parametrize(("by", "groups"), [("host", [1]), ("device", [1] * 5)])
def test_a_fleet_has_it_once(mirror: Path, by: str, groups: list[int]) -> None:
    # GIVEN the same WHEN it is a part of a fleet
    trace = Trace(mirror)
    part = read_part(trace, trace.lifecycles(), by, {}, [])
    # THEN the fleet and the host have it once, devices each
    assert sum(both.bios["ios"] for both in part.whole.operations.values()) == 1
    found = [sum(b.bios["ios"] for b in s.operations.values()) for s in part.groups.values()]
    assert found == groups


# How many I/Os were in flight where it is not known of each when it ended.

HEAD = "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
MS = 1_000_000


def line(at_us: int, event: str) -> str:
    """A line of ftrace's text."""
    return f"  a-5402  [002] .....  {at_us // 10**6:5d}.{at_us % 10**6:06d}: {event}\n"


def text(lines: list[str]) -> Trace:
    """A trace of ftrace's text."""
    return Trace(open_source(io.BytesIO((HEAD + "".join(lines)).encode())))


def half() -> list[str]:
    """200 reads, one per ms, each 200 us in the device; every second completion is missing."""
    found = []
    for n in range(200):
        at, where = 10_000_000 + 1000 * n, 1000 + 8 * n
        found.append(line(at, f"block_rq_issue: 8,0 R 4096 () {where} + 8 [a]"))
        if n % 2 == 0:
            found.append(line(at + 200, f"block_rq_complete: 8,0 R () {where} + 8 [0]"))
    return found


def issued(trace: Trace, window: int = 250_000) -> dict[str, Any]:
    """The report's figures of requests in flight on its only device."""
    [device] = make_report(trace, trace.lifecycles(window)).devices
    return as_json(device.issued)


@pytest.mark.parametrize("window", [1, 7, 50, 250_000])
def test_lost_completions_leave_bounds(window: int) -> None:
    # GIVEN reads of which every second completion was lost / WHEN their depth is asked for, in
    # windows of any size
    found = issued(text(half()), window)
    # THEN it counts what is known to have been in flight: one, for a tenth of the time
    assert found["mean"] == pytest.approx(0.1, rel=0.01)
    assert (found["max"], found["active_ns"]) == (1, 20 * MS)
    # AND says for how many the end is not known, and what may have been in flight at most
    assert found["unended"] == 100
    assert found["high"]["max"] == 100
    assert found["high"]["mean"] == pytest.approx(49.85, rel=0.001)


def event(letter: str, us: int, address: int, sector: int, **facts: Any) -> dict[str, Any]:
    """An event of a read of 4 KiB whose bio and request have an address each."""
    common = {"cpu": 0, "dev": captures.device_number("7:1"), "rwbs": "R", "sector": sector}
    common |= {"sectors": 8, "pid": 7, "tgid": 7, "comm": "a", "bio": 0x1000 + address * 16}
    request = {"rq": 0x9000 + address * 16, "bios": 1, "tag": (address, -1)}
    return {**common, **request, "letter": letter, "ns": us * 1000, **facts}


def read_bounds(
    begin: int, address: int, sector: int, end: int | None = None
) -> list[dict[str, Any]]:
    """Its Q, G, s and D, and its C where `end` (us) says when."""
    found = [event(letter, begin, address, sector) for letter in "QGsD"]
    if end is not None:
        found.append(event("C", end, address, sector, bytes=4096, err=0))
    return found


@pytest.mark.parametrize("window", [1, 3, 250_000])
def test_an_address_that_is_used_again_bounds_the_time(tmp_path: Path, window: int) -> None:
    # GIVEN a log with kernel pointers: a read whose completion was not recorded, and whose bio and
    # request are used again 500 us later; and one that is in flight when the log ends
    events = [
        *read_bounds(1000, 1, 8),
        *read_bounds(1500, 1, 64, end=1700),
        *read_bounds(2000, 2, 128),
        *read_bounds(3000, 3, 256, end=3100),
    ]
    log = captures.write_log(tmp_path / "a.biotrail", events)
    # WHEN the depth is asked for
    found = issued(Trace(log), window)
    # THEN of the first the end is not known: it was in flight for 0 to 500 us
    assert found["unended"] == 1
    assert found["high"]["active_ns"] - found["active_ns"] == 500_000
    # AND the other is: it is in flight to the end, where two are
    assert (found["max"], found["high"]["max"]) == (2, 2)
    assert found["active_ns"] == 200_000 + 1_100_001


def test_too_much_to_hold_back_changes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a read that never ends beside many, and room to hold back few
    monkeypatch.setattr(depths, "MOST_HELD", 20)
    lines = [line(9_999_000, "block_rq_issue: 8,0 R 4096 () 8 + 8 [a]")]
    for n in range(200):
        at, where = 10_000_000 + 1000 * n, 1000 + 8 * n
        lines.append(line(at, f"block_rq_issue: 8,0 R 4096 () {where} + 8 [a]"))
        lines.append(line(at + 200, f"block_rq_complete: 8,0 R () {where} + 8 [0]"))
    # WHEN its depth is asked for, window by window
    found = issued(text(lines), 10)
    # THEN it is between what it is without that read and with it
    assert 0.19 < found["mean"] <= 1.21
    assert found["high"]["mean"] == pytest.approx(1.2, rel=0.01)
    assert found["unended"] == 1


# Rates, depths and intervals are of the time that was recorded, not of that of the events.

START = captures.clock()["monotonic"]
TOOK = 100_000


def two_reads(path: Path, stopped: int | None = 4 * SECOND, backend: str = "core") -> Trace:
    """Reads of 100 µs that begin 1 s and 2 s after recording began, which lasted for 4 s."""
    words = []
    for number, at in enumerate((1_000_000, 2_000_000)):
        where = f"R {4096 * number}+8"
        words += [f"{at} Q {where} bio={number + 1:x}", f"{at} s {where} rq={number + 1:x}"]
        words += [f"{at} G {where} bio={number + 1:x}"]
        words += [f"{at + 100} C {where} bio={number + 1:x} rq={number + 1:x}"]
    log = captures.write_log(
        path / "log.biotrail",
        events_of("\n".join(words)),
        {"backend": backend},
        chunks=2,
        stopped=stopped,
    )
    return Trace(log)


def reported_log(trace: Trace, interval: int = 0, window_events: int = WINDOW_EVENTS) -> Report:
    reporter = Reporter(trace.context, interval)
    for window in trace.lifecycles(window_events, small=window_events < 10):
        reporter.add(window)
    return reporter.finish(trace)


@pytest.mark.parametrize("window_events", [1, WINDOW_EVENTS])
def test_figures_are_of_the_recorded_time(tmp_path: Path, window_events: int) -> None:
    # GIVEN a recording of 4 s with I/O from 1 s to 2.0001 s WHEN it is reported on
    report = reported_log(two_reads(tmp_path), SECOND, window_events)
    # THEN its time, rates, activity and intervals are of the 4 s, whatever windows it was read in
    assert (report.begin_ns, report.end_ns) == (START, START + 4 * SECOND)
    assert report.total.bios.ios_per_s == 0.5
    assert report.time_of == "recording"
    assert as_json(report)["time"]["of"] == "recording"
    [device] = report.devices
    assert (device.queue.active_ns, device.queue.idle_ns) == (2 * TOOK, 4 * SECOND - 2 * TOOK)
    assert device.queue.mean == pytest.approx(2 * TOOK / (4 * SECOND))
    ios = [sum(one.ios for one in part.groups) for part in report.intervals]
    assert ios == [0, 1, 1, 0]
    # and the first sentences say that the device was idle
    assert "mostly-idle" in {one.rule for one in verdict.verdict(report)}


def test_the_time_of_a_report_is_that_of_its_recording_or_cut(tmp_path: Path) -> None:
    # GIVEN the recording from 1.5 to 3.5 s
    trace = two_reads(tmp_path)
    trace.span = Span(START + 3 * SECOND // 2, START + 7 * SECOND // 2)
    # WHEN it is reported on THEN its time is that
    report = reported_log(trace)
    assert (report.span_ns, report.total.bios.ios_per_s) == (2 * SECOND, 0.5)
    assert report.devices[0].queue.idle_ns == 2 * SECOND - TOOK
    # GIVEN a log without an end of the recording WHEN it is reported on
    report = reported_log(two_reads(tmp_path, stopped=None))
    # THEN its time is up to the last chunk's clock, which here is that of the last event
    assert (report.begin_ns, report.end_ns) == (START, START + 2 * SECOND + TOOK + 1)
    # GIVEN the same events, recorded by another tool WHEN they are reported on
    report = reported_log(two_reads(tmp_path, backend="perf"))
    # THEN their time is that of the events, and this is said
    assert report.time_of == "events"
    assert (report.begin_ns - START, report.span_ns) == (SECOND, SECOND + TOOK)
    assert as_json(report)["time"]["of"] == "events"
    # GIVEN a recording of a second without any event WHEN it is reported on
    trace = Trace(captures.write_log(tmp_path / "idle.biotrail", [], stopped=SECOND))
    report = reported_log(trace, SECOND)
    # THEN it is of that second
    assert (report.span_ns, report.total.bios.ios_per_s, report.devices) == (SECOND, 0, [])
