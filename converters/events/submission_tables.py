# SPDX-License-Identifier: Apache-2.0
"""The tables of asynchronous submissions: io_uring's requests and aio's iocbs that queued bios.

Units are those of `tables`: times are ns of CLOCK_MONOTONIC, NEVER if not recorded.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I32, I64, U8, U32, U64, Bool, Table

NO_OFFSET = (1 << 64) - 1
"""Offset of a SUBMISSION record that has none."""
NO_FD = 0xFFFFFFFF
"""File descriptor of a SUBMISSION record that has none."""


class Flag(IntFlag):
    """Bits of `flags` of path_column.REQUEST."""

    FIXED_FILE = 1
    """`fd` is an index of the ring's registered files."""
    LATE = 2
    """The submission was not seen: `submitted` is the first Q that was."""
    WRITES = 4
    """The bio writes."""
    AIO = 8
    """An iocb of aio; else a request of io_uring."""


class Runner(IntEnum):
    """Which thread queued the first bio of a request."""

    INLINE = 0
    """A thread of the program, in its call."""
    WORKER = 1
    """A worker of io_uring (io-wq)."""
    SQPOLL = 2
    """io_uring's thread that polls the submission queue."""
    KERNEL = 3
    """Another thread of the kernel, such as a worker of the file system."""


class Joined(IntEnum):
    """How a bio's request is known."""

    IOCB = 0
    """By the kiocb that the bio's direct I/O leads to."""
    WORKER = 1
    """By the request that the worker which queued the bio works on."""
    THREAD = 2
    """By the request that the thread which queued the bio had submitted last, and still issued."""


@dataclass
class BioRequests(Table):
    """One row per bio of a window, ended or in flight, whose request is known."""

    number: I64
    """`Bios.number`."""
    open: Bool
    """Whether the bio is among `Lifecycles.open_bios`."""
    submitted: I64
    """Time of the submission or, if it was not seen, the first Q: with `req` the request's key."""
    request: NDArray[np.void]
    """path_column.REQUEST, as recorded."""


@dataclass
class RequestEnds(Table):
    """One row per RING_COMPLETE record of a window, in order of time."""

    completed: I64
    """Time of the completion."""
    req: U64
    """Address of the request."""
    submitted: I64
    """As in BioRequests."""
    ring: U64
    """Address of the ring (io_ring_ctx, kioctx)."""
    result: I32
    """Bytes, or another result; negative errno."""
    tid: U32
    """Thread that completed it."""
    setup: U32
    """The ring's flags (IORING_SETUP_*)."""


@dataclass
class Submissions(Table):
    """One row per request of io_uring or iocb of aio that queued bios, all of which have ended.

    In the window in which all that can be known of it is known; at the log's end, of those in
    flight as well, without an end.
    """

    number: I64
    """`Bios.number` of its first bio."""
    req: U64
    """Address of the io_kiocb or aio_kiocb, which is used again after the completion."""
    aio: Bool
    """Whether it is an iocb of aio."""
    ring: U64
    """Address of the ring (io_ring_ctx, kioctx); 0 if the completion is not known."""
    user_data: U64
    """`user_data` of the SQE; of aio the address of the program's struct iocb."""
    opcode: U8
    """IORING_OP_* of io_uring; 0 of aio."""
    writes: Bool
    """Whether its first bio writes."""
    fd: I64
    """File descriptor of the SQE; -1 if not known (aio)."""
    fixed: Bool
    """Whether `fd` is an index of the ring's registered files."""
    offset: I64
    """Position in the file in bytes; -1 if it has none."""
    length: I64
    """Length of the SQE in bytes; 0 if not known (vectors, aio)."""
    runner: U8
    """Runner value of the first bio."""
    joined: U8
    """Joined value of the first bio."""
    tid: U32
    """Thread that submitted it; if that was not seen, the thread that queued the first bio."""
    task: I32
    """Row in `Lifecycles.tasks` of the thread that queued the first bio; -1 unknown."""
    submitted: I64
    """When io_uring took it from the submission queue; of aio the entry of io_submit; NEVER."""
    queued: I64
    """Q of its first bio; NEVER if that is not known."""
    ended: I64
    """When the last of its bios ended; NEVER if none has a known end."""
    completed: I64
    """When its completion was written to the ring; NEVER if not recorded."""
    reaped: I64
    """When the call returned that ran at the completion and reaps completions; NEVER."""
    result: I32
    """Bytes or another result, negative errno; 0 if `completed` is not known."""
    setup: U32
    """The ring's flags (IORING_SETUP_*), 0 if `completed` is not known."""
    bios: U32
    """Bios that it queued."""
    bytes: I64
    """Sum of their lengths."""
