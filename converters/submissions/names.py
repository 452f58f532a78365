# SPDX-License-Identifier: Apache-2.0
"""Names of io_uring's operations, of what runs a request, and of how its bio was joined to it."""

import numpy as np

from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import I64

_NAMES = (
    "nop readv writev fsync read_fixed write_fixed poll_add poll_remove sync_file_range "
    "sendmsg recvmsg timeout timeout_remove accept async_cancel link_timeout connect "
    "fallocate openat close files_update statx read write fadvise madvise send recv openat2 "
    "epoll_ctl splice provide_buffers remove_buffers tee shutdown renameat unlinkat mkdirat "
    "symlinkat linkat msg_ring fsetxattr setxattr fgetxattr getxattr socket uring_cmd send_zc "
    "sendmsg_zc read_multishot waitid futex_wait futex_wake futex_waitv fixed_fd_install "
    "ftruncate bind listen recv_zc epoll_wait readv_fixed writev_fixed pipe "
)
_OPCODES = tuple(_NAMES.split())
"""Names of IORING_OP_* in lower case, by number (include/uapi/linux/io_uring.h)."""

RUNNER_NAMES = {
    Runner.INLINE: "inline",
    Runner.WORKER: "worker",
    Runner.SQPOLL: "sqpoll",
    Runner.KERNEL: "kernel",
}
JOINED_NAMES = {Joined.IOCB: "iocb", Joined.WORKER: "worker", Joined.THREAD: "thread"}
IOPOLL = 1
"""IORING_SETUP_IOPOLL: completions are polled for, as by fio's hipri."""


def operation_name(code: int) -> str:
    """Return the name of a number of `operations_of`: "read", "op 70", "aio write"."""
    opcode = code >> 2
    if code & 2:
        return "aio write" if code & 1 else "aio read"
    return _OPCODES[opcode] if opcode < len(_OPCODES) else f"op {opcode}"


def operations_of(rows: Submissions) -> I64:
    """Return per row a number for its operation: opcode << 2 | aio << 1 | writes of aio."""
    aio = rows.aio.astype(np.int64)
    return rows.opcode.astype(np.int64) << 2 | aio << 1 | (aio & rows.writes)
