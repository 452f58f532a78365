# SPDX-License-Identifier: Apache-2.0
"""I/O by the stack and command that queued it: bios (merged ones too), bytes, latencies."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions.sketch import (
    Distribution,
    add_grouped,
    plus,
    sum_by,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.stacks import Frame, Stack
from biotrail.converters.events.tables import I64, NEVER, Lifecycles
from biotrail.converters.lifecycles.operations import transferred

BUCKETS = 64
UNKNOWN = "[unknown]"
NO_OFFSET = -1
"""Offset of a frame that stands for frames at different offsets of the same function."""
NO_STACK = Stack((), (), "no stack recorded")


class Weight(StrEnum):
    """What a stack's weight is: number of bios, sum of their bytes, or sum of their latencies."""

    COUNT = "count"
    BYTES = "bytes"
    LATENCY = "latency"


WEIGHTS = {Weight.COUNT: "bios", Weight.BYTES: "bytes", Weight.LATENCY: "latency_ns"}
"""Weight → the field that has it."""


class Weighed:
    bios: int
    bytes: int
    latency_ns: int

    def weight(self, by: Weight) -> int:
        weight: int = getattr(self, WEIGHTS[by])
        return weight


@dataclass
class Callers(Weighed):
    """Figures of the bios that one command queued from one stack."""

    comm: str
    """Name of the command's threads; UNKNOWN: not known."""
    stack: int
    """Row in Trace.stacks; -1: no stack was recorded."""
    bios: int = 0
    bytes: int = 0
    """Data that they move: no ranges that are discarded, zeroed or erased."""
    ended: int = 0
    """Bios with a latency: both Q and C are in the log."""
    doubtful: int = 0
    """Bios with both whose C is in doubt (`Bios.doubtful`); they have no latency."""
    latency_ns: int = 0
    histogram: I64 = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    """(BUCKETS,): number of these bios by power of two of the latency in ns."""
    times: Distribution = field(default_factory=Distribution)
    """These bios' latencies in finer buckets, for percentiles; empty if the table keeps none."""

    def merge(self, other: "Callers") -> None:
        for name in ("bios", "bytes", "ended", "doubtful", "latency_ns", "histogram", "times"):
            setattr(self, name, plus(getattr(self, name), getattr(other, name)))


@dataclass
class StackTable:
    context: Context
    percentiles: bool = False
    without_queue: int = 0
    """Bios without a Q in the log, and so without a stack; they are in no Callers."""
    _by_task: dict[tuple[int, int], Callers] = field(default_factory=dict)
    """(stack, task), rows or -1 each → figures, without comm."""
    _comms: NDArray[np.object_] = field(default_factory=lambda: np.zeros(0, np.object_))

    def add(self, window: Lifecycles) -> None:
        """Bios without a known latency count in `bios` and `bytes` only."""
        self._comms = window.tasks.comm
        bios = window.bios
        seen = bios.queue != NEVER
        self.without_queue += int((~seen).sum())
        bios = bios if seen.all() else bios.take(seen)
        if not len(bios):
            return
        key = (bios.stack.astype(np.int64) + 1 << 32) | (bios.task.astype(np.int64) + 1)
        keys, group = np.unique(key, return_inverse=True)
        latency = bios.complete - bios.queue
        ended = (bios.complete != NEVER) & (latency >= 0)
        doubtful = np.bincount(group[ended & bios.doubtful], minlength=len(keys))
        ended &= ~bios.doubtful
        count = np.bincount(group)
        size = sum_by(group, transferred(self.context, bios.opf, bios.bytes), len(keys))
        times = sum_by(group[ended], latency[ended], len(keys))
        places = group[ended] * BUCKETS + log2(latency[ended])
        histogram = np.bincount(places, minlength=len(keys) * BUCKETS).reshape(-1, BUCKETS)
        fine = [Distribution() for _ in keys]
        if self.percentiles:
            add_grouped(group[ended].astype(np.int64), latency[ended], fine)
        for at, pair in enumerate(keys.tolist()):
            place = (pair >> 32) - 1, (pair & 0xFFFFFFFF) - 1
            callers = self._by_task.setdefault(place, Callers("", place[0]))
            callers.bios += int(count[at])
            callers.bytes += int(size[at])
            callers.doubtful += int(doubtful[at])
            callers.ended += int(histogram[at].sum())
            callers.latency_ns += int(times[at])
            callers.histogram += histogram[at]
            callers.times.merge(fine[at])

    def callers(self) -> list[Callers]:
        """Threads of one name are added up."""
        found: dict[tuple[str, int], Callers] = {}
        for (stack, task), part in self._by_task.items():
            comm = str(self._comms[task]) if task >= 0 else UNKNOWN
            found.setdefault((comm, stack), Callers(comm, stack)).merge(part)
        return list(found.values())


def log2(latency: I64) -> I64:
    """Return the index of each latency's highest bit, exact where floats are rounded."""
    latency = np.maximum(latency, 1)
    bucket = np.minimum(np.frexp(latency.astype(np.float64))[1] - 1, 62)
    return np.asarray(bucket - (np.int64(1) << bucket > latency), np.int64)


def heaviest(callers: Iterable[Callers], by: Weight) -> list[Callers]:
    return sorted(callers, key=lambda c: (-c.weight(by), c.comm, c.stack))


@dataclass
class Group:
    """Callers of one command whose stacks have the same functions."""

    sums: Callers
    """Sum of the callers; `stack` is the row of the heaviest, or -1."""
    stack: Stack
    """The stack; if there are several, the frames that they have in common, as of `_common`."""
    stacks: int


def grouped(
    callers: Iterable[Callers], stacks: list[Stack], by: Weight, *, offsets: bool = False
) -> list[Group]:
    """offsets: whether each row of `stacks` is a group of its own.

    Otherwise stacks with the same functions, which differ in offsets within them, are one; so are
    stacks without any frame that give the same reason.
    """
    members: dict[tuple[object, ...], list[Callers]] = {}
    for caller in heaviest(callers, by):
        stack = stack_at(stacks, caller.stack)
        key = caller.stack if offsets else (*map(tuple, stack_texts(stack)), stack.missing)
        members.setdefault((caller.comm, key), []).append(caller)
    groups = []
    for same in members.values():
        sums = Callers(same[0].comm, same[0].stack)
        for caller in same:
            sums.merge(caller)
        found = [stack_at(stacks, caller.stack) for caller in same]
        stack = found[0]
        if len(found) > 1:
            kernel = _common([one.kernel for one in found])
            stack = Stack(
                kernel, _common([tuple(shown_user(one.user)) for one in found]), stack.missing
            )
        groups.append(Group(sums, stack, len(found)))
    # The sort is stable: among equals the order of their heaviest members stays.
    return sorted(groups, key=lambda group: (-group.sums.weight(by), group.sums.comm))


def _common(sides: list[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """Return one frame for each position of stacks that have the same names in all positions.

    An offset that differs becomes NO_OFFSET; a `where` that differs becomes "", or stays the first
    one's if the frames have no name.
    """
    frames = []
    for places in zip(*sides, strict=True):
        first = places[0]
        named = any(f.where != first.where for f in places) and first.name
        where = "" if named else first.where  # without a name, `where` is what is shown
        same = all(f.offset == first.offset for f in places)
        frames.append(Frame(first.name, where, first.offset if same else NO_OFFSET))
    return tuple(frames)


def stack_at(stacks: list[Stack], row: int) -> Stack:
    return stacks[row] if row >= 0 else NO_STACK


def frame_text(frame: Frame, *, kernel: bool, offsets: bool = False) -> str:
    """Return `ext4_sync_file+0x28`, or `bio_map+0x4 [dm_mod]` for a module's function.

    Without a function's name: the file's name and offset `dd+0x12ab`; without a file, too, a kernel
    address, or for a user frame UNKNOWN.
    """
    if frame.name:
        name = f"{frame.name}+{frame.offset:#x}" if offsets else frame.name
        return f"{name} [{frame.where}]" if kernel and frame.where else name
    if frame.where:
        return f"{frame.where.rsplit('/', 1)[-1]}+{frame.offset:#x}"
    return f"{frame.offset:#x}" if kernel else UNKNOWN


def stack_texts(stack: Stack, *, offsets: bool = False) -> tuple[list[str], list[str]]:
    """Return (kernel, user) frames as text, the innermost first."""
    kernel = [frame_text(frame, kernel=True, offsets=offsets) for frame in stack.kernel]
    user = [frame_text(frame, kernel=False, offsets=offsets) for frame in shown_user(stack.user)]
    return kernel, user


def shown_user(user: tuple[Frame, ...]) -> list[Frame]:
    """Return user frames, with only the first one of each run of unknown frames."""
    unknown = [frame_text(frame, kernel=False) == UNKNOWN for frame in user]
    return [f for at, f in enumerate(user) if not (unknown[at] and at and unknown[at - 1])]


def folded(callers: Iterable[Callers], stacks: list[Stack], by: Weight) -> list[str]:
    """Return `comm;outermost;…;innermost WEIGHT` (bios, bytes or µs) for flame graph tools."""
    weights: dict[str, int] = {}
    for caller in callers:
        frames: list[str] = []
        if caller.stack >= 0:
            kernel, user = stack_texts(stacks[caller.stack])
            missing = [f"[{stacks[caller.stack].missing}]"] if stacks[caller.stack].missing else []
            frames = [*user[::-1], *missing, *kernel[::-1]]
        # Names without what the format does not take.
        names = (caller.comm, *(frames or [UNKNOWN]))
        line = ";".join(n.replace(";", ":").replace("\n", " ") or UNKNOWN for n in names)
        weights[line] = weights.get(line, 0) + caller.weight(by)
    scale = 1000 if by == Weight.LATENCY else 1
    return [f"{line} {round(weight / scale)}" for line, weight in sorted(weights.items())]
