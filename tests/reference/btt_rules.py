# SPDX-License-Identifier: Apache-2.0
"""What btt makes of events, rule by rule, and how that differs from lifecycles.

`Rules` keeps the books as btt of blktrace 1.2 or 1.3 does; held against btt's own output, it
tells for each bio what btt took for its times. `compare` then names the rule behind each
difference.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import NEVER, Bios, Edges, Requests
from biotrail.recorder.schema.records import Kind

STAGES = ("Q2G", "G2I", "Q2M", "I2D", "M2D", "D2C", "Q2C")
REMAPPERS = (9, 253, 254)
"""Majors that btt takes for md and dm, and leaves out of Q2Q and Q2C."""
_KINDS = (Kind.Q, Kind.I, Kind.M, Kind.F, Kind.RQ_MERGE, Kind.D, Kind.C, Kind.BIO_COMPLETE)
_MERGES = (Kind.M, Kind.F, Kind.RQ_MERGE)
_COMPLETIONS = (Kind.C, Kind.BIO_COMPLETE)
_DRIVER_OPS = (34, 35)

Key = tuple[int, int, int]
"""A bio: when it was queued (ns), its device, its first sector."""


@dataclass
class Node:
    """A Q that btt knows by its first sector."""

    key: Key
    end: int
    times: dict[str, int] = field(default_factory=dict)

    @property
    def start(self) -> int:
        """First sector."""
        return self.key[2]


@dataclass
class Rules:
    """btt's books. values: per stage, (bio, ns) as btt counts them.

    by_start: G, I and M are matched by a Q's first sector (1.3), not by any of its sectors (1.2).
    getrq: the kind that stands for G: s where a log has no G.
    """

    by_start: bool = True
    getrq: Kind = Kind.G
    values: dict[str, list[tuple[Key, int]]] = field(default_factory=lambda: defaultdict(list))
    replaced: set[Key] = field(default_factory=set)
    """Qs whose node another Q at the same sector took."""
    replacing: set[Key] = field(default_factory=set)
    empty: set[Key] = field(default_factory=set)
    """Completions without data: (time, device, sector)."""
    queued: Counter[int] = field(default_factory=Counter)
    issued: Counter[int] = field(default_factory=Counter)
    sectors: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Sectors of each completion, per device."""
    queue_times: list[int] = field(default_factory=list)
    _nodes: dict[tuple[int, int], Node] = field(default_factory=dict)
    _starts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def feed(self, events: Events, dev: int | None = None) -> None:
        """Takes events in order, of all devices or of one; their numbers are kept."""
        rows = events.rows(*_KINDS, self.getrq, Kind.R)
        if dev is not None:
            rows = rows[events.dev[rows] == dev]
        for row in rows.tolist():
            if int(events.opf[row]) & 0xFF in _DRIVER_OPS:
                continue
            self._one(
                Kind(int(events.kind[row])),
                int(events.ts[row]),
                int(events.dev[row]),
                int(events.sector[row]),
                int(events.bytes[row]),
            )

    def _one(self, kind: Kind, time: int, dev: int, sector: int, size: int) -> None:
        if kind == Kind.R:
            self.queued[dev] += 1
        if size == 0 or kind == Kind.R:
            if kind in _COMPLETIONS:
                self.empty.add((time, dev, sector))
            return
        if kind != Kind.Q and dev not in self._starts:
            return
        if kind == Kind.Q:
            self._queue(time, dev, sector, size)
        elif kind == Kind.D:
            self._issue(time, dev, sector, size)
        elif kind in _COMPLETIONS:
            self._complete(time, dev, sector, size)
        elif (node := self._find(dev, sector)) is not None:
            self._join(kind, node, time)

    def _queue(self, time: int, dev: int, sector: int, size: int) -> None:
        self.queued[dev] += 1
        self.queue_times.append(time)
        old = self._nodes.get((dev, sector))
        if old is not None:
            self.replaced.add(old.key)
            self.replacing.add((time, dev, sector))
        else:
            insort(self._starts[dev], sector)
        self._nodes[dev, sector] = Node((time, dev, sector), sector + (size >> 9))

    def _find(self, dev: int, sector: int) -> Node | None:
        if self.by_start:
            return self._nodes.get((dev, sector))
        starts = self._starts[dev]
        at = bisect_right(starts, sector) - 1
        node = self._nodes[dev, starts[at]] if at >= 0 else None
        return node if node is not None and sector < node.end else None

    def _join(self, kind: Kind, node: Node, time: int) -> None:
        if kind == self.getrq:
            node.times["G"] = time
            self._count("Q2G", node, node.key[0], time)
        elif kind == Kind.I:
            node.times["I"] = time
            if "G" in node.times:
                self._count("G2I", node, node.times["G"], time)
        elif kind in _MERGES:
            node.times["M"] = time
            self._count("Q2M", node, node.key[0], time)

    def _contained(self, dev: int, sector: int, size: int) -> list[Node]:
        starts, end = self._starts[dev], sector + (size >> 9)
        found = []
        for at in range(bisect_left(starts, sector), len(starts)):
            if starts[at] > end:
                break
            node = self._nodes[dev, starts[at]]
            if node.end <= end:
                found.append(node)
        return found

    def _issue(self, time: int, dev: int, sector: int, size: int) -> None:
        self.issued[dev] += 1
        for node in self._contained(dev, sector, size):
            if "I" in node.times:
                self._count("I2D", node, node.times["I"], time)
            elif "M" in node.times:
                self._count("M2D", node, node.times["M"], time)
            node.times["D"] = time

    def _complete(self, time: int, dev: int, sector: int, size: int) -> None:
        self.sectors[dev].append(size >> 9)
        for node in self._contained(dev, sector, size):
            if dev >> 20 not in REMAPPERS:
                self._count("Q2C", node, node.key[0], time)
            if "D" in node.times:
                self._count("D2C", node, node.times["D"], time)
            del self._nodes[dev, node.start]
            del self._starts[dev][bisect_left(self._starts[dev], node.start)]

    def _count(self, stage: str, node: Node, begin: int, end: int) -> None:
        self.values[stage].append((node.key, end - begin if begin < end else 1))


@dataclass(frozen=True)
class Figures:
    """A row of btt's table: seconds as printed."""

    least: str
    average: str
    most: str
    count: int


def figures(values: Iterable[int]) -> Figures | None:
    """The row of these times (ns); None when there is none."""
    times = list(values)
    if not times:
        return None
    # In btt's order: another one rounds some halves the other way.
    average = sum(times) / 1e9 / len(times)
    return Figures(
        f"{min(times) / 1e9:.9f}", f"{average:.9f}", f"{max(times) / 1e9:.9f}", len(times)
    )


def printed(report: str) -> dict[str, Figures]:
    """The rows of btt's first table by stage."""
    row = re.compile(r"^(\w2\w) +(\d+\.\d{9}) +(\d+\.\d{9}) +(\d+\.\d{9}) +(\d+)$", re.M)
    head = report.split("Device Overhead", maxsplit=1)[0]
    return {m[1]: Figures(m[2], m[3], m[4], int(m[5])) for m in row.finditer(head)}


def merge_table(report: str) -> dict[int, tuple[int, ...]]:
    """#Q, #D, BLKmin, BLKavg, BLKmax and Total by device number."""
    table = report.split("Device Merge Information")[1].split("Seek Information", maxsplit=1)[0]
    row = re.compile(
        r"^ \( *(\d+), *(\d+)\) \| +(\d+) +(\d+) +[\d.]+ \| +(\d+) +(\d+) +(\d+) +(\d+)$", re.M
    )
    return {
        int(m[1]) << 20 | int(m[2]): tuple(map(int, m.groups()[2:])) for m in row.finditer(table)
    }


def keys(bios: Bios) -> list[Key]:
    return list(zip(bios.queue.tolist(), bios.dev.tolist(), bios.sector.tolist(), strict=True))


def ours(bios: Bios) -> dict[str, dict[Key, int]]:
    """Times per stage of bios with data, as lifecycles have them."""
    names = keys(bios)

    def between(begin: np.ndarray, end: np.ndarray) -> dict[Key, int]:
        rows = (begin != NEVER) & (end != NEVER) & (bios.queue != NEVER) & (bios.bytes > 0)
        times = (end - begin)[rows].tolist()
        return {names[row]: t for row, t in zip(np.flatnonzero(rows), times, strict=True)}

    own_insert = np.where(bios.merge == NEVER, bios.insert, NEVER)
    return {
        "Q2G": between(bios.queue, bios.getrq),
        "G2I": between(bios.getrq, bios.insert),
        "Q2M": between(bios.queue, bios.merge),
        "I2D": between(own_insert, bios.issue),
        "M2D": between(bios.merge, bios.issue),
        "D2C": between(bios.issue, bios.complete),
        "Q2C": between(bios.queue, bios.complete),
    }


@dataclass
class Comparison:
    """Bios on which both agree, and the rules behind the others, per stage."""

    agree: Counter[str] = field(default_factory=Counter)
    rules: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    unexplained: list[tuple[str, Key, int | None, list[int]]] = field(default_factory=list)
    """(stage, bio, ours, btt's) in ns."""


def compare(rules: Rules, bios: Bios, requests: Requests, edges: Edges) -> Comparison:
    """Every bio's time of every stage, ours beside btt's."""
    explain = _Explainer(rules, bios, requests, edges)
    result = Comparison()
    mine = ours(bios)
    for stage in STAGES:
        theirs: dict[Key, list[int]] = defaultdict(list)
        for key, value in rules.values[stage]:
            theirs[key].append(value)
        for key in sorted(theirs.keys() | mine[stage].keys()):
            value, counted = mine[stage].get(key), theirs.get(key, [])
            if [value] == counted:
                result.agree[stage] += 1
                continue
            rule = explain(stage, key, value, counted)
            if rule is None:
                result.unexplained.append((stage, key, value, counted))
            else:
                result.rules[stage][rule] += 1
    return result


class _Explainer:
    """Which of btt's rules made a difference; none fits: None."""

    def __init__(self, rules: Rules, bios: Bios, requests: Requests, edges: Edges) -> None:
        self._rules = rules
        self._row = {key: row for row, key in enumerate(keys(bios))}
        self._bios = bios
        self._whole = self._requests_in_parts(requests, edges)
        self._front = self._front_merged(edges)
        self._shared = self._sharing_a_sector()

    def _requests_in_parts(self, requests: Requests, edges: Edges) -> set[int]:
        """Bios of requests that ended short of what was issued, or were issued again."""
        odd = requests.number[(requests.requeues > 0) | (requests.status != 0)]
        return set(edges.bio[np.isin(edges.request, odd)].tolist())

    def _front_merged(self, edges: Edges) -> set[int]:
        order = np.lexsort((edges.sector, edges.request))
        request, bio = edges.request[order], edges.bio[order]
        lowest = np.append(True, request[1:] != request[:-1])[: len(request)]
        merged = self._bios.number[self._bios.merge != NEVER]
        joined = request[lowest & np.isin(bio, merged)]
        return set(bio[np.isin(request, joined)].tolist())

    def _sharing_a_sector(self) -> set[int]:
        """Rows of bios that were under way while another of the same first sector was."""
        last: dict[tuple[int, int], tuple[int, int]] = {}
        shared: set[int] = set()
        for (begin, *place), row in sorted(self._row.items()):
            end = int(self._bios.complete[row])
            until, earlier = last.get((place[0], place[1]), (-1, -1))
            if begin <= until:
                shared |= {row, earlier}
            open_end = 1 << 63 if end == NEVER else end
            last[place[0], place[1]] = max((until, earlier), (open_end, row))
        return shared

    def __call__(self, stage: str, key: Key, value: int | None, counted: list[int]) -> str | None:
        row = self._row.get(key)
        if row is None:
            return None
        bios = self._bios
        number = int(bios.number[row])
        if value == 0 and counted == [1]:
            return "no time is shown as 1 ns"
        if bios.fragments[row] > 1:
            return "a split Q is contained in no D or C"
        if key in self._rules.replaced:
            return "a second Q at a sector takes the first one's place"
        if key in self._rules.replacing:
            return "what was meant for the first Q at a sector goes to the second"
        if row in self._shared:
            # The first Q's end takes the second one away, so a third is met by the second's end.
            return "ends of identical I/O go to whichever Q stands at the sector by then"
        if number in self._whole:
            return "a request issued or completed in parts"
        if stage in ("G2I", "I2D", "M2D") and number in self._front:
            return "an insert is matched by its first sector, which a front merge moved"
        if stage in ("D2C", "Q2C") and (int(bios.complete[row]), *key[1:]) in self._rules.empty:
            return "an end without data is dropped: a flush sequence ends with its data"
        if value is None and counted and bios.complete[row] == NEVER:
            return "its sectors lie in another request's D or C"
        return None
