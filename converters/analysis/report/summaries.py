# SPDX-License-Identifier: Apache-2.0
"""Makes the plain tables of a report from accumulated figures."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.groups import Group, merged
from biotrail.converters.analysis.distributions.keys import OP_BITS, Name, operation
from biotrail.converters.analysis.distributions.samples import COUNTERS
from biotrail.converters.analysis.figures import Summary, stage_times, with_doubtful
from biotrail.converters.analysis.report.devices.devices import Device, Pattern, Stacked
from biotrail.converters.analysis.report.devices.flushes import Flush
from biotrail.converters.analysis.report.tree import (
    CompletionReport,
    DepthReport,
    DeviceReport,
    DriverReport,
    FlushReport,
    GroupReport,
    OperationFigures,
    OperationReport,
    PatternReport,
    StackedReport,
)
from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.tables import STAGE_NAMES, Stage

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
"""Stages in the order in which an I/O meets them."""

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
"""Letter → name of the events that are counted for each device."""

Places = dict[int, Group]
"""Place (as in Samples.place) → group."""


def group_report(name: Name, group: Group, span_ns: int, context: Context) -> GroupReport:
    """Return the report of a group.

    name: fields of its name. span_ns: what rates are per; 0: rates are 0. Percentiles of sizes are
    the least values of their buckets. The report keeps `group` itself, not a copy.
    """
    seconds = span_ns / 1e9
    known = sorted(group.statuses.items())
    operations = _operations(group, context)
    return GroupReport(
        name=name,
        ios_per_s=group["ios"] / seconds if seconds else 0.0,
        bytes_per_s=group["bytes"] / seconds if seconds else 0.0,
        errors={context.status_name(status): count for status, count in known},
        **_sums(group),
        stages=stage_times(group.stages, {stage: STAGE_NAMES[stage] for stage in STAGE_ORDER}),
        group=group,
        time_share=0.0 if operations else None,
        operations=operations,
    )


def _sums(group: Group) -> dict[str, Any]:
    counters = dict(zip(COUNTERS, group.counters.tolist(), strict=True))
    return {
        **{name: counters.pop(name) for name in ("ios", "bytes", "done_bytes")},
        "counters": counters,
        "size": Summary.of(group.size, low=True, histogram=True),
        "ranges": Summary.of(group.ranges, low=True, histogram=True),
        "latency": Summary.of(group.latency, histogram=True),
        "with_doubtful": with_doubtful(group.latency, group.doubtful),
    }


def _operations(group: Group, context: Context) -> list[OperationFigures]:
    found = [
        OperationFigures(context.op_name(op), one.ios, one.length, Summary.of(one.latency))
        for op, one in sorted(group.operations.items())
        if one.ios
    ]
    return sorted(found, key=lambda one: (-one.latency.sum, -one.ios))


def group_sum(groups: Sequence[GroupReport]) -> GroupReport:
    """Return the report of the sum of groups of a list, over the same time; at least one.

    Without name, stages and operations.
    """
    whole = merged(one.group for one in groups)
    return replace(
        groups[0],
        name={},
        ios_per_s=sum(one.ios_per_s for one in groups),
        bytes_per_s=sum(one.bytes_per_s for one in groups),
        errors=dict(sum((Counter(one.errors) for one in groups), Counter())),
        **_sums(whole),
        stages=[],
        group=whole,
        operations=[],
    )


def time_and_number(one: GroupReport) -> tuple[bool, int, int]:
    """Return the key that sorts groups by time, then by number of I/Os, most first; OTHERS last."""
    return "others" in one.name, -one.latency.sum, -one.ios


def with_shares(groups: Iterable[GroupReport]) -> None:
    """Set the groups' shares of the time of all of them."""
    groups = list(groups)
    whole = sum(one.latency.sum for one in groups)
    for one in groups:
        share = one.latency.sum / whole if whole else 0.0
        one.time_share = share if share or one.operations else None


def with_recorder(groups: Iterable[GroupReport], own: Mapping[Stage, float]) -> None:
    """Set what the recorder's programs add to the groups' stages. own: of `recorder_ns`."""
    by_name = {STAGE_NAMES[stage]: ns for stage, ns in own.items()}
    for group in groups:
        for one in group.stages:
            one.recorder_ns = by_name.get(one.stage)


def with_rates(report: GroupReport, span_ns: int) -> GroupReport:
    """Return a copy of the report whose rates are per `span_ns`; 0: rates are 0."""
    seconds = span_ns / 1e9
    return replace(
        report,
        ios_per_s=report.ios / seconds if seconds else 0.0,
        bytes_per_s=report.bytes / seconds if seconds else 0.0,
    )


def operation_report(
    name: Name, bios: Iterable[Group], requests: Iterable[Group], span_ns: int, context: Context
) -> OperationReport:
    """Return the reports of bios and of requests, each of the sum of the given groups."""
    return OperationReport(
        group_report(name, merged(bios), span_ns, context),
        group_report(name, merged(requests), span_ns, context),
    )


def operation_reports(
    dev: int,
    bios: Places,
    requests: Places,
    depths: Mapping[int, tuple[Depth, Depth]],
    span_ns: int,
    context: Context,
) -> list[OperationReport]:
    """Return the report of each operation of a device, those with most bios (or requests) first.

    depths: operation → (bios, requests) in flight; those that are not there get no depths.
    """
    places = {p for p in (*bios, *requests) if p >> OP_BITS == dev}
    found = [
        operation_report(
            {"device": context.device_name(dev), "operation": operation(context, place)},
            [bios[place]] if place in bios else [],
            [requests[place]] if place in requests else [],
            span_ns,
            context,
        )
        for place in sorted(places)
    ]
    for place, one in zip(sorted(places), found, strict=True):
        queue, issued = depths.get(place & ((1 << OP_BITS) - 1), (None, None))
        if queue is not None and issued is not None:
            one.queue, one.issued = depth_report(queue), depth_report(issued)
    return sorted(found, key=lambda o: -max(o.bios.ios, o.requests.ios))


def operations_of_all(
    bios: Places, requests: Places, span_ns: int, context: Context
) -> list[OperationReport]:
    """Return the report of each operation of all devices, most bios (or requests) first.

    Without I/O of OTHERS, whose operation is not known.
    """
    mask = (1 << OP_BITS) - 1
    found = [
        operation_report(
            {"operation": operation(context, op)},
            [group for place, group in bios.items() if place >= 0 and place & mask == op],
            [group for place, group in requests.items() if place >= 0 and place & mask == op],
            span_ns,
            context,
        )
        for op in sorted({place & mask for place in (*bios, *requests) if place >= 0})
    ]
    return sorted(found, key=lambda o: -max(o.bios.ios, o.requests.ios))


def device_report(
    dev: int,
    device: Device,
    flush: Flush | None,
    completions: list[CompletionReport],
    drivers: list[DriverReport],
    operations: list[OperationReport],
    events: dict[str, int],
    span_ns: int,
    context: Context,
) -> DeviceReport:
    """Return the report of a device; its total is the sum of its operations, without depths.

    flush: None, or without requests (a filter by process leaves them out): `flushes` is None.
    events: letter → number of the device's events in the log.
    """
    entry = context.devices.get(dev, {})
    device_name = context.device_name(dev)
    return DeviceReport(
        device=device_name,
        dev=dev_numbers(dev),
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
        events={name: events[letter] for letter, name in EVENT_NAMES.items() if letter in events},
        queue=depth_report(device.queue),
        issued=depth_report(device.issued),
        q2q=pattern_report(device.queue_pattern),
        d2d=pattern_report(device.issue_pattern),
        flushes=flush_report(flush) if flush and flush.requests else None,
        completions=completions,
        drivers=drivers,
    )


def depth_report(depth: Depth) -> DepthReport:
    """Return the report of how many bios or requests were in flight, over all windows."""
    whole = depth.whole
    return DepthReport(
        mean=whole.mean,
        max=whole.most,
        active_ns=whole.busy_ns,
        idle_ns=whole.time_ns - whole.busy_ns,
        at_start=Summary.of(depth.met, histogram=True),
        unended=depth.unended,
        high=None if depth.high is None else depth_report(depth.high),
    )


def pattern_report(pattern: Pattern) -> PatternReport:
    """Return how I/Os followed each other on a device.

    Percentiles of seeks are the least values of buckets, as distances are round numbers.
    """
    return PatternReport(
        sequential=pattern.sequential,
        forward=pattern.forward,
        backward=pattern.backward,
        sequential_share=pattern.sequential_share,
        seek=Summary.of(pattern.seek, low=True, histogram=True),
        gap=Summary.of(pattern.gap),
    )


def flush_report(flush: Flush) -> FlushReport:
    """Return the report of a device's flush requests and of the bios that waited for them."""
    waited = flush.waits - flush.unmatched
    return FlushReport(
        requests=flush.requests,
        waits=flush.waits,
        unmatched=flush.unmatched,
        bios_per_request=waited / flush.requests if flush.requests else 0.0,
        shared=dict(sorted(flush.shared.items())),
        time=Summary.of(flush.times),
        doubtful=flush.doubtful,
    )


def stacked_reports(stacked: Stacked, context: Context) -> list[StackedReport]:
    """Return a report for each pair of stacked devices and operation, most children first."""
    found = [
        StackedReport(
            device=context.device_name(upper),
            below=context.device_name(lower),
            operation=context.op_name(op),
            children=below.children,
            doubtful=below.doubtful,
            to_child=Summary.of(below.to_child),
            child=Summary.of(below.child),
            from_child=Summary.of(below.from_child),
        )
        for (upper, lower, op), below in sorted(stacked.by_pair.items())
    ]
    return sorted(found, key=lambda s: -s.children)
