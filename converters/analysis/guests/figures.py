# SPDX-License-Identifier: Apache-2.0
"""Figures of a guest's requests on its host: by disk and operation, and of a single request."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from biotrail.converters.analysis.guests.disk_requests import OPERATIONS
from biotrail.converters.analysis.guests.guest import REASONS, STAGES, Guest, Unlinked
from biotrail.converters.events.tables import Certainty

_METHOD: Literal["inverted_cdf"] = "inverted_cdf"
"""A percentile is the value at rank ceil(share * count), as in all reports."""


HOST, GUEST = "host", "guest and hypervisor"
"""Sides of a request's time: the stages on the host's device, and those to and from there."""


@dataclass(frozen=True)
class Side:
    """Where the time of one of the guest's requests went."""

    request: int
    disk: str
    behind: str
    stages_ns: dict[str, int]
    """Stage → ns; empty if the host's times are not known."""
    side: str
    certainty: str
    host_bios: list[int]
    """Numbers of the bios in the host's log, in the order of their queue."""
    reason: str
    """Why it has no bio on the host; "" if it has."""
    within_ns: int


@dataclass(frozen=True)
class StageFigures:
    stage: str
    share: float
    mean_ns: float
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True)
class Row:
    disk: str
    behind: str
    """The host's device, or partition, with the image."""
    operation: str
    requests: int
    linked: int
    bios: int
    stages: list[StageFigures]
    """Empty if no request has both times."""
    doubtful: int
    """Linked requests that are in no stage, as their completion, or a bio's, is in doubt."""


@dataclass(frozen=True)
class Figures:
    process: str
    pid: int
    offset_ns: int
    """The host's CLOCK_MONOTONIC minus the guest's, in the middle of the recording."""
    drift_ppm: float
    within_ns: int
    bounds: int
    contradicting: int
    """Requests that were left out because they contradict the others."""
    rows: list[Row]
    certainty: dict[str, int]
    unlinked: dict[str, int]
    """Why requests have no bio on the host, and how many of each."""
    unmatched: list[str]
    """The guest's disks that are on no device of the host's log."""

    def lines(self) -> Iterator[dict[str, Any]]:
        """As the columns of a CSV report; `of` is the host's device, `ios` the linked requests."""
        for row in self.rows:
            work = {"section": "guest", "device": row.disk, "operation": row.operation}
            for one in row.stages:
                times = asdict(one)
                yield {**work, "of": row.behind, "ios": row.linked, **times}


def figures(found: Guest) -> Figures:
    line = found.fit.line
    certainty: Counter[str] = Counter()
    unlinked: Counter[str] = Counter()
    rows = []
    for disk in found.disks:
        links = disk.links
        bios = np.bincount(links.edges.request, minlength=len(disk.requests))
        for code, name in enumerate(OPERATIONS):
            mine = disk.requests.op == code
            if mine.any():
                times = links.stages[mine & links.timed]
                total = max(int(times.sum()), 1)
                stages = [
                    StageFigures(
                        stage=stage,
                        share=float(ns.sum()) / total,
                        mean_ns=float(ns.mean()),
                        p50_ns=int(np.percentile(ns, 50, method=_METHOD)),
                        p99_ns=int(np.percentile(ns, 99, method=_METHOD)),
                        max_ns=int(ns.max()),
                    )
                    for stage, ns in zip(STAGES, times.T, strict=True)
                    if len(ns)
                ]
                row = Row(
                    disk=found.guest.device_name(disk.dev),
                    behind=found.host.device_name(disk.part),
                    operation=name,
                    requests=int(mine.sum()),
                    linked=int((mine & (links.unlinked == Unlinked.LINKED)).sum()),
                    bios=int(bios[mine].sum()),
                    stages=stages,
                    doubtful=int((mine & links.doubtful).sum()),
                )
                rows.append(row)
        linked = links.unlinked == Unlinked.LINKED
        certainty.update(Certainty(one).name.lower() for one in links.certainty[linked].tolist())
        unlinked.update(REASONS[Unlinked(one)] for one in links.unlinked[~linked].tolist())
    return Figures(
        process=found.process,
        pid=found.pid,
        offset_ns=line.offset,
        drift_ppm=line.rate * 1e6,
        within_ns=line.within,
        bounds=int(found.fit.kept.sum()),
        contradicting=int((~found.fit.kept).sum()),
        rows=rows,
        certainty=dict(certainty),
        unlinked=dict(unlinked),
        unmatched=[found.guest.device_name(dev) for dev in found.unmatched],
    )


def sides_of(found: Guest, numbers: Collection[int]) -> dict[int, Side]:
    """Return number of a guest's request → where its time went, of those that are known."""
    made = {}
    for disk in found.disks:
        links = disk.links
        for row in np.flatnonzero(np.isin(disk.requests.number, list(numbers))).tolist():
            times = links.stages[row].tolist() if links.timed[row] else []
            on_host = 2 * sum(times[1:3]) > sum(times)
            linked = links.unlinked[row] == Unlinked.LINKED
            bios = disk.served.number[links.edges.bio[links.edges.request == row]]
            number = int(disk.requests.number[row])
            made[number] = Side(
                request=number,
                disk=found.guest.device_name(disk.dev),
                behind=found.host.device_name(disk.part),
                stages_ns=dict(zip(STAGES, times, strict=False)),
                side="" if not times else HOST if on_host else GUEST,
                certainty=Certainty(int(links.certainty[row])).name.lower() if linked else "",
                host_bios=bios.tolist(),
                reason="" if linked else REASONS[Unlinked(int(links.unlinked[row]))],
                within_ns=found.fit.line.within,
            )
    return made
