# SPDX-License-Identifier: Apache-2.0
"""Perfetto's traces as a Source: the block events of their ftrace data.

Times are CLOCK_BOOTTIME, which Perfetto has ftrace use. A trace is read twice: once for its
clocks, losses and order, once for its events.
"""

import io
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, BinaryIO, cast

import numpy as np
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError

from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import Bool
from biotrail.converters.inputs.beginning import PathOrStream, name_of
from biotrail.converters.inputs.foreign import MAX_NS, clocks_at, without_block_events
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME, REALTIME
from biotrail.converters.inputs.perfetto.ftrace import (
    GENERIC,
    MESSAGES,
    Ftrace,
    ftrace_of,
    rows_of,
)
from biotrail.converters.inputs.perfetto.packets import Fields, Messages, Packets
from biotrail.converters.inputs.perfetto.survey import (
    CONFIG,
    DROPPED,
    STATS,
    TREE,
    fields_of_host,
    survey,
)
from biotrail.converters.inputs.tracepoints import Batch, Loss, TracepointSource
from biotrail.converters.inputs.translate import TEXTS
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.errors import LogFormatError

_LEAST = 1 << 16
"""Lower numbers in FtraceEvent are those of Perfetto's own messages."""
_MOST_FIELDS = 32
"""Perfetto gives a field of a described event no higher number."""
_INTEGERS = (
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_INT32,
    FieldDescriptorProto.TYPE_UINT32,
)
_END_OF_TRACE = 2
"""FtraceStats.phase; 1 is its start."""
_LOST = (3, 4, 8)
"""FtraceCpuStats: overrun, commit_overrun, dropped_events."""
_MOST_THREADS = 1 << 20
_MOST_MESSAGES = 1 << 16
_CLOCK_UNCERTAINTY_NS = 100_000
"""A snapshot's clocks are read one after the other, and no bracket is recorded."""
_COPIED = 1 << 20


class PerfettoSource(TracepointSource):
    """A Perfetto trace with block events, from a file or a pipe, as a Source."""

    def __init__(self, given: PathOrStream) -> None:
        """Read a trace once; a pipe is copied to a temporary file. Raises LogFormatError."""
        super().__init__(given, "perfetto")
        self._stream = _opened(given)
        self._path = self.name if isinstance(given, str | os.PathLike) else None
        self.size = self._stream.seek(0, os.SEEK_END)
        self._stream.seek(0)
        self._earliest: list[int] = []
        """By block: the earliest time (ns) of its ftrace events; MAX_NS where it has none."""
        self._patterns: list[str] = []
        """The configuration's ftrace_events: `block/block_rq_issue`, `block/*`, `sched_switch`."""
        self._lost: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        """By CPU: the kernel's count of lost events at the trace's start and end."""
        self._processes: dict[int, int] = {}
        """Process id by thread id."""
        self._has_block_events = False
        self._messages = MESSAGES.copy()
        """MESSAGES, and those that the trace describes."""
        self.survey = survey(self._stream, self.name, self._look)
        if not self._has_block_events:
            raise without_block_events(self.name, self.tool)
        self._last: dict[int, int] = {}
        """By CPU: time (ns) of its newest event so far."""
        self._dated: set[int] = set()
        """CPUs with loss windows."""
        found, kernel = self.survey, self.survey.kernel
        self.header["kernel"] = {k: v for k, v in kernel.items() if k in ("release", "version")}
        if "machine" in kernel:
            self.header["host"] = {"machine": kernel["machine"]}
        readings = [r for r in found.readings if BOOTTIME in r and REALTIME in r]
        if readings:
            first, last = (
                clocks_at(reading[BOOTTIME], reading[REALTIME], _CLOCK_UNCERTAINTY_NS)
                for reading in (readings[0], readings[-1])
            )
            self.header["clocks"] = first
            self.end = {**(self.end or {}), "clocks": last}
        if self._patterns:
            names = {pattern.rpartition("/")[2] for pattern in self._patterns}
            block = {name for name in names if name.startswith("block_")}
            every = not {"block/*", "block", "*/*"}.isdisjoint(self._patterns)
            self.set_recorded({*KIND_OF, *block} if every else block)
        self.problems += found.problems
        start, end = found.misplaced_span
        if start <= end < MAX_NS:
            self.add_damage(0, start, end)
        if found.elsewhere:
            self.remark(
                f"{found.elsewhere} packets are of other machines (machine_id): their events are "
                "not read"
            )

    def _look(self, fields: Fields, ftrace: Ftrace) -> None:
        times = ftrace.time[(ftrace.time >= 0) & (ftrace.time < MAX_NS)]
        self._earliest.append(int(times.min()) if len(times) else MAX_NS)
        if len(ftrace.descriptors) and len(self._messages) < _MOST_MESSAGES:
            self._messages = {**described(ftrace.descriptors), **self._messages}
        if not self._has_block_events:
            known = self._messages.items()
            block = [kind for kind, (name, _) in known if name.startswith("block_")]
            self._has_block_events = bool(np.isin(ftrace.kind, [*block, GENERIC]).any())
        _, events = fields.messages(CONFIG)
        for number in (2, 1, 100, 1):  # data_sources, config, ftrace_config, ftrace_events
            _, events = events.repeated(number)
        names = (events.bytes(row).decode("utf-8", "replace") for row in range(len(events)))
        self._patterns += names
        _, stats = fields.messages(STATS)
        for row in range(len(stats)):
            one = stats.take(np.array([row]))
            at_end = int(one.fields([1]).values(1)[0] == _END_OF_TRACE)
            cpus = one.repeated(2)[1].fields([1, *_LOST])
            lost = np.sum([np.maximum(cpus.values(number), 0) for number in _LOST], axis=0)
            for cpu, count in zip(cpus.values(1).tolist(), lost.tolist(), strict=True):
                self._lost[cpu][at_end] = max(self._lost[cpu][at_end], count)
        _, trees = fields.messages(TREE)
        if len(trees) and len(self._processes) < _MOST_THREADS:
            _, processes = trees.repeated(1)
            self._processes |= {pid: pid for pid in processes.fields([1]).values(1).tolist()}
            _, threads = trees.repeated(2)
            ids = threads.fields([1, 3])
            self._processes.update(zip(ids.values(1).tolist(), ids.values(3).tolist(), strict=True))

    @contextmanager
    def again(self) -> Iterator[BinaryIO]:
        """Yield the trace's bytes from its beginning, while `batches` may be reading them."""
        if self._path is not None:
            with open(self._path, "rb") as stream:
                yield stream
        else:
            yield cast(BinaryIO, io.BufferedReader(_Positioned(self._stream.fileno())))

    def batches(self) -> Iterator[Batch]:
        # By block: the time (ns) before which no later block has an ftrace event.
        later = list(accumulate(reversed([*self._earliest[1:], MAX_NS]), min))[::-1]
        self._stream.seek(0)
        packets = Packets(self._stream)
        read = broken = 0
        for index, block in enumerate(packets.blocks()):
            fields, _ = fields_of_host(block)
            packets.use(block, fields)
            ftrace = ftrace_of(fields)
            broken += ftrace.broken
            losses = self._losses(ftrace, fields.values(DROPPED)[ftrace.packet] != 0)
            # A thread that the trace's process tree lacks is its own process.
            tids, _, of = distinct_values(ftrace.tid)
            processes = [self._processes.get(tid, tid) for tid in tids.tolist()]
            tgid = np.array(processes, dtype=np.int64)[of]
            rows, others = rows_of(ftrace, tgid, read, self._messages)
            read += len(ftrace.time)
            passed: Counter[str] = Counter()
            for kind, number in others.items():
                if kind in self._messages:
                    name = self._messages[kind][0]
                else:
                    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import FtraceEvent

                    known: dict[int, Any] = FtraceEvent.DESCRIPTOR.fields_by_number
                    name = str(known[kind].name) if kind in known else f"event {kind}"
                passed[name] = number
            complete_to = later[min(index, len(later) - 1)] - 1
            yield Batch(rows, complete_to, packets.whole, losses, passed)
        # Losses that only the kernel's counts show are of the whole trace.
        losses = []
        first, last = self.survey.span or (0, 0)
        for cpu, (start, end) in sorted(self._lost.items()):
            if end > start and cpu in self._dated:
                self.remark(f"CPU {cpu} lost {end - start} events in all")
            elif end > start:
                losses.append(Loss(first, last, cpu, end - start))
        yield Batch([], max(self._last.values(), default=0), packets.whole, losses)
        if self._path is not None:
            self._stream.close()
        if broken:
            self.problem(f"left out: {broken} events or ends of bundles that are damaged")

    def _losses(self, ftrace: Ftrace, dropped: Bool) -> list[Loss]:
        """Return the loss windows of bundles (m,), and take their times into `_last`.

        dropped: packets before the bundle are missing, which may have been any CPU's.
        """
        cpus, owner, time, overrun = ftrace.cpu, ftrace.owner, ftrace.time, ftrace.lost
        first = np.full(len(cpus), -1, dtype=np.int64)
        newest = np.full(len(cpus), -1, dtype=np.int64)
        if len(owner):
            begins = np.flatnonzero(np.diff(owner, prepend=-1))
            first[owner[begins]] = time[begins]
            newest[owner[begins]] = np.maximum.reduceat(time, begins)
        losses = []
        for row, cpu in enumerate(cpus.tolist()):
            if (overrun[row] or dropped[row]) and first[row] >= 0:
                of = cpu if overrun[row] else -1
                since = self._last.get(cpu)
                if since is not None or overrun[row]:
                    start = int(first[row]) if since is None else min(since, int(first[row]))
                    losses.append(Loss(start, int(first[row]), of, -1))
                    self._dated.add(of)
            if newest[row] >= 0:
                self._last[cpu] = max(self._last.get(cpu, 0), int(newest[row]))
        return losses


class _Positioned(io.RawIOBase):
    """Reads an open file from its beginning, without moving the position that others read at."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END:
            offset += os.fstat(self._descriptor).st_size
        self._at = offset + (self._at if whence == os.SEEK_CUR else 0)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        data = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _opened(given: PathOrStream) -> BinaryIO:
    """Return a stream that can be read twice. Raises LogFormatError."""
    if isinstance(given, str | os.PathLike):
        try:
            return open(given, "rb")
        except OSError as error:
            raise LogFormatError(f"{os.fspath(given)}: cannot be read: {error.strerror}") from None
    if given.seekable():
        return given
    copy = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - read by `batches`
    try:
        shutil.copyfileobj(given, copy, _COPIED)
    except OSError as error:
        raise LogFormatError(
            f"{name_of(given)}: cannot be copied to a temporary file, to be read twice "
            f"({error.strerror}): give a file, or set TMPDIR to another place"
        ) from None
    copy.seek(0)
    return copy


def described(descriptors: Messages) -> dict[int, tuple[str, dict[str, int]]]:
    """Return the tracepoints that GenericEventDescriptors describe, as `MESSAGES` has its own.

    Since Perfetto 50 a bundle gives the number in FtraceEvent of an event that Perfetto has no
    message for, and a descriptor of its message. Left out are fields that are neither numbers nor
    the texts that are read, and descriptors that are damaged or whose number is one of Perfetto's
    own.
    """
    found = {}
    rows, bodies = descriptors.fields([1, 2]).messages(2)
    numbers = descriptors.fields([1, 2]).values(1)
    for row, at in enumerate(rows.tolist()):
        try:
            message = DescriptorProto.FromString(bodies.bytes(row))
        except DecodeError:
            continue
        if numbers[at] >= _LEAST and message.name:
            fields = {}
            for field in message.field:
                types = (FieldDescriptorProto.TYPE_STRING,) if field.name in TEXTS else _INTEGERS
                if 0 < field.number <= _MOST_FIELDS and field.type in types:
                    fields[field.name] = field.number
            found[int(numbers[at])] = (message.name, fields)
    return found
