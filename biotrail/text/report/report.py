# SPDX-License-Identifier: Apache-2.0
"""Show a report in tables for people."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType

from biotrail.converters.analysis.report.report import group_sum
from biotrail.converters.analysis.report.tree import (
    DepthReport,
    DeviceReport,
    GroupReport,
    PairReport,
    Report,
    StackedReport,
)
from biotrail.converters.sites.pair_names import unpaired_text
from biotrail.text import tallies, units
from biotrail.text.columns import (
    Column,
    block,
    columns_of,
    table,
    with_lines,
    with_more,
    without_repeats,
)
from biotrail.text.report.cells import (
    FIELDS,
    GROUP_WORK,
    NONE,
    OF_CGROUP,
    TAIL,
    TIMES,
    TOTAL,
    WORK,
    cgroup_words,
    doubtful_lines,
    group_cells,
    in_order,
    mean_size,
    name_cells,
    operation_rows,
    ranges_text,
    recorder_lines,
    stage_rows,
    tail,
    times,
    with_tail,
    work,
)
from biotrail.text.rows import Order, first, left_out

MOST_ROWS = 15
"""Rows of processes, cgroups and the like by default; the table says how many more there are."""
MOST_VICTIMS = 5
"""Rows of the tables of blame likewise; `biotrail blame` shows more."""
MOST_KEYS = 5
"""Keys of each pair of events by default."""
MOST_LINES = 1000


def parts(
    report: Report,
    width: int,
    limit: int | None = None,
    order: Order | None = None,
    words: Sequence[str] = (),
) -> Iterator[RenderableType]:
    """Yield what to print. words: below the first line. limit: rows, 0: all; None: the usual."""
    most = MOST_ROWS if limit is None else limit
    head, *others = _head(report)
    yield block([head, *words, *others])
    if report.pairs:
        yield from pair_parts(report, width, limit, most)
    if report.blamed is not None:
        from biotrail.text import blame as blame_text

        victims = MOST_VICTIMS if limit is None else limit
        yield from blame_text.parts(report.blamed, width, victims, report.path_parts)
    if report.devices:
        yield from _of_devices(report, width, limit)
    if any((report.calls, report.call_groups, report.waits, report.commits, report.submissions)):
        from biotrail.text.report.path import of_calls

        yield from of_calls(report, width, most)
    if not report.devices:
        return
    if report.by:
        fields = FIELDS[report.by]
        yield _list(f"By {report.by}", fields, report.groups, width, most, divided=True)
        shown, more = first(report.groups, most)
        rows = [row for group in shown for row in stage_rows(group, name_cells(group, fields))]
        columns = [
            *(Column(field, left=True) for field in fields),
            *columns_of("stage < | count @1 | share"),
            *TIMES,
        ]
        title = f"Where the time goes, by {report.by}"
        made = table(title, columns, without_repeats(rows, len(fields)), width)
        lines = [left_out(more, "group")] if more else []
        yield with_lines(made, [*lines, *recorder_lines(shown)])
    else:
        nothing_known = []  # titles of tables whose only group is not known
        for title, word, groups in (
            ("Processes", "process", report.processes),
            ("Cgroups", "cgroup", report.cgroups),
            ("Files", "file", report.files),
            ("CPUs, by where I/O was queued", "cpu", report.cpus),
        ):
            if len(groups) == 1 and all(value is None for value in groups[0].name.values()):
                nothing_known.append(title)
            elif groups:
                named = word == "cgroup" and any(cgroup_words(one.name) for one in groups)
                fields = (*FIELDS[word], "is") if named else FIELDS[word]
                yield _list(title, fields, groups, width, most)
        if nothing_known:
            yield block([f"not known of any bio in the log: {'; '.join(nothing_known)}"])
    if report.intervals:
        most = MOST_LINES if limit is None else limit
        yield _intervals(report, width, most, order or Order.COUNT)


def _of_devices(report: Report, width: int, limit: int | None) -> Iterator[RenderableType]:
    """Yield devices' tables. limit: devices, 0: all; None: MOST_ROWS, and the others' sum."""
    devices, more = first(report.devices, MOST_ROWS if limit is None else limit)
    if limit is None:
        yield operations(replace(report, devices=devices), width, rest=report.devices[MOST_ROWS:])
    else:
        yield operations(report, width, limit)
    if report.held:
        from biotrail.text.report.path import held

        yield held(report, width, limit or 0)
    for device in devices:
        if device.total.bios.stages or device.total.requests.stages:
            yield stages(device, width)
        if any(way.steps for way in device.completions):
            from biotrail.text.report.path import completions

            yield completions(device, width)
        if any(one.steps for one in device.drivers):
            from biotrail.text.report.path import drivers

            yield drivers(device, width)
    yield queues(devices, width)
    yield patterns(devices, width)
    if any(device.flushes for device in devices):
        yield flushes(devices, width)
    if report.stacked:
        names = {device.device for device in devices}
        pairs = [pair for pair in report.stacked if {pair.device, pair.below} & names]
        yield stacked(pairs, width)
    if more:
        whole = sum(device.total.bios.latency.sum for device in report.devices)
        ns = sum(device.total.bios.latency.sum for device in report.devices[len(devices) :])
        share = f"with {100 * ns / whole:.1f} % of the time of all" if whole else ""
        yield block([left_out(more, "device", share)])


def _head(report: Report) -> list[str]:
    span = units.duration(report.span_ns)
    total = report.total.bios
    span += " from the first event to the last" if report.time_of == "events" else ""
    found = [
        f"{report.host}, kernel {report.kernel}; from {report.begin or 'an unknown time'}, {span}"
    ]
    if report.pairs and not report.devices:
        return found  # a recording of pairs alone
    found += [
        f"{units.plural(total.ios, 'bio')}, {units.size(total.bytes)}"
        f"{ranges_text(total.counters)}, "
        f"{units.plural(report.total.requests.ios, 'request')}"
    ]
    if report.lower_bios:
        found.append(
            f"{units.plural(report.lower_bios, 'further bio')}, {units.size(report.lower_bytes)}: "
            "queued by stacked devices for these. I/O counts once, as it was submitted; "
            "tables by device have each device's own"
        )
    if tries := total.counters["tries"]:
        found.append(
            f"{tallies.failed_nowait_text(tries)}, of {units.size(total.counters['tried_bytes'])}: "
            "beside the bios, not among them"
        )
    known = ", ".join(f"{units.count(n)} {name}" for name, n in report.certainty.items() if n)
    if known:
        found.append(f"certainty of bios: {known}")
    without = report.percentiles.without
    if without:
        what = units.plural(without, "bio has", "bios have")
        found.append(f"{what} no beginning or end in the log: counted, but in no latency")
    every = (report.total.bios, "of bios"), (report.total.requests, "of requests")
    return [*found, *doubtful_lines(every)]


def operations(
    report: Report, width: int, limit: int = 0, rest: Sequence[DeviceReport] = ()
) -> RenderableType:
    """Return the table of devices and operations. rest: devices whose sum is the last row."""
    every = [
        [device.device, one.operation, *work(one.bios), *times(one.bios.latency), *tail(one.bios)]
        for device in report.devices
        for one in device.operations
        if one.bios.ios or one.bios.counters["tries"]
    ]
    rows, more = first(every, limit)
    if rest:
        whole = group_sum([device.total.bios for device in rest])
        name = f"({units.plural(len(rest), 'other device')})"
        rows.append([name, "all", *work(whole), *times(whole.latency), *tail(whole)])
    columns = [*columns_of("device < | operation <"), *WORK, *TIMES]
    title = "From queue to completion (Q2C)"
    return with_more(with_tail(title, columns, without_repeats(rows, 1), width), more)


def processes(report: Report, width: int) -> RenderableType:
    return _list("Processes", FIELDS["process"], report.processes, width, MOST_ROWS)


def _list(
    title: str,
    fields: Sequence[str],
    groups: Sequence[GroupReport],
    width: int,
    limit: int,
    *,
    divided: bool = False,
) -> RenderableType:
    shown, more = first(groups, limit)
    rows = []
    for group in shown:
        rows.append([*name_cells(group, fields), *group_cells(group)])
        rows += operation_rows(group, len(fields)) if divided else []
    left = (fields[0], "process", *OF_CGROUP)
    columns = [Column(field, left=field in left) for field in fields]
    columns += [*GROUP_WORK, *TOTAL, *TIMES]
    return with_more(with_tail(title, columns, rows, width), more)


def _intervals(report: Report, width: int, limit: int, order: Order) -> RenderableType:
    fields = FIELDS[report.by] if report.by else ("device", "operation")
    rows = []
    for interval in report.intervals:
        at = units.since(interval.begin_ns - report.begin_ns)
        if not interval.groups:
            rows.append([at, "-", *([""] * (len(fields) - 1 + len(WORK) + len(TIMES) + len(TAIL)))])
        for group in in_order(interval.groups, order):
            cells = [*work(group), *times(group.latency), *tail(group)]
            rows.append([at, *name_cells(group, fields), *cells])
    columns = [Column("from"), *(Column(field, left=True) for field in fields), *WORK, *TIMES]
    title = f"Over time, {units.duration(report.interval_ns)} each"
    shown, more = first(rows, limit)
    return with_more(with_tail(title, columns, without_repeats(shown, 1), width), more)


# Devices: stages, queues, patterns, flushes, stacked devices.


def stages(device: DeviceReport, width: int) -> RenderableType:
    rows = []
    for one in device.operations:
        rows += stage_rows(one.bios, [one.operation])
        rows += [
            [
                one.operation,
                "D2C of requests",
                units.count(stage.time.count),
                "",
                *times(stage.time),
            ]
            for stage in one.requests.stages
            if stage.stage == "D2C"
        ]
    columns = [*columns_of("operation < | stage < | count @1 | share"), *TIMES]
    made = table(f"Where the time goes: {device.device}", columns, without_repeats(rows, 1), width)
    ones = ((device.total.bios, "bios"), (device.total.requests, "requests"))
    left = [
        f"{units.count(n)} of {units.count(one.counters['ended'])} {what}"
        for one, what in ones
        if (n := one.counters["doubtful"])
    ]
    lines = [f"without {' and '.join(left)}: in doubt"] if left else []
    return with_lines(made, [*lines, *recorder_lines([one.bios for one in device.operations])])


def queues(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of I/O in flight; where ends are not known, figures are bounds."""
    rows = []
    notes = []

    def cells(one: DepthReport) -> list[str]:
        span = one.active_ns + one.idle_ns
        return [
            f"{one.mean:.2f}",
            units.count(one.max),
            f"{one.at_start.mean:.1f}" if one.at_start.count else NONE,
            f"{100 * one.active_ns / span:.1f} %" if span else NONE,
            units.duration(one.idle_ns),
        ]

    for device in devices:
        queue, issued = device.queue, device.issued
        waiting, serving = (
            [
                low if low == high else f"{low}-{high}"
                for low, high in zip(cells(one), cells(one.high or one), strict=True)
            ]
            for one in (queue, issued)
        )
        rows.append([device.device, *waiting[:3], *serving[:3], *waiting[3:]])
        if queue.unended or issued.unended:
            what = [
                f"{units.count(of.unended)} {name}"
                for of, name in ((queue, "bios"), (issued, "requests"))
                if of.unended
            ]
            notes.append(
                f"{device.device}: of {' and '.join(what)} the end is not known: figures are from "
                "what is known to have been in flight to what may have been"
            )
    columns = columns_of(
        "device < | Q-C mean | Q-C max | met at Q @2 | D-C mean | D-C max | met at D @2 | "
        "active | idle @1"
    )
    found = table("In flight: bios from Q to C, requests from D to C", columns, rows, width)
    return with_lines(found, notes)


_EVENTS = (
    ("back", "back_merges"),
    ("front", "front_merges"),
    ("requests", "request_merges"),
    ("splits", "splits"),
    ("requeues", "requeues"),
)


def patterns(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    rows = [
        [
            device.device,
            *(units.count(device.events.get(event, 0)) for _, event in _EVENTS),
            f"{100 * device.q2q.sequential_share:.0f} %",
            mean_size(device.q2q.seek),
            f"{100 * device.d2d.sequential_share:.0f} %",
            mean_size(device.d2d.seek),
        ]
        for device in devices
    ]
    columns = [
        Column("device", left=True),
        *(Column(head) for head, _ in _EVENTS),
        *columns_of("sequential at Q | mean seek @1 | at D | mean seek @1"),
    ]
    return table("Merges (back, front, of requests), splits and seeks", columns, rows, width)


def flushes(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    rows, doubtful = [], 0
    for device in devices:
        if (found := device.flushes) is not None:
            shared = ", ".join(f"{bios}: {units.count(n)}" for bios, n in found.shared.items())
            counts = [units.count(found.requests), units.count(found.waits)]
            mean = f"{found.bios_per_request:.2f}"
            rows.append([device.device, *counts, mean, *times(found.time), shared])
            doubtful += found.doubtful
    columns = [
        *columns_of("device < | flushes | waits | bios each"),
        *TIMES,
        Column("flushes by bios that waited", 1, left=True),
    ]
    made = table("Flush requests, and how many bios waited for each", columns, rows, width)
    left = [f"without {units.plural(doubtful, 'time')} in doubt"] if doubtful else []
    return with_lines(made, left)


def stacked(pairs: Sequence[StackedReport], width: int) -> RenderableType:
    """Return the table of time above, in and below each lower device's bios."""
    rows = [
        [pair.device, pair.below, pair.operation, name, units.count(values.count), *times(values)]
        for pair in pairs
        for name, values in (
            ("Q to Q below", pair.to_child),
            ("Q2C below", pair.child),
            ("C below to C", pair.from_child),
        )
    ]
    columns = [*columns_of("device < | below < | operation < | part < | count @1"), *TIMES]
    made = table("Stacked devices", columns, without_repeats(rows, 3), width)
    doubtful = sum(pair.doubtful for pair in pairs)
    left = [f"without {units.plural(doubtful, 'lower bio')} in doubt"] if doubtful else []
    return with_lines(made, left)


# Pairs of events: their latencies, and the keys with the most time.


def pair_parts(
    report: Report, width: int, limit: int | None, most: int
) -> Iterator[RenderableType]:
    """Yield the tables of pairs and keys. limit: rows, 0: all; None: each table's usual."""
    yield _pair_latencies(report, width, most)
    keyed = [pair for pair in report.pairs if len(pair.slowest_keys) > 1]
    if keyed:
        yield _pair_keys(keyed, report.span_ns, width, MOST_KEYS if limit is None else limit)
    if any(interval.pairs for interval in report.intervals):
        yield _pair_intervals(report, width, MOST_LINES if limit is None else limit)
    said = []
    for pair in report.pairs:
        said += [
            f"{pair.name}: {units.count(n)} {unpaired_text(name)}"
            for name, n in pair.unpaired.items()
        ]
        if left := pair.groups_left_out:
            said.append(f"{pair.name}: {units.count(left)} pairs of further values of --by")
        if left := pair.keys_left_out:
            said.append(f"{pair.name}: {units.count(left)} pairs of further keys")
    if said:
        yield block(said)


def _pair_latencies(report: Report, width: int, limit: int) -> RenderableType:
    seconds = max(report.span_ns, 1) / 1e9
    rows, left_out = [], 0
    for pair in report.pairs:
        whole = ("all" if pair.by else "", pair.time)
        groups, more = first(pair.groups, limit)
        left_out += more
        for text, found in (whole, *((f"{pair.by} = {g.text}", g.time) for g in groups)):
            rate = f"{units.count(round(found.count / seconds))}/s"
            rows.append([pair.name, text, units.count(found.count), rate, *times(found)])
    columns = [*columns_of("pair < | of < | count | rate @1"), *TIMES]
    title = "Pairs of events, from the first to the second"
    return with_more(table(title, columns, without_repeats(rows, 1), width), left_out)


def _pair_keys(pairs: list[PairReport], span_ns: int, width: int, limit: int) -> RenderableType:
    rows = []
    for pair in pairs:
        for key in first(pair.slowest_keys, limit)[0]:
            share = key.sum_ns / max(pair.time.sum, 1)
            rows.append(
                [
                    pair.name,
                    key.text,
                    units.count(key.count),
                    f"{share:.1%}",
                    units.duration(key.sum_ns / max(key.count, 1)),
                    units.duration(key.max_ns),
                ]
            )
    columns = columns_of("pair < | key < | count | share | mean | max")
    left_out = sum(pair.keys_known for pair in pairs) - len(rows)
    title = "Keys with the most time"
    return with_more(table(title, columns, without_repeats(rows, 1), width), left_out, "key")


def _pair_intervals(report: Report, width: int, limit: int) -> RenderableType:
    rows = []
    for interval in report.intervals:
        at = units.since(interval.begin_ns - report.begin_ns)
        seconds = max(interval.end_ns - interval.begin_ns, 1) / 1e9
        if not interval.pairs:
            rows.append([at, NONE, "", "", *([""] * len(TIMES))])
        for pair in interval.pairs:
            count = pair.time.count
            rate = f"{units.count(round(count / seconds))}/s"
            rows.append([at, pair.name, units.count(count), rate, *times(pair.time)])
    columns = [*columns_of("from | pair < | count | rate @1"), *TIMES]
    shown, more = first(rows, limit)
    title = f"Pairs over time, {units.duration(report.interval_ns)} each"
    return with_more(table(title, columns, without_repeats(shown, 1), width), more)
