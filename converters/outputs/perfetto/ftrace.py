# SPDX-License-Identifier: Apache-2.0
"""What Perfetto's own SQL and UI make tables of: ftrace events, made of requests and waits.

Field numbers are those of protos/perfetto/trace/ftrace/ (ftrace_event.proto, block.proto).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import Waits
from biotrail.converters.events.tables import I64, Requests
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import FOREVER, Slices
from biotrail.recorder.schema.records import NO_SECTOR
from biotrail.recorder.schema.strings import characters

_EVENT_BYTES = 64
"""Most bytes of a block_io_start or block_io_done."""
_UNINTERRUPTIBLE = 2
_SCHEDULER = ("schedule", "__schedule", "io_schedule", "preempt_schedule")
"""Functions that begin so are how a thread waits, not where: the kernel passes over them, too."""


def block_io(requests: Slices, table: Requests, offset: int) -> list[TracePacket]:
    """Return a packet with block_io_start and block_io_done of each request; none without requests.

    requests: slices of rows of `table`; one that is open to the trace's end has no block_io_done.
    offset: what makes times of BOOTTIME of them (ns). The events are of no thread, and of CPU 0.
    """
    if not len(requests):
        return []
    few = table.take(requests.rows)
    ended = np.flatnonzero(requests.end != FOREVER)
    row = np.concatenate([np.arange(len(few)), ended])
    at = np.concatenate([requests.start, requests.end[ended]]) + offset
    done = np.arange(len(row)) >= len(few)
    order = np.lexsort((done, at))
    few, at, done = few.take(row[order]), at[order], done[order]
    major, minor = few.dev.astype(np.uint64) >> 20, few.dev.astype(np.uint64) & 0xFFFFF
    out = np.empty(_EVENT_BYTES * len(at), dtype=np.uint8)
    used = loops.encode_block_io(
        np.maximum(at, 0),
        done.view(np.uint8),
        (minor & 0xFF) | major << 8 | minor >> 8 << 20,
        np.where(few.sector == NO_SECTOR, 0, few.sector),
        few.bytes.astype(np.uint64),
        out,
    )
    packet = TracePacket()
    packet.ftrace_events.cpu = 0
    packet.ftrace_events.MergeFromString(out[:used].tobytes())
    return [packet]


@dataclass
class BlockedReasons:
    """Makes sched_blocked_reason of waits, by which an importer fills in states of threads."""

    stacks: Mapping[int, tuple[str, ...]]
    """Functions of the stacks of waits by their ids, the innermost first; grows."""
    _ids: dict[str, int] = field(default_factory=dict)
    """Interned names."""

    def packets(self, waits: Waits, offset: int) -> list[TracePacket]:
        """Return a packet with an event for each wait in state D or for I/O; none without any.

        It is at the wake-up, where the kernel's is; where that was not seen, within the wait, as an
        importer knows none that comes when the thread runs again. offset: as for `block_io`.
        """
        state = (waits.state & _UNINTERRUPTIBLE) != 0
        told = waits.take(np.flatnonzero(state | waits.io_wait))
        if not len(told):
            return []
        packet = TracePacket()
        packet.ftrace_events.cpu = 0
        reasons = {**WAIT_REASON_NAMES, WaitReason.UNKNOWN: ""}
        names = []  # of the function that a thread waited in, else of what it waited for
        for stack, reason in zip(told.stack.tolist(), told.reason.tolist(), strict=True):
            functions = self.stacks.get(stack, ())
            where = (one for one in functions if not one.startswith(_SCHEDULER))
            names.append(next(where, reasons[reason]))
        between = told.out + (told.run - told.out) // 2
        woken = np.where(told.woken < told.run, told.woken, between)
        at: I64 = np.maximum(woken + offset, 0)
        for time, tid, io_wait, name in zip(
            at.tolist(), told.tid.tolist(), told.io_wait.tolist(), names, strict=True
        ):
            event = packet.ftrace_events.event.add(timestamp=time, pid=tid)
            blocked = event.sched_blocked_reason
            blocked.pid, blocked.io_wait = tid, int(io_wait)
            if name and name not in self._ids:
                self._ids[name] = len(self._ids) + 1
                text = characters(name).encode("utf-8")
                packet.interned_data.kernel_symbols.add(iid=self._ids[name], str=text)
            if name:
                blocked.caller = self._ids[name]
        return [packet]
