# SPDX-License-Identifier: Apache-2.0
"""What one recording, one host, or many of them add to a fleet's report."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biotrail.converters.analysis.blame.online import Waits, waits_of
from biotrail.converters.analysis.diff.diff import options_of
from biotrail.converters.analysis.diff.figures import Estimate, Resampling, times
from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS, Group
from biotrail.converters.analysis.distributions.keys import IDENTITIES, OP_BITS
from biotrail.converters.analysis.distributions.sketch import BySlot, Distribution, Mergeable
from biotrail.converters.analysis.distributions.slots import Slots
from biotrail.converters.analysis.figures import begin_text, extent
from biotrail.converters.analysis.fleet.tree import FleetGroup, HostReport, LeftOut, RecordingFacts
from biotrail.converters.analysis.report.devices import Flush, Pattern
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles, Stage
from biotrail.converters.pipeline import Trace

# All of these are counts and sums of whole numbers, so the parts can be added up in any order and
# always give the same figures.

DRAWS = 400
"""Draws of each host. `diff` takes 1000 of two recordings; these are kept for every host."""
FIGURES = ("mean", "p50", "p90", "p99")

Times = BySlot[tuple[str, str], Distribution]
"""Operation, and "Q2C", the whole time, or "D2C", that of driver and device → slot → ns."""


@dataclass
class HostTimes:
    width: int
    slots: int
    values: Times

    @classmethod
    def of(cls, slots: Slots, end: int, context: Context) -> "HostTimes":
        """Devices are added up; nothing of `slots` is shared."""
        values = Times()
        for place in slots.places():
            name = context.op_name(place)
            for slot, group in slots.bios.get(place, {}).items():
                for stage, found in (("Q2C", group.latency), ("D2C", group.stages.get(Stage.D2C))):
                    if found is not None and found.count:
                        values.add((name, stage), slot, found)
        return cls(slots.width, len(slots.times(end)), values)


def estimates(
    parts: Sequence[HostTimes], seed: Sequence[int]
) -> dict[tuple[str, str, str], Estimate]:
    """Return (operation, stage, figure) → estimate of recordings of one host.

    The slots of one stand behind those of another. Draws are float32, to take less memory.
    """
    width = max(part.width for part in parts)
    values, slots = Times(), 0
    for part in parts:
        factor = width // part.width
        values.add_all(part.values, offset=slots, factor=factor)
        slots += -(-part.slots // factor)
    drawn = Resampling.of(slots, DRAWS, seed)
    found = {}
    for (name, stage), by_slot in sorted(values.items()):
        for figure, one in times(by_slot, slots, drawn).items():
            if figure in FIGURES and one.value is not None:
                if one.draws is not None:
                    one.draws = one.draws.astype(np.float32)
                found[name, stage, figure] = one
    return found


REST = ""
"""Key of I/O of all groups (or operations) past the first MOST_GROUPS."""


@dataclass
class Both(Mergeable):
    bios: Group = field(default_factory=Group)
    requests: Group = field(default_factory=Group)


@dataclass
class Sums(Mergeable):
    operations: dict[str, Both] = field(default_factory=dict)
    """Operation → bios and requests; REST: I/O whose devices and operations are not known."""
    queue: Depth = field(default_factory=lambda: Depth(0))
    issued: Depth = field(default_factory=lambda: Depth(0))
    queue_pattern: Pattern = field(default_factory=Pattern)
    issue_pattern: Pattern = field(default_factory=Pattern)
    flush: Flush = field(default_factory=Flush)
    events: Counter[str] = field(default_factory=Counter)
    devices: int = 0
    recordings: int = 0
    span_ns: int = 0
    hosts: set[str] = field(default_factory=set)


class Groups(dict[str, Sums]):
    """Name of a group, such as a host's or a model's → figures; past MOST_GROUPS they are REST."""

    def merge(self, more: "Groups") -> None:
        for name, sums in more.items():
            known = name in self or len(self) < MOST_GROUPS
            self.setdefault(name if known else REST, Sums()).merge(sums)


def device_sums(reporter: Reporter, context: Context, *, once: bool = False) -> dict[int, Sums]:
    """Return dev_t → figures of each device with I/O, of a recording that was read to its end.

    once: without bios that stacked devices queued for others. The figures of OTHERS (devices that
    were too many to be kept apart) are those of device -1. `recordings`, `span_ns`, `hosts` and
    `events` are not set.
    """
    found: dict[int, Sums] = {}
    bios, requests = reporter.groups
    bios = reporter.bios.by_code if once else bios
    for code in sorted({*bios, *requests}):
        dev = -1 if code == OTHERS else code >> OP_BITS
        name = REST if code == OTHERS else context.op_name(code)
        both = Both(bios.get(code, Group()), requests.get(code, Group()))
        found.setdefault(dev, Sums()).operations.setdefault(name, Both()).merge(both)
    devices, flushes = reporter.devices.by_dev, reporter.flushes.by_dev
    for dev in {*found, *devices} - {-1}:
        sums = found.setdefault(dev, Sums())
        sums.devices += 1
        if (device := devices.get(dev)) is not None:
            sums.queue.merge(device.queue)
            sums.issued.merge(device.issued)
            sums.queue_pattern.merge(device.queue_pattern)
            sums.issue_pattern.merge(device.issue_pattern)
        sums.flush.merge(flushes.get(dev, Flush()))
    return found


NONE = "(none)"
"""Name of the group of cgroups that are in no unit (container, pod, namespace)."""
UNKNOWN = "unknown"
"""Name of the group of devices (hosts, cgroups) whose model (kernel, path) is not known."""
MOST_PROBLEMS = 10
"""Sentences about damage that are kept of a recording; the number of all is kept, too."""

OF_RECORDINGS = ("host", "kernel", "machine")
"""Words of --by that group all I/O of a recording: fields of RecordingFacts."""
OF_DEVICES = ("device", "model", "firmware")
"""Words of --by that group the I/O of a device."""
OF_CGROUPS = tuple(IDENTITIES)
OF_BIOS = ("cgroup", *OF_CGROUPS)
"""Words of --by that group bios alone; requests are of no cgroup."""
WORDS = (*OF_RECORDINGS, *OF_DEVICES, *OF_BIOS)
"""Words that --by takes beside the columns of the table of hosts."""

Sentences = list[dict[str, Any]]


@dataclass
class Part(Mergeable):
    """Figures of one recording, of one host or of many, which add up (`merge`)."""

    whole: Sums = field(default_factory=Sums)
    groups: Groups = field(default_factory=Groups)
    closed: list[FleetGroup] = field(default_factory=list)
    """Groups of --by host to which nothing can be added any more."""
    recordings: list[RecordingFacts] = field(default_factory=list)
    hosts: list[HostReport] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    certainty: Counter[str] = field(default_factory=Counter)
    lost_records: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    times: list[HostTimes] = field(default_factory=list)
    """Latencies by slot of time, of each recording of one host; empty once that is closed."""
    waits: Waits | None = None


def merged(parts: Iterable[Part]) -> Part:
    whole = Part()
    for part in parts:
        whole.merge(part)
    return whole


def read_part(
    trace: Trace,
    windows: Iterable[Lifecycles],
    by: str,
    columns: dict[str, str],
    files: list[str],
    told: Callable[[Report], Sentences] = lambda _: [],
) -> Part:
    """Read a recording to its end and return what it adds to the fleet's report.

    by: a word of WORDS, or a key of `columns`. columns: what the user's table says of the
    recording's host. files: paths or URLs of the recording. told: gets the recording's report, sets
    who waited for whom where that is asked for, and returns the report's first sentences.
    """
    reporter, slots = Reporter(trace.context, by=by if by in OF_CGROUPS else None), Slots()
    for window in windows:
        reporter.add(window)
        slots.add(window, trace.context)
        del window  # not kept while the next is made
    report = reporter.finish(trace)
    loss = report.loss
    facts = RecordingFacts(
        host=report.host,
        kernel=report.kernel,
        machine=trace.context.machine,
        log_id=report.log_id,
        files=files,
        bytes=max(0, trace.reader.size),
        events=trace.account.total,
        begin=begin_text(trace),
        span_ns=report.span_ns,
        lost_records=sum(loss.lost_records.values()),
        interrupted=loss.interrupted,
        problems=loss.problems[:MOST_PROBLEMS],
        problem_count=len(loss.problems),
        damaged_windows=loss.damaged_windows,
        columns=columns,
        options=options_of(trace.context.header),
        io_ns=report.total.bios.latency.sum,
        said=told(report),
    )
    devices = device_sums(reporter, trace.context, once=True)
    grouped = device_sums(reporter, trace.context) if by in OF_DEVICES else devices
    for of in (devices, grouped):
        for (dev, letter), count in trace.account.devices.items():
            if dev in of:
                of[dev].events[letter] = count
        for sums in of.values():
            sums.hosts.add(facts.host)
    part = Part(
        groups=_groups(by, facts, report, grouped, trace.context),
        recordings=[facts],
        certainty=Counter(report.certainty),
        lost_records=Counter(report.loss.lost_records),
        models={_of_device("model", dev, trace.context) for dev in devices if dev >= 0} - {""},
        times=[HostTimes.of(slots, extent(trace)[1], trace.context)],
        waits=None if report.blamed is None else waits_of(report.blamed),
    )
    for sums in devices.values():
        part.whole.merge(sums)
    for sums in (part.whole, *part.groups.values()):
        sums.recordings, sums.span_ns = 1, facts.span_ns
        sums.hosts.add(facts.host)
    return part


def _groups(
    by: str, facts: RecordingFacts, report: Report, devices: dict[int, Sums], context: Context
) -> Groups:
    """Return the groups of one recording: its own, or those of its devices or cgroups."""
    found = Groups()
    if by in OF_BIOS:
        for group in report.cgroups if by == "cgroup" else report.groups:
            name = REST if "others" in group.name else _of_cgroup(by, group.name)
            into = found.setdefault(name, Sums()).operations.setdefault("all", Both())
            into.bios.merge(group.group)
        return found
    for dev, sums in devices.items():
        if by in OF_DEVICES:
            name = REST if dev < 0 else _of_device(by, dev, context)
        elif by in OF_RECORDINGS:
            name = getattr(facts, by)
        else:
            name = facts.columns.get(by, "")
        found.setdefault(name if dev < 0 else name or UNKNOWN, Sums()).merge(sums)
    return found


def _of_device(by: str, dev: int, context: Context) -> str:
    if by == "device":
        return context.device_name(dev)
    return str(context.devices.get(dev, {}).get(by) or "")


def _of_cgroup(by: str, name: Mapping[str, str | int | None]) -> str:
    """Return the name that cgroups of all hosts share, from a report's group of OF_BIOS."""
    found = name.get(by)
    if by == "unit":
        found = found or name.get("slice")
    elif by == "container":
        found = found or name.get("container_id")
        if found and name["cgroup_kind"] == "monitor":
            found = f"{found} (its monitor)"
    elif by == "pod":
        found = f"{name['namespace']}/{found}" if found and name["namespace"] else found
        found = found or name.get("pod_uid")
    none = NONE if by != "cgroup" and name["cgroup_kind"] != "not known" else UNKNOWN
    return str(found) if found else none
