# SPDX-License-Identifier: Apache-2.0
"""Calls and waits as Arrow tables: their columns, and a window's rows with names for numbers."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from biotrail.converters.calls.names import name_of_call, name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, WAIT_CAUSE_NAMES, Lifecycles, WaitCause
from biotrail.converters.lifecycles.arrow.columns import (
    FILE_WAS,
    MONOTONIC,
    NAME,
    TITLE,
    WALL,
    Column,
    filled,
    named,
    nullable,
    schema,
)
from biotrail.converters.lifecycles.arrow.tables import cgroups, wall_clock, who_columns
from biotrail.recorder.schema.syscalls import UNKNOWN_CALL, plain_number

_THREAD = (
    Column("tid", pa.uint32(), "", "thread"),
    Column("pid", pa.uint32(), "", "its process"),
    Column("comm", NAME, "", "its name"),
)
_ENTRY = Column("entry_ns", pa.int64(), MONOTONIC, "entry into the kernel")
CALLS = (
    Column("call", NAME, "", "name: pread64, fsync, …; syscall N where it is not known"),
    Column(
        "timed", pa.bool_(), "", "false: nothing but a wait of it is known, of which the row is"
    ),
    Column(
        "number", pa.int32(), "", "number of the system call on the log's machine; -1: page fault"
    ),
    Column("foreign", pa.bool_(), "", "call of a 32-bit program, whose numbers differ"),
    *_THREAD,
    Column("cpu", pa.uint16(), "", "CPU of the return, or where it ran again"),
    Column("entry_time", WALL, "UTC", "entry into the kernel, by the wall clock"),
    replace(_ENTRY, meaning="entry into the kernel; not timed: it left its CPU"),
    Column("exit_ns", pa.int64(), MONOTONIC, "return to the program; not timed: it ran again"),
    Column("duration_ns", pa.int64(), "ns", "from entry to return, or of the wait"),
    Column("result", pa.int32(), "", "what it returned, low 32 bits: bytes, 0, a negative errno"),
    Column("error", NAME, "", "name of the error, such as ENOSPC; null: none"),
    Column("arg0", pa.uint32(), "", "argument 0, low 32 bits: mostly the file descriptor"),
    Column(
        "arg2", pa.uint32(), "", "argument 2, low 32 bits: mostly the length; of ioctl the command"
    ),
    Column("arg3", pa.uint64(), "", "argument 3, such as the offset of pread64"),
    Column("file", NAME, "", "path of the file that its descriptor is; null: not recorded, none"),
    Column("bios", pa.uint16(), "", "bios that it queued; 65535: that many or more"),
    Column("waits", pa.uint16(), "", "times that it left its CPU to wait; 255: that often or more"),
    Column("running_ns", pa.int64(), "ns", "on a CPU; the parts add up to duration_ns"),
    Column("runnable_ns", pa.int64(), "ns", "ready to run, without a CPU"),
    Column("own_io_ns", pa.int64(), "ns", "blocked, with a bio of its own in flight"),
    Column("other_io_ns", pa.int64(), "ns", "blocked in state D without one, or for I/O it reaps"),
    Column(
        "otherwise_ns", pa.int64(), "ns", "blocked otherwise: a pipe, a timer, a socket's lock, RCU"
    ),
    Column("undivided_ns", pa.int64(), "ns", "all of it, where waits were not recorded"),
    Column("own", pa.bool_(), "", "call of the recording itself"),
    TITLE,
    FILE_WAS,
)
WAITS = (
    *_THREAD,
    replace(_ENTRY, meaning="entry of its call: with tid, the key of a row of calls; see timed"),
    Column("timed", pa.bool_(), "", "inside a timed call; false: entry_ns is out_ns"),
    Column("call", NAME, "", "name of a call that was not timed; page fault; null: timed, unknown"),
    Column("arg0", pa.uint32(), "", "argument 0 of such a call, low 32 bits; null: no call"),
    Column("arg2", pa.uint32(), "", "argument 2, likewise"),
    Column("arg3", pa.uint64(), "", "argument 3, likewise"),
    Column("file", NAME, "", "path of the file it was for: of fd, or of the bio; null: not known"),
    Column("out_ns", pa.int64(), MONOTONIC, "left its CPU"),
    Column("woken_ns", pa.int64(), MONOTONIC, "was woken; run_ns where that was not seen"),
    Column("run_ns", pa.int64(), MONOTONIC, "ran again"),
    Column("blocked_ns", pa.int64(), "ns", "from out to woken"),
    Column("runnable_ns", pa.int64(), "ns", "from woken to run"),
    Column("cause", NAME, "", "own I/O, other I/O, otherwise: as the parts of a call's time"),
    Column(
        "state", pa.uint32(), "", "state that it waited in (TASK_* of the kernel); & 2: state D"
    ),
    Column("io_wait", pa.bool_(), "", "the kernel counted it as waiting for I/O (in_iowait)"),
    Column("waker", pa.uint32(), "", "thread that ran on the CPU of the wake-up; 0: idle"),
    Column("context", NAME, "", "of the wake-up: task, softirq, interrupt"),
    Column("ran", pa.uint32(), "", "thread that ran there until run_ns; 0: idle, or not known"),
    Column("ran_pid", pa.uint32(), "", "its process, likewise"),
    Column("own", pa.bool_(), "", "wait of the recording itself"),
    Column("reason", NAME, "", "what it was for, such as journal commit; null: not recorded"),
    Column("commit", pa.int64(), "", "transaction of jbd2 whose commit it waited for; null: none"),
    Column("commit_device", NAME, "", "device of that commit's file system"),
    Column("limit", NAME, "", "cgroup whose limit held the bio that it was for; null: none known"),
    TITLE,
    FILE_WAS,
)
COMMITS = (
    Column("device", NAME, "", "of the file system, a partition or a disk"),
    Column("dev", pa.uint32(), "dev_t", "the same as a number"),
    Column("transaction", pa.int64(), "", "id in its journal: commit of waits"),
    Column("tid", pa.uint32(), "", "thread that commits, jbd2/DEVICE"),
    Column("started_ns", pa.int64(), MONOTONIC, "jbd2_start_commit; null: not seen, as below"),
    Column("locking_ns", pa.int64(), MONOTONIC, "jbd2_commit_locking"),
    Column("flushing_ns", pa.int64(), MONOTONIC, "jbd2_commit_flushing"),
    Column("logging_ns", pa.int64(), MONOTONIC, "jbd2_commit_logging"),
    Column("end_ns", pa.int64(), MONOTONIC, "jbd2_end_commit"),
)

CALL_SCHEMA = schema(CALLS)
COMMIT_SCHEMA = schema(COMMITS)
WAIT_SCHEMA = schema(WAITS)

_PARTS = ("running", "runnable", "own_io", "other_io", "otherwise", "undivided")
_CONTEXTS = ("task", "softirq", "interrupt")


def calls_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of CALL_SCHEMA with one row per call, and per wait outside of timed calls.

    In the order of the calls' ends; empty if the window has no path. Where a call's entry is not
    known, its entry times, duration and parts are null.
    """
    if window.path is None:
        return CALL_SCHEMA.empty_table()
    calls = window.path.calls
    coded = calls.number.astype(np.int64) * 2 + calls.foreign
    unknown = calls.entry == NEVER
    found, place = np.unique(calls.number, return_inverse=True)
    columns = {
        "call": named(coded, lambda code: name_of_call(code >> 1, bool(code & 1), context.machine)),
        "number": np.array([plain_number(n) for n in found], dtype=np.int32)[place],
        **who_columns(calls, window.tasks, context),
        "entry_time": wall_clock(context, calls.entry),
        "duration_ns": pa.array(calls.exit - calls.entry, mask=unknown),
        "result": pa.array(calls.result, mask=~calls.timed),
        "error": named(calls.result, name_of_error),
        "file": named(calls.file, lambda row: context.files[row].path if row >= 0 else None),
        **{f"{part}_ns": pa.array(getattr(calls, part), mask=unknown) for part in _PARTS},
    }
    return filled(CALL_SCHEMA, calls, **columns)


def waits_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of WAIT_SCHEMA with one row per recorded wait that ended in the window.

    In the order of the waits' ends; empty if the window has no path. `entry_ns` is null where the
    call's entry is not known, `reason` where the log has no part fs.
    """
    if window.path is None:
        return WAIT_SCHEMA.empty_table()
    waits, has_reasons = window.path.waits, "fs" in context.path_parts
    coded = waits.number.astype(np.int64) * 2 + waits.foreign
    columns = {
        **who_columns(waits, window.tasks, context),
        "call": named(
            coded,
            lambda code: (
                None
                if code >> 1 == UNKNOWN_CALL
                else name_of_call(code >> 1, bool(code & 1), context.machine)
            ),
        ),
        "arg0": pa.array(waits.arg0, mask=waits.number < 0),
        "arg2": pa.array(waits.arg2, mask=waits.number < 0),
        "arg3": pa.array(waits.arg3, mask=waits.number < 0),
        "file": named(waits.file, lambda row: context.files[row].path if row >= 0 else None),
        "blocked_ns": waits.woken - waits.out,
        "runnable_ns": waits.run - waits.woken,
        "cause": named(waits.cause, lambda cause: WAIT_CAUSE_NAMES[WaitCause(cause)]),
        "context": named(waits.context, dict(enumerate(_CONTEXTS)).get),
        "reason": named(
            waits.reason,
            lambda reason: WAIT_REASON_NAMES[WaitReason(reason)] if has_reasons else None,
        ),
        "commit": nullable(waits.commit),
        "limit": cgroups(waits.limit, context),
        "commit_device": named(
            waits.commit_dev, lambda dev: context.device_name(dev) if dev else None
        ),
    }
    return filled(WAIT_SCHEMA, waits, **columns)


def commits_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of COMMIT_SCHEMA with one row per commit that ended in the window, in order.

    Empty if the window has no path. Phases that were not seen are null.
    """
    if window.path is None:
        return COMMIT_SCHEMA.empty_table()
    commits = window.path.commits
    return filled(COMMIT_SCHEMA, commits, device=named(commits.dev, context.device_name))
