# SPDX-License-Identifier: Apache-2.0
"""The tables of the path beside the block layer: calls, waits, bios' calls, interrupts.

Units are those of `tables`: times are ns of CLOCK_MONOTONIC, NEVER if not recorded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import (
    I32,
    I64,
    NEVER,
    U8,
    U16,
    U32,
    U64,
    Bool,
    Table,
)

NO_CALL = -2
"""Number of a call: none is known. -1 is a page fault (`schema.syscalls.PAGE_FAULT`)."""

PATH = np.dtype(
    [
        ("call", "<i4"),
        ("foreign", "u1"),
        ("context", "i1"),
        ("entry", "<i8"),
        ("args", "<u8", (4,)),
        ("dirtied", "<i8"),
        ("tid", "<u4"),
        ("pid", "<u4"),
        ("comm", "S16"),
        ("cgroup", "<u8"),
        ("hard", "<i8"),
        ("raised", "<i8"),
        ("soft", "<i8"),
        ("irq", "<u4"),
    ]
)
"""What is known of one event. Of a Q: call (number; NO_CALL), foreign (1: a 32-bit program's
numbers), entry (ns; NEVER), args, dirtied (ns; NEVER) by thread tid of process pid named comm in
cgroup (id; 0 not known). Of a C: context (0 task, 1 softirq, 2 interrupt; -1 not recorded), and
when the device's interrupt number `irq` was entered, the BLOCK softirq raised and entered (ns;
NEVER)."""

NO_PATH = np.zeros(1, dtype=PATH)[0]
"""A row of PATH of which nothing is known."""
NO_PATH["call"] = NO_CALL
NO_PATH["context"] = -1
for _time in ("entry", "dirtied", "hard", "raised", "soft"):
    NO_PATH[_time] = NEVER


@dataclass
class Calls(Table):
    """One row per system call that ended in the window and was recorded with its times."""

    entry: I64
    """Time of the entry into the kernel; NEVER if it is not known."""
    exit: I64
    """Time of the return to user space."""
    tid: U32
    """Thread that called."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    number: I32
    """System call number; `schema.syscalls.call_name` has its name."""
    foreign: Bool
    """Whether a 32-bit program called, whose numbers have other names."""
    result: I32
    """What it returned: bytes, 0, …; negative errno."""
    blocked: I64
    """ns off the CPU until woken, all waits."""
    runnable: I64
    """ns ready to run without a CPU: after wake-ups, and preempted."""
    bios: U16
    """Bios that it queued; 65535: that many or more."""
    waits: U16
    """Times that it left its CPU to wait; 255: that often or more."""
    arg0: U32
    """Argument 0, low 32 bits: mostly the file descriptor."""
    arg2: U32
    """Argument 2, low 32 bits: mostly the length in bytes."""
    arg3: U64
    """Argument 3, such as the offset (bytes) of pread64."""
    cpu: U16
    """CPU of the return."""
    running: I64
    """ns on a CPU. With `runnable` and the four columns below it adds up to exit - entry; all are 0
    where the entry is not known. `converters.calls` sets these five columns and `own`."""
    own_io: I64
    """ns of `blocked`: waits with a bio in flight that the call itself had queued."""
    other_io: I64
    """ns of `blocked`: other waits in state D, and waits of calls that reap other calls' I/O."""
    otherwise: I64
    """ns of `blocked`: all other waits."""
    undivided: I64
    """ns of a call whose waits were not recorded (`record --path` without its part wait)."""
    own: Bool
    """Whether it queued bios, and all of them are the recording's own."""


@dataclass
class Waits(Table):
    """One row per recorded wait of a thread inside a timed call, by the time of its end."""

    tid: U32
    """Thread that waited."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    entry: I64
    """Entry time of its call: with `tid`, the call's key."""
    out: I64
    """Time when the thread left its CPU."""
    woken: I64
    """Time of the wake-up; `run` if that was not seen."""
    run: I64
    """Time when the thread ran again."""
    state: U32
    """State that it waited in (TASK_* of the kernel; 2: uninterruptible)."""
    waker: U32
    """Thread that ran on the CPU where the wake-up happened; 0: the idle task, or not seen."""
    context: U8
    """Of the wake-up: 0 task, 1 softirq, 2 interrupt, where interrupts were recorded; else 0."""
    cause: U8
    """WaitCause value. `converters.calls` sets this column and `own`."""
    own: Bool
    """Whether its call had queued bios by then, and all of them are the recording's own."""


@dataclass
class BioPaths(Table):
    """What is known of the path of some of the window's `bios`, sorted by `number`."""

    number: I64
    """`Bios.number`."""
    call: I32
    """Number of the system call that queued the bio; -1 page fault, NO_CALL not known."""
    foreign: Bool
    """Whether a 32-bit program called, whose numbers have other names."""
    entry: I64
    """Entry time of that call, where calls were timed; NEVER."""
    args: U64
    """(n, 4): its first arguments, as in their registers."""
    dirtied: I64
    """Time when the page was dirtied that the bio writes back; NEVER if not known."""
    dirty_tid: U32
    """Thread that dirtied it; 0 if not known."""
    dirty_pid: U32
    """Its process."""
    dirty_comm: NDArray[np.bytes_]
    """Its name then, S16."""
    dirty_cgroup: U64
    """Id of the cgroup that it was in then; 0 if not known."""


@dataclass
class Interrupts(Table):
    """How some of the window's `requests` were completed, sorted by `number`."""

    number: I64
    """`Requests.number`."""
    hard: I64
    """Time when the device's interrupt was entered; NEVER: none on that CPU, or not recorded."""
    raised: I64
    """Time when the BLOCK softirq was raised on the completing CPU; NEVER."""
    soft: I64
    """Time when the BLOCK softirq was entered; NEVER: completed outside of it."""
    irq: U32
    """Number of the device's interrupt; 0: none."""
    context: U8
    """Where the completion ran: 0 task, 1 softirq, 2 interrupt."""


@dataclass
class PathTables:
    """The path beside the block layer of one window; a part that is not recorded has no rows."""

    calls: Calls
    waits: Waits
    bios: BioPaths
    """Of `Lifecycles.bios`."""
    interrupts: Interrupts
    open_bios: BioPaths
    """Of `Lifecycles.open_bios`."""
