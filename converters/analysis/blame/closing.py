# SPDX-License-Identifier: Apache-2.0
"""From sums to what is told: parts of each victim's time, and what would be without a culprit."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame.bases import DEVICE, ENOUGH, QUEUE
from biotrail.converters.analysis.blame.blame import Course, Second, distribution
from biotrail.converters.analysis.blame.company import everybody_recorded
from biotrail.converters.analysis.blame.tree import (
    OTHERS,
    Blamed,
    CallVictim,
    Kind,
    Victim,
    Without,
)
from biotrail.converters.analysis.choosing.choosing import matches
from biotrail.converters.analysis.distributions.slots import BlameSlots
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.events.tables import FAR, OP_MASK

TELLING_SHARE = 0.01
"""Share of a victim's time from which it is told what would be without the culprit."""
MAINLY = 2 / 3
"""Share of all blame from which a culprit's tail can be told apart from others'."""
ENOUGH_FREE = 300
"""I/Os without the culprit's beside them that a 99th percentile needs."""
_SURE = 0.9
"""Share of the blame that has to rest on bases of ENOUGH I/Os."""
_DRAWS = 400
_LEAST_BLOCKS = 8
_SEED = 1


def close(second: Second) -> Blamed:
    learned, sums, counts = second.learned, second.sums, second.company.counts
    drawn = _Draws(second)
    others = len(learned.names.victims) - 1
    order = np.argsort(-sums.cells.sum(axis=1)[:others], kind="stable").tolist()
    rows = [row for row in [*order, others] if sums.ios[row]]
    victims = [_victim(second, drawn, row) for row in rows]
    wanted = second.options.victims
    calls: list[CallVictim] = []
    if second.calls is not None:
        second.calls.settle(FAR, None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        calls = second.calls.close(
            learned.names.slots, lambda name: not wanted or matches(name, wanted)
        )
    experiment = None
    if second.trial is not None and learned.suspect is not None:
        of_rows = [one for one in zip(rows, victims, strict=True) if one[0] != others]
        name_of = (lambda *_: ("", "")) if second.calls is None else second.calls.names
        experiment = second.trial.close(learned.suspect, of_rows, calls, name_of, second.left_out)
    context = second.context
    return as_row(
        Blamed,
        counts,
        victim_by=second.options.by[0],
        culprit_by=second.options.by[1],
        victims=victims,
        calls=calls,
        named=everybody_recorded(context),
        stretch_ns=learned.bases.stretches.width,
        based=dict(sums.based),
        shared=sorted(context.device_name(dev) for dev in sums.shared),
        experiment=experiment,
    )


def _victim(second: Second, drawn: "_Draws", row: int) -> Victim:
    names, waited = second.learned.names, second.sums.row(row)
    own = names.own[row].astype(bool)
    free = second.sums.free[row]
    found = as_row(
        Victim,
        waited,
        name=names.victims[row],
        p99_ns=distribution(free[-1]).percentiles([0.99])[0],
        without=[],
        small_ns=waited.untold,
    )
    keys = {number: key for key, number in second.company.classes.items()}
    blame = sum(max(ns, 0) for ns in waited.behind.values())
    for culprit, ns in sorted(waited.behind.items(), key=lambda one: (-one[1], one[0])):
        if culprit == OTHERS or ns < TELLING_SHARE * found.wait_ns or ns <= 0:
            continue
        slots = [
            slot for slot, (_, name) in enumerate(names.slots) if name == culprit and not own[slot]
        ]
        ops: Counter[str] = Counter()
        for kind, spent in second.learned.doing.get(culprit, Counter()).items():
            ops[second.context.op_name(keys[kind] >> 8 & OP_MASK)] += spent
        found.doing[culprit] = max(ops, key=lambda name: (ops[name], name), default="I/O")
        without = drawn.without(row, culprit, slots, ns)
        if without is not None:
            mainly = ns >= MAINLY * blame and len(slots) == 1
            rest = distribution(free[slots[0]])
            if mainly and rest.count >= ENOUGH_FREE:
                without.p99_ns = rest.percentiles([0.99])[0]
            found.without.append(without)
    return found


def by_slot(second: Second, course: Course) -> BlameSlots:
    """A part whose sum over all slots is negative is the device's, or own service, in each slot."""
    names = second.learned.names
    found = BlameSlots(second.options.by[0])
    for row, victim in enumerate(names.victims):
        cells, ios = course.cells[:, row], course.ios[:, row]
        if not ios.any():
            continue
        slots, own = len(names.slots), names.own[row].astype(bool)
        parts = {str(Kind.OWN): cells[:, :slots][:, own].sum(axis=1)}
        for slot, (_, culprit) in enumerate(names.slots):
            if not own[slot]:
                part = f"behind {culprit}"
                parts[part] = parts.get(part, 0) + cells[:, slot]
        parts[Kind.UNKNOWN] = cells[:, slots + 2]
        device, service = cells[:, slots + 1], cells[:, slots]
        for part in [part for part, ns in parts.items() if ns.sum() < 0]:
            device = device + parts.pop(part)
        if device.sum() < 0:
            device, service = np.zeros_like(device), service + device
        parts |= {Kind.DEVICE: device, Kind.SERVICE: service}
        found.ios[victim] = dict(enumerate(ios.tolist()))
        for part, ns in parts.items():
            if ns.any():
                found.waits[victim, str(part)] = dict(enumerate(ns.tolist()))
    return found


class _Draws:
    def __init__(self, second: Second) -> None:
        learned = second.learned
        self._second = second
        has_io = second.block_ios.any(axis=1) | second.block_bases.any(axis=(1, 2, 3))
        self._blocks = np.flatnonzero(has_io)
        count = len(self._blocks)
        self.enough = count >= _LEAST_BLOCKS
        self._pairs = max(len(learned.pairs), 1)
        draws = np.random.default_rng(_SEED)
        times = draws.multinomial(count, np.full(max(count, 1), 1 / max(count, 1)), size=_DRAWS)
        self._times = times.astype(np.float64) if self.enough else np.zeros((0, count))
        width = learned.blocks.width
        begin = (self._blocks + learned.blocks.first // width) * width
        stretch = begin // learned.bases.stretches.width
        stretches, stretch_of = np.unique(stretch, return_inverse=True)
        self._bases: dict[int, NDArray[np.float64]] = {}
        """Class → (draws, blocks, 2 parts), ns."""
        for kind in {kind for _, kind in learned.pairs}:
            given = second.block_bases[self._blocks, kind].astype(np.float64)
            found = np.empty((len(self._times), count, 2))
            for part in (QUEUE, DEVICE):
                number, ns = self._times @ given[:, part, 0], self._times @ given[:, part, 1]
                base = learned.bases.of_log[kind][part][0]
                whole = np.where(number > 0, ns / np.maximum(number, 1), base)
                found[:, :, part] = whole[:, None]
                for place, step in enumerate(stretches.tolist()):
                    if (kind, step, part) in learned.bases.of_stretch:
                        mine = stretch_of.reshape(-1) == place
                        number = self._times[:, mine] @ given[mine, part, 0]
                        ns = self._times[:, mine] @ given[mine, part, 1]
                        here = np.where(number > 0, ns / np.maximum(number, 1), whole)
                        found[:, mine, part] = here[:, None]
            self._bases[kind] = found

    def without(self, row: int, culprit: str, slots: list[int], wait_ns: int) -> Without | None:
        """None: too few were without company. wait_ns: waited behind the culprit's I/O."""
        second, learned = self._second, self._second.learned
        sums, bases = second.sums, learned.bases
        shape = (-1, self._pairs, *sums.factors.shape[1:])
        factors = sums.factors.reshape(shape)[self._blocks][:, :, slots].sum(axis=2)
        blamed = np.zeros(len(self._times))
        by_class: dict[int, float] = {}
        for place, (victim, kind) in enumerate(learned.pairs):
            if victim != row:
                continue
            mine = factors[:, place]  # (blocks, 4)
            by_class[kind] = by_class.get(kind, 0.0) + float(mine[:, (0, 2)].sum())
            if self.enough and mine.any():
                base = self._bases[kind]
                for part in (QUEUE, DEVICE):
                    whole = self._times @ mine[:, 2 * part]
                    usual = np.einsum("db,db,b->d", self._times, base[:, :, part],
                                      mine[:, 2 * part + 1])  # fmt: skip
                    blamed += whole - usual
        total = sum(by_class.values())
        # I/Os without company that a class's bases rest on, of the lesser part.
        alone = {kind: min(count for _, count in bases.of_log[kind]) for kind in by_class}
        sure = {kind: ns for kind, ns in by_class.items() if alone[kind] >= ENOUGH}
        if not total or sum(sure.values()) < _SURE * total:
            return None
        ios, waited = int(sums.ios[row]), int(sums.cells[row].sum())
        between = None  # the 95 % interval of the mean without what is blamed
        if self.enough and np.count_nonzero(second.block_ios[:, row]) >= _LEAST_BLOCKS:
            drawn = self._times @ second.block_ios[self._blocks, row]
            means = self._times @ second.block_ns[self._blocks, row] - blamed
            means = means[drawn > 0] / drawn[drawn > 0]
            low, high = np.quantile(means, [0.025, 0.975]).tolist()
            between = max(low, 0.0), max(high, 0.0)
        rests = min(alone[kind] for kind, ns in sure.items() if ns >= 0.1 * total)
        return Without(
            culprit=culprit,
            mean_ns=(waited - wait_ns) / ios,
            between_ns=between,
            p99_ns=None,
            rests_on=rests,
        )
