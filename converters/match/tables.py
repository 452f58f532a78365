# SPDX-License-Identifier: Apache-2.0
"""A log's windows by the machine.

The machine carries lives from window to window. Events go on only where something is asked of them
when their life is over: the records of the path beside a Q or C, and those of chosen bios.
"""

from collections import Counter
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.path import ROWS
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U8,
    Bios,
    Edges,
    PageKind,
    Requests,
    Stages,
)
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.account import Pairing, kind_counts
from biotrail.converters.lifecycles.operations import request_kinds
from biotrail.converters.lifecycles.result import (
    FIRST_UNRECORDED,
    Behind,
    Mentions,
    Owners,
    Result,
)
from biotrail.converters.match import rules
from biotrail.converters.sites.tables import follows
from biotrail.recorder.schema.records import (
    FIRST_UNKNOWN_TID,
    Q_FLAG_DEVICE,
    Q_FLAG_FILE,
    Q_FLAG_SWAP,
)

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import PathTables

PAGE_KINDS = np.zeros(256, dtype=np.uint8)
"""PageKind by the flags of a Q; these have one of the three at most."""
for _flag, _kind in (
    (Q_FLAG_FILE, PageKind.FILE),
    (Q_FLAG_DEVICE, PageKind.DEVICE),
    (Q_FLAG_SWAP, PageKind.SWAP),
):
    PAGE_KINDS[(np.arange(256) & _flag) != 0] = _kind

machine = import_module("biotrail.converters.match.compiled")  # a module without a source

BIO_COLUMNS = {
    **{"number": "i8", "dev": "u4", "part": "u4", "sector": "u8", "bytes": "u4", "opf": "u4"},
    **{"tid": "u4", "cgroup": "u8", "ioprio": "u2", "hint": "u1", "flags": "u1", "stack": "i8"},
    **{"file": "i4", "cpu": "u2", "queue": "i8", "getrq": "i8", "merge": "i8", "insert": "i8"},
    **{"issue": "i8", "complete": "i8", "gone": "i8", "fragments": "u4", "requests": "u4"},
    **{"requeues": "u4", "status": "i4", "done_bytes": "u4", "request": "i8", "parent": "i8"},
    **{"family": "i8", "certainty": "u1", "doubtful": "?", "queued_at": "i8", "own": "?"},
}
"""What the machine writes of a bio: fields of a C struct, with dtypes; likewise those below."""
REQUEST_COLUMNS = {
    **{"number": "i8", "dev": "u4", "sector": "u8", "bytes": "u4", "opf": "u4", "tag": "u2"},
    **{"sched_tag": "u2", "hctx": "u2", "start": "i8", "insert": "i8", "issue": "i8"},
    **{"complete": "i8", "gone": "i8", "bios": "u4", "others": "u4", "requeues": "u4"},
    **{"status": "i4", "done_bytes": "u4", "absorbed_by": "i8", "parent": "i8", "family": "i8"},
    **{"certainty": "u1", "completed_at": "i8", "own": "?", "doubtful": "?"},
}
EDGE_COLUMNS = {"bio": "i8", "request": "i8", "sector": "u8", "bytes": "u4", "certainty": "u1"}
STAGE_COLUMNS = {"owner": "i8", "stage": "u1", "start": "i8", "end": "i8"}
MENTION_COLUMNS = {"event": "i8", "what": "i8", "is_bio": "?", "number": "i8", "own": "?"}
LIFE_COLUMNS = {"is_bio": "?", "object": "u8", "first": "i8", "last": "i8", "number": "i8"}
TABLES = (
    *(BIO_COLUMNS, REQUEST_COLUMNS, EDGE_COLUMNS, STAGE_COLUMNS, STAGE_COLUMNS),
    *(MENTION_COLUMNS, LIFE_COLUMNS),
)
_SORTED_BY = {0: "number", 1: "number", 3: "owner", 4: "owner"}
"""Place in TABLES → the column by which its rows are sorted; the others' order says nothing."""

_PARITY_LEVELS = ("raid4", "raid5", "raid6")
"""md's levels whose remap of a parity block does not report a sector of the array."""


@dataclass
class Rows:
    """What the machine wrote of families: the tables, and what refers to events by their numbers.

    Edges are in no order. lives: columns of LIFE_COLUMNS.
    """

    bios: Bios
    requests: Requests
    edges: Edges
    bio_stages: Stages
    request_stages: Stages
    queued_at: I64
    """Per bio, its Q; NEVER: not recorded."""
    completed_at: I64
    """Per request, its last C; NEVER."""
    mentions: Mentions
    lives: dict[str, Any]


class Matcher:
    """The machine of one log, and its rows as tables, window after window, in order."""

    def __init__(
        self,
        context: Context,
        tasks: TaskNames,
        stacks: StackNames,
        *,
        begin: int = 0,
        by_intervals: bool = False,
        tells_events: bool = False,
    ) -> None:
        """tasks, stacks: the trace's, which names are added to before events are taken in.

        begin: time (ns) before which events are not counted. by_intervals: events have no pointers,
        or these are not to be used. tells_events: whether `Result.histories` will be asked; else
        `mentions` are of own I/O alone.
        """
        self._context, self._tasks, self._stacks = context, tasks, stacks
        self._begin, self._tells_events = begin, tells_events
        self._first_counted = FAR
        self._kept = Events.empty()
        numbers = [context.op_number(name) for name in sorted(PASSTHROUGH_OPS)]
        facts = {
            "mask": bytes(name not in rules.OFF for name in rules.RULES),
            "dtypes": [np.dtype(list(columns.items()), align=True) for columns in TABLES],
            "zone_append": context.op_number("zone_append"),
            "discard": context.op_number("discard"),
            "write": context.op_number("write"),
            "flush": context.op_number("flush"),
            "passthrough": sum({1 << n for n in numbers if n >= 0}),
            "by_path": context.flag_mask("DRV"),  # REQ_NVME_MPATH
            "preflush": context.flag_mask("PREFLUSH"),
            "fua": context.flag_mask("FUA"),
            "counts_losses": context.counts_losses,
            "notes_events": True,
            "tells_events": tells_events,
            "tells_lives": follows(context.header),
            "by_intervals": by_intervals,
            "bios_end_by_c": context.header.get("backend") == "blktrace",
            "records_bios": context.records_bios,
        }
        self._machine = machine.Machine(facts)

    def build(self, fresh: Events, *, settle_ns: int, before: int | None) -> Result:
        """Take in a window's new events; return the tables of what was over before a time (ns).

        None: no window follows, and all that is open is closed. fresh: later than all before, with
        numbers that ascend by 1. settle_ns: how long what is over waits for late events before its
        rows are written.
        """
        context = self._context
        devices = {  # all that the log has named so far
            dev: (
                [context.disk_of(lower) for lower in context.lower_devices(dev)],
                entry["disk"] if entry.get("disk", dev) != dev else NEVER,
                NEVER if entry.get("start") is None else entry["start"],
                (entry.get("md") or {}).get("level") in _PARITY_LEVELS,
                entry.get("kind") == "loop" or "nr_hw_queues" in entry.get("queue", {}),
                entry.get("queue", {}).get("nr_hw_queues") == 1,
            )
            for dev, entry in context.devices.items()
        }
        self._machine.know(devices)
        cut = int(np.searchsorted(fresh.ts, self._begin))
        counted = fresh
        if cut:
            self._machine.take(fresh.take(slice(None, cut)), settle_ns)
            self._machine.device_counts()  # not counted
            counted = fresh.take(slice(cut, None))
        if len(counted):
            self._first_counted = min(self._first_counted, int(counted.number[0]))
        used: U8 = self._machine.take(counted, settle_ns)  # whether each names a bio or request
        if before is None:
            self._machine.close()
        else:
            self._machine.settle(before)
        rows = self._rows()
        self._machine.show_open()
        still = self._rows()
        behind = Behind(self._kept, fresh)
        path = self._path(fresh, behind, rows, still)
        # Kept are the events of what is open of which something will be asked.
        asked = [np.zeros(0, np.int64)]
        if context.path_parts or path is not None:
            asked.append(_asked(still))
        if self._tells_events:
            asked.append(still.mentions.event[still.mentions.what != NEVER])
        self._kept = behind.at(np.concatenate(asked))
        owners, open_since = {}, {}
        for kind in ("bio", "request"):
            mine = rows.lives["is_bio"] == (kind == "bio")
            names = ("object", "first", "last", "number")
            owners[kind] = Owners(*(rows.lives[name][mine] for name in names))
            since = self._machine.open_since(kind == "bio")
            open_since[kind] = FAR if since == NEVER else since
        return Result(
            bios=rows.bios,
            requests=rows.requests,
            edges=rows.edges,
            open_bios=still.bios,
            open_requests=still.requests,
            bio_stages=rows.bio_stages,
            request_stages=rows.request_stages,
            path=path,
            span=(int(counted.ts[0]), int(counted.ts[-1])) if len(counted) else (NEVER, NEVER),
            first_counted=self._first_counted,
            counts=kind_counts(counted, used),
            device_counts=self._machine.device_counts(),
            mentions=rows.mentions,
            open_mentions=still.mentions,
            owners=owners,
            open_since=open_since,
            behind=behind,
        )

    def _path(self, fresh: Events, behind: Behind, rows: Rows, still: Rows) -> "PathTables | None":
        """Return the window's tables of the path; sets `whom` of its bios. None: it has none."""
        if fresh.path is None and self._kept.path is None and not len(fresh.rows(*ROWS)):
            return None
        from biotrail.converters.lifecycles import path as of_path
        from biotrail.converters.lifecycles.path import bio_requests

        path = of_path.rows_of_path(fresh, self._tasks) or of_path.no_tables(self._tasks)
        asked = [_asked(rows), _asked(still)]
        events = behind.at(np.concatenate(asked))
        if events.path is None:
            return path
        ended, flying = _places(events, rows.queued_at), _places(events, still.queued_at)
        rows.bios.whom[:] = of_path.waiter_rows(events, ended, rows.bios.queue, self._tasks)
        still.bios.whom[:] = of_path.waiter_rows(events, flying, still.bios.queue, self._tasks)
        number, request = rows.bios.number, rows.requests.number
        completed = _places(events, rows.completed_at)
        return replace(
            path,
            bios=of_path.bio_paths(events, number, ended),
            interrupts=of_path.interrupts(events, request, completed),
            steps=of_path.driver_steps(events, request, completed, rows.requests.start),
            open_bios=of_path.bio_paths(events, still.bios.number, flying),
            bio_requests=bio_requests(events, (number, ended), (still.bios.number, flying)),
            held=of_path.held_bios(events, self._tasks, number, ended),
            open_held=of_path.held_bios(events, self._tasks, still.bios.number, flying),
        )

    def lose(self, ends: I64) -> None:
        """Take in until when records were lost (ns), of losses that were not told before.

        Without pointers a completion is not looked for among what lived through one.
        """
        self._machine.lose(ends.tolist())

    def pairing(self) -> Pairing:
        """Return counts, so far, of flushes that could have ended by several completions."""
        count, same, most, spans = self._machine.pairing()
        return Pairing(count, same, most, Counter({b: n for b, n in enumerate(spans) if n}))

    def _rows(self) -> Rows:
        """Return the rows that the machine wrote since the last call."""
        found: list[dict[str, Any]] = []
        # One table's rows after the other's, as they and their columns are a window's largest part.
        for at, columns in enumerate(TABLES):
            rows: NDArray[np.void] = self._machine.rows(at)
            if key := _SORTED_BY.get(at):
                keys = rows[key]
                if (keys[1:] < keys[:-1]).any():  # rows[order] would copy field by field
                    rows = rows.take(np.argsort(keys, kind="stable"))
            found.append({name: np.ascontiguousarray(rows[name]) for name in columns})
        bios, requests, edges, bio_stages, request_stages, mentions, lives = found
        queued_at, completed_at = bios.pop("queued_at"), requests.pop("completed_at")
        tid, count = bios["tid"], len(queued_at)
        bios["task"] = self._tasks.rows(tid, bios["queue"]).astype(np.int32)
        bios["task"][queued_at < 0] = -1
        tid[tid >= FIRST_UNKNOWN_TID] = 0
        bios["page"] = PAGE_KINDS[bios.pop("flags")]
        bios["stack"] = self._stacks.rows(bios["stack"])
        bios["whom"] = np.full(count, -1, np.int32)
        kind = request_kinds(requests["opf"], requests["sector"], self._context)
        return Rows(
            Bios(**bios, cut=np.full(count, NEVER, np.int64)),
            Requests(**requests, kind=kind, cut=np.full(len(kind), NEVER, np.int64)),
            Edges(**edges),
            Stages(**bio_stages),
            Stages(**request_stages),
            queued_at,
            completed_at,
            Mentions(**mentions),
            lives,
        )


def _asked(rows: Rows) -> I64:
    """Return the numbers of the events that tables of the path are made of: A, Q and last C."""
    first = rows.bios.number[rows.bios.number < FIRST_UNRECORDED]
    return np.concatenate([first, rows.queued_at, rows.completed_at])


def _places(events: Events, numbers: I64) -> I64:
    """Return the row of each event, by number; -1: it is not there. events: sorted by number."""
    row, known = rows_of(events.number, numbers)
    return np.where(known, row, -1)
