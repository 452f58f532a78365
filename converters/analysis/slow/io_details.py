# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables as plain values with names, for the few I/Os that are shown one by one."""

from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from biotrail.converters.analysis.figures import as_row
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import NO_BPS, NO_IOPS, HeldSince
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    STAGE_NAMES,
    Certainty,
    Lifecycles,
    RequestKind,
    Requests,
    Stage,
    Table,
)
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.windows import under_way
from biotrail.recorder.schema.records import NO_SECTOR, NO_TAG

_SINCE = {HeldSince.REMAP: "remap", HeldSince.WAIT: "wait"}
_BEFORE_REQUEST = (
    *(WaitReason.REQUEST, WaitReason.QUEUE, WaitReason.WRITE_LIMIT),
    *(WaitReason.IO_COST, WaitReason.IO_LATENCY, WaitReason.WRITE_BACK_LIMIT),
)
"""Reasons of a thread's waits between Q and G of a bio that it queued."""


def values_at(table: Table, row: int) -> Any:
    """Return a row's values by the names of their columns."""
    columns = {one.name: getattr(table, one.name) for one in fields(table)}
    return SimpleNamespace(**{name: of[row : row + 1].tolist()[0] for name, of in columns.items()})


@dataclass
class HeldBack:
    """A cgroup's limit that held an I/O before it was queued. None: not known."""

    cgroup: str | None
    """Whose limit it is: the I/O's own cgroup, or one above."""
    bps: int | None
    """The limit, bytes a second; None: none."""
    iops: int | None
    """The limit, bios a second; None: none."""
    limits: int
    """Cgroups with a limit, from the I/O's own upwards; of several any may have held it."""
    ns: int | None
    by: str | None
    """How that is known: "remap" (from a partition or an upper device), or the "wait" of a call,
    which gives the least that it can be."""
    tid: int | None
    """Thread that submitted it, or waited for it."""
    pid: int | None
    comm: str | None


def held_back(context: Context, window: Lifecycles, number: int) -> HeldBack | None:
    """Return the limit that held a bio; None: none did, as far as is known."""
    if window.path is None:
        return None
    rows = np.flatnonzero(window.path.held.number == number)
    if not len(rows):
        return None
    one = values_at(window.path.held, int(rows[0]))
    return as_row(
        HeldBack,
        one,
        cgroup=context.cgroups.get(one.limit, f"id {one.limit}") if one.limit else None,
        bps=_or_none(one.bps, NO_BPS),
        iops=_or_none(one.iops, NO_IOPS),
        ns=_or_none(one.held),
        by=_SINCE.get(HeldSince(one.since)),
        tid=one.tid or None,
        pid=int(window.tasks.tgid[one.task]) if one.task >= 0 else None,
        comm=str(window.tasks.comm[one.task]) if one.task >= 0 else None,
    )


def wait_for_request(window: Lifecycles, row: int) -> str | None:
    """What a bio's thread waited for longest between Q and G, of _BEFORE_REQUEST."""
    queue, getrq = int(window.bios.queue[row]), int(window.bios.getrq[row])
    if window.path is None or NEVER in (queue, getrq):
        return None
    waits = window.path.waits
    found = (waits.tid == window.bios.tid[row]) & (waits.out >= queue) & (waits.woken <= getrq)
    rows = np.flatnonzero(found & np.isin(waits.reason, _BEFORE_REQUEST))
    if not len(rows):
        return None
    longest = rows[np.argmax(waits.woken[rows] - waits.out[rows])]
    return WAIT_REASON_NAMES[WaitReason(int(waits.reason[longest]))]


@dataclass
class Span:
    stage: str
    start_ns: int
    """ns since the I/O was queued or, if that was not recorded, since its first stage began."""
    ns: int
    share: float


@dataclass
class IO:
    """One bio. Times are ns, sectors are 512 bytes; None: not known."""

    number: int
    device: str
    partition: str | None
    operation: str
    flags: str
    sector: int | None
    bytes: int
    done_bytes: int
    tid: int | None
    pid: int | None
    comm: str | None
    cgroup: str | None
    file: str | None
    """Path of the file whose pages the bio carries; None also for a block device's own pages, and
    where the log has no files."""
    queue_ns: int | None
    """Time of Q, CLOCK_MONOTONIC."""
    issue_ns: int | None
    """Time of the first D, since Q."""
    latency_ns: int | None
    """Q2C; None: Q or C is not in the log, or C is in doubt."""
    waited_ns: int
    """Q2C; 0 if C is in doubt; if under way, from Q to the log's end; else the end of the bio's
    known stages, or 0."""
    under_way: bool
    doubtful: bool
    """Whether C may be that of another I/O (`Bios.doubtful`); then there are no stages either."""
    status: str
    certainty: str
    fragments: int
    requeues: int
    stages: list[Span] = field(default_factory=list)
    dev: int = 0
    part: int = 0
    held: HeldBack | None = None
    """The cgroup's limit that held it before it was queued, which is no part of its latency; None:
    none did, as far as the log says."""
    q2g_reason: str | None = None
    """What its thread waited for between Q and G, as in WAIT_REASON_NAMES; None: not known."""
    for_tid: int | None = None
    """Thread for which `tid` queued it, as a worker of the kernel does; None: itself, or not
    known."""
    for_pid: int | None = None
    for_comm: str | None = None
    title: str | None = None
    """What the process of `tid` calls itself, or which script it runs; None: neither."""
    file_was: str | None = None
    """Path of `file` before it was renamed; None: it was not."""

    @property
    def longest(self) -> Span | None:
        return max(self.stages, key=lambda span: span.ns, default=None)


@dataclass
class RequestFacts:
    """One request of an I/O. Times are ns since the I/O was queued; None: not known."""

    number: int
    operation: str
    flags: str
    kind: str
    sector: int | None
    bytes: int
    tag: int | None
    sched_tag: int | None
    hctx: int | None
    start_ns: int | None
    insert_ns: int | None
    issue_ns: int | None
    complete_ns: int | None
    """None also where it is in doubt."""
    doubtful: bool
    """Whether C may be that of another I/O (`Requests.doubtful`)."""
    bios: int
    others: int
    """Further bios that the request served: left out by the recording's filters, or its own I/O."""
    requeues: int
    status: str
    certainty: str
    absorbed_by: int | None


def _or_none(value: int, none: int = NEVER) -> int | None:
    return None if value == none else value


def _since(time: int, origin: int | None) -> int | None:
    """None if either is not known (None, NEVER)."""
    return None if time == NEVER or origin is None else time - origin


def row_of(number: I64, wanted: int) -> int:
    """Return the row of `wanted` in the ascending numbers, or -1."""
    at = int(np.searchsorted(number, wanted))
    return at if at < len(number) and number[at] == wanted else -1


def io_at(context: Context, window: Lifecycles, row: int, end: int) -> IO:
    """Return the bio in a row, with names instead of numbers, and its stages.

    end: ns, when the log ends: a bio in flight then has waited until then, and so did its last
    stage. Of any other bio without Q or C `waited_ns` is the end of the last known stage.
    """
    table, tasks = window.bios.take(np.array([row])), window.tasks
    one = values_at(table, 0)
    codes, names = operations(context, table.opf, table.bytes)
    both = NEVER not in (one.queue, one.complete) and not one.doubtful
    io = as_row(
        IO,
        one,
        device=context.device_name(one.dev),
        partition=None if one.part == one.dev else context.device_name(one.part),
        operation=names[int(codes[0])],
        flags=context.flag_names(one.opf),
        sector=_or_none(one.sector, NO_SECTOR),
        tid=one.tid or None,
        pid=tasks.pid(one.task),
        comm=str(tasks.comm[one.task]) if one.task >= 0 else None,
        cgroup=context.cgroups.get(one.cgroup, f"id {one.cgroup}") if one.cgroup else None,
        file=file_path(context, one.file),
        queue_ns=_or_none(one.queue),
        issue_ns=_since(one.issue, _or_none(one.queue)),
        latency_ns=one.complete - one.queue if both else None,
        waited_ns=one.complete - one.queue if both else 0,
        under_way=bool(under_way(table)[0]),
        status=context.status_name(one.status),
        certainty=Certainty(one.certainty).name.lower(),
        held=held_back(context, window, one.number),
        q2g_reason=wait_for_request(window, row),
        file_was=None if one.file < 0 else context.files[one.file].was,
    )
    io.title = context.titles.title(io.pid, io.comm)
    if one.whom >= 0:
        io.for_tid, io.for_pid = int(tasks.tid[one.whom]), tasks.pid(one.whom)
        io.for_comm = str(tasks.comm[one.whom])
    if io.under_way:
        io.waited_ns = end - one.queue
    if not io.doubtful:
        stages = window.bio_stages  # sorted by their owner's number
        rows = slice(*np.searchsorted(stages.owner, [one.number, one.number + 1]).tolist())
        times = stages.start[rows].tolist(), stages.end[rows].tolist(), stages.stage[rows].tolist()
        origin = io.queue_ns
        for start, stop, stage in zip(*times, strict=True):
            origin = start if origin is None else origin
            share = (stop - start) / io.waited_ns if io.waited_ns else 0.0
            io.stages.append(Span(STAGE_NAMES[Stage(stage)], start - origin, stop - start, share))
    rest = io.waited_ns - max((span.start_ns + span.ns for span in io.stages), default=0)
    if io.under_way and rest >= 0 and io.waited_ns:
        # The stage in which it was when the log ended; it may take no time.
        if one.issue != NEVER:
            stage = Stage.D2C
        elif one.insert != NEVER:
            stage = Stage.I2D
        elif one.merge != NEVER:
            stage = Stage.M2D
        else:
            stage = Stage.G2D if one.getrq != NEVER else Stage.UNKNOWN
        known, share = io.waited_ns - rest, rest / io.waited_ns
        io.stages.append(Span(STAGE_NAMES[stage], known, rest, share))
    if io.latency_ns is None:
        io.waited_ns = max(io.waited_ns, *(s.start_ns + s.ns for s in io.stages), 0)
    return io


def file_path(context: Context, row: int) -> str | None:
    """Return the file in a row of Context.files, as shown; None: row -1, or a block device."""
    if row < 0 or context.files[row].device:
        return None
    return context.files[row].shown


def requests_of(
    context: Context, requests: Requests, numbers: list[int], origin: int | None
) -> list[RequestFacts]:
    """origin: ns, when the I/O was queued; None: all times are None."""
    found = []
    for number in numbers:
        if (row := row_of(requests.number, number)) < 0:
            continue
        one = values_at(requests, row)
        facts = as_row(
            RequestFacts,
            one,
            operation=context.op_name(one.opf),
            flags=context.flag_names(one.opf),
            kind=RequestKind(one.kind).name.lower(),
            sector=_or_none(one.sector, NO_SECTOR),
            tag=_or_none(one.tag, NO_TAG),
            sched_tag=_or_none(one.sched_tag, NO_TAG),
            hctx=_or_none(one.hctx, NO_TAG),
            start_ns=_since(one.start, origin),
            insert_ns=_since(one.insert, origin),
            issue_ns=_since(one.issue, origin),
            complete_ns=None if one.doubtful else _since(one.complete, origin),
            status=context.status_name(one.status),
            certainty=Certainty(one.certainty).name.lower(),
            absorbed_by=_or_none(one.absorbed_by),
        )
        found.append(facts)
    return found
