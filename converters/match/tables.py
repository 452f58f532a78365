# SPDX-License-Identifier: Apache-2.0
"""A log's tables by the machine."""

from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import (
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
from biotrail.converters.lifecycles.account import Pairing
from biotrail.converters.lifecycles.operations import request_kinds
from biotrail.converters.match import rules
from biotrail.converters.sites.tables import follows
from biotrail.recorder.schema.records import (
    FIRST_UNKNOWN_TID,
    Q_FLAG_DEVICE,
    Q_FLAG_FILE,
    Q_FLAG_SWAP,
)

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
"""Events of lives by their numbers. what: kind << 32 | dev_t; NEVER: no event, but a request that
had the bio `event`."""
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

    Edges are in no order. `mentions` and `lives`: columns of MENTION_COLUMNS and LIFE_COLUMNS.
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
    mentions: dict[str, Any]
    lives: dict[str, Any]


class Matcher:
    """The machine of one log, and its rows as tables."""

    def __init__(
        self,
        context: Context,
        tasks: TaskNames,
        stacks: StackNames,
        *,
        by_intervals: bool = False,
        tells_events: bool = False,
    ) -> None:
        """tasks, stacks: the trace's, which names are added to before events are taken in.

        by_intervals: events have no pointers, or these are not to be used. tells_events: whether
        `Rows.mentions` has all events, not those of own I/O alone.
        """
        self._context, self._tasks, self._stacks = context, tasks, stacks
        facts = facts_of(context, by_intervals=by_intervals, tells_events=tells_events)
        self._machine = machine.Machine(facts)

    def take(self, events: Events, settle_ns: int) -> U8:
        """Take in events that are later than all before; their numbers ascend by 1.

        Return per event whether it names a bio or request, 0 or 1. settle_ns: how long what is over
        waits for late events before its rows are written.
        """
        self._machine.know(device_facts(self._context))
        used: U8 = self._machine.take(events, settle_ns)
        return used

    def lose(self, ends: I64) -> None:
        """Take in until when records were lost (ns), of losses that were not told before.

        Without pointers a completion is not looked for among what lived through one.
        """
        self._machine.lose(ends.tolist())

    def pairing(self) -> Pairing:
        """Return counts, so far, of flushes that could have ended by several completions."""
        count, same, most, spans = self._machine.pairing()
        return Pairing(count, same, most, Counter({b: n for b, n in enumerate(spans) if n}))

    def device_counts(self) -> dict[tuple[int, int], int]:
        """Return the number of events since the last call, by disk (dev_t) and kind."""
        counts: dict[tuple[int, int], int] = self._machine.device_counts()
        return counts

    def open_since(self, kind: str) -> int:
        """Return when the first request (bio) began that is not closed (ns); -1: none is."""
        return int(self._machine.open_since(kind == "bio"))

    def rows(self, before: int | None) -> Rows:
        """Return the rows since the last call; None: the log is over, and all that is left ends.

        before: also of what was over before this time (ns).
        """
        if before is None:
            self._machine.close()
        else:
            self._machine.settle(before)
        return self._rows()

    def open_rows(self) -> Rows:
        """Return rows of what is not closed, as far as it is known; to be asked behind `rows`."""
        self._machine.show_open()
        return self._rows()

    def _rows(self) -> Rows:
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
            mentions,
            lives,
        )


def facts_of(context: Context, *, by_intervals: bool, tells_events: bool) -> dict[str, Any]:
    """Return what the machine needs to know of a log's header, and of who asks."""
    numbers = [context.op_number(name) for name in sorted(PASSTHROUGH_OPS)]
    return {
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


def device_facts(context: Context) -> dict[int, tuple[list[int], int, int, bool, bool, bool]]:
    """Return what `Machine.know` takes, of all devices that the log has named so far."""
    return {
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
