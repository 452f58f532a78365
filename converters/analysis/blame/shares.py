# SPDX-License-Identifier: Apache-2.0
"""Shares of an I/O's time: who is kept apart, and what each had with the device meanwhile.

The rule: an I/O's own service is the mean of its class without company, before D and after it
apart. What it took beyond that, or less, is shared by the work that others had with the device
meanwhile. A request's work is the time that its class takes without company.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame import share_loops
from biotrail.converters.analysis.blame.bases import CALM, DEVICE, QUEUE, Bases
from biotrail.converters.analysis.blame.company import Company, Ios, Served
from biotrail.converters.analysis.blame.parties import Parties
from biotrail.converters.analysis.blame.tree import BASES, OTHERS, Part, parts_of
from biotrail.converters.analysis.choosing.choosing import matches
from biotrail.converters.analysis.distributions.sketch import buckets_of, sum_by
from biotrail.converters.events.distinct import distinct_values, looked_up
from biotrail.converters.events.tables import I64, NEVER
from biotrail.recorder.schema.errors import ConversionError

MOST_VICTIMS = 31
MOST_SLOTS = 15
"""Culprits that are kept apart; where they are named by another dimension than victims, pairs."""
MOST_NAMES = 256
"""Victims, and culprits of a victim, that are kept apart in a stretch of time; the rest: OTHERS."""
TELLING_NS = 30_000
"""I/Os whose class takes less than this without company: what slows them cannot be told."""
ON_CPU = ("loop", "zram", "ram", "pmem")
"""Beginnings of the names of devices that are programs on the CPUs which the loads have."""
_MOST_LISTED = 10
_MOST_WEIGHT = 16_383
BUCKETS = 48 * 128
"""Buckets of Q2C: `sketch.buckets_of`, from 1 ns."""
FIRST_BUCKET = int(buckets_of(np.array([1]))[0])


@dataclass(frozen=True)
class BlameOptions:
    by: tuple[str, str]
    """Words of DIMENSIONS, of victims and of culprits."""
    victims: tuple[str, ...] = ()
    """Names, each maybe with * at its end; empty: all."""
    culprits: tuple[str, ...] = ()


@dataclass
class Names:
    """Who is kept apart, as the first pass found them."""

    victims: list[str]
    """Names of the rows; the last one is OTHERS."""
    slots: list[tuple[str, str]]
    row_of: dict[int, int]
    slot_of: dict[tuple[int, int], int]
    own: NDArray[np.uint8]
    """(rows, slots): 1 where the slot is the row's own I/O."""


def names_of(
    by: tuple[Parties, Parties],
    options: BlameOptions,
    waited: Counter[int],
    had: Counter[tuple[int, int]],
    suspects: tuple[str, ...] = (),
) -> Names:
    """Keep those apart who waited, or whose I/O had a device, for longest; `suspects` first.

    waited: code of the victim → ns of the I/Os that are asked for. had: (code of the victim, of the
    culprit) → ns of its I/Os with a device.
    """
    name_of = {code: by[0].name(code) for code in waited}
    waits: Counter[str] = Counter()
    for code, ns in waited.items():
        waits[name_of[code]] += ns
    ranked = sorted(waits, key=lambda name: (-waits[name], name))
    if options.victims:
        _check(options.victims, ranked, "waited", options.by[0])
        ranked = [name for name in ranked if matches(name, options.victims)]
    victims = [*ranked[:MOST_VICTIMS], OTHERS]
    wanted = set(ranked)
    at = {name: row for row, name in enumerate(victims)}
    row_of = {
        code: at.get(name, len(victims) - 1) for code, name in name_of.items() if name in wanted
    }
    of_code = {code: (by[0].name(code[0]), by[1].name(code[1])) for code in had}
    of_pair: Counter[tuple[str, str]] = Counter()
    for pair, ns in had.items():
        of_pair[of_code[pair]] += ns
    if options.culprits:
        names = sorted({name for _, name in of_pair})
        _check(options.culprits, names, "had a device", options.by[1])
    order = sorted(
        of_pair,
        key=lambda pair: (
            not (pair[1] in suspects or matches(pair[1], options.culprits)),
            -of_pair[pair],
            pair,
        ),
    )
    slots = [*order[:MOST_SLOTS], (OTHERS, OTHERS)]
    at_slot = {pair: slot for slot, pair in enumerate(slots)}
    slot_of = {code: at_slot.get(pair, len(slots) - 1) for code, pair in of_code.items()}
    own = np.zeros((len(victims), len(slots)), np.uint8)
    for slot, (name, _) in enumerate(slots[:-1]):
        if name in victims[:-1]:
            own[victims.index(name), slot] = 1
    return Names(victims, slots, row_of, slot_of, own)


def work_of(names: Names, bases: Bases, served: Served) -> tuple[I64, I64]:
    """Return (slot, weight) of requests; unknown pairs of victim and culprit have the last slot."""
    pair = served.victim << 31 | served.culprit
    found, _, place = distinct_values(np.where(served.victim < 0, NEVER, pair))
    rest = len(names.slots) - 1
    of = [names.slot_of.get((one >> 31, one & (1 << 31) - 1), rest) for one in found.tolist()]
    slowest = max((one[DEVICE][0] for one in bases.of_log.values()), default=1)
    unit = max(slowest / _MOST_WEIGHT, 1.0)
    scaled = sorted(one[DEVICE][0] / unit for one in bases.of_log.values()) or [1.0]
    # The median; np.median would import numpy.ma.
    usual = max(int((scaled[(len(scaled) - 1) // 2] + scaled[len(scaled) // 2]) / 2), 1)
    weight = {kind: max(round(one[DEVICE][0] / unit), 1) for kind, one in bases.of_log.items()}
    return np.array(of, np.int64)[place], looked_up(weight, served.kind, usual)


@dataclass
class Row:
    """Time of one victim's I/Os, ns. Cells may be negative."""

    ios: int = 0
    service: int = 0
    own: int = 0
    device: int = 0
    unknown: int = 0
    untold: int = 0
    """Time of I/Os of which it cannot be told who slowed them."""
    behind: Counter[str] = field(default_factory=Counter)

    @property
    def wait_ns(self) -> int:
        return self.service + self.own + self.device + self.unknown + sum(self.behind.values())

    def merge(self, other: "Row") -> None:
        for name in ("ios", "service", "own", "device", "unknown", "untold"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for culprit, ns in other.behind.items():
            kept = culprit in self.behind or len(self.behind) < MOST_NAMES
            self.behind[culprit if kept else OTHERS] += ns

    @property
    def parts(self) -> list[Part]:
        return parts_of(self.service, self.own, self.behind, self.device, self.unknown)


class Shares:
    """I/Os' time, shared by the work beside them, and summed by row of the victim."""

    def __init__(
        self, company: Company, bases: Bases, names: Names, buckets: int = 1, pairs: int = 1
    ) -> None:
        self._company, self._bases, self._names = company, bases, names
        rows, slots = len(names.victims), len(names.slots)
        self.cells = np.zeros((rows + 1, slots + 3), np.int64)
        """(rows + 1, slots + 3) ns: I/O of each slot, own service, device alone, unknown. The last
        row is of I/Os that are not asked for, also of what is below."""
        self.ios = np.zeros(rows + 1, np.int64)
        self.untold = np.zeros(rows + 1, np.int64)
        self.free = np.zeros((rows + 1, slots + 1, buckets), np.int64)
        """(rows + 1, slots + 1, buckets): I/Os by Q2C without work of the slot beside them; last:
        all."""
        self.factors = np.zeros((pairs, slots, 4))
        """(pairs, slots, 4): see `share_loops.share`."""
        self.shared: set[int] = set()
        """Devices that are programs on the same CPUs."""
        self.based = Counter(dict.fromkeys(BASES, 0))
        """Of those asked for: how many bases come from what."""
        self._own = np.concatenate([names.own, np.zeros((1, slots), np.uint8)])

    def add(self, ios: Ios, row: I64, queue: I64, device: I64, pair: I64) -> I64:
        """Share the time of I/Os of one device; return their cells. row, pair: or NEVER."""
        times = np.stack([ios.issue - ios.queue, ios.complete - ios.issue])
        latency = ios.complete - ios.queue
        base, sources = self._bases.of(ios.kind, ios.queue)
        of_source = np.bincount(sources[row >= 0], minlength=len(BASES)).tolist()
        self.based.update(dict(zip(BASES, of_source, strict=True)))
        kinds, _, place = distinct_values(ios.kind)
        both = [self._bases.of_log[kind] for kind in kinds.tolist()]
        slow = [int(sum(ns for ns, _ in one) >= TELLING_NS) for one in both]
        tell = np.array(slow, np.int64)[place]
        if self._company.context.device_name(int(ios.dev[0])).startswith(ON_CPU):
            self.shared.add(int(ios.dev[0]))
            tell[:] = 0
        forgotten = ios.queue < self._company.floor
        self._company.counts.forgotten += int((forgotten & (row >= 0)).sum())
        tell[forgotten] = 0
        row = np.where(row >= 0, row, len(self.ios) - 1)
        bucket = np.clip(buckets_of(latency) - FIRST_BUCKET, 0, self.free.shape[2] - 1)
        cells = np.zeros((len(ios), self.cells.shape[1]), np.int64)
        share_loops.share_all(
            times[QUEUE], times[DEVICE], base[QUEUE], base[DEVICE], tell, row, pair, bucket,
            np.ascontiguousarray(queue), np.ascontiguousarray(device),
            self._own, cells, self.factors, self.cells, self.free, CALM,
        )  # fmt: skip
        self.ios += np.bincount(row, minlength=len(self.ios))
        self.untold += sum_by(row, np.where(tell == 0, latency, 0), len(self.ios))
        return cells

    def row(self, row: int) -> Row:
        names, cells, own = self._names, self.cells[row], self._own[row].astype(bool)
        slots = len(names.slots)
        service, device, unknown = (int(ns) for ns in cells[slots:])
        found = Row(int(self.ios[row]), service, 0, device, unknown, int(self.untold[row]))
        found.own = int(cells[:slots][own].sum())
        for slot in np.flatnonzero(cells[:slots]).tolist():
            if not own[slot]:
                found.behind[names.slots[slot][1]] += int(cells[slot])
        return found


def _check(wanted: tuple[str, ...], names: list[str], did: str, by: str) -> None:
    """Raise ConversionError if one of the names that are asked for is none of the log's."""
    for one in wanted:
        if not any(matches(name, (one,)) for name in names):
            listed = ", ".join(names[:_MOST_LISTED]) or "nobody"
            more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
            raise ConversionError(f"nobody of the name {one} {did} (--by {by}): {listed}{more} did")


def count_up(into: Counter, codes: tuple[I64, ...], ns: I64) -> None:  # type: ignore[type-arg]
    """Add ns to the counter's item of each row's code, or tuple of codes."""
    pair = codes[0] if len(codes) == 1 else codes[0] << 31 | codes[1]
    found, _, place = distinct_values(pair)
    sums = sum_by(place, ns, len(found))
    for code, total in zip(found.tolist(), sums.tolist(), strict=True):
        into[code if len(codes) == 1 else (code >> 31, code & (1 << 31) - 1)] += total
