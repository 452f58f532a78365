# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables of calls and waits as plain values with names, for calls shown one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import CALL_PARTS
from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.calls.names import MOVES_BYTES, name_of_call, name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import NEVER, WAIT_CAUSE_NAMES, Tasks, WaitCause
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.call_arguments import What, argument_of_calls

_STATES = {0: "R", 1: "S", 2: "D", 4: "T", 8: "t"}
_KILLABLE, _IDLE, _FREEZABLE = 0x102, 0x402, 0x2000
"""TASK_* of include/linux/sched.h; a wait that may be frozen (TASK_FREEZABLE) is as it is."""
JOURNAL = "jbd2/"
"""Beginning of the names of the threads that commit journals (kjournald2)."""
_CONTEXTS = ("task", "softirq", "interrupt")


@dataclass
class CallFacts:
    """One timed call, or a wait of one that was not timed. Times are ns.

    None: not known, or the call has none.
    """

    call: str
    """Name: pread64, fsync, …; "fsync (wait)" where only a wait is known; page fault."""
    timed: bool
    """Whether entry and return are known. Else `entry_ns` and `duration_ns` are the wait's, from
    leaving the CPU until it ran again."""
    tid: int
    pid: int | None
    comm: str | None
    cpu: int
    """CPU of the return."""
    entry_ns: int
    """Entry into the kernel, CLOCK_MONOTONIC."""
    duration_ns: int
    """From entry to return."""
    result: int | None
    """What it returned, low 32 bits: bytes, 0, a negative errno; None: it was not timed."""
    error: str | None
    """Name of the error; None: it returned none."""
    bytes: int
    """Bytes that it read, wrote or copied; 0 for other calls and errors."""
    fd: int | None
    offset: int | None
    length: int | None
    """Descriptor, offset (bytes) and length (bytes) as its arguments gave them."""
    bios: int
    """Bios that it queued; 65535: that many or more."""
    waits: int
    """Times that it left its CPU to wait; 255: that often or more."""
    parts: dict[str, int]
    """Name in CALL_PARTS → ns, all of them; they add up to `duration_ns`."""
    title: str | None = None
    """What its process calls itself, or which script it runs; None: neither."""

    @property
    def longest(self) -> str:
        """The part that took most of the time; of equal ones the first."""
        return max(self.parts, key=lambda part: self.parts[part])

    def share(self, part: str) -> float:
        """Return the share of a part in the call's time, 0 to 1."""
        return self.parts[part] / self.duration_ns if self.duration_ns else 0.0


@dataclass
class WaitFacts:
    """One wait of a call."""

    start_ns: int
    """ns from the call's entry to when its thread left the CPU."""
    blocked_ns: int
    """From then to the wake-up."""
    runnable_ns: int
    """From the wake-up until it ran."""
    cause: str
    """own I/O, other I/O, otherwise: as the parts of a call's time."""
    state: str
    """As ps has it: D (also "D killable"), S, …; the number in hexadecimal of any other."""
    waker_tid: int | None
    """Thread that ran on the CPU of the wake-up; None: the idle task, or not known."""
    waker_comm: str | None
    context: str
    """Of the wake-up: task, softirq, interrupt, unknown (it was not seen)."""
    reason: str | None = None
    """What it was for, as in WAIT_REASON_NAMES; None: the log has no part fs."""
    commit: int | None = None
    """Transaction of jbd2 whose commit ended it; None: none is known."""
    commit_device: str | None = None
    """Device of that commit's file system."""
    limit: str | None = None
    """Cgroup whose limit held the bio that it was for, where `reason` is that; else None."""
    stack: list[str] = field(default_factory=list)
    """Kernel functions in which it waited, the innermost first; empty: not recorded."""


@dataclass
class SlowCall:
    """One slow call with its waits and the bios that it queued."""

    call: CallFacts
    waits: list[WaitFacts] = field(default_factory=list)
    """In order of time; of more than MOST_WAITS the longest."""
    waits_left_out: int = 0
    """Recorded waits beyond these."""
    bios: list[IO] = field(default_factory=list)
    """Bios that it queued, in the order of their Q; of more than MOST_BIOS the slowest."""
    bios_left_out: int = 0
    """Bios of the log beyond these."""
    bio_bytes: int = 0
    """Bytes of all bios of the log that it queued."""
    files: list[str] = field(default_factory=list)
    """Paths of its descriptor's file and those whose pages these bios carry, MOST_FILES at most."""
    journal: list[IO] = field(default_factory=list)
    """Bios of the journals' threads (jbd2) that woke it, in flight at some time of the call, in the
    order of their Q; of more than MOST_BIOS the slowest."""
    journal_left_out: int = 0
    """Such bios beyond these; also those of other journals' threads, if there are so many."""

    @property
    def journal_threads(self) -> set[int]:
        """Ids of the journals' threads (jbd2/DEVICE) that ended a wait in `waits`.

        Waits that were left out do not count.
        """
        return {
            wait.waker_tid
            for wait in self.waits
            if wait.waker_tid and (wait.waker_comm or "").startswith(JOURNAL)
        }

    def reasons(self, cause: str) -> dict[str, int]:
        """Return reason → ns blocked of the waits of a cause, the longest first; {}: not known."""
        found: dict[str, int] = {}
        for wait in self.waits:
            if wait.cause == cause and wait.reason is not None:
                found[wait.reason] = found.get(wait.reason, 0) + wait.blocked_ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def call_at(calls: Calls, row: int, tasks: Tasks, context: Context) -> CallFacts:
    """Return the call in row `row` of `calls` as plain values.

    Its entry must be known. tasks: what `calls.task` is the row of; pid and comm are None where it
    is -1. `error`, `bytes`: by result and name, see CallFacts. fd, offset and length are None where
    the call has no such argument or it is not in the log. context: of the log, for names.
    """
    one = calls.take(np.array([row]))
    timed = bool(one.timed[0])
    name = name_of_call(int(one.number[0]), bool(one.foreign[0]), context.machine, timed)
    task, result, entry = int(one.task[0]), int(one.result[0]), int(one.entry[0])
    comm = str(tasks.comm[task]) if task >= 0 else None

    def given(what: What) -> int | None:
        """Return an argument of the call; None: it has none, or that is not in the log."""
        values, known = argument_of_calls(one, context.machine, what)
        return int(values[0]) if known[0] else None

    return CallFacts(
        call=name,
        timed=timed,
        tid=int(one.tid[0]),
        pid=tasks.pid(task),
        comm=comm,
        cpu=int(one.cpu[0]),
        entry_ns=entry,
        duration_ns=int(one.exit[0]) - entry,
        result=result if timed else None,
        error=name_of_error(result),
        bytes=max(result, 0) if name in MOVES_BYTES else 0,
        fd=given("fd"),
        offset=given("offset"),
        length=given("length"),
        bios=int(one.bios[0]),
        waits=int(one.waits[0]),
        parts={part: int(getattr(one, part)[0]) for part in CALL_PARTS},
        title=context.titles.title(tasks.pid(task), comm),
    )


def waits_at(
    waits: Waits, rows: Mapping[int, int], names: TaskNames, context: Context
) -> list[WaitFacts]:
    """Return some waits as plain values, in the order of `rows`.

    rows: row in `waits` → ns of CLOCK_MONOTONIC from which `start_ns` counts. names: of threads,
    for the name that the waker had when it woke. `context` is "unknown" where the wake-up was not
    seen; `reason` is None without the part `fs` of the path; `stack` is empty where the log has
    none. context: of the log, for stacks and devices.
    """
    chosen = waits.take(np.array(list(rows), dtype=np.int64))
    tasks, task = names.table(), names.rows(chosen.waker, chosen.woken)
    found = []
    for at, since in enumerate(rows.values()):
        out, woken, run = int(chosen.out[at]), int(chosen.woken[at]), int(chosen.run[at])
        waker, row, where = int(chosen.waker[at]), int(task[at]), int(chosen.context[at])
        unseen = woken == run and not waker and not where
        commit, dev = int(chosen.commit[at]), int(chosen.commit_dev[at])
        limit = int(chosen.limit[at]) * (chosen.reason[at] == WaitReason.CGROUP_LIMIT)
        reason = WAIT_REASON_NAMES[WaitReason(int(chosen.reason[at]))]
        found.append(
            WaitFacts(
                start_ns=out - since,
                blocked_ns=woken - out,
                runnable_ns=run - woken,
                cause=WAIT_CAUSE_NAMES[WaitCause(int(chosen.cause[at]))],
                state=state_name(int(chosen.state[at])),
                waker_tid=waker or None,
                waker_comm=str(tasks.comm[row]) if waker and row >= 0 else None,
                context="unknown" if unseen or where >= len(_CONTEXTS) else _CONTEXTS[where],
                reason=reason if "fs" in context.path_parts else None,
                commit=None if commit == NEVER else commit,
                commit_device=context.device_name(dev) if dev else None,
                limit=context.cgroups.get(limit, f"id {limit}") if limit else None,
                stack=list(context.wait_stacks.get(int(chosen.stack[at]), ())),
            )
        )
    return found


def state_name(state: int) -> str:
    """Return a thread's state, TASK_* bits, as ps names it; TASK_FREEZABLE is ignored.

    "R", "S", "D", "T", "t", "I", or "D killable"; any other in hexadecimal, whole: "0x80".
    """
    if state & _IDLE == _IDLE:
        return "I"
    if state & _KILLABLE == _KILLABLE:
        return "D killable"
    return _STATES.get(state & ~_FREEZABLE, f"{state:#x}")
