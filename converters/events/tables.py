# SPDX-License-Identifier: Apache-2.0
"""The tables that every converter reads: bios, requests, edges, stages. Columns, not objects.

Units: times are ns of CLOCK_MONOTONIC, sectors are 512 bytes, sizes are bytes. A time
that was not seen is NEVER (-1). `number` is the index of the event that began the bio or
request in the log's (timestamp, arrival) order: unique in its log, and never changed by
how a log is cut into windows.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

SECTOR_BYTES = 512
"""The block layer's unit, whatever a device calls its own."""

NO_CPU = 0xFFFF
"""A CPU that is not known."""

NEVER = -1
"""A time that was not seen; a number (parent, request) that is not known."""

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
I32 = NDArray[np.int32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]


class Certainty(IntEnum):
    """How a bio's or request's history is known; the larger, the less is known."""

    EXACT = 0
    INTERVAL = 1
    AMBIGUOUS = 2
    INCOMPLETE = 3
    LOST = 4


class Stage(IntEnum):
    """What a bio waited for. A bio's stages are gapless and add up to Q2C."""

    Q2G = 0
    G2I = 1
    I2D = 2
    G2D = 3
    D2C = 4
    Q2M = 5
    M2D = 6
    R2D = 7
    PRE_FLUSH = 8
    POST_FLUSH = 9
    FLUSH = 10
    BIO_BASED = 11
    FAILED = 12
    UNKNOWN = 13
    Q2D = 14


STAGE_NAMES = {
    Stage.Q2G: "Q2G",
    Stage.G2I: "G2I",
    Stage.I2D: "I2D",
    Stage.G2D: "G2D",
    Stage.D2C: "D2C",
    Stage.Q2M: "Q2M",
    Stage.M2D: "M2D",
    Stage.R2D: "R2D",
    Stage.PRE_FLUSH: "pre-flush",
    Stage.POST_FLUSH: "post-flush",
    Stage.FLUSH: "flush",
    Stage.BIO_BASED: "bio-based",
    Stage.FAILED: "failed",
    Stage.UNKNOWN: "unknown",
    Stage.Q2D: "Q2D",
}


class RequestKind(IntEnum):
    """What a request is for."""

    NORMAL = 0
    FLUSH = 1
    PASSTHROUGH = 2


@dataclass
class Table:
    """Columns of one length. Subclasses list them as numpy arrays."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, rows: I64 | Bool) -> Self:
        """The rows given by index or by mask, as a new table."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @classmethod
    def concatenate(cls, tables: "list[Self]") -> Self:
        """All rows of the tables, in order; at least one table."""
        names = [f.name for f in fields(cls)]
        return cls(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in names})


@dataclass
class Bios(Table):
    """One row per bio that was queued (pieces of a split count as their parent's fragments)."""

    number: I64
    """Its own number."""
    dev: U32
    """Disk, kernel dev_t (major << 20 | minor)."""
    part: U32
    """Partition it was sent to, or the disk itself."""
    sector: U64
    """First sector on `dev`."""
    bytes: U32
    """Length at queue time."""
    opf: U32
    """bi_opf; decode with `OpNames`."""
    tid: U32
    """Submitting thread; 0 when the queue event was not seen."""
    task: I32
    """Row in the window's task names (`Lifecycles.tasks`); -1 unknown."""
    cgroup: U64
    """Charged cgroup's id; 0 unknown."""
    ioprio: U16
    """class << 13 | data."""
    hint: U8
    """Write life-time hint."""
    stack: I32
    """Row in the trace's stacks (`Trace.stacks`): where it was queued from; -1 not recorded."""
    file: I32
    """Row in the log's files (`Context.files`): whose pages it carries; -1 not known."""
    cpu: U16
    """CPU that queued it; 65535 when the queue event was not seen."""
    queue: I64
    """Q."""
    getrq: I64
    """G (or s) of the fragment that finishes last."""
    merge: I64
    """M or F of the fragment that finishes last; NEVER if it has its own request."""
    insert: I64
    """I of that fragment's request, if after getrq."""
    issue: I64
    """First D of that fragment's request."""
    complete: I64
    """The last fragment's end; NEVER when not seen."""
    fragments: U32
    """Pieces that went to requests, 0 when none did (bio-based, failed early)."""
    requests: U32
    """Distinct requests that served it."""
    requeues: U32
    """R events of the requests that served it."""
    status: I32
    """blk_status_t, negative errno on old kernels; 0 good or not known."""
    done_bytes: U32
    """Bytes completed without error."""
    request: I64
    """Number of the request that finished last; NEVER when none."""
    parent: I64
    """Number of the upper device's bio; NEVER when none is known."""
    family: I64
    """Number of the topmost known ancestor, itself when there is none."""
    certainty: U8
    """Certainty."""
    own: Bool
    """I/O of the recording itself, or done below for such."""
    cut: I64
    """ns: the beginning of the cut of the log that this is of, where it was under way by then:
    its `queue` is then NEVER, and what else came before counts as having come then. Else NEVER."""


@dataclass
class Requests(Table):
    """One row per request: from allocation (or first sight) to its last completion."""

    number: I64
    """Its own number."""
    dev: U32
    """Disk, kernel dev_t."""
    sector: U64
    """First sector when first issued; 2**64-1: none."""
    bytes: U32
    """Length when first issued."""
    opf: U32
    """cmd_flags when first issued."""
    tag: U16
    """Driver tag at the last issue; 65535 none."""
    sched_tag: U16
    """Scheduler tag; 65535 none."""
    hctx: U16
    """Hardware queue; 65535 unknown."""
    start: I64
    """s, or G of its first bio, or the first event seen."""
    insert: I64
    """First I."""
    issue: I64
    """First D."""
    complete: I64
    """Last C; NEVER when not seen or when it was absorbed."""
    bios: U32
    """How many bios it served."""
    others: U32
    """How many more it served that the recording's filters left out, at its last issue, or
    that are left out as the recording's own."""
    requeues: U32
    """R events."""
    status: I32
    """As in Bios."""
    done_bytes: U32
    """Bytes completed without error."""
    kind: U8
    """RequestKind."""
    absorbed_by: I64
    """Number of the request that took its bios; NEVER when none."""
    parent: I64
    """Number of the upper device's request (request-based dm); NEVER when none is known."""
    family: I64
    """Family of its first bio, or its parent's; its own number when it has neither."""
    certainty: U8
    """Certainty."""
    own: Bool
    """All bios that it served are the recording's own."""
    cut: I64
    """ns: the beginning of the cut of the log that this is of, where it was under way by then:
    its `start` is then NEVER, and what else came before counts as having come then. Else NEVER."""


@dataclass
class Edges(Table):
    """Which request served which sectors of which bio."""

    bio: I64
    """Bios.number."""
    request: I64
    """Requests.number."""
    sector: U64
    """First sector of the piece."""
    bytes: U32
    """Length of the piece."""
    certainty: U8
    """Certainty of this edge."""


@dataclass
class Stages(Table):
    """What happened between, gapless per owner; sorted by (owner, start)."""

    owner: I64
    """Bios.number or Requests.number."""
    stage: U8
    """Stage."""
    start: I64
    """ns."""
    end: I64
    """ns; the next stage's start."""


@dataclass
class Tasks(Table):
    """Names of the threads that Bios.task points to."""

    tid: U32
    tgid: U32
    comm: NDArray[np.object_]
    """str."""


@dataclass
class LossWindows(Table):
    """When records were lost, as far as the counters tell."""

    start: I64
    end: I64
    cpu: I32
    """-1: not one CPU's (a damaged chunk, programs skipped)."""
    kind: U8
    """Record kind lost; 0 unknown."""
    count: I64
    """How many; -1 unknown."""


@dataclass
class Lifecycles:
    """One window's result. Windows partition a log's bios and requests; none appears twice.

    `bios` and `requests` ended in this window (or never will). `open_bios` and
    `open_requests` are under way at its end and come again in a later window: they serve
    gauges such as queue depth, which need every transition between `begin` and `end`.
    """

    begin: int
    """ns: every event before this was in an earlier window."""
    end: int
    """ns: every event before this has been seen."""
    bios: Bios
    requests: Requests
    edges: Edges
    bio_stages: Stages
    """Stages of `bios`, ordered as they are."""
    request_stages: Stages
    """Stages of `requests`, ordered as they are."""
    open_bios: Bios
    open_requests: Requests
    tasks: Tasks
    loss: LossWindows
    """Loss windows known by now that were not given before."""
