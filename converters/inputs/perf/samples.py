# SPDX-License-Identifier: Apache-2.0
"""perf's samples as rows of the block layer's tracepoints, a block of records at a time."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.foreign import records_at
from biotrail.converters.inputs.perf.facts import Facts
from biotrail.converters.inputs.perf.layout import TRACEPOINT, Attr, ReadFormat, SampleType
from biotrail.converters.inputs.perf.records import Block
from biotrail.converters.inputs.translate import TracepointRows

_NONE = 0xFFFFFFFF
"""The kernel's -1, the thread of a sample in a process that has ended."""


class Samples(NamedTuple):
    """Samples of one event, in their order.

    at: offset of the record in the block. time: ns. raw: offset of the tracepoint's record;
    raw_bytes: its size, 0 where the sample's fields go past its end. All int64, (n,); -1: a thread,
    process or CPU that the sample does not have.
    """

    at: I64
    time: I64
    cpu: I64
    pid: I64
    tid: I64
    raw: I64
    raw_bytes: I64


def read_samples(block: Block, at: I64, attr: Attr) -> Samples:
    """Return the samples at the offsets `at`, all of an event whose samples have TIME.

    Without those that are too short for the event's fields of 8 bytes.
    """
    size = block.size(at)
    whole = size >= attr.fixed
    at, size = at[whole], size[whole]
    time = block.wide(at + attr.at[SampleType.TIME])
    task_at = attr.at.get(SampleType.TID)
    numbers = []
    for place in (attr.at.get(SampleType.CPU), task_at, task_at and task_at + 4):
        found = np.full(len(at), -1) if place is None else block.half(at + place)
        numbers.append(np.where(found == _NONE, -1, found))
    cpu, pid, tid = numbers
    if SampleType.RAW not in attr.sample_type:
        return Samples(at, time, cpu, pid, tid, at, np.zeros(len(at), np.int64))

    # RAW is behind READ and CALLCHAIN, each of which must end within the sample.
    behind = np.full(len(at), attr.fixed, np.int64)
    good = np.ones(len(at), np.bool_)
    if SampleType.READ in attr.sample_type:
        # A value, or one for each event of a group, with its id and its losses, and times.
        has = attr.read_format
        each = 1 + (ReadFormat.ID in has) + (ReadFormat.LOST in has)
        times = (ReadFormat.TIME_ENABLED in has) + (ReadFormat.TIME_RUNNING in has)
        if ReadFormat.GROUP in has:
            count, good = _count(block, at, behind, size, good)
            behind = behind + 8 * (1 + times + each * count)
        else:
            behind = behind + 8 * (each + times)
        good = good & (behind <= size)
    if SampleType.CALLCHAIN in attr.sample_type:
        count, good = _count(block, at, behind, size, good)
        behind = behind + 8 + 8 * count
    good = good & (behind + 4 <= size)
    length = block.half(np.where(good, at + behind, at))
    good = good & (behind + 4 + length <= size)
    raw = np.where(good, at + behind + 4, 0)
    return Samples(at, time, cpu, pid, tid, raw, np.where(good, length, 0))


def _count(block: Block, at: I64, place: I64, size: I64, good: Bool) -> tuple[I64, Bool]:
    """Return (number of 8-byte words announced at `place`, whether so many are in the sample).

    The number is 0 where they are not. good: samples that reach to `place`.
    """
    good = good & (place + 8 <= size)
    count = block.wide(np.where(good, at + place, at))
    good = good & (count >= 0) & (count <= (size - place - 8) >> 3)
    return np.where(good, count, 0), good


class EventReader:
    """Reads samples as rows of the tracepoints that they are of.

    facts: the recording's events and formats, which may still grow. unreadable: bytes of samples
    of which the event is not known, or whose record is cut off or of another event. behind: bytes
    in samples behind all of their fields. other_kinds: names of events that are passed over, but
    whose samples are of another tracepoint than they say.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.unreadable = self.behind = 0
        self.other_kinds: dict[str, None] = {}
        self._id = np.dtype([("common_type", f"{facts.order}u2")])
        """What every tracepoint's record begins with."""
        self._tracepoints: dict[str, int] = {}
        self._ids = np.zeros(0, np.int64), np.zeros(0, np.uint16)

    def tracepoints(self) -> dict[str, int]:
        """Return the block layer's tracepoints that are recorded and read: name → event's index.

        Of one that was recorded twice, the first.
        """
        found: dict[str, int] = {}
        for index in range(len(self._facts.events)):
            if self._dtype(index) is not None:
                found.setdefault(self._facts.name(index), index)
        return found

    def _dtype(self, index: int) -> np.dtype[np.void] | None:
        """Return the dtype of an event's records; None: it is no tracepoint that is read."""
        tracepoint = self._facts.tracepoint(index)
        return None if tracepoint is None else tracepoint.dtype

    def rows(self, block: Block, at: I64, passed_over: Counter[str]) -> list[TracepointRows]:
        """Return the block layer's records in the samples at `at`; count others by name."""
        if not self._tracepoints:
            self._tracepoints = self.tracepoints()
        found = []
        by_event, unknown = self._by_event(block, at)
        self.unreadable += int(block.size(unknown).sum())
        for index, of_event in by_event:
            attr, name, dtype = (
                self._facts.events[index],
                self._facts.name(index),
                self._dtype(index),
            )
            if dtype is None or self._tracepoints.get(name) != index:
                passed_over[name if dtype is None else f"{name} (again)"] += len(of_event)
                if attr.type == TRACEPOINT and SampleType.RAW in attr.sample_type:
                    first = read_samples(block, of_event[:1], attr)
                    if (first.raw_bytes >= self._id.itemsize).all():
                        kind = records_at(block.data, first.raw, self._id)["common_type"]
                        if (kind != attr.config & 0xFFFF).any():
                            self.other_kinds[name] = None
                continue
            samples, whole, rest = self._samples(block, of_event, attr, dtype)
            self.unreadable += int(block.size(of_event).sum() - block.size(samples.at[whole]).sum())
            self.behind += int(rest[whole].sum())
            if not whole.any():
                continue
            if not whole.all():
                samples = Samples(*(column[whole] for column in samples))
            records = records_at(block.data, samples.raw, dtype)
            columns = {name: records[name] for name in dtype.names or ()}
            tid, arrival = samples.tid, block.start + samples.at
            if "common_pid" in columns and (tid < 0).any():
                tid = np.where(tid < 0, columns["common_pid"], tid)
            cpu, time, tgid = samples.cpu, samples.time, samples.pid
            found.append(TracepointRows(name, time, cpu, tid, arrival, columns, tgid))
        return found

    def _samples(
        self, block: Block, at: I64, attr: Attr, dtype: np.dtype[np.void]
    ) -> tuple[Samples, Bool, I64]:
        """Return (samples of an event, which hold its record, bytes behind that in each).

        A record says of which tracepoint it is, as the sample's id does. The samples are those that
        are as long as their fields.
        """
        samples = read_samples(block, at, attr)
        whole = samples.raw_bytes >= dtype.itemsize
        if "common_type" in (dtype.names or ()) and whole.any():
            kinds = records_at(block.data, samples.raw[whole], dtype)["common_type"]
            whole[whole] = kinds == attr.config & 0xFFFF
        rest = np.zeros(len(samples.at), np.int64)
        if attr.ends_with_raw:
            rest = samples.at + block.size(samples.at) - samples.raw - samples.raw_bytes
        return samples, whole, rest

    def hidden(self, block: Block, at: I64) -> tuple[Bool, I64]:
        """Return which records at the offsets `at` are whole samples of the block layer's events.

        By all but their types: (mask (n,), time (ns) of each that is).
        """
        hidden, time = np.zeros(len(at), np.bool_), np.zeros(len(at), np.int64)
        for index, of_event in self._by_event(block, at)[0]:
            if (dtype := self._dtype(index)) is not None:
                attr = self._facts.events[index]
                samples, whole, rest = self._samples(block, of_event, attr, dtype)
                whole &= rest == 0
                place = np.searchsorted(at, samples.at[whole])
                hidden[place], time[place] = True, samples.time[whole]
        return hidden, time

    def has_trailer(self, block: Block, at: I64) -> Bool:
        """Return which of the kernel's records beside samples, (n,), can end as they all do.

        That is with the id of an event, or 0 in those that perf made; else, where there is one
        event, with a CPU, which has 4 bytes of zeros behind it.
        """
        trailer_at, size = self._facts.events[0].trailer_at, block.size(at)
        place = trailer_at.get(SampleType.IDENTIFIER, trailer_at.get(SampleType.ID))
        cpu = trailer_at.get(SampleType.CPU)
        good = np.ones(len(at), np.bool_)
        if place is not None and self._facts.ids and len(at):
            long = size >= -place
            ids = block.wide(np.where(long, at + size + place, at))
            good = long & ((ids == 0) | np.isin(ids, self._known_ids()[0]))
        elif cpu is not None and len(at):
            long = size >= -cpu
            good = long & (block.half(np.where(long, at + size + cpu + 4, at)) == 0)
        return good

    def _by_event(self, block: Block, at: I64) -> tuple[list[tuple[int, I64]], I64]:
        """Return ((event's index, offsets of its samples) …, offsets of those without an event)."""
        id_at = self._facts.events[0].id_at
        if id_at is None or not self._facts.ids:
            return ([(0, at)] if len(at) else []), at[:0]
        keys, events = self._known_ids()
        long = block.size(at) >= id_at + 8
        ids = np.full(len(at), -1)
        ids[long] = block.wide(at[long] + id_at)
        place = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
        known = long & (keys[place] == ids)
        of, mine = events[place[known]], at[known]
        order = np.argsort(of, kind="stable")
        parts = np.split(mine[order], np.cumsum(np.bincount(of))[:-1])
        return [(event, part) for event, part in enumerate(parts) if len(part)], at[~known]

    def _known_ids(self) -> tuple[I64, NDArray[np.uint16]]:
        if len(self._ids[0]) != len(self._facts.ids):
            keys = np.array(list(self._facts.ids), np.uint64).view(np.int64)
            events = np.array(list(self._facts.ids.values()), np.uint16)
            order = np.argsort(keys)
            self._ids = keys[order], events[order]
        return self._ids
