# SPDX-License-Identifier: Apache-2.0
"""What a simulated block layer is made of, and what truly happened in it.

`Bio` is one `struct bio` from its queueing to its end; a split's fronts have the bio that
they were cut from as `root`. `Request` is one use of a `struct request`. Each keeps the
records (`Rec`) that were written about it, so that truth is read off these objects and
never off what a log says.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

SECTOR = 512
NO_SECTOR = 2**64 - 1
NO_TAG = 0xFFFF
IOERR = 10
AGAIN = 12

MINIMAL = "QMFXAcDbCRma"
LIFECYCLE = "QMFXAcsIRmDbCEa"
LIFECYCLE_WITHOUT_START = "QMFXAcGIRmDbCEa"
EVERYTHING = "QGMFXAcsIRmDbCEdPUa"
EVERYTHING_WITHOUT_START = "QGMFXAcIRmDbCEPUa"


@dataclass(eq=False)
class Rec:
    """One record: what the kernel said and when, and whom it was truly about."""

    letter: str
    ts: int
    cpu: int
    fields: dict[str, Any]
    bios: list["Bio"] = field(default_factory=list)
    """The bios it names, a request's in the order of its chain."""
    request: "Request | None" = None
    order: int = 0
    """Place in the order of happening."""
    held: list["Bio"] = field(default_factory=list)
    """D: the whole chain, also what its record leaves out."""


@dataclass(eq=False)
class Bio:
    """One struct bio. sector, bytes, dev change as it is remapped, split and completed."""

    pointer: int
    dev: int
    sector: int
    bytes: int
    opf: int
    tid: int
    part: int = 0
    page: int = 0
    cgroup: int = 0
    root: "Bio" = None  # type: ignore[assignment]
    upper: "Bio | None" = None
    """The upper device's bio that this was made for."""
    records: list[Rec] = field(default_factory=list)
    pieces: list["Bio"] = field(default_factory=list)
    """Of a root: those that went to requests."""
    whole: int = 0
    """Bytes when it was queued; `piece` when it went to a request, from `piece_sector`."""
    piece: int = 0
    piece_sector: int = 0
    first: int = 0
    queue_dev: int = 0
    request: "Request | None" = None
    requests: list["Request"] = field(default_factory=list)
    """All that ever held it, in order; all but the last were absorbed."""
    left: int = 0
    good: int = 0
    status: int = 0
    end: Rec | None = None
    """What ended it: a C; for whole bios that no request served, a c."""
    open_pieces: int = 0
    own_end: Rec | None = None
    """c, for whole bios; `own_status` is what it said."""
    own_status: int = 0
    failure: tuple[int, int, int] | None = None
    """(cpu, status, bytes) of a c that waits for the fronts that were sent."""
    ended: bool = False
    after: list[Any] = field(default_factory=list)
    """Called when the whole bio has ended."""
    merged: bool = False
    hidden: bool = False
    """Never queued: carries a passthrough request's data, or is a clone of request-based dm."""
    no_merge: bool = False
    lent_page: bool = False

    def __post_init__(self) -> None:
        if self.root is None:
            self.root = self
        self.part = self.part or self.dev
        self.queue_dev, self.first, self.whole = self.dev, self.sector, self.bytes

    @property
    def op(self) -> int:
        """Operation number."""
        return self.opf & 0xFF

    @property
    def end_sector(self) -> int:
        """One past its last sector."""
        return self.sector + self.bytes // SECTOR

    @property
    def unsent(self) -> int:
        """Of a root: bytes that are still to go to requests."""
        return 0 if self.own_end else self.whole - sum(p.piece for p in self.pieces)


@dataclass(eq=False)
class Request:
    """One use of a struct request."""

    pointer: int
    dev: int
    sector: int
    bytes: int
    opf: int
    bios: list[Bio] = field(default_factory=list)
    """What is left of its chain."""
    members: list[Bio] = field(default_factory=list)
    """All bios that it finally served."""
    records: list[Rec] = field(default_factory=list)
    tag: int = NO_TAG
    sched_tag: int = NO_TAG
    hctx: int = 0
    absorbed_by: "Request | None" = None
    kind: str = "normal"
    sequence: bool = False
    """The flush machinery runs it."""
    no_merge: bool = False
    requeued: bool = False
    started: bool = False
    status: int = 0
    good: int = 0
    below: Any = None
    upper: "Request | None" = None
    """The upper device's request that this clone does the work of."""

    @property
    def op(self) -> int:
        """Operation number."""
        return self.opf & 0xFF

    @property
    def end_sector(self) -> int:
        """One past its last sector."""
        return self.sector + self.bytes // SECTOR


@dataclass
class Kernel:
    """What differs between kernels and recordings."""

    letters: str = EVERYTHING
    """Kinds that are recorded."""
    has_start: bool = True
    tells_merge: bool = False
    """M and F name the request (up to 5.10)."""
    splits_silently: bool = False
    """md splits without X (up to 6.1)."""
    dm_says_x: bool = True
    """dm emits X for the remainder (6.1 and later)."""
    fronts_merge: bool = False
    chain_records: int = 43

    @property
    def seen(self) -> set[str]:
        """Letters that a log of this recording holds."""
        return set(self.letters)


@dataclass
class History:
    """A finished simulation: all that happened, and what a recording of it delivers."""

    kernel: Kernel
    devices: list[dict[str, Any]]
    records: list[Rec]
    """All, in order of time."""
    bios: list[Bio]
    """Whole bios, in the order of their first record."""
    requests: list[Request]
    features: Counter[str]
    chunks: list[tuple[int, list[Rec]]] = field(default_factory=list)
    """What was recorded: (time when read, records by CPU in order of arrival)."""
    losses: list[dict[str, int]] = field(default_factory=list)
    """Loss windows as a log has them, on the simulation's clock."""
    recorded: set[Rec] = field(default_factory=set)
    window_events: int = 1 << 20
    label: str = ""
