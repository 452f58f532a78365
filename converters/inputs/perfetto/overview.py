# SPDX-License-Identifier: Apache-2.0
"""What a first reading finds of a trace's ftrace data: order, events, losses, threads.

Each CPU's events stand behind the others', so how far a block of packets is complete is known
only from all blocks behind it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError

from biotrail.converters.inputs.foreign import MAX_NS
from biotrail.converters.inputs.perfetto.block_events import GENERIC, MESSAGES, TEXTS
from biotrail.converters.inputs.perfetto.ftrace import Ftrace
from biotrail.converters.inputs.perfetto.survey import CONFIG, STATS, TREE
from biotrail.converters.inputs.perfetto.wire import Fields, Messages
from biotrail.recorder.schema.block_events import KIND_OF

# Ftrace events that a trace describes itself: those that Perfetto has no message for.
#
# Since Perfetto 50 a bundle gives such an event's number in FtraceEvent, and a descriptor of its
# message: its name and those of its fields.

_LEAST = 1 << 16
"""Lower numbers are those of Perfetto's own messages."""
_MOST_FIELDS = 32
"""Perfetto gives a field no higher number."""
_INTEGERS = (
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_INT32,
    FieldDescriptorProto.TYPE_UINT32,
)


def described(descriptors: Messages) -> dict[int, tuple[str, dict[str, int]]]:
    """Return the tracepoints that GenericEventDescriptors describe, as `MESSAGES` has its own.

    Left out are fields that are neither numbers nor the texts that are read, and descriptors that
    are damaged or whose number is one of Perfetto's own.
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
            found[int(numbers[at])] = (message.name, _fields(message))
    return found


def _fields(message: DescriptorProto) -> dict[str, int]:
    return {
        field.name: field.number
        for field in message.field
        if 0 < field.number <= _MOST_FIELDS
        and field.type
        in ((FieldDescriptorProto.TYPE_STRING,) if field.name in TEXTS else _INTEGERS)
    }


_END_OF_TRACE = 2
"""FtraceStats.phase; 1 is its start."""
_LOST = (3, 4, 8)
"""FtraceCpuStats: overrun, commit_overrun, dropped_events."""
_MOST_THREADS = 1 << 20
_MOST_MESSAGES = 1 << 16


@dataclass
class Overview:
    """Gathers what a trace's packets say besides events; `add` takes each block's fields."""

    earliest: list[int] = field(default_factory=list)
    """By block: the earliest time (ns) of its ftrace events; MAX_NS where it has none."""
    patterns: list[str] = field(default_factory=list)
    """The configuration's ftrace_events: `block/block_rq_issue`, `block/*`, `sched_switch`."""
    lost: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """By CPU: the kernel's count of lost events at the trace's start and end."""
    processes: dict[int, int] = field(default_factory=dict)
    """Process id by thread id."""
    has_block_events: bool = False
    """Whether there are events that may be the block layer's."""
    messages: dict[int, tuple[str, dict[str, int]]] = field(default_factory=MESSAGES.copy)
    """MESSAGES, and those that the trace describes."""

    def add(self, fields: Fields, ftrace: Ftrace) -> None:
        """Take a block of packets, by its PACKET_FIELDS and ftrace events."""
        times = ftrace.time[(ftrace.time >= 0) & (ftrace.time < MAX_NS)]
        self.earliest.append(int(times.min()) if len(times) else MAX_NS)
        if len(ftrace.descriptors) and len(self.messages) < _MOST_MESSAGES:
            self.messages = {**described(ftrace.descriptors), **self.messages}
        if not self.has_block_events:
            block = [kind for kind, (name, _) in self.messages.items() if name.startswith("block_")]
            self.has_block_events = bool(np.isin(ftrace.kind, [*block, GENERIC]).any())
        _, configs = fields.messages(CONFIG)
        if len(configs):
            self.patterns += _patterns(configs)
        _, stats = fields.messages(STATS)
        for row in range(len(stats)):
            self._add_stats(stats.take(np.array([row])))
        _, trees = fields.messages(TREE)
        if len(trees) and len(self.processes) < _MOST_THREADS:
            self._add_threads(trees)

    def complete_to(self) -> list[int]:
        """Return, by block, the time (ns) before which no later block has an ftrace event."""
        later = list(accumulate(reversed([*self.earliest[1:], MAX_NS]), min))
        return [at - 1 for at in reversed(later)]

    def recorded(self) -> frozenset[str] | None:
        """Return the block tracepoints that were enabled; None: the configuration is not there."""
        if not self.patterns:
            return None
        chosen = {pattern.rpartition("/")[2] for pattern in self.patterns}
        everything = any(pattern in ("block/*", "block", "*/*") for pattern in self.patterns)
        others = {name for name in chosen if name.startswith("block_")}
        return frozenset({*KIND_OF, *others} if everything else others)

    def lost_by_cpu(self) -> dict[int, int]:
        """Return how many events the kernel lost while the trace was recorded, by CPU, if any."""
        return {cpu: end - start for cpu, (start, end) in self.lost.items() if end > start}

    def _add_stats(self, stats: Messages) -> None:
        at_end = int(stats.fields([1]).values(1)[0] == _END_OF_TRACE)
        _, cpus = stats.repeated(2)
        fields = cpus.fields([1, *_LOST])
        counts = sum(np.maximum(fields.values(number), 0) for number in _LOST)
        for cpu, count in zip(fields.values(1).tolist(), np.asarray(counts).tolist(), strict=True):
            self.lost[cpu][at_end] = max(self.lost[cpu][at_end], count)

    def _add_threads(self, trees: Messages) -> None:
        _, processes = trees.repeated(1)
        for pid in processes.fields([1]).values(1).tolist():
            self.processes[pid] = pid
        _, threads = trees.repeated(2)
        fields = threads.fields([1, 3])
        self.processes.update(
            zip(fields.values(1).tolist(), fields.values(3).tolist(), strict=True)
        )


def _patterns(configs: Messages) -> list[str]:
    _, sources = configs.repeated(2)
    _, inner = sources.repeated(1)
    _, ftrace = inner.repeated(100)
    _, events = ftrace.repeated(1)
    return [events.bytes(row).decode("utf-8", "replace") for row in range(len(events))]
