# SPDX-License-Identifier: Apache-2.0
"""I/O by initiating stack and command: bios, bytes, latencies. Bios that were merged count too."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped
from biotrail.converters.events.stacks import Frame, Stack
from biotrail.converters.events.tables import I32, I64, NEVER, Bios, Lifecycles

BUCKETS = 64
"""Bucket b holds latencies of [2^b, 2^(b+1)) ns; bucket 0 also 0 ns."""
UNKNOWN = "[unknown]"
NO_OFFSET = -1
"""Of a group's frame: the group's stacks are at different places of the function."""
NO_STACK = Stack((), (), "no stack recorded")


class Weight(StrEnum):
    """What a stack is weighed by."""

    COUNT = "count"
    BYTES = "bytes"
    LATENCY = "latency"


@dataclass
class Callers:
    """Bios of one command from one stack."""

    comm: str
    stack: int
    """Row in Trace.stacks; -1: none was recorded."""
    bios: int = 0
    bytes: int = 0
    ended: int = 0
    """Bios that were seen to be queued and to end: those that have a latency."""
    latency_ns: int = 0
    """Sum over them, queue to completion."""
    histogram: I64 = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    """Them by the power of two of their latency in ns."""
    times: Distribution = field(default_factory=Distribution)
    """Their latencies in finer buckets, for percentiles; empty unless the table keeps them."""

    def merge(self, other: "Callers") -> None:
        """Adds the other's bios to this one's; comm and stack stay."""
        self.bios += other.bios
        self.bytes += other.bytes
        self.ended += other.ended
        self.latency_ns += other.latency_ns
        self.histogram += other.histogram
        self.times.merge(other.times)

    def weight(self, by: Weight) -> int:
        """Bios, bytes, or ns."""
        return {
            Weight.COUNT: self.bios,
            Weight.BYTES: self.bytes,
            Weight.LATENCY: self.latency_ns,
        }[by]


class StackTable:
    """Adds up windows; memory grows with the distinct pairs of stack and command alone."""

    def __init__(self, percentiles: bool = False) -> None:
        """percentiles: whether each Callers' `times` are kept, too."""
        self._percentiles = percentiles
        self._by_task: dict[tuple[int, int], Callers] = {}
        self._comms: NDArray[np.object_] = np.zeros(0, np.object_)
        self.without_queue = 0
        """Bios whose queue event is not in the log: nobody knows from where they came."""

    def add(self, window: Lifecycles) -> None:
        """Takes in the bios of a window."""
        self._comms = window.tasks.comm
        bios = window.bios
        seen = bios.queue != NEVER
        self.without_queue += int((~seen).sum())
        self._add(bios if seen.all() else bios.take(seen))

    def _add(self, bios: Bios) -> None:
        if not len(bios):
            return
        key = (bios.stack.astype(np.int64) + 1 << 32) | (bios.task.astype(np.int64) + 1)
        keys, group = np.unique(key, return_inverse=True)
        latency = bios.complete - bios.queue
        ended = (bios.complete != NEVER) & (latency >= 0)
        count = np.bincount(group)
        size = _sums(group, bios.bytes.astype(np.int64), len(keys))
        times = _sums(group[ended], latency[ended], len(keys))
        places = group[ended] * BUCKETS + log2(latency[ended])
        histogram = np.bincount(places, minlength=len(keys) * BUCKETS).reshape(-1, BUCKETS)
        fine = [Distribution() for _ in keys]
        if self._percentiles:
            add_grouped(group[ended].astype(np.int64), latency[ended], fine)
        for at, pair in enumerate(keys.tolist()):
            place = (pair >> 32) - 1, (pair & 0xFFFFFFFF) - 1
            callers = self._by_task.setdefault(place, Callers("", place[0]))
            callers.bios += int(count[at])
            callers.bytes += int(size[at])
            callers.ended += int(histogram[at].sum())
            callers.latency_ns += int(times[at])
            callers.histogram += histogram[at]
            callers.times.merge(fine[at])

    def callers(self) -> list[Callers]:
        """By command and stack: a command may have had many threads."""
        found: dict[tuple[str, int], Callers] = {}
        for (stack, task), part in self._by_task.items():
            comm = str(self._comms[task]) if task >= 0 else UNKNOWN
            found.setdefault((comm, stack), Callers(comm, stack)).merge(part)
        return list(found.values())


def _sums(group: NDArray[np.intp], values: I64, groups: int) -> I64:
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total


def log2(latency: I64) -> I32:
    """Bucket of each latency (ns): the place of its highest bit, exact for all 63."""
    bucket = np.zeros(len(latency), np.int32)
    rest = latency.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        high = rest >> shift
        more = high > 0
        bucket[more] += shift
        rest = np.where(more, high, rest)
    return bucket


def heaviest(callers: Iterable[Callers], by: Weight) -> list[Callers]:
    """The heaviest first; among equals by command and stack, so that the order is the same."""
    return sorted(callers, key=lambda c: (-c.weight(by), c.comm, c.stack))


@dataclass
class Group:
    """Bios of one command whose stacks read the same."""

    sums: Callers
    """Of all of them; `stack` is the row of the heaviest, or -1."""
    stack: Stack
    """Its frames; in a group of several, NO_OFFSET and an empty `where` where these differ."""
    stacks: int
    """How many recorded stacks there are in the group."""


def grouped(
    callers: Iterable[Callers], stacks: list[Stack], by: Weight, *, offsets: bool = False
) -> list[Group]:
    """Return callers by command and functions, the heaviest first; `callers` are not changed.

    Stacks of the same functions that differ in the places within these are one group, as in
    `folded`. offsets: each recorded stack is a group of its own.
    """
    members: dict[tuple[object, ...], list[Callers]] = {}
    for caller in heaviest(callers, by):
        stack = stack_at(stacks, caller.stack)
        key = caller.stack if offsets else (*map(tuple, stack_texts(stack)), stack.missing)
        members.setdefault((caller.comm, key), []).append(caller)
    groups = [_group(found, stacks) for found in members.values()]
    # Among equals the order of their heaviest members stays.
    return sorted(groups, key=lambda group: (-group.sums.weight(by), group.sums.comm))


def _group(members: list[Callers], stacks: list[Stack]) -> Group:
    sums = Callers(members[0].comm, members[0].stack)
    for caller in members:
        sums.merge(caller)
    found = [stack_at(stacks, caller.stack) for caller in members]
    if len(found) == 1:
        return Group(sums, found[0], 1)
    kernel = _common([stack.kernel for stack in found])
    user = _common([tuple(shown_user(stack.user)) for stack in found])
    return Group(sums, Stack(kernel, user, found[0].missing), len(found))


def _common(sides: list[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """Frames that read the same as one stack; what differs in a frame is left open."""
    frames = []
    for places in zip(*sides, strict=True):
        first = places[0]
        named = any(f.where != first.where for f in places) and first.name
        where = "" if named else first.where  # without a name it is what people see
        same = all(f.offset == first.offset for f in places)
        frames.append(Frame(first.name, where, first.offset if same else NO_OFFSET))
    return tuple(frames)


def stack_at(stacks: list[Stack], row: int) -> Stack:
    """Return the stack in that row; of -1 one without frames that says so."""
    return stacks[row] if row >= 0 else NO_STACK


def frame_text(frame: Frame, *, kernel: bool, offsets: bool = False) -> str:
    """`ext4_sync_file`, `bio_map [dm_mod]`, `0xffffffff81af64dd`, `dd+0x12ab`, `[unknown]`.

    With offsets `ext4_sync_file+0x28`, `bio_map+0x4 [dm_mod]`.
    """
    if frame.name:
        name = f"{frame.name}+{frame.offset:#x}" if offsets else frame.name
        return f"{name} [{frame.where}]" if kernel and frame.where else name
    if frame.where:
        return f"{frame.where.rsplit('/', 1)[-1]}+{frame.offset:#x}"
    return f"{frame.offset:#x}" if kernel else UNKNOWN


def stack_texts(stack: Stack, *, offsets: bool = False) -> tuple[list[str], list[str]]:
    """Kernel and user frames as text, the innermost first; unknown ones in a row become one."""
    kernel = [frame_text(frame, kernel=True, offsets=offsets) for frame in stack.kernel]
    user = [frame_text(frame, kernel=False, offsets=offsets) for frame in shown_user(stack.user)]
    return kernel, user


def shown_user(user: tuple[Frame, ...]) -> list[Frame]:
    """User frames; of unknown ones in a row the first alone."""
    unknown = [frame_text(frame, kernel=False) == UNKNOWN for frame in user]
    return [f for at, f in enumerate(user) if not (unknown[at] and at and unknown[at - 1])]


def folded(callers: Iterable[Callers], stacks: list[Stack], by: Weight) -> list[str]:
    """`comm;outermost;…;innermost WEIGHT`, one line per command and stack as text, sorted.

    The form that flame graph tools read; latency is in microseconds. Stacks that differ in
    offsets alone are one line.
    """
    weights: dict[str, int] = {}
    for caller in callers:
        frames: list[str] = []
        if caller.stack >= 0:
            kernel, user = stack_texts(stacks[caller.stack])
            missing = [f"[{stacks[caller.stack].missing}]"] if stacks[caller.stack].missing else []
            frames = [*user[::-1], *missing, *kernel[::-1]]
        line = ";".join(_plain(part) for part in (caller.comm, *(frames or [UNKNOWN])))
        weights[line] = weights.get(line, 0) + caller.weight(by)
    scale = 1000 if by == Weight.LATENCY else 1
    return [f"{line} {round(weight / scale)}" for line, weight in sorted(weights.items())]


def _plain(text: str) -> str:
    """Without what the folded form gives a meaning to."""
    return text.replace(";", ":").replace("\n", " ") or UNKNOWN
