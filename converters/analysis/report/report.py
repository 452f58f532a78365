# SPDX-License-Identifier: Apache-2.0
"""The report: one pass over a trace's windows, in memory that does not grow with the trace."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from biotrail.converters.analysis.distributions import keys
from biotrail.converters.analysis.distributions.depth import Depth, Span
from biotrail.converters.analysis.distributions.groups import (
    LEFT_OUT,
    MOST_INTERVALS,
    OTHERS,
    Group,
    Groups,
    Series,
    add_to_all,
    gather,
    merged,
    merged_by_code,
)
from biotrail.converters.analysis.distributions.samples import COUNTERS, samples_of
from biotrail.converters.analysis.figures import (
    Summary,
    as_row,
    begin_text,
    extent,
    stage_times,
    with_doubtful,
)
from biotrail.converters.analysis.report import tree
from biotrail.converters.analysis.report.devices import (
    Device,
    Devices,
    Flush,
    Flushes,
    Hanging,
    Purposes,
    Stacked,
)
from biotrail.converters.analysis.report.tails import Tails
from biotrail.converters.analysis.report.timeline import Timeline
from biotrail.converters.analysis.report.tree import (
    DeviceReport,
    GroupReport,
    OperationReport,
    Report,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    FAR,
    OP_MASK,
    STAGE_NAMES,
    Certainty,
    Lifecycles,
    Stage,
)
from biotrail.converters.lifecycles.recorder_time import recorder_ns
from biotrail.converters.lifecycles.windows import queued_below
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames, pairs_in
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ConversionError
from biotrail.recorder.schema.records import BY_KIND, Kind

if TYPE_CHECKING:
    from biotrail.converters.analysis.report.pair_figures import PairFigures
    from biotrail.converters.analysis.report.path import PathFigures


Places = dict[int, Group]
"""Place (as in Samples.place, or OTHERS) → group."""


class Reporter:
    """Adds up a log's windows, in order, and makes a report of the sums.

    interval: ns of each interval of the time series; 0: no time series. by: a word of KEYS; I/O is
    then also grouped by that key, and the time series is of these groups instead of devices and
    operations. timeline: gets the windows, too, and its devices' depths are used, so that these
    have the timeline's intervals.
    """

    def __init__(
        self,
        context: Context,
        interval: int = 0,
        by: str | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        """Raises ConversionError if the log lacks what `by` groups by."""
        keys.check_recorded(by, context)
        self._context = context
        self._interval = interval
        self._by = by
        self.bios, self.requests = Groups(), Groups()
        self._lower = Groups()
        """Bios that stacked devices queued for others, which `bios` and lists leave out."""
        self._keys: dict[str, keys.Key] = {
            "processes": keys.ByProcess(context),
            "cgroups": keys.ByCgroup(context),
            "cpus": keys.ByNumber(context, "cpu"),
            **({"files": keys.ByPath(context)} if context.has_files else {}),
        }
        self._chosen: keys.Key = keys.KEYS[by](context) if by else keys.ByNumber(context)
        self._each_device = by in (None, "device")
        self._groups = {
            name: Groups(by_operation=True) for name in (*self._keys, *(["by"] if by else []))
        }
        self._timeline = timeline
        self.devices = timeline.devices if timeline else Devices(interval)
        self.flushes = Flushes()
        self._stacked = Stacked()
        self._purposes = Purposes()
        self._tails = Tails()
        self._path: PathFigures | None = None
        """None: no window so far had tables of the path."""
        self._hanging = Hanging(context)
        self._pairs: PairFigures | None = None
        if pairs_in(context.header):
            from biotrail.converters.analysis.report import pair_figures

            self._pairs = pair_figures.PairFigures(PairNames(context), interval)
        self._series: Series[Group, tuple[int, GroupReport]] | None = None
        self.begin = -1
        """ns: where the first window with events begins; -1 before."""

    @property
    def groups(self) -> tuple[Places, Places]:
        """(bios, requests) by place; not copies where no device is stacked."""
        bios = merged_by_code(self.bios.by_code, self._lower.by_code)
        return bios, self.requests.by_code

    def add(self, window: Lifecycles) -> None:
        """Raises ConversionError for MOST_INTERVALS intervals or more."""
        if window.begin < 0:
            return
        if self.begin < 0:
            self.begin = window.begin
        span = window.end - self.begin
        if self._interval and span // self._interval >= MOST_INTERVALS:
            raise ConversionError(
                f"the log has more than {MOST_INTERVALS:,} intervals of {self._interval / 1e9:g} "
                f"s: give --interval {span // MOST_INTERVALS // 10**9 + 1}s or longer"
            )
        bios = samples_of(window.bios, window.bio_stages, self._context)
        lower = queued_below(window)
        ways = [(self.bios, bios.place)]
        ways += [(self._groups[name], key.codes(window, bios)) for name, key in self._keys.items()]
        chosen = self._chosen.codes(window, bios) if self._by or self._interval else bios.place
        each = [(self._groups["by"], chosen)] if self._by else []
        if lower.any():
            if not self._each_device:
                ways, each = [*ways, *each], []
            ways = [(groups, np.where(lower, LEFT_OUT, codes)) for groups, codes in ways]
            ways.append((self._lower, np.where(lower, bios.place, LEFT_OUT)))
        add_to_all(bios, [*ways, *each])
        requests = samples_of(window.requests, window.request_stages, self._context)
        add_to_all(requests, [(self.requests, requests.place)])
        if self._timeline is not None:
            self._timeline.add(window, bios, lower)
        self.devices.add(window, self._context)
        self.flushes.add(window)
        self._stacked.add(window, self._context)
        self._purposes.add(window, bios, self._context)
        self._tails.add(window, bios, self._context)
        self._hanging.add(window)
        if window.path is not None:
            if self._path is None:
                from biotrail.converters.analysis.report import path

                self._path = path.PathFigures(self._context, self._by)
            self._path.add(window, window.path, bios)
        if self._pairs is not None:
            self._pairs.add(window, self.begin)
        if self._interval:
            if self._series is None:
                self._series = Series(self.begin, self._interval, self._close)
            if lower.any() and not self._each_device:
                chosen, bios = chosen[~lower], bios.take(~lower)
            self._series.add(
                chosen,
                bios.end,
                window.end,
                lambda kept, place, count: gather(
                    place, bios if kept.all() else bios.take(kept), count
                ),
            )

    def watch(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        for window in windows:
            self.add(window)
            yield window

    def _close(self, code: int, group: Group) -> tuple[int, GroupReport]:
        report = group_report({}, group, self._interval, self._context)
        report.group = Group()  # keeping every interval's would take memory by the trace's length
        return code, report

    def finish(self, trace: Trace) -> Report:
        """Return the report of all windows, once. trace: of these, read to its end."""
        self.flushes.retire(FAR)
        context = self._context
        begin, end = extent(trace)
        span = end - begin
        bios, requests = self.groups
        submitted = self.bios.by_code
        total = operation_report({}, submitted.values(), requests.values(), span, context)
        every, lower = merged(bios.values()), merged(self._lower.by_code.values())
        lists = {name: self._reports(name, span) for name in self._groups}
        devices = self._device_reports(bios, requests, trace, span)
        own = {STAGE_NAMES[stage]: ns for stage, ns in recorder_ns([trace.reader.end]).items()}
        sums = [total, *(one for device in devices for one in (device.total, *device.operations))]
        for group in chain(*lists.values(), *((one.bios, one.requests) for one in sums)):
            for stage in group.stages:
                stage.recorder_ns = own.get(stage.stage)
        # Notes of which half or more is of the time.
        cpus = [one for one in context.cpus if begin <= (one["from"] + one["to"]) // 2 < end]
        throttled: dict[str, tree.Throttled] = {}
        for one in cpus:
            for cgroup, ns in one["throttled_ns"].items():
                held = throttled.setdefault(cgroup, tree.Throttled(cgroup, 0))
                held.ns += ns
                held.pids.update(one["pids"].get(cgroup, ()))
        stacked = [
            as_row(
                tree.StackedReport,
                below,
                device=context.device_name(upper),
                below=context.device_name(lower),
                operation=context.op_name(op),
            )
            for (upper, lower, op), below in sorted(self._stacked.by_pair.items())
        ]
        left_out = self._series.left_out if self._series is not None else 0
        if self._pairs is not None and self._pairs.series is not None:
            left_out += self._pairs.series.left_out
        report = Report(
            log_id=context.log_id,
            host=context.host,
            kernel=str(context.header.get("kernel", {}).get("release", "")),
            begin_ns=begin,
            end_ns=end,
            begin=begin_text(trace),
            time_of="recording" if trace.says_time or trace.span is not None else "events",
            total=total,
            operations=operation_reports(submitted, requests, span, context),
            lower_bios=lower["ios"],
            lower_bytes=lower["bytes"],
            devices=devices,
            stacked=sorted(stacked, key=lambda one: -one.children),
            stacked_unmatched=self._stacked.unmatched,
            purposes=self._purposes.reports(context),
            processes=lists["processes"],
            cgroups=lists["cgroups"],
            cpus=lists["cpus"],
            files=lists.get("files", []),
            by=self._by,
            groups=lists.get("by", []),
            interval_ns=self._interval,
            intervals=self._intervals(end),
            intervals_left_out=left_out,
            certainty={c.name.lower(): every[c.name.lower()] for c in Certainty},
            loss=loss_report(trace),
            percentiles=tree.Percentiles(without=every["unfinished"]),
            tails=self._tails.tails(bios, context),
            steal_ns=sum(int(one["steal_ns"]) for one in cpus),
            throttled=sorted(throttled.values(), key=lambda group: -group.ns),
            hanging=self._hanging.reports(end),
            calls_until_ns=context.calls_timed_until,
            path_parts=tuple(context.path_parts),
        )
        if self._path is not None:
            self._path.fill(report)
        if self._pairs is not None:
            report.pairs = self._pairs.reports(trace)
        return report

    def _reports(self, which: str, span: int) -> list[GroupReport]:
        """Return one list's groups, most time first; CPUs by number, not known last."""
        key = self._keys.get(which, self._chosen)
        groups: dict[int, list[Group]] = {}
        for code, group in sorted(self._groups[which].by_code.items()):
            groups.setdefault(key.canonical(code), []).append(group)
        found = []
        for code, same in groups.items():
            group = same[0] if len(same) == 1 else merged(same)
            found.append(group_report(keys.name_of(key, code), group, span, self._context))
        with_shares(found)
        return found if which == "cpus" else sorted(found, key=time_and_number)

    def _device_reports(
        self, bios: Places, requests: Places, trace: Trace, span: int
    ) -> list[DeviceReport]:
        """Return the reports of devices with I/O, most time first; OTHERS is in the total alone."""
        places = {*bios, *requests} - {OTHERS}
        devices = {place >> keys.OP_BITS for place in places} | set(self.devices.by_dev)
        found = []
        for dev in sorted(devices):
            device = self.devices.by_dev.get(dev) or Device(Depth(0), Depth(0))
            report = device_report(
                dev,
                device,
                self.flushes.by_dev.get(dev),
                *(([], []) if self._path is None else self._path.completions.reports(dev)),
                operation_reports(bios, requests, span, self._context, dev, device.operations),
                trace.account.devices,
                span,
                self._context,
            )
            found.append(report)
        return sorted(found, key=lambda d: time_and_number(d.total.bios))

    def _intervals(self, log_end: int) -> list[tree.IntervalReport]:
        if self._series is None:
            return []
        self._series.finish()
        depths: dict[int, list[tree.IntervalDepth]] = {}
        for dev, device in sorted(self.devices.by_dev.items()):
            name = self._context.device_name(dev)
            queue, issued = device.queue, device.issued
            for place in {**queue.spans, **issued.spans}:
                if self.begin + place * self._interval >= log_end:
                    continue  # of no length, where the recording ends with an interval
                both = [(queue, issued)]
                if queue.high is not None or issued.high is not None:
                    both.insert(0, (queue.high or queue, issued.high or issued))
                one: tree.IntervalDepth | None = None
                for waiting, serving in both:
                    bios = waiting.spans.get(place, Span())
                    requests = serving.spans.get(place, Span())
                    figures = (bios.mean, bios.most, requests.mean, requests.most, bios.busy_ns)
                    one = tree.IntervalDepth(name, *figures, high=one)
                if one is not None:
                    depths.setdefault(place, []).append(one)
        pairs = {} if self._pairs is None else self._pairs.intervals()
        last = max([-1, *self._series.closed, *depths, *pairs])
        found = []
        for place in range(last + 1):
            begin = self.begin + place * self._interval
            end = min(begin + self._interval, max(log_end, begin))
            groups = [
                replace(group, name=keys.name_of(self._chosen, code))
                for code, group in self._series.closed.get(place, [])
            ]
            with_shares(groups)
            if end - begin < self._interval:
                seconds = (end - begin) / 1e9
                for group in groups:
                    group.ios_per_s = group.ios / seconds if seconds else 0.0
                    group.bytes_per_s = group.bytes / seconds if seconds else 0.0
            depth = depths.get(place, [])
            found.append(tree.IntervalReport(begin, end, groups, depth, pairs.get(place, [])))
        return found


def make_report(
    trace: Trace,
    windows: Iterable[Lifecycles] | None = None,
    interval: int = 0,
    by: str | None = None,
) -> Report:
    """windows: of the trace, of which I/Os may have been left out; None: all."""
    reporter = Reporter(trace.context, interval, by)
    for window in trace.lifecycles() if windows is None else windows:
        reporter.add(window)
        del window  # not kept while the next is made
    return reporter.finish(trace)


def loss_report(trace: Trace) -> tree.LossReport:
    reader, account = trace.reader, trace.account
    lost: Counter[str] = Counter()
    for window in trace.losses:
        kind = int(window.get("kind", 0))
        letter = BY_KIND[Kind(kind)].letter if kind in set(Kind) else "?"
        lost[letter] += max(int(window.get("count", 0)), 0)
    return tree.LossReport(
        lost_records=dict(sorted(lost.items())),
        loss_windows=len(trace.losses),
        loss_ns=sum(int(w["end"]) - int(w["start"]) for w in trace.losses),
        damaged_windows=len(trace.damaged),
        interrupted=reader.interrupted,
        completions_not_seen=account.completions_not_seen,
        late_events=account.late,
        unreadable_bytes=account.unreadable_bytes,
        unknown_records=sum(account.unknown.values()),
        problems=list(reader.problems),
        remarks=list(reader.remarks),
    )


# Plain tables from accumulated figures.

STAGE_ORDER = (
    Stage.Q2G,
    Stage.Q2M,
    Stage.PRE_FLUSH,
    Stage.G2I,
    Stage.M2I,
    Stage.M2D,
    Stage.I2D,
    Stage.G2D,
    Stage.Q2D,
    Stage.D2C,
    Stage.R2D,
    Stage.POST_FLUSH,
    Stage.FLUSH,
    Stage.BIO_BASED,
    Stage.FAILED,
    Stage.UNKNOWN,
)

EVENT_NAMES = {
    "M": "back_merges",
    "F": "front_merges",
    "m": "request_merges",
    "X": "splits",
    "A": "remaps",
    "R": "requeues",
    "E": "errors",
    "P": "plugs",
    "U": "unplugs",
}


def group_report(name: keys.Name, group: Group, span_ns: int, context: Context) -> GroupReport:
    """span_ns: what rates are per; 0: rates are 0. The report keeps `group` itself, not a copy."""
    seconds = span_ns / 1e9
    known = sorted(group.statuses.items())
    by_operation = [
        tree.OperationFigures(context.op_name(op), one.ios, one.length, Summary.of(one.latency))
        for op, one in sorted(group.operations.items())
        if one.ios
    ]
    operations = sorted(by_operation, key=lambda one: (-one.latency.sum, -one.ios))
    return as_row(
        GroupReport,
        group,
        name=name,
        ios_per_s=group["ios"] / seconds if seconds else 0.0,
        bytes_per_s=group["bytes"] / seconds if seconds else 0.0,
        errors={context.status_name(status): count for status, count in known},
        **_counted(group),
        stages=stage_times(group.stages, {stage: STAGE_NAMES[stage] for stage in STAGE_ORDER}),
        group=group,
        time_share=0.0 if operations else None,
        operations=operations,
    )


def _counted(group: Group) -> dict[str, Any]:
    counters = dict(zip(COUNTERS, group.counters.tolist(), strict=True))
    return {
        **{name: counters.pop(name) for name in ("ios", "bytes", "done_bytes")},
        "counters": counters,
        "with_doubtful": with_doubtful(group.latency, group.doubtful),
    }


def group_sum(groups: Sequence[GroupReport]) -> GroupReport:
    """Return the report of the sum of groups of a list, without name, stages and operations."""
    whole = merged(one.group for one in groups)
    return as_row(
        GroupReport,
        whole,
        name={},
        ios_per_s=sum(one.ios_per_s for one in groups),
        bytes_per_s=sum(one.bytes_per_s for one in groups),
        errors=dict(sum((Counter(one.errors) for one in groups), Counter())),
        **_counted(whole),
        stages=[],
        group=whole,
        time_share=groups[0].time_share,
        operations=[],
    )


def time_and_number(one: GroupReport) -> tuple[bool, int, int]:
    """Sort groups by time, then by number of I/Os, most first; OTHERS last."""
    return "others" in one.name, -one.latency.sum, -one.ios


def with_shares(groups: Iterable[GroupReport]) -> None:
    groups = list(groups)
    whole = sum(one.latency.sum for one in groups)
    for one in groups:
        share = one.latency.sum / whole if whole else 0.0
        one.time_share = share if share or one.operations else None


def operation_report(
    name: keys.Name,
    bios: Iterable[Group],
    requests: Iterable[Group],
    span_ns: int,
    context: Context,
) -> OperationReport:
    return OperationReport(
        group_report(name, merged(bios), span_ns, context),
        group_report(name, merged(requests), span_ns, context),
    )


def operation_reports(
    bios: Places,
    requests: Places,
    span_ns: int,
    context: Context,
    dev: int | None = None,
    depths: Mapping[int, tuple[Depth, Depth]] | None = None,
) -> list[OperationReport]:
    """Return the report of each operation, those with most bios (or requests) first.

    dev: of this device; None: of all, without I/O of OTHERS, whose operation is not known. depths:
    operation → (bios, requests) in flight; those that are not there get no depths.
    """
    on = {} if dev is None else {"device": context.device_name(dev)}
    places: dict[int, list[int]] = {}
    for place in sorted({*bios, *requests}):
        if place >= 0 and dev in (None, place >> keys.OP_BITS):
            places.setdefault(place & OP_MASK, []).append(place)
    found = []
    for op, same in sorted(places.items()):
        queued, issued = (
            [groups[place] for place in same if place in groups] for groups in (bios, requests)
        )
        name = {**on, "operation": context.op_name(op)}
        one = operation_report(name, queued, issued, span_ns, context)
        if depths and op in depths:
            one.queue, one.issued = map(depth_report, depths[op])
        found.append(one)
    return sorted(found, key=lambda o: -max(o.bios.ios, o.requests.ios))


def device_report(
    dev: int,
    device: Device,
    flush: Flush | None,
    completions: list[tree.CompletionReport],
    drivers: list[tree.DriverReport],
    operations: list[OperationReport],
    events: Mapping[tuple[int, str], int],
    span_ns: int,
    context: Context,
) -> DeviceReport:
    """flush: None, or without requests (a filter by process leaves them out): `flushes` is None."""
    entry = context.devices.get(dev, {})
    device_name = context.device_name(dev)
    return DeviceReport(
        device=device_name,
        dev=dev_text(dev),
        kind=str(entry.get("kind", "")),
        stacked_on=[context.device_name(below) for below in context.lower_devices(dev)],
        total=operation_report(
            {"device": device_name},
            [o.bios.group for o in operations],
            [o.requests.group for o in operations],
            span_ns,
            context,
        ),
        operations=operations,
        events={
            name: events[dev, letter]
            for letter, name in EVENT_NAMES.items()
            if (dev, letter) in events
        },
        queue=depth_report(device.queue),
        issued=depth_report(device.issued),
        q2q=as_row(tree.PatternReport, device.queue_pattern),
        d2d=as_row(tree.PatternReport, device.issue_pattern),
        flushes=as_row(tree.FlushReport, flush) if flush and flush.requests else None,
        completions=completions,
        drivers=drivers,
    )


def depth_report(depth: Depth) -> tree.DepthReport:
    whole = depth.whole
    return tree.DepthReport(
        mean=whole.mean,
        max=whole.most,
        active_ns=whole.busy_ns,
        idle_ns=whole.time_ns - whole.busy_ns,
        at_start=Summary.of(depth.met, histogram=True),
        unended=depth.unended,
        high=None if depth.high is None else depth_report(depth.high),
    )
