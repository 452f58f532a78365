# SPDX-License-Identifier: Apache-2.0
"""Makes the plain report of a fleet from its parts; closes a host, to which nothing is added."""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from biotrail.converters.analysis.blame.online import Waits
from biotrail.converters.analysis.blame.shares import Row
from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.diff.figures import F64, Estimate, compare
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.analysis.fleet.part import (
    REST,
    Both,
    Groups,
    Part,
    Sums,
    estimates,
    merged,
)
from biotrail.converters.analysis.fleet.tree import Deviation, FleetGroup, FleetReport, HostReport
from biotrail.converters.analysis.report.report import (
    EVENT_NAMES,
    depth_report,
    operation_report,
    time_and_number,
    with_shares,
)
from biotrail.converters.analysis.report.tree import FlushReport, PatternReport
from biotrail.converters.events.context import Context

# Which hosts differ from their peers, and by how much, with the intervals of `diff`.
#
# Each figure of a host is compared with the median of the other hosts' by `diff`'s own comparison:
# their draws are resampled blocks of each recording's time. That alone says whether a difference is
# more than the noise of a recording. Hosts of a fleet differ from each other, however, and after
# days of recording each does so surely; so an outlier must be far away as well, compared with how
# far hosts are apart from each other: by Iglewicz and Hoaglin's modified z-score, of logarithms.

LEAST_PEERS = 3
"""Other hosts that a host must have to be compared."""
_FAR = {
    **{5: 29.0, 7: 13.4, 9: 9.1, 11: 7.3, 13: 6.4, 17: 5.3, 20: 4.9, 32: 4.2, 50: 3.8, 100: 3.5},
    **{4: 29.0, 6: 13.4, 8: 9.1, 10: 7.3, 12: 6.4, 16: 5.3},
}
"""Hosts → spreads from the median which one of 1000 values of equal hosts is beyond.

Of normal values, by simulation. Iglewicz and Hoaglin's 3.5 is that of a hundred: of eight, whose
median absolute deviation may be small by chance, one of 43 values is beyond 3.5.
"""
_MAD = 1.4826
"""Standard deviation of normal values by their median absolute deviation."""


def deviations(hosts: Sequence[HostReport], confidence: float) -> list[Deviation]:
    """Outliers first; of hosts with draws, at least LEAST_PEERS + 1 of them."""
    found = []
    for name in sorted({name for host in hosts for name in host.estimates}):
        operation, stage, figure = name
        given = [
            (host, one)
            for host in hosts
            if (one := host.estimates.get(name)) and one.draws is not None
        ]
        if len(given) <= LEAST_PEERS:
            continue
        values = np.array([one.value for _, one in given], dtype=np.float64)
        medians = medians_of_others(values[:, None])[:, 0].tolist()
        draws = medians_of_others(np.stack([np.asarray(one.draws, np.float64) for _, one in given]))
        blocks = min(one.blocks for _, one in given)
        spreads = spreads_of(values)
        for row, (host, own) in enumerate(given):
            peers = Estimate(medians[row], draws[row], blocks, own.error)
            compared = compare(("bios", stage, figure, "ns"), peers, own, confidence)
            far = spreads[row]
            compared.changed = compared.differs  # hosts, not runs: being far is the second test
            outlier = compared.changed is True and (far is None or abs(far) >= far_of(len(given)))
            found.append(Deviation(host.host, operation, len(given) - 1, far, compared, outlier))
    return sorted(
        found, key=lambda d: (not d.outlier, -abs(d.figure.relative or 0.0), d.host, d.operation)
    )


def medians_of_others(values: F64) -> F64:
    """Per row and column the median of the column's other rows; NaN is the largest value."""
    n = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(n)[:, None], axis=0)
    low, high = (n - 2) // 2, (n - 1) // 2  # of the n - 1 others

    both = np.zeros_like(values)
    for place in (low, high):
        at = np.where(rank <= place, place + 1, place)
        both += np.take_along_axis(ordered, at, axis=0)
    return both / 2


def far_of(hosts: int) -> float:
    """Return the spreads from which on a figure of one of so many hosts is an outlier."""
    return float(np.interp(hosts, sorted(_FAR), [_FAR[one] for one in sorted(_FAR)]))


def spreads_of(values: F64) -> list[float | None]:
    """Return distances from the median in spreads of logarithms; None: no spread is known."""
    logs = np.log(np.maximum(values, 1.0))
    away = logs - np.median(logs)
    spread = _MAD * float(np.median(np.abs(away)))
    if spread > 0:
        return [float(one) for one in away / spread]
    return [None if one else 0.0 for one in away.tolist()]


MOST_VICTIMS, MOST_CULPRITS = 8, 4
"""Of each host, kept apart; of the fleet there are online.MOST_NAMES."""
_STATUSES = Context({})


def close_host(parts: Iterable[Part], seed: int, by: str) -> Part:
    """Return all recordings of one host as one part, with the host's figures for comparison.

    `times` is empty then and, if `by` is "host", the host's group a plain report, which takes less
    memory than sums. seed: of the draws, together with the host's name.
    """
    part = merged(parts)
    host = part.recordings[0].host
    named = zlib.crc32(host.encode("utf-8", "surrogateescape"))
    total = _total(part.whole)
    most = max(part.recordings, key=lambda one: one.io_ns)
    blame = None
    if part.waits is not None:
        shown, rest = Waits(), {one.name for one in part.waits.victims()[MOST_VICTIMS:]}
        for name, row in part.waits.rows.items():
            kept = replace(row, behind=Counter())
            for place, (culprit, ns) in enumerate(row.behind.most_common()):
                kept.behind[culprit if place < MOST_CULPRITS else OTHERS] += ns
            shown.rows.setdefault(OTHERS if name in rest else name, Row()).merge(kept)
        blame = shown.victims()
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
            estimates=estimates(part.times, (seed, named)),
            said=most.said,
            said_of=most.log_id,
            blame=blame,
        )
    ]
    part.times = []
    part.recordings = [replace(one, said=[]) for one in part.recordings]
    if by == "host":
        part.closed = [fleet_group(name, sums) for name, sums in part.groups.items()]
        part.groups = Groups()
    return part


def make_report(part: Part, by: str, confidence: float, blame_by: str | None = None) -> FleetReport:
    """part: of all hosts, each closed. blame_by: what victims are; None: nobody was blamed."""
    groups = [*part.closed, *(fleet_group(name, sums) for name, sums in part.groups.items())]
    hosts = sorted(part.hosts, key=lambda one: one.host)
    with_shares(one.total.bios for one in groups)
    return FleetReport(
        by=by,
        total=replace(fleet_group(REST, part.whole), rest=False),
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


def fleet_group(name: str, sums: Sums) -> FleetGroup:
    """Return a group as a plain report, whose `GroupReport.group` are empty to take less memory."""
    span = sums.span_ns
    total = _total(sums)
    known = [
        operation_report({"operation": op}, [both.bios], [both.requests], span, _STATUSES)
        for op, both in sorted(sums.operations.items())
        if op != REST
    ]
    whole = operation_report({}, [total.bios], [total.requests], span, _STATUSES)
    for one in (whole, *known):
        one.bios.group, one.requests.group = Group(), Group()
    return FleetGroup(
        name=name,
        rest=name == REST,
        hosts=len(sums.hosts),
        recordings=sums.recordings,
        devices=sums.devices,
        span_ns=span,
        total=whole,
        operations=sorted(known, key=lambda o: -max(o.bios.ios, o.requests.ios)),
        queue=depth_report(sums.queue),
        issued=depth_report(sums.issued),
        q2q=as_row(PatternReport, sums.queue_pattern),
        d2d=as_row(PatternReport, sums.issue_pattern),
        flushes=as_row(FlushReport, sums.flush)
        if sums.flush.requests or sums.flush.waits
        else None,
        events={EVENT_NAMES[k]: n for k, n in sorted(sums.events.items()) if k in EVENT_NAMES},
    )


def _total(sums: Sums) -> Both:
    whole = Both()
    for both in sums.operations.values():
        whole.merge(both)
    return whole
