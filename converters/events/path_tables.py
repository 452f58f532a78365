# SPDX-License-Identifier: Apache-2.0
"""The tables of the path beside the block layer: calls, waits, bios' calls, interrupts.

Units are those of `tables`: times are ns of CLOCK_MONOTONIC, NEVER if not recorded.
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.submission_tables import (
    BioRequests,
    RequestEnds,
    Submissions,
)
from biotrail.converters.events.tables import (
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    Table,
)

NO_STACK = -1
"""`Waits.stack`: no stack was recorded. Lower: the negative errno with which the kernel refused."""


@dataclass
class Calls(Table):
    """One row per system call that ended in the window and was recorded with its times.

    And one per wait in no such call (`timed` false), as far as the wait tells of its call: from
    leaving the CPU until it ran again.
    """

    entry: I64
    """Time of the entry into the kernel; NEVER if it is not known."""
    exit: I64
    """Time of the return to user space."""
    tid: U32
    """Thread that called."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    timed: Bool
    """Whether entry and return were recorded. Else `entry` is the wait's `out`, `exit` its `run`,
    `result` 0, `cpu` that where it ran again, and `bios` those that it was the first wait for."""
    number: I32
    """System call number, of ioctl with its command; `schema.syscalls.call_name` has its name."""
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
    """Argument 2, low 32 bits: mostly the length in bytes; of ioctl argument 1, the command."""
    arg3: U64
    """Argument 3, such as the offset (bytes) of pread64."""
    cpu: U16
    """CPU of the return."""
    file: I32
    """Row in `Context.files` of the file that its descriptor is; -1: not known."""
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

    @property
    def with_io(self) -> Bool:
        """Return whether it queued a bio or waited for I/O (n,); maybe, if its waits are unknown.

        Other calls are slow for as long as a pipe is empty or a timer runs.
        """
        waited = (self.own_io > 0) | (self.other_io > 0) | (self.undivided > 0)
        return np.asarray(waited | (self.bios > 0), dtype=np.bool_)


@dataclass
class Waits(Table):
    """One row per recorded wait of a thread, by the time of its end."""

    tid: U32
    """Thread that waited."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    entry: I64
    """Entry time of its call: with `tid`, the call's key. Where the call was not timed NEVER, until
    `converters.calls` makes it `out`."""
    timed: Bool
    """Whether it was inside a timed call."""
    number: I32
    """Of a call that was not timed: its number, as in `Calls`; KERNEL_THREAD; UNKNOWN_CALL, as of a
    timed call, whose row of Calls has it."""
    foreign: Bool
    """As in Calls, likewise; so are `arg0`, `arg2`, `arg3` and `file`."""
    arg0: U32
    arg2: U32
    arg3: U64
    file: I32
    """Row in `Context.files`; -1: not known. What `converters.calls` finds by the bios, too."""
    cpu: U16
    """CPU where the thread ran again."""
    out: I64
    """Time when the thread left its CPU."""
    woken: I64
    """Time of the wake-up; `run` if that was not seen."""
    run: I64
    """Time when the thread ran again."""
    state: U32
    """State that it waited in (TASK_* of the kernel; 2: uninterruptible)."""
    io_wait: Bool
    """Whether the kernel counted it as a wait for I/O (in_iowait)."""
    waker: U32
    """Thread that ran on the CPU where the wake-up happened; 0: the idle task, or not seen."""
    context: U8
    """Of the wake-up: 0 task, 1 softirq, 2 interrupt, where interrupts were recorded; else 0."""
    cause: U8
    """WaitCause value. `converters.calls` sets this column and `own`."""
    own: Bool
    """Whether its call had queued bios by then, and all of them are the recording's own."""
    stack: I32
    """Id of the kernel stack with which the thread left its CPU (`Context.wait_stacks`); NO_STACK;
    negative: an errno."""
    reason: U8
    """WaitReason value. `converters.calls` sets this column, `commit` and `commit_dev`."""
    commit: I64
    """Transaction whose commit ended the wait (`Commits.transaction`); NEVER: none is known."""
    commit_dev: U32
    """`Commits.dev` of that commit; 0 without one."""
    limit: U64
    """Id of the cgroup whose limit held the bio that was waited for; 0: none is known to have."""
    ran: U32
    """Thread that had the CPU until `run`; 0: the idle task, or not recorded (older logs)."""
    ran_pid: U32
    """Its process, likewise."""


@dataclass
class Commits(Table):
    """One row per commit of a journal (jbd2) that ended in the window, in order of time.

    Times of phases that were not seen, as recording began later, are NEVER.
    """

    end: I64
    """Time of jbd2_end_commit: the transaction is on the device."""
    started: I64
    """Time of jbd2_start_commit."""
    locking: I64
    """Time of jbd2_commit_locking: it waits for calls that still change the transaction."""
    flushing: I64
    """Time of jbd2_commit_flushing: it writes the data of files that has to precede (ordered)."""
    logging: I64
    """Time of jbd2_commit_logging: it writes the metadata and the commit block."""
    dev: U32
    """Device of the file system, a partition or a disk (dev_t)."""
    transaction: U32
    """Id of the transaction in its journal."""
    tid: U32
    """Thread that commits, jbd2/DEVICE."""


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
    submission: I64
    """`Submissions.number` of the io_uring request or iocb that queued the bio; -1 none known."""
    dirty_cgroup: U64
    """Id of the cgroup that it was in then; 0 if not known."""


class HeldSince(IntEnum):
    """How it is known since when a limit held a bio."""

    UNKNOWN = 0
    REMAP = 1
    """By the bio's remap from a partition or an upper device, which comes before its Q."""
    WAIT = 2
    """By the wait of a call that the bio's completion ended: it was held for that long at least."""


NO_BPS, NO_IOPS = (1 << 64) - 1, (1 << 32) - 1
"""HeldBios.bps and .iops where there is no such limit."""


@dataclass
class HeldBios(Table):
    """Bios that a cgroup's limit (blk-throttle) held before their Q, sorted by `number`."""

    number: I64
    """`Bios.number`."""
    limit: U64
    """Id of the cgroup whose limit it was, the bio's own or one above; 0: not known."""
    bps: U64
    """That limit, bytes a second of the bio's direction; or NO_BPS."""
    iops: U32
    """That limit, bios a second; or NO_IOPS."""
    limits: U32
    """Cgroups with a limit, from the bio's own upwards; of several any may have held it."""
    held: I64
    """ns that it was held before Q; NEVER: not known."""
    since: U8
    """HeldSince value."""
    tid: U32
    """Thread that submitted the bio, or waits for it; 0: not known."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    entry: I64
    """Entry time of the call that waited for it, with `tid` its key; NEVER if not known."""


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
class DriverSteps(Table):
    """What the driver did with some of the window's `requests`, sorted by `number`.

    Of the attempt that completed: a request that was issued again has the last one's times.
    """

    number: I64
    """`Requests.number`."""
    driver: U8
    """1 nvme, 2 scsi, 3 loop: `drivers.DRIVERS`."""
    begun: I64
    """Time when the driver began: it set the NVMe command up (before D), passed the SCSI command to
    the host adapter's driver, or began the I/O on a loop device's file. NEVER: before the request
    was there, so it is a former request's."""
    answered: I64
    """Time when the driver had the device's answer: the NVMe completion entry, the adapter's
    scsi_done(), the end of the file's I/O; NEVER if not recorded."""
    finished: I64
    """Time when the driver ended its part (nvme_complete_rq); NEVER: not recorded, not NVMe."""
    errors: U8
    """SCSI: dispatches that failed, since the request's address had its last completion; 255: that
    many or more."""
    timeouts: U8
    """SCSI: commands that timed out since then, likewise."""
    sq_head: U16
    """NVMe: head of the submission queue as the device told it with its answer."""
    sq_tail: U16
    """NVMe: the driver's tail of that queue then: entries from head to tail are not fetched yet."""


@dataclass
class PathTables:
    """The path beside the block layer of one window; a part that is not recorded has no rows."""

    calls: Calls
    waits: Waits
    bios: BioPaths
    """Of `Lifecycles.bios`."""
    interrupts: Interrupts
    steps: DriverSteps
    open_bios: BioPaths
    """Of `Lifecycles.open_bios`."""
    submissions: Submissions
    """Set by `converters.submissions`, from the two tables below."""
    bio_requests: BioRequests
    request_ends: RequestEnds
    commits: Commits = field(default_factory=Commits.none)
    held: HeldBios = field(default_factory=HeldBios.none)
    """Of `Lifecycles.bios`."""
    open_held: HeldBios = field(default_factory=HeldBios.none)
    """Of `Lifecycles.open_bios`."""
