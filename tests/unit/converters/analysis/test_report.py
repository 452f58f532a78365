# SPDX-License-Identifier: Apache-2.0
"""The report's figures beside plain sums over the same log's tables."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.distributions.groups import OTHERS, Group, Groups
from biotrail.converters.analysis.distributions.keys import ByCpu, name_of
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.series import Series
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.report import Reporter, make_report
from biotrail.converters.analysis.report.tree import GroupReport, Report
from biotrail.converters.events.tables import (
    NEVER,
    STAGE_NAMES,
    Bios,
    RequestKind,
    Requests,
    Stage,
)
from biotrail.converters.lifecycles.operations import CLEARED
from biotrail.converters.lifecycles.windows import restricted
from biotrail.converters.pipeline import Trace
from tests.scenarios import cases
from tests.scenarios.tools import Tables, events_of, read
from tests.support import captures
from tests.support.paths import ROOT
from tests.support.window_loads import (
    followed,
    loads,
    piece,
    write,
)

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
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


def test_seeks_are_those_of_the_queue_order() -> None:
    # GIVEN the sample log WHEN it is reported on
    tables, report = both(SAMPLE)
    for device in report.devices:
        major, minor = map(int, device.dev.split(":"))
        rows = (tables.bios.dev == (major << 20 | minor)) & (tables.bios.bytes > 0)
        bios = tables.bios.take(rows & (tables.bios.queue >= 0))
        bios = bios.take(np.argsort(bios.queue, kind="stable"))
        # THEN its seeks are those from each bio's end to the next one's beginning
        end = bios.sector.astype(np.int64) + (bios.bytes >> 9)
        seeks = bios.sector.astype(np.int64)[1:] - end[:-1]
        assert device.q2q.sequential == int((seeks == 0).sum())
        assert device.q2q.backward == int((seeks < 0).sum())
        assert device.q2q.seek.sum == int(np.abs(seeks).sum()) * 512
        assert device.q2q.gap.sum == int(bios.queue[-1] - bios.queue[0])


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


def test_waits_without_any_flush_request_have_no_row() -> None:
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
    assert sum(flush.waits for flush in reporter.flushes.values())
    assert not [d for d in reporter.finish(trace).devices if d.flushes]


def test_fsyncs_that_share_a_flush(tmp_path: Path) -> None:
    # GIVEN three fsyncs, of which the later two share a flush
    path = tmp_path / "log.biotrail"
    captures.write_log(path, events_of(cases.SHARED_FLUSHES.given))
    # WHEN they are reported on
    _, report = both(path)
    [device] = report.devices
    flushes = device.flushes
    # THEN it says so
    assert flushes is not None
    assert (flushes.requests, flushes.waits, flushes.unmatched) == (2, 3, 0)
    assert flushes.shared == {1: 1, 2: 1}
    assert flushes.bios_per_request == 1.5
    # AND they are flushes, not writes of nothing
    assert [o.bios.name["operation"] for o in device.operations] == ["flush"]
    [stage] = device.total.bios.stages
    assert (stage.stage, stage.share, stage.time.count) == ("flush", 1.0, 3)


def test_the_same_log_gives_the_same_report() -> None:
    assert as_json(both(SAMPLE)[1]) == as_json(both(SAMPLE)[1])


def test_groups_past_the_bound_are_added_up() -> None:
    # GIVEN more groups than are kept apart WHEN I/O of each is added
    groups = Groups(most=3)
    part = Group()
    part.counters[:] = 1
    for code in (4, 9, 2, 7, 5, 9, 1):
        groups.merge(code, part)
    # THEN the first ones have theirs, and one more has that of all others
    found = {code: group["ios"] for code, group in groups.by_code.items()}
    assert found == {4: 1, 9: 2, 2: 1, OTHERS: 3}
    assert name_of(ByCpu(None), OTHERS) == {"others": 1}  # type: ignore[arg-type]


def test_io_told_after_its_interval_was_closed_is_counted() -> None:
    # GIVEN a series whose first interval has been closed
    series = Series(0, SECOND, lambda code, group: (code, group["ios"]))
    series.add(np.array([7]), sample(SECOND // 2), SECOND)
    series.add(np.array([7]), sample(20 * SECOND), 30 * SECOND)
    # WHEN more I/O of it is told THEN it is counted as left out, and the series stays as it was
    series.add(np.array([7, 7]), sample(SECOND // 3, 29 * SECOND), 31 * SECOND)
    series.finish()
    assert series.left_out == 1
    assert series.closed == {0: [(7, 1)], 20: [(7, 1)], 29: [(7, 1)]}


def sample(*ends: int) -> Samples:
    """I/O without stages that ended at these ns."""
    zeros = np.zeros(len(ends), dtype=np.int64)
    return Samples(
        place=zeros,
        counters={"ios": np.ones(len(ends), dtype=np.int64)},
        size=zeros,
        status=zeros,
        latency=zeros,
        doubtful=zeros - 1,
        end=np.array(ends, dtype=np.int64),
        stage_owner=np.zeros(0, dtype=np.int64),
        stage=np.zeros(0, dtype=np.uint8),
        stage_ns=np.zeros(0, dtype=np.int64),
    )


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
    reporter._bios, reporter._requests = Groups(1), Groups(1)
    for window in trace.lifecycles():
        reporter.add(window)
    # WHEN it is made
    report = reporter.finish(trace)
    # THEN the I/O of all others is in the total, and of no device
    assert OTHERS in reporter._bios.by_code
    known = {entry["name"] for entry in trace.context.devices.values()}
    assert {device.device for device in report.devices} <= known
    whole = sum(group["ios"] for group in reporter._bios.by_code.values())
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


@pytest.mark.parametrize(
    "by",
    ["process", "device", "op", "cgroup", "unit", "container", "pod", "namespace", "cpu"],
)
def test_by_anything_holds_every_bio_once(by: str) -> None:
    # GIVEN the sample log WHEN it is grouped
    _, report = both(SAMPLE, by=by)
    # THEN the groups add up to the whole, with their stages
    total = report.total.bios
    assert sum(g.ios for g in report.groups) == total.ios
    mine = sum(s.time.sum for g in report.groups for s in g.stages)
    assert mine == sum(s.time.sum for s in total.stages)


def test_a_log_without_events_has_a_report(tmp_path: Path) -> None:
    # GIVEN a log of no events WHEN it is reported on
    path = tmp_path / "empty.biotrail"
    captures.write_log(path, [])
    _, report = both(path, interval=10**9)
    # THEN the report says so
    assert report.total.bios.ios == 0
    assert report.devices == report.intervals == []
    assert as_json(report)["time"]["span_ns"] == 0
