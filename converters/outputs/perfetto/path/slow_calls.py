# SPDX-License-Identifier: Apache-2.0
"""The slowest system calls of a trace, on a track of their own, with what each waited for."""

from dataclasses import dataclass, field, replace

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.calls.names import name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import I64, NEVER, WAIT_CAUSE_NAMES, Tasks, WaitCause
from biotrail.converters.outputs.perfetto.names import BLOCKED, RUNNABLE, SLOW_CALL, Interned
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.ranking import MOST, episodes
from biotrail.converters.outputs.perfetto.path.flights import Flights
from biotrail.converters.outputs.perfetto.path.slow_slices import SlowSlice, slow_packets
from biotrail.converters.outputs.perfetto.tracks.tree import Tree
from biotrail.recorder.schema.durations import duration
from biotrail.recorder.schema.syscalls import KERNEL_THREAD, shown_name

_WORKERS = shown_name(KERNEL_THREAD, False, "")
"""Name of the waits of kernel threads."""
WITH_ARROWS = 10
"""The slowest calls whose waits have arrows from the commits that ended them, by default."""


@dataclass
class SlowCalls:
    """The slowest calls so far, of those that are drawn."""

    context: Context
    names: Interned
    """Event names."""
    flights: Flights
    """With the window that the calls' slices are made in."""
    _kept: list[SlowSlice] = field(default_factory=list)
    """The slowest first."""

    def add(self, slices: Slices, table: Calls, row: I64, waits: Waits, tasks: Tasks) -> I64:
        """Take in calls; return the indices of those slices that are among the slowest so far.

        slices: of the calls of `table`, in its order. row: per wait, its call. tasks: threads, to
        which `table.task` refers.
        """
        least = self._kept[-1].end - self._kept[-1].start if len(self._kept) == MOST else -1
        at = np.flatnonzero(slices.end - slices.start > least)
        at = at[~(self.context.files.of_kernel(table.file[at]) & (table.bios[at] == 0))]
        worker = table.number[at] == KERNEL_THREAD
        at = at[episodes(slices.start[at], slices.end[at], slices.number[at], lesser=worker)]
        fresh = {
            one: self._slice(slices, table, one, waits.take(np.flatnonzero(row == one)), tasks)
            for one in at.tolist()
        }
        every = sorted([*self._kept, *fresh.values()], key=lambda one: one.start - one.end)
        start, end = (np.array([getattr(s, a) for s in every], np.int64) for a in ("start", "end"))
        workers = np.array([one.colour == _WORKERS for one in every], np.bool_)
        chosen = episodes(start, end, np.arange(len(every)), lesser=workers)
        self._kept = [every[i] for i in chosen.tolist()]
        slow = [id(one) for one in self._kept[:WITH_ARROWS]]
        return np.array([at for at, one in fresh.items() if id(one) in slow], dtype=np.int64)

    def _slice(
        self, slices: Slices, table: Calls, at: int, waits: Waits, tasks: Tasks
    ) -> SlowSlice:
        one = table.take(np.array([at]))
        task, result, start = int(one.task[0]), int(one.result[0]), int(slices.start[at])
        name = self.names.text(int(slices.name[at]))
        comm = str(tasks.comm[task]) if task >= 0 else ""
        end, file = int(slices.end[at]), int(one.file[0])
        facts: dict[str, int | str | None] = {
            "why": self._why(one, waits, end - start),
            "process": comm,
            "latency_ns": end - start,
            "file": self.context.files[file].shown if file >= 0 else None,
            "fd": int(one.arg0[0]) if one.number[0] >= 0 else None,
            "result": result if result >= 0 and one.timed[0] else None,
            "error": name_of_error(result),
            "queued_bios": int(one.bios[0]) or None,
            "tid": int(one.tid[0]),
            "pid": tasks.pid(task),
            "commit": int(waits.commit.max(initial=NEVER)) if (waits.commit >= 0).any() else None,
        }
        stages = []
        for reason, out, woken, run in zip(
            waits.reason.tolist(),
            waits.out.tolist(),
            waits.woken.tolist(),
            waits.run.tolist(),
            strict=True,
        ):
            stages += [(self._named(reason), out, woken), (RUNNABLE, woken, run)]
        shown = f"{name} {comm}".rstrip()
        return SlowSlice(shown, start, end, facts, stages, 0, name)

    def _named(self, reason: int) -> str:
        said = "fs" in self.context.path_parts and reason != WaitReason.UNKNOWN
        return WAIT_REASON_NAMES[WaitReason(reason)] if said else BLOCKED

    def _why(self, one: Calls, waits: Waits, took: int) -> str:
        """Return in a sentence where most of a call's time went. took: ns, the whole call."""
        runnable = int(one.runnable[0])
        running = max(took - runnable - int(one.blocked[0]), 0)
        most = max(runnable, running, int(one.blocked[0]))
        if runnable == most and most:
            return f"ready to run, without a CPU, {duration(most)} of {duration(took)}"
        if running == most or not len(waits):
            return f"ran {duration(running)} of {duration(took)}"
        length = waits.woken - waits.out
        alike = waits.reason if "fs" in self.context.path_parts else waits.cause
        sums = {int(kind): int(length[alike == kind].sum()) for kind in np.unique(alike)}
        kind = max(sums, key=lambda one: sums[one])
        longest = int(np.argmax(np.where(alike == kind, length, -1)))
        what = WAIT_CAUSE_NAMES[WaitCause(int(waits.cause[longest]))]
        if alike is waits.reason and kind != WaitReason.UNKNOWN:
            what = f"{WAIT_REASON_NAMES[WaitReason(kind)]} ({what})"
        text = f"waited {duration(sums[kind])} of {duration(took)}: {what}"
        disk = None
        if waits.commit[longest] != NEVER:
            dev = int(waits.commit_dev[longest])
            disk = self.context.disk_of(dev)
            text += f"; transaction {int(waits.commit[longest])} of {self.context.device_name(dev)}"
        if waits.cause[longest] == WaitCause.OTHERWISE:
            return text
        begin = int(one.entry[0])
        beside = self.flights.beside_call(int(one.tid[0]), disk, begin, begin + took)
        return "; ".join(filter(None, (text, beside)))

    def packets(self, tree: Tree, host: str) -> list[TracePacket]:
        """Return the track "slowest calls": its lanes' descriptors, and the slices with waits."""
        drawn = [replace(one, facts={**one.facts, "host": host}) for one in self._kept]
        return slow_packets(tree, SLOW_CALL, drawn)
