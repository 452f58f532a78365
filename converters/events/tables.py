# SPDX-License-Identifier: Apache-2.0
"""The tables that every converter reads: bios, requests, edges and stages, as numpy columns.

Units: times are ns of CLOCK_MONOTONIC, sectors are 512 bytes, sizes are bytes. A time
that was not recorded is NEVER (-1). `number` is the index of the event that began the bio or
request in the log's (timestamp, arrival) order: unique in its log, and independent of how the
log is cut into windows. Bios whose beginning is not in the log have numbers from 2**62 on.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Self, get_args

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import PathTables
    from biotrail.converters.events.site_tables import SiteTables

SECTOR_BYTES = 512
"""The block layer's unit, whatever a device calls its own."""

OP_MASK = 0xFF
"""Bits of bi_opf and cmd_flags that hold the operation (REQ_OP_MASK)."""

NO_CPU = 0xFFFF
"""CPU column: the CPU is not known."""

FAR = 2**63 - 1
"""ns: later than any time."""

SETTLE_NS = 20_000_000
"""Bios and requests that ended less than this before a window's end are kept for the next window:
records such as E, which follow a completion, may still come. What a later record could say of them
is left out in windows of every size."""

NEVER = -1
"""Time column: not recorded. Number column (parent, request, …): none, or not known."""

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
I32 = NDArray[np.int32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]
EventRows = NDArray[np.int64]
"""Indices of rows of the `Events` at hand; where a docstring says so, -1 stands for no event."""


class Certainty(IntEnum):
    """How surely a bio's or request's history is known; larger values are less sure."""

    EXACT = 0
    """All events that the bio or request must have were recorded, associated by pointers alone."""
    INTERVAL = 1
    """A split or a request is identified by sectors, with a single candidate."""
    AMBIGUOUS = 2
    """Several candidates fit, or a partial completion's share of several bios is not known."""
    INCOMPLETE = 3
    """The beginning is before the log or cut, or not recorded, or the log ends before the I/O."""
    LOST = 4
    """An issue or the completion was not recorded, or records were lost during the I/O."""


class Stage(IntEnum):
    """What a bio or request waited for. A bio's stages are gapless and add up to Q2C."""

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
    M2I = 15


STAGE_NAMES = {
    stage: stage.name if "2" in stage.name else stage.name.lower().replace("_", "-")
    for stage in Stage
}


class RequestKind(IntEnum):
    """What a request was allocated for: data (NORMAL), REQ_OP_FLUSH, or a driver command."""

    NORMAL = 0
    FLUSH = 1
    PASSTHROUGH = 2


@dataclass
class Table:
    """Base of tables: a dataclass whose fields are numpy columns of one length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    @classmethod
    def none(cls) -> Self:
        """Return a table without rows, each column in the dtype of its annotation."""
        dtypes = {f.name: get_args(get_args(f.type)[1])[0] for f in fields(cls)}
        return cls(**{name: np.zeros(0, dtype) for name, dtype in dtypes.items()})

    def take(self, rows: I64 | Bool) -> Self:
        """Return the rows given by index or by mask as a new table; columns are copies."""
        if rows.dtype == np.bool_:  # as indices once, not again for each column
            rows = np.flatnonzero(rows)
        return type(self)(**{f.name: getattr(self, f.name).take(rows, 0) for f in fields(self)})

    @classmethod
    def concatenate(cls, tables: "list[Self]") -> Self:
        """Return all rows of the tables, in their order, as a new table. `tables` is not empty."""
        names = [f.name for f in fields(cls)]
        return cls(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in names})


@dataclass
class Bios(Table):
    """One row per queued bio; pieces of a split bio are fragments of its row.

    The times from `getrq` to `issue` are those of the fragment that completed last.
    """

    number: I64
    """The bio's number; see the module's docstring."""
    dev: U32
    """Disk, kernel dev_t (major << 20 | minor)."""
    part: U32
    """Partition that the bio was submitted to, or the disk itself, dev_t."""
    sector: U64
    """First sector on `dev`."""
    bytes: U32
    """Length in bytes when queued."""
    opf: U32
    """bi_opf; `Context.op_name` and `Context.flag_names` decode it."""
    tid: U32
    """Thread that submitted the bio; 0 when its Q was not recorded."""
    task: I32
    """Row of the submitting thread in `Lifecycles.tasks`; -1 unknown."""
    whom: I32
    """Row in `Lifecycles.tasks` of the thread for which `task` queued the bio, where that was
    another one, as of a kernel thread's bios; -1: itself, or not known (`converters.behalf`)."""
    cgroup: U64
    """Id of the cgroup that the bio is charged to; 0 unknown."""
    ioprio: U16
    """I/O priority: class << 13 | data."""
    hint: U8
    """Write life-time hint."""
    page: U8
    """What its first page is, a PageKind; UNKNOWN where the log has no part `dirty` of the path."""
    stack: I32
    """Row in `Trace.stacks` of the call stacks that queued the bio; -1 not recorded."""
    file: I32
    """Row in `Context.files` of the file whose pages the bio carries; -1 not known."""
    cpu: U16
    """CPU that queued the bio; 65535 when its Q was not recorded."""
    queue: I64
    """Time of Q."""
    getrq: I64
    """Time of G (or s) of the fragment that completed last; NEVER if that fragment was merged."""
    merge: I64
    """Time of M or F of the fragment that completed last; NEVER if it has its own request."""
    insert: I64
    """Time of I of that fragment's request, if at `getrq` or later and not after `issue`."""
    issue: I64
    """Time of the first D that carried that fragment."""
    complete: I64
    """Completion of the last fragment; NEVER when not recorded."""
    gone: I64
    """If the end was not recorded: when its address was used again, so that it had ended; FAR: that
    is not known. NEVER: it has a completion, or is in flight when the log ends."""
    fragments: U32
    """Pieces that went to requests, 0 when none did (bio-based, failed early)."""
    requests: U32
    """Distinct requests that served the bio."""
    requeues: U32
    """R events of the requests that served the bio."""
    status: I32
    """blk_status_t, negative errno on old kernels; 0 for success and for not known."""
    done_bytes: U32
    """Bytes completed without error."""
    request: I64
    """Number of the request that finished last; NEVER when none."""
    parent: I64
    """Number of the upper device's bio; NEVER when none is known."""
    family: I64
    """Number of the topmost known ancestor bio; the bio's own number when it has no parent."""
    certainty: U8
    """Certainty value."""
    doubtful: Bool
    """Whether `complete` is known, but may be that of another I/O: what may be the time from its
    beginning to its end differs by more than 10 %. Figures of latencies leave it out."""
    own: Bool
    """Whether the recorder itself caused the bio, directly or by a bio of an upper device."""
    cut: I64
    """If a part of the log was asked for and the bio was in flight when that part begins: that
    beginning (ns). `queue` is then NEVER, and other earlier times are moved to `cut`. Else
    NEVER."""


@dataclass
class Requests(Table):
    """One row per request: from its allocation (or first event) to its last completion."""

    number: I64
    """The request's number; see the module's docstring."""
    dev: U32
    """Disk, kernel dev_t."""
    sector: U64
    """First sector when first issued; 2**64-1: none (a flush)."""
    bytes: U32
    """Length in bytes when first issued."""
    opf: U32
    """cmd_flags when first issued."""
    tag: U16
    """Driver tag at the last issue; 65535 none."""
    sched_tag: U16
    """Scheduler tag; 65535 none."""
    hctx: U16
    """Hardware queue; 65535 unknown."""
    start: I64
    """Time of s, else of G of the request's first bio, else of its first recorded event."""
    insert: I64
    """Time of the first I."""
    issue: I64
    """Time of the first D."""
    complete: I64
    """Time of the last C; NEVER when not recorded or when the request was absorbed."""
    gone: I64
    """As `Bios.gone`."""
    bios: U32
    """Number of bios that the request served."""
    others: U32
    """Number of further bios that the request served and that are not in `Bios`: left out by the
    recording's filters (counted at the last issue), or as the recording's own."""
    requeues: U32
    """Number of R events."""
    status: I32
    """blk_status_t, negative errno on old kernels; 0 for success and for not known."""
    done_bytes: U32
    """Bytes completed without error."""
    kind: U8
    """RequestKind value."""
    absorbed_by: I64
    """Number of the request that this request was merged into; NEVER when not merged."""
    parent: I64
    """Number of the upper device's request (request-based dm); NEVER when none is known."""
    family: I64
    """Family of the first bio of the request or of its topmost parent; that topmost request's
    number when it has no bio."""
    certainty: U8
    """Certainty value."""
    doubtful: Bool
    """As `Bios.doubtful`."""
    own: Bool
    """Whether all bios that the request served are the recording's own."""
    cut: I64
    """As `Bios.cut`, with `start` for `queue`."""


@dataclass
class Edges(Table):
    """One row per piece of a bio that a request served."""

    bio: I64
    """Bios.number."""
    request: I64
    """Requests.number."""
    sector: U64
    """First sector of the piece."""
    bytes: U32
    """Length of the piece."""
    certainty: U8
    """Certainty value of this edge."""


@dataclass
class Stages(Table):
    """Intervals of the owners' time, gapless per owner; sorted by (owner, start)."""

    owner: I64
    """Bios.number or Requests.number."""
    stage: U8
    """Stage value."""
    start: I64
    """ns."""
    end: I64
    """ns; equals the `start` of the owner's next stage."""


@dataclass
class Tasks(Table):
    """Thread names; `Bios.task` holds indices of these rows."""

    tid: U32
    tgid: U32
    """From FIRST_UNKNOWN_TID on: not known; it tells threads of different names apart."""
    comm: NDArray[np.object_]
    """str."""

    def pid(self, row: int) -> int | None:
        """Return the process id of a row; None: not known, as of row -1."""
        return known_id(int(self.tgid[row])) if row >= 0 else None


def known_id(number: int) -> int | None:
    """Return the id of a thread or process; None where it stands for one that is not known."""
    return number if number < FIRST_UNKNOWN_TID else None


@dataclass
class LossWindows(Table):
    """Time windows (ns) in which records were lost, by the recorder's counters or by damage."""

    start: I64
    end: I64
    cpu: I32
    """CPU that lost the records; -1: not one CPU (a damaged chunk, programs skipped)."""
    kind: U8
    """Kind of the lost records; 0 unknown."""
    count: I64
    """Number of lost records; -1 unknown."""


class PageKind(IntEnum):
    """What a bio's first page is, where the kernel said (`record --path`, part `dirty`)."""

    UNKNOWN = 0
    """Not recorded; or memory that neither the page cache nor swap moves, as of direct I/O."""
    FILE = 1
    """A file's, moved by the page cache."""
    DEVICE = 2
    """A block device's own, moved by the page cache: its file system's metadata, mostly."""
    SWAP = 3
    """Being swapped in or out."""


class WaitCause(IntEnum):
    """What a thread inside a call waited for."""

    OTHERWISE = 0
    """In another state than D, without a bio of the call in flight: a pipe, a timer. Or for what
    no I/O ends, by the stack (`NOT_IO`): a socket's lock, RCU."""
    OWN_IO = 1
    """A bio in flight that the call itself had queued."""
    OTHER_IO = 2
    """In state D without such a bio: a page that another task reads, a journal commit, a lock."""


WAIT_CAUSE_NAMES = {
    WaitCause.OTHERWISE: "otherwise",
    WaitCause.OWN_IO: "own I/O",
    WaitCause.OTHER_IO: "other I/O",
}


@dataclass
class Lifecycles:
    """Tables of one window. Each bio and request is in `bios` or `requests` of one window only.

    `bios` and `requests` ended in this window, or will have no further event. `open_bios` and
    `open_requests` are in flight at its end and appear again in a later window: they serve
    gauges such as queue depth, which need every transition between `begin` and `end`.
    """

    begin: int
    """ns: every event before this was in an earlier window."""
    end: int
    """ns: every event before this has been read."""
    bios: Bios
    requests: Requests
    edges: Edges
    bio_stages: Stages
    """Stages of `bios`, in the order of its rows."""
    request_stages: Stages
    """Stages of `requests`, in the order of its rows."""
    open_bios: Bios
    open_requests: Requests
    tasks: Tasks
    loss: LossWindows
    """Loss windows read since the previous window."""
    path: "PathTables | None" = None
    """Calls and waits that ended in this window, and the path of `bios` and `requests`; None: the
    log has no such records in this window."""
    sites: "SiteTables | None" = None
    """Pairs that ended in this window, and hits of followed objects; None: the log has no such
    records in this window."""
    own: "OwnIo | None" = None
    """The recording's own I/O where all other tables leave it out; None: there is none."""

    def with_own(self) -> "Lifecycles":
        """Return the window with the bios and requests of `own` among `bios` and `requests`.

        For who asks whose I/O a device had. They have no stages, and no rows in `path`.
        """
        if self.own is None:
            return self
        bios = Bios.concatenate([self.bios, self.own.bios])
        requests = Requests.concatenate([self.requests, self.own.requests])
        return replace(
            self,
            bios=bios.take(np.argsort(bios.number, kind="stable")),
            requests=requests.take(np.argsort(requests.number, kind="stable")),
            edges=Edges.concatenate([self.edges, self.own.edges]),
            own=None,
        )


@dataclass
class OwnIo:
    """The recording's own I/O of a window, as in the tables of Lifecycles."""

    bios: Bios
    requests: Requests
    """All of whose bios are own; others with own bios are in `Lifecycles.requests`."""
    edges: Edges
    """Of `bios`."""
