# SPDX-License-Identifier: Apache-2.0
"""Bios and requests as operations: tables with the same columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from biotrail.converters.events.tables import (
    I32,
    I64,
    NEVER,
    U8,
    U32,
    U64,
    Bios,
    Bool,
    Requests,
    Table,
)
from biotrail.converters.lifecycles.windows import first_seen, last_seen

LATEST = np.iinfo(np.int64).max
"""A time after all others."""
NO_STRING = 0xFFFF_FFFF
"""The number of no string."""
NO_NAMES: U32 = np.empty(0, dtype=np.uint32)


@dataclass
class Operations(Table):
    """Bios or requests, as rows of one shape. Times in ns, NEVER where not seen."""

    number: I64
    disk: U32
    """Disk's dev_t."""
    dev: U32
    """dev_t of the partition or disk that was addressed."""
    sector: U64
    bytes: U32
    opf: U32
    begin: I64
    """Q of a bio, allocation of a request; NEVER: before the trace began."""
    first: I64
    """Earliest known time."""
    last: I64
    """Latest known time, its completion aside."""
    issue: I64
    complete: I64
    done_bytes: U32
    status: I32
    absorbed_by: I64
    """Number of the request that this one was merged into; NEVER: none."""
    own: Bool
    parent: I64
    """Number of the upper device's operation; NEVER: none is known."""
    request: I64
    """Number of the request that finished the bio last; NEVER: none, or a request itself."""
    tid: U32
    """Submitting thread; 0: not known."""
    comm: U32
    """Number of the submitting thread's name; NO_STRING: not known."""
    pieces: U32
    """Fragments of a bio, or bios of a request."""
    requeues: U32
    certainty: U8
    doubtful: Bool
    """Whether `complete` is known, but may be another one's (`Bios.doubtful`)."""
    gone: I64
    """As `Bios.gone`."""


def _names(task: I32, comms: U32) -> U32:
    """Return the number of each task's name (n,), NO_STRING where it is not known.

    task: row of the log's table of tasks, -1: none. comms: per row of that table, the name's
    number.
    """
    named = (task >= 0) & (task < len(comms))
    names = np.full(len(task), NO_STRING, dtype=np.uint32)
    names[named] = comms[task[named]]
    return names


_SAME = (
    *("number", "sector", "bytes", "opf", "issue", "complete", "done_bytes", "status", "own"),
    *("gone", "parent", "requeues", "certainty", "doubtful"),
)
"""Columns that bios, requests and operations have in common."""


def _common(table: Bios | Requests) -> dict[str, Any]:
    return {name: getattr(table, name) for name in _SAME}


def bio_operations(bios: Bios, comms: U32 = NO_NAMES) -> Operations:
    """Return each bio, in order, as an operation on the partition or disk that it was sent to.

    comms: per row of the window's tasks, the number of the thread's name in the archive; a row
    beyond it has no name. The begin of a cut, at which the bio was in flight, is one of its known
    times. Its pieces are its fragments. No bio is `absorbed_by` a request.
    """
    return Operations(
        **_common(bios),
        disk=bios.dev,
        dev=np.where(bios.part == 0, bios.dev, bios.part),
        begin=bios.queue,
        first=first_seen(bios),
        last=np.maximum(last_seen(bios, completed=False), bios.cut),
        absorbed_by=np.full(len(bios), NEVER, dtype=np.int64),
        request=bios.request,
        tid=bios.tid,
        comm=_names(bios.task, comms),
        pieces=bios.fragments,
    )


def request_operations(requests: Requests) -> Operations:
    """Return each request, in order, as an operation on its disk.

    It has no thread, name or `request`; `parent` is the upper device's request, `absorbed_by` the
    one it was merged into. The begin of a cut, at which it was in flight, is one of its known
    times. Its pieces are its bios.
    """
    return Operations(
        **_common(requests),
        disk=requests.dev,
        dev=requests.dev,
        begin=requests.start,
        first=first_seen(requests),
        last=np.maximum(last_seen(requests, completed=False), requests.cut),
        absorbed_by=requests.absorbed_by,
        request=np.full(len(requests), NEVER, dtype=np.int64),
        tid=np.zeros(len(requests), dtype=np.uint32),
        comm=np.full(len(requests), NO_STRING, dtype=np.uint32),
        pieces=requests.bios,
    )
