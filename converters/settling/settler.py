# SPDX-License-Identifier: Apache-2.0
"""Settles the plain I/O of a window before the column model sees it.

The compiled pass (`plain`) finds families of bios and requests that are over and plain in all;
this module gives their rows. All other events remain, for the model.
"""

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from biotrail.converters.association.identity.address_reuse import ReusedGenerations
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.files import files_of
from biotrail.converters.events.plain_events import path_apart
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OP_MASK,
    U16,
    Bios,
    Certainty,
    Edges,
    EventRows,
    RequestKind,
    Requests,
    Stages,
)
from biotrail.converters.lifecycles.submitters import Submitters
from biotrail.converters.settling.devices import device_table, partitions_of, plain_devices
from biotrail.recorder.schema.records import CHAIN_SLOTS, NO_TAG, Kind

try:
    from biotrail.converters.settling import plain as _plain
except ImportError:  # not compiled, and no Cython to run it uncompiled
    compiled: ModuleType | None = None
else:
    compiled = _plain if _plain.COMPILED else None


def _names(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


def _struct(names: str) -> np.dtype[np.void]:
    """Return a dtype of int64 members."""
    return np.dtype([(name, "<i8") for name in _names(names)])


_BIO = _struct(
    "address remap sent queue got joined request state doubt successor root sector left sibling "
    "opf dev pieces final fragments requests ended clone upper branch reach"
)
"""`plain.Bio`."""
_REQUEST = _struct(
    "address start insert issue complete head state doubt successor first bios sector end last "
    "lowest named sequence flush data_end dev"
)
"""`plain.Request`."""
_SETTLED, _HELD = 0, 1
"""`doubt` of lives, as in `plain`."""
_FEWEST_SLOTS = 1 << 12
_MOST_FLYING, _MOST_UNKNOWN = 1024, 256
"""As in `plain`."""
BIO_COLUMNS = [
    "row",
    "number",
    "queue",
    "getrq",
    "merge",
    "insert",
    "issue",
    "complete",
    "request",
    "fragments",
    "requests",
    "dev",
    "parent",
    "family",
]
"""What the pass tells of each plain bio, as int64; `row` is that of its Q."""
REQUEST_COLUMNS = _names(
    "row number start insert issue complete family bios completed flush issued"
)
"""What the pass tells of each plain request.

`row` is that of its D, without one of its s or C; `completed` of its last C. flush, issued: 0 or 1.
"""


@dataclass(frozen=True)
class Facts:
    """What a log's header says that decides what is plain."""

    preflush: int
    """Flag of opf; `fua` likewise."""
    fua: int
    write: int
    """Operation number; `flush` likewise."""
    flush: int
    has_start: int
    """Whether s was recorded: then each request begins with one."""
    has_got: int
    """Whether s or G was recorded: then each bio that was not merged has one."""

    @classmethod
    def of(cls, context: Context) -> "Facts":
        """Return the facts of a log."""
        letters = context.header.get("events", {}).get("letters", ())
        return cls(
            context.flag_mask("PREFLUSH"),
            context.flag_mask("FUA"),
            context.op_number("write") & OP_MASK,
            context.op_number("flush") & OP_MASK,
            int("s" in letters),
            int("s" in letters or "G" in letters),
        )


@dataclass
class Work:
    """Tables that a pass fills, used again by the next one."""

    slots: int = _FEWEST_SLOTS
    """Of each table of addresses: a power of two."""
    bios: Any = field(default_factory=lambda: _lives(_BIO, 0))
    requests: Any = field(default_factory=lambda: _lives(_REQUEST, 0))
    owner: Any = field(default_factory=lambda: np.zeros(0, np.int32))
    bio_keys: Any = None
    bio_values: Any = None
    request_keys: Any = None
    request_values: Any = None
    flying: I64 = field(default_factory=lambda: np.zeros(_MOST_FLYING, np.int64))
    """Bios above that clones may be of, while the events are gone through."""
    unknown: I64 = field(default_factory=lambda: np.zeros(_MOST_UNKNOWN, np.int64))
    """Rows of c that end bios of which nothing else is known."""

    def prepare(self, events: int, chains: int, slots: int) -> None:
        """Make room for `events` events, `chains` of them CHAIN, and for `slots` addresses.

        The tables of addresses are empty then.
        """
        # An event begins the life of one bio and one request at most; a CHAIN names six bios.
        if len(self.bios) < events + CHAIN_SLOTS * chains:
            self.bios = _lives(_BIO, (events + CHAIN_SLOTS * chains) * 5 // 4)
        if len(self.requests) < events:
            self.requests = _lives(_REQUEST, events * 5 // 4)
            self.owner = np.zeros(events * 5 // 4, np.int32)
        if self.bio_keys is None or len(self.bio_keys) != slots:
            self.bio_values = np.zeros(slots, np.int32)
            self.request_values = np.zeros(slots, np.int32)
        self.bio_keys, self.request_keys = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        self.slots = slots


def _lives(dtype: np.dtype[np.void], count: int) -> Any:
    """Return room for `count` lives; memory is taken when it is used."""
    return np.empty(count, dtype).view(np.recarray)


@dataclass
class Settled:
    """The plain I/O of a window: its rows, sorted by number, and counts of its events."""

    bios: Bios
    requests: Requests
    open_bios: Bios
    """Those held back for the next window, which ended too near this one's end."""
    open_requests: Requests
    edges: Edges
    bio_stages: Stages
    request_stages: Stages
    rest: EventRows
    """Rows of all other events, which are the model's, ascending."""
    held: EventRows
    """Rows of events of `open_bios` and `open_requests`, ascending."""
    counts: dict[tuple[int, int], int]
    """Number of plain events by (dev_t, kind)."""
    queued: EventRows
    """Per bio, the row of its Q."""
    completed: EventRows
    """Per request, the row of its last C."""
    beside: EventRows
    """Rows of records of the path, which the model does not need: Q and C have what is theirs."""
    lives: Any
    """`plain.Lives`."""


class Settler:
    """Settler of one log's windows; it keeps nothing of a window but memory."""

    def __init__(self, context: Context, submitters: Submitters, module: ModuleType) -> None:
        """`module`: the compiled pass, or the same uncompiled (`plain`)."""
        self._facts = Facts.of(context)
        self._submitters = submitters
        self._module = module
        self._context = context
        self._work = Work()

    def settle(
        self, events: Events, settled: int, reused: ReusedGenerations, *, holds: bool
    ) -> Settled | None:
        """Return the plain I/O among a window's events that is over before `settled` (ns).

        reused: of bios, what the model knows from earlier windows. holds: whether to hold back
        plain I/O that is over later; otherwise it is the model's. None: there is no plain I/O.
        """
        devices = plain_devices(self._context, events)
        if not len(devices) or not len(events):
            return None
        lives = self._walk(events, devices)
        known = np.flatnonzero(np.isin(events.number, reused.birth))
        again = reused.again[np.searchsorted(reused.birth, events.number[known])]
        lives.hand_over(known, again, events.number)
        lives.families(events.ts, settled, holds)
        pieces, requests = lives.count_of(_SETTLED)
        waiting = lives.count_of(_HELD)
        if not pieces and not waiting[0]:
            return None
        rest, held = np.empty(len(events), np.int64), np.empty(len(events), np.int64)
        counts = np.zeros((len(devices), 256), np.int64)
        left, held_back = lives.rest(counts, rest, held)
        rest, beside = path_apart(events, rest[:left])
        used = np.argwhere(counts)
        named, kinds = used.T.tolist()
        keys = zip(devices[named].tolist(), kinds, strict=True)
        bios, bio_stages, queued = _bios(events, lives, pieces, self._submitters, _SETTLED)
        rows, request_stages, completed = _requests(events, lives, requests, _SETTLED)
        return Settled(
            bios,
            rows,
            _bios(events, lives, waiting[0], self._submitters, _HELD)[0],
            _requests(events, lives, waiting[1], _HELD)[0],
            _edges(events, lives, pieces),
            bio_stages,
            request_stages,
            rest,
            held[:held_back].copy(),
            dict(zip(keys, counts[tuple(used.T)].tolist(), strict=True)),
            queued,
            completed,
            beside,
            lives,
        )

    def _walk(self, events: Events, devices: I64) -> Any:
        """Return the lives of the events, after one pass over them. devices: may be plain."""
        partitions = partitions_of(self._context, devices)
        table = device_table(self._context, devices, events)
        raw = np.ascontiguousarray(events.raw.T).view(np.int64)
        chains = int(np.count_nonzero(events.kind == Kind.CHAIN))
        slots = self._work.slots
        while True:
            self._work.prepare(len(events), chains, slots)
            lives = self._module.Lives(raw, self._work, table, partitions, self._facts)
            if lives.walk():
                return lives
            slots *= 2


def _bios(
    events: Events, lives: Any, pieces: int, submitters: Submitters, doubt: int
) -> tuple[Bios, Stages, EventRows]:
    """Return the whole bios with a doubt, their stages, and the row of each one's Q.

    pieces: as many bios at most. doubt: _SETTLED or _HELD.
    """
    out = np.empty((len(BIO_COLUMNS), pieces), np.int64)
    stages = np.empty((4, 5 * pieces), np.int64)
    rows, stage_rows = lives.bio_rows(events.ts, events.number, out, stages, doubt)
    of = dict(zip(BIO_COLUMNS, out[:, :rows], strict=True))
    queued, number = of["row"], of["number"]
    dev = of["dev"].astype(np.uint32)
    size = events.field(Kind.Q, "bytes", queued)
    nothing = np.full(rows, NEVER, np.int64)
    bios = Bios(
        number=number,
        dev=dev,
        sector=events.field(Kind.Q, "sector", queued),
        bytes=size,
        opf=events.field(Kind.Q, "opf", queued),
        **submitters.columns(events, queued, of["queue"], dev),
        file=files_of(events, queued, nothing),
        queue=of["queue"],
        getrq=of["getrq"],
        merge=of["merge"],
        insert=of["insert"],
        issue=of["issue"],
        complete=of["complete"],
        gone=nothing.copy(),
        fragments=of["fragments"].astype(np.uint32),
        requests=of["requests"].astype(np.uint32),
        requeues=np.zeros(rows, np.uint32),
        status=np.zeros(rows, np.int32),
        done_bytes=size.copy(),
        request=of["request"],
        parent=of["parent"],
        family=of["family"],
        certainty=np.full(rows, Certainty.EXACT, np.uint8),
        doubtful=np.zeros(rows, np.bool_),
        own=np.zeros(rows, np.bool_),
        cut=nothing.copy(),
    )
    return bios, _stages(stages[:, :stage_rows]), queued


def _requests(
    events: Events, lives: Any, count: int, doubt: int
) -> tuple[Requests, Stages, EventRows]:
    """Return the `count` requests with a doubt, their stages, and the row of each one's C.

    doubt: _SETTLED or _HELD.
    """
    out = np.empty((len(REQUEST_COLUMNS), count), np.int64)
    stages = np.empty((4, 4 * count), np.int64)
    rows, stage_rows = lives.request_rows(events.ts, events.number, out, stages, doubt)
    of = dict(zip(REQUEST_COLUMNS, out, strict=True))
    issued = of["row"]
    size = events.field(Kind.D, "bytes", issued)  # where s has it, too
    nothing = np.full(rows, NEVER, np.int64)
    no_tags = of["issued"] == 0

    def tags(name: str) -> U16:
        """Return a field of each D; NO_TAG where there was none."""
        return np.where(no_tags, NO_TAG, events.field(Kind.D, name, issued)).astype(np.uint16)

    requests = Requests(
        number=of["number"],
        dev=events.field(Kind.D, "dev", issued),
        sector=events.field(Kind.D, "sector", issued),
        bytes=size,
        opf=events.field(Kind.D, "opf", issued),
        tag=tags("tag"),
        sched_tag=tags("sched_tag"),
        hctx=tags("hctx"),
        start=of["start"],
        insert=of["insert"],
        issue=of["issue"],
        complete=of["complete"],
        gone=nothing.copy(),
        bios=of["bios"].astype(np.uint32),
        others=np.zeros(rows, np.uint32),
        requeues=np.zeros(rows, np.uint32),
        status=np.zeros(rows, np.int32),
        done_bytes=size.copy(),
        kind=np.where(of["flush"], RequestKind.FLUSH, RequestKind.NORMAL).astype(np.uint8),
        absorbed_by=nothing,
        parent=nothing.copy(),
        family=of["family"],
        certainty=np.full(rows, Certainty.EXACT, np.uint8),
        doubtful=np.zeros(rows, np.bool_),
        own=np.zeros(rows, np.bool_),
        cut=nothing.copy(),
    )
    return requests, _stages(stages[:, :stage_rows]), of["completed"]


def _stages(rows: I64) -> Stages:
    """Return stages from (4, n): owner, stage, start and end."""
    return Stages(rows[0], rows[1].astype(np.uint8), rows[2], rows[3])


def _edges(events: Events, lives: Any, pieces: int) -> Edges:
    """Return an edge for each of the plain pieces."""
    out = np.empty((4, pieces), np.int64)
    out = out[:, : lives.edge_rows(events.number, out)]
    return Edges(
        bio=out[0],
        request=out[1],
        sector=out[2].view(np.uint64),
        bytes=out[3].astype(np.uint32),
        certainty=np.full(out.shape[1], Certainty.EXACT, np.uint8),
    )
