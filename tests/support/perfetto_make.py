# SPDX-License-Identifier: Apache-2.0
"""Makes lifecycles for tests of converters: rows as dicts, windows cut anywhere."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    FAR,
    NEVER,
    Bios,
    Certainty,
    Edges,
    Lifecycles,
    LossWindows,
    Requests,
    Stage,
    Stages,
    Tasks,
)
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import Options
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from tests.support.perfetto_check import Read, read

DISK, PART, LOOP = 259 << 20, 259 << 20 | 1, 7 << 20
SYNC, PREFLUSH, FUA = 1 << 11, 1 << 18, 1 << 17
READ, WRITE = 0, 1

HEADER: dict[str, Any] = {
    "log_id": "0123456789abcdef0123456789abcdef",
    "created_by": "biotrail 0.1.0",
    "host": {"name": "testhost", "machine": "x86_64", "cpus": 2, "os": "Debian 12"},
    "kernel": {"release": "6.1.0", "version": "#1 SMP"},
    "clocks": {
        "monotonic": 1_000_000_000,
        "boottime": 1_500_000_000,
        "realtime": 1_700_000_000_000_000_000,
        "uncertainty": 100,
    },
    "command": ["biotrail", "record", "-d", "nvme0n1"],
    "events": {"set": "lifecycle", "missing": []},
    "backend": "core",
    "devices": [
        {"dev": DISK, "name": "nvme0n1", "kind": "disk"},
        {"dev": PART, "name": "nvme0n1p1", "kind": "partition", "disk": DISK},
        {"dev": LOOP, "name": "loop0", "kind": "loop"},
    ],
}

_BIO: dict[str, Any] = {
    "dev": DISK, "part": DISK, "sector": 0, "bytes": 4096, "opf": READ, "tid": 101, "task": 0,
    "whom": -1,
    "cgroup": 1, "ioprio": 0, "hint": 0, "page": 0,
    "cpu": 0, "getrq": NEVER, "merge": NEVER, "insert": NEVER,
    "stack": -1, "file": -1, "issue": NEVER, "complete": NEVER, "fragments": 1, "requests": 1,
    "requeues": 0, "status": 0, "request": NEVER, "parent": NEVER, "certainty": Certainty.EXACT,
    "doubtful": False, "gone": NEVER, "own": False, "cut": NEVER,
}  # fmt: skip
_REQUEST: dict[str, Any] = {
    "dev": DISK, "sector": 0, "bytes": 4096, "opf": READ, "tag": 5, "sched_tag": 0xFFFF,
    "hctx": 0, "insert": NEVER, "issue": NEVER, "complete": NEVER, "bios": 1, "requeues": 0,
    "others": 0, "status": 0, "kind": 0, "absorbed_by": NEVER, "parent": NEVER,
    "certainty": Certainty.EXACT, "doubtful": False, "gone": NEVER, "own": False, "cut": NEVER,
}  # fmt: skip


_NEVER_BY_DEFAULT = {
    *("task", "whom", "queue", "getrq", "merge", "insert", "issue", "complete", "gone"),
    *("request", "parent", "absorbed_by", "cut"),
}


def table(kind: type[Any], rows: Sequence[dict[str, Any]], **defaults: Any) -> Any:
    """A table of rows; what neither they nor `defaults` say is NEVER, or 0."""
    columns = {}
    for column in fields(kind):
        default = defaults.get(column.name, NEVER if column.name in _NEVER_BY_DEFAULT else 0)
        values = [row.get(column.name, default) for row in rows]
        # Of an array type, such as I64: numpy.ndarray[…, numpy.dtype[numpy.int64]].
        dtype = get_args(get_args(column.type)[1])[0]
        columns[column.name] = np.array(values, dtype=dtype)
    return kind(**columns)


def bio(number: int, queue: int, **more: Any) -> dict[str, Any]:
    """A bio's row; `stages`: [(Stage, start, end), …] beside the columns."""
    row = {**_BIO, "number": number, "queue": queue, "family": number, **more}
    row.setdefault("done_bytes", row["bytes"] if row["complete"] >= 0 else 0)
    row.setdefault("stages", [])
    if row["complete"] < 0 and row["certainty"] == Certainty.LOST:
        row["gone"] = FAR
    return row


def request(number: int, start: int, **more: Any) -> dict[str, Any]:
    """A request's row; `stages` as for a bio."""
    row = {**_REQUEST, "number": number, "start": start, "family": number, **more}
    row.setdefault("done_bytes", row["bytes"] if row["complete"] >= 0 else 0)
    row.setdefault("stages", [])
    if row["complete"] < 0 and row["certainty"] == Certainty.LOST:
        row["gone"] = FAR
    return row


def direct(number: int, queue: int, d2c: int, **more: Any) -> dict[str, Any]:
    """A bio that took Q2G 1 µs, G2D 2 µs, and D2C as given."""
    getrq, issue = queue + 1000, queue + 3000
    complete = issue + d2c
    stages = [
        (Stage.Q2G, queue, getrq),
        (Stage.G2D, getrq, issue),
        (Stage.D2C, issue, complete),
    ]
    return bio(number, queue, getrq=getrq, issue=issue, complete=complete, stages=stages, **more)


def stages_of(rows: Iterable[dict[str, Any]]) -> Stages:
    flat = [
        {"owner": row["number"], "stage": s, "start": a, "end": b}
        for row in rows
        for s, a, b in row["stages"]
    ]
    result: Stages = table(Stages, flat)
    return result


@dataclass
class Scene:
    """Everything of a recording; `windows` cuts it."""

    bios: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(
        default_factory=lambda: [{"tid": 101, "tgid": 100, "comm": "fio"}]
    )
    losses: list[dict[str, Any]] = field(default_factory=list)
    begin: int = 1_000_000_000
    end: int = 2_000_000_000

    def windows(self, cuts: Sequence[int] = (), keep_open: bool = True) -> Iterable[Lifecycles]:
        bounds = [self.begin, *sorted(c for c in cuts if self.begin < c < self.end), self.end]
        for begin, end in pairwise(bounds):
            yield self._window(begin, end, end == self.end, keep_open)

    def _window(self, begin: int, end: int, final: bool, keep_open: bool) -> Lifecycles:
        first = begin == self.begin

        def ended(row: dict[str, Any]) -> bool:
            at = row.get("closed", row["complete"])
            if at < 0:
                return final
            return (begin <= at or first) and (at < end or final)

        def under_way(row: dict[str, Any], start: str) -> bool:
            at = row.get("closed", row["complete"])
            return not final and row[start] < end and (at < 0 or at >= end)

        bios = [r for r in self.bios if ended(r)]
        requests = [r for r in self.requests if ended(r)]
        open_bios = [_as_of(r, end) for r in self.bios if keep_open and under_way(r, "queue")]
        open_requests = [
            _as_of(r, end) for r in self.requests if keep_open and under_way(r, "start")
        ]
        losses = [w for w in self.losses if (begin <= w["end"] or first) and w["end"] < end]
        return Lifecycles(
            begin=begin,
            end=end,
            bios=table(Bios, bios),
            requests=table(Requests, requests),
            edges=table(Edges, []),
            bio_stages=stages_of(bios),
            request_stages=stages_of(requests),
            open_bios=table(Bios, open_bios),
            open_requests=table(Requests, open_requests),
            tasks=table(Tasks, self.tasks),
            loss=table(LossWindows, losses),
        )


def _as_of(row: dict[str, Any], end: int) -> dict[str, Any]:
    """What is known of a row when only what came before `end` was seen."""
    times = ("getrq", "merge", "insert", "issue", "complete")
    return {k: NEVER if k in times and v >= end else v for k, v in row.items()}


def context(**more: Any) -> Context:
    return Context({**HEADER, **more})


def traced(
    log: Any, window_events: int = WINDOW_EVENTS, *, small: bool = False, **options: Any
) -> Read:
    """The trace that a log becomes, read again. log: its path or bytes, or a `Trace`."""
    given = io.BytesIO(log) if isinstance(log, bytes) else log
    source, out = given if isinstance(given, Trace) else Trace(given), io.BytesIO()
    windows = source.lifecycles(window_events, small=small)
    convert(windows, source.context, out, options=Options(**options))
    return read(out.getvalue())
