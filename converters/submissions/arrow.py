# SPDX-License-Identifier: Apache-2.0
"""Submissions as Arrow tables: their columns, and a window's rows with names for numbers."""

import numpy as np
import pyarrow as pa

from biotrail.converters.calls.names import name_of_error
from biotrail.converters.events.context import Context
from biotrail.converters.events.submission_tables import Joined, Runner
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.lifecycles.arrow.columns import (
    MONOTONIC,
    NAME,
    WALL,
    Column,
    filled,
    named,
    nullable,
    schema,
)
from biotrail.converters.lifecycles.arrow.tables import thread_columns, wall_clock
from biotrail.converters.submissions.names import (
    IOPOLL,
    JOINED_NAMES,
    RUNNER_NAMES,
    operation_name,
    operations_of,
)

SUBMISSIONS = (
    Column("number", pa.int64(), "", "number of its first bio: column submission of bios"),
    Column("operation", NAME, "", "read, writev, fsync, … of io_uring; aio read, aio write"),
    Column("interface", NAME, "", "io_uring or aio"),
    Column("user_data", pa.uint64(), "", "of the SQE; of aio the address of its struct iocb"),
    Column("ring", pa.uint64(), "", "address of the ring in the kernel; null: not completed"),
    Column("fd", pa.int64(), "", "file descriptor of the SQE; null: aio"),
    Column("fixed", pa.bool_(), "", "fd is an index of the ring's registered files"),
    Column("offset", pa.int64(), "bytes", "position in the file; null: none"),
    Column("length", pa.int64(), "bytes", "length of the SQE; null: vectors, aio"),
    Column("mode", NAME, "", "of its first bio: inline, worker (io-wq), sqpoll, kernel"),
    Column("polled", pa.bool_(), "", "the ring polls for completions; null: not completed"),
    Column("joined", NAME, "", "how its first bio is known: iocb, worker, thread"),
    Column("tid", pa.uint32(), "", "thread that submitted it"),
    Column("pid", pa.uint32(), "", "process of the thread that queued the first bio"),
    Column("comm", NAME, "", "name of the thread that queued the first bio"),
    Column("submit_time", WALL, "UTC", "submission, by the wall clock"),
    Column("submit_ns", pa.int64(), MONOTONIC, "taken from the ring; aio: entry of io_submit"),
    Column("queue_ns", pa.int64(), MONOTONIC, "Q of its first bio"),
    Column("end_ns", pa.int64(), MONOTONIC, "end of its last bio"),
    Column("complete_ns", pa.int64(), MONOTONIC, "completion written to the ring"),
    Column("reap_ns", pa.int64(), MONOTONIC, "return of the call that ran then, and reaps"),
    Column("result", pa.int32(), "", "bytes, or a negative errno; null: not completed"),
    Column("error", NAME, "", "name of the error, such as EIO; null: none"),
    Column("bios", pa.uint32(), "", "bios that it queued"),
    Column("bytes", pa.int64(), "bytes", "sum of their lengths"),
)
SUBMISSION_SCHEMA = schema(SUBMISSIONS)


def submissions_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of SUBMISSION_SCHEMA with a row for each of the window's submissions.

    `pid` and `comm` are those of the thread that queued the first bio, `tid` is that which
    submitted.
    """
    if window.path is None:
        return SUBMISSION_SCHEMA.empty_table()
    rows = window.path.submissions
    open_ended = rows.completed == NEVER
    columns = {
        "operation": named(operations_of(rows), operation_name),
        "interface": named(rows.aio.astype(np.int64), lambda aio: "aio" if aio else "io_uring"),
        "ring": nullable(rows.ring, 0),
        "fd": nullable(rows.fd),
        "offset": nullable(rows.offset),
        "length": nullable(rows.length, 0),
        "mode": named(rows.runner, lambda runner: RUNNER_NAMES[Runner(runner)]),
        "polled": pa.array((rows.setup & IOPOLL) != 0, mask=open_ended),
        "joined": named(rows.joined, lambda how: JOINED_NAMES[Joined(how)]),
        **thread_columns(rows, window.tasks),
        "submit_time": wall_clock(context, rows.submitted),
        "submit_ns": nullable(rows.submitted),
        "queue_ns": nullable(rows.queued),
        "end_ns": nullable(rows.ended),
        "complete_ns": nullable(rows.completed),
        "reap_ns": nullable(rows.reaped),
        "result": pa.array(rows.result, mask=open_ended),
        "error": named(rows.result, name_of_error),
    }
    return filled(SUBMISSION_SCHEMA, rows, **columns)
