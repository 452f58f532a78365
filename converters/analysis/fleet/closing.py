# SPDX-License-Identifier: Apache-2.0
"""Makes the plain report of a fleet from its parts; closes a host, to which nothing is added."""

import zlib
from collections.abc import Iterable
from dataclasses import replace

from biotrail.converters.analysis.blame.online import Row, Waits
from biotrail.converters.analysis.blame.tree import OTHERS, Waited
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.groups import merged as merged_groups
from biotrail.converters.analysis.fleet.deviations import deviations
from biotrail.converters.analysis.fleet.host_times import estimates, joined
from biotrail.converters.analysis.fleet.part import Part, merged
from biotrail.converters.analysis.fleet.sums import REST, Both, Sums
from biotrail.converters.analysis.fleet.tree import FleetGroup, FleetReport, HostReport
from biotrail.converters.analysis.report.summaries import (
    EVENT_NAMES,
    depth_report,
    flush_report,
    operation_report,
    pattern_report,
    time_and_number,
    with_shares,
)
from biotrail.converters.events.context import Context

MOST_VICTIMS, MOST_CULPRITS = 8, 4
"""Of each host, kept apart; of the fleet there are online.MOST_NAMES."""
_STATUSES = Context({})
"""Names of statuses, which are the same for all kernels."""


def close_host(parts: Iterable[Part], seed: int, by: str) -> Part:
    """Return all recordings of one host as one part, with the host's figures for comparison.

    The result has one HostReport, no `times` and, if `by` is "host", the host's group as a plain
    report, which takes less memory than sums. parts: at least one with a recording; not changed.
    seed: of the draws, together with the host's name.
    """
    part = merged(parts)
    host = part.recordings[0].host
    named = zlib.crc32(host.encode("utf-8", "surrogateescape"))
    total = _total(part.whole)
    most = max(part.recordings, key=lambda one: one.io_ns)
    part.hosts = [
        HostReport(
            host=host,
            kernels=sorted({one.kernel for one in part.recordings}),
            models=sorted(part.models),
            columns=part.recordings[0].columns,
            recordings=len(part.recordings),
            span_ns=part.whole.span_ns,
            ios=total.bios["ios"],
            bytes=total.bios["bytes"],
            lost_records=sum(one.lost_records for one in part.recordings),
            estimates=estimates(joined(part.times), (seed, named)),
            said=most.said,
            said_of=most.log_id,
            blame=_of_host(part.waits),
        )
    ]
    part.times = []
    part.recordings = [replace(one, said=[]) for one in part.recordings]
    if by == "host":
        part.closed = [_group(name, sums) for name, sums in part.groups.items()]
        part.groups = {}
    return part


def _of_host(waits: Waits | None) -> list[Waited] | None:
    """Return a host's victims with most time, and their culprits; the rest is OTHERS."""
    if waits is None:
        return None
    found, rest = Waits(), waits.victims()[MOST_VICTIMS:]
    names = {one.name for one in rest}
    for name, row in waits.rows.items():
        kept = Row(row.ios, row.service, row.own, row.device, row.unknown, row.untold)
        for place, (culprit, ns) in enumerate(row.behind.most_common()):
            kept.behind[culprit if place < MOST_CULPRITS else OTHERS] += ns
        found.rows.setdefault(OTHERS if name in names else name, Row()).merge(kept)
    return found.victims()


def make_report(part: Part, by: str, confidence: float, blame_by: str | None = None) -> FleetReport:
    """Return the report of a fleet.

    part: of all hosts, each closed. confidence: of the intervals, 0 to 1. blame_by: what victims
    and culprits are; None: nobody was blamed.
    """
    groups = [*part.closed, *(_group(name, sums) for name, sums in part.groups.items())]
    hosts = sorted(part.hosts, key=lambda one: one.host)
    with_shares(one.total.bios for one in groups)
    return FleetReport(
        by=by,
        total=fleet_group("", part.whole),
        groups=sorted(groups, key=lambda g: (g.rest, *time_and_number(g.total.bios), g.name)),
        hosts=hosts,
        recordings=sorted(part.recordings, key=lambda r: (r.host, r.begin or "", r.files)),
        deviations=deviations(hosts, confidence),
        left_out=sorted(part.left_out, key=lambda one: one.file),
        certainty=dict(part.certainty),
        lost_records=dict(sorted(part.lost_records.items())),
        files=sum(len(one.files) for one in part.recordings),
        bytes=sum(one.bytes for one in part.recordings),
        events=sum(one.events for one in part.recordings),
        begin=min((one.begin for one in part.recordings if one.begin), default=None),
        blame=None if part.waits is None else part.waits.victims(),
        blame_by=blame_by,
    )


def _group(name: str, sums: Sums) -> FleetGroup:
    """Return a group as a plain report, whose `GroupReport.group` are empty to take less memory."""
    found = fleet_group(name, sums)
    found.rest = name == REST
    for one in (found.total, *found.operations):
        one.bios.group, one.requests.group = Group(), Group()
    return found


def fleet_group(name: str, sums: Sums) -> FleetGroup:
    """Return the figures of a group, or of the whole fleet, as a plain report."""
    span = sums.span_ns
    total = _total(sums)
    known = [
        operation_report({"operation": op}, [both.bios], [both.requests], span, _STATUSES)
        for op, both in sorted(sums.operations.items())
        if op != REST
    ]
    return FleetGroup(
        name=name,
        rest=False,
        hosts=len(sums.hosts),
        recordings=sums.recordings,
        devices=sums.devices,
        span_ns=span,
        total=operation_report({}, [total.bios], [total.requests], span, _STATUSES),
        operations=sorted(known, key=lambda o: -max(o.bios.ios, o.requests.ios)),
        queue=depth_report(sums.queue),
        issued=depth_report(sums.issued),
        q2q=pattern_report(sums.queue_pattern),
        d2d=pattern_report(sums.issue_pattern),
        flushes=flush_report(sums.flush) if sums.flush.requests or sums.flush.waits else None,
        events={EVENT_NAMES[k]: n for k, n in sorted(sums.events.items()) if k in EVENT_NAMES},
    )


def _total(sums: Sums) -> Both:
    """Return the sum of all operations, as new groups."""
    every = list(sums.operations.values())
    return Both(
        merged_groups(both.bios for both in every), merged_groups(both.requests for both in every)
    )
