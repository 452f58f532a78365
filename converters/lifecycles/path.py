# SPDX-License-Identifier: Apache-2.0
"""Tables of the path beside the block layer: calls, waits, and what is known of each bio's path."""

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import ROWS, full_time
from biotrail.converters.events.path_column import NO_CALL, PATH, PathColumn, unknown
from biotrail.converters.events.path_tables import (
    NO_STACK,
    BioPaths,
    Calls,
    Commits,
    DriverSteps,
    HeldBios,
    HeldSince,
    Interrupts,
    PathTables,
    Waits,
)
from biotrail.converters.events.submission_tables import (
    BioRequests,
    Flag,
    RequestEnds,
    Runner,
    Submissions,
)
from biotrail.converters.events.tables import I32, I64, NEVER, U32, EventRows
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.schema.records import STATE_IO_WAIT, Kind
from biotrail.recorder.schema.syscalls import UNKNOWN_CALL

# What a window's records say of io_uring's requests and aio's iocbs: of bios, and completions.


def bio_requests(events: Events, ended: tuple[I64, I64], still: tuple[I64, I64]) -> BioRequests:
    """Return a row for each bio whose Q has a request (a SUBMISSION record), sorted by number.

    ended, still: (number, index of its Q in `events`, -1 none) per bio that ended, and per bio in
    flight, whose rows have `open`. `submitted` is NEVER where the record has 0.
    """
    number, queued = (np.concatenate(pair) for pair in zip(ended, still, strict=True))
    is_open = np.repeat([False, True], [len(ended[0]), len(still[0])])
    known = np.flatnonzero(queued >= 0)
    if events.path is None or not len(known):
        request = np.zeros(0, dtype=PATH["request"])
        none = np.zeros(0, dtype=np.int64)
        return BioRequests(none, none.astype(np.bool_), none, request)
    known = known[events.path.take(queued[known]).field("request", "req") != 0]
    request = events.path.take(queued[known]).field("request")
    order = np.argsort(number[known])
    known, request = known[order], request[order]
    return BioRequests(
        number=number[known],
        open=is_open[known],
        submitted=full_time(events, queued[known], request["submitted"]),
        request=request,
    )


def request_ends(events: Events) -> RequestEnds:
    """Return a row for each RING_COMPLETE record of a window, in order of time.

    `submitted` is NEVER where the record has 0.
    """
    rows = events.rows(Kind.RING_COMPLETE)
    records = events.fields(Kind.RING_COMPLETE, rows)
    return RequestEnds(
        completed=events.ts[rows],
        req=records["req"].astype(np.uint64),
        submitted=full_time(events, rows, records["submitted"].astype(np.uint64)),
        ring=records["ring"].astype(np.uint64),
        result=records["result"].astype(np.int32),
        tid=records["tid"].astype(np.uint32),
        setup=records["setup"].astype(np.uint32),
    )


def rows_of_path(events: Events, tasks: TaskNames) -> PathTables | None:
    """Return the tables of a window's records alone, the others empty; None: it has none."""
    if events.path is None and not len(events.rows(*ROWS)):
        return None
    return replace(
        no_tables(tasks),
        calls=calls_of(events, tasks),
        waits=waits_of(events, tasks),
        request_ends=request_ends(events),
        commits=commits_of(events),
    )


def no_tables(tasks: TaskNames) -> PathTables:
    """Return tables without rows, all columns in their dtypes. tasks: any names."""
    events, none = Events.empty(), np.zeros(0, dtype=np.int64)
    return PathTables(
        calls_of(events, tasks),
        waits_of(events, tasks),
        bio_paths(events, none, none),
        interrupts(events, none, none),
        driver_steps(events, none, none, none),
        bio_paths(events, none, none),
        Submissions.none(),
        bio_requests(events, (none, none), (none, none)),
        request_ends(events),
        commits_of(events),
    )


def calls_of(events: Events, tasks: TaskNames) -> Calls:
    """Return a row for each RETURN record of a window, in order of time.

    The columns that `converters.calls` sets are 0.
    """
    rows = events.rows(Kind.RETURN)

    def column(name: str) -> NDArray[np.generic]:
        return events.field(Kind.RETURN, name, rows)

    tid, exit_time = column("tid").astype(np.uint32), events.ts[rows]
    unset = np.zeros(len(rows), dtype=np.int64)
    return Calls(
        entry=full_time(events, rows, column("entry").astype(np.uint64)),
        exit=exit_time,
        tid=tid,
        task=tasks.rows(tid, exit_time),
        timed=np.ones(len(rows), dtype=np.bool_),
        number=column("number").astype(np.int32),
        foreign=column("foreign").astype(np.bool_),
        result=column("result").astype(np.int32),
        blocked=column("blocked").astype(np.int64),
        runnable=column("runnable").astype(np.int64),
        bios=column("queued").astype(np.uint16),
        waits=column("waits").astype(np.uint16),
        arg0=column("fd").astype(np.uint32),
        arg2=column("length").astype(np.uint32),
        arg3=column("offset").astype(np.uint64),
        cpu=events.cpu[rows],
        file=events.file[rows] if events.file is not None else np.full(len(rows), -1, np.int32),
        running=unset,
        own_io=unset,
        other_io=unset,
        otherwise=unset,
        undivided=unset,
        own=unset.astype(np.bool_),
    )


def waits_of(events: Events, tasks: TaskNames) -> Waits:
    """Return a row for each WAIT record of a window, in order of time.

    The record's time is `run`; `woken` is that less its ns runnable, `out` is `woken` less its ns
    blocked. What `converters.calls` sets is 0 or NEVER.
    """
    rows = events.rows(Kind.WAIT)
    records = events.fields(Kind.WAIT, rows)
    run = events.ts[rows]
    tid = records["tid"].astype(np.uint32)
    woken = run - records["runnable"].astype(np.int64)
    entry = full_time(events, rows, records["entry"].astype(np.uint64))
    state = records["state"].astype(np.uint32)
    at, behind = _behind(events, Kind.WAIT_CALL, rows, tid)
    said = events.fields(Kind.WAIT_CALL, behind)
    call = np.zeros(len(rows), dtype=said.dtype)
    call["number"] = UNKNOWN_CALL
    call[at] = said
    stack = np.full(len(rows), NO_STACK, dtype=np.int32)
    at, behind = _behind(events, Kind.WAIT_STACK, rows, tid)
    stack[at] = events.field(Kind.WAIT_STACK, "stack", behind)  # below NO_STACK: an errno
    return Waits(
        tid=tid,
        task=tasks.rows(tid, run),
        entry=entry,
        timed=entry != NEVER,
        number=call["number"].astype(np.int32),
        foreign=call["foreign"].astype(np.bool_),
        arg0=call["fd"].astype(np.uint32),
        arg2=call["length"].astype(np.uint32),
        arg3=call["offset"].astype(np.uint64),
        file=events.file[rows] if events.file is not None else np.full(len(rows), -1, np.int32),
        cpu=events.cpu[rows],
        out=woken - records["blocked"].astype(np.int64),
        woken=woken,
        run=run,
        state=state & ~np.uint32(STATE_IO_WAIT),
        io_wait=(state & np.uint32(STATE_IO_WAIT)) != 0,
        waker=records["waker"].astype(np.uint32),
        context=records["context"].astype(np.uint8),
        cause=np.zeros(len(rows), dtype=np.uint8),
        own=np.zeros(len(rows), dtype=np.bool_),
        stack=stack,
        reason=np.zeros(len(rows), dtype=np.uint8),
        commit=np.full(len(rows), NEVER, dtype=np.int64),
        commit_dev=np.zeros(len(rows), dtype=np.uint32),
        limit=np.zeros(len(rows), dtype=np.uint64),
        ran=records["ran"].astype(np.uint32),
        ran_pid=records["ran_pid"].astype(np.uint32),
    )


def _behind(events: Events, kind: Kind, rows: I64, tid: U32) -> tuple[I64, I64]:
    """Return (waits, records): which WAIT records one of `kind` follows, and that record's row.

    It has the wait's time and thread. waits: indices into `rows`. rows: of WAIT records in
    `events`. tid: per row, the thread that waited.
    """
    records = events.rows(kind)
    # Two threads begin to run in the same nanosecond on different CPUs: time alone is no key.
    own = np.zeros(len(records) + len(rows), dtype=np.bool_)
    own[len(records) :] = True
    times = np.concatenate([events.ts[records], events.ts[rows]])
    of_records = events.field(kind, "tid", records).astype(np.uint32)
    threads = np.concatenate([of_records, tid])
    order = np.lexsort((own, threads, times))
    before, after = order[:-1], order[1:]
    same = (times[before] == times[after]) & (threads[before] == threads[after])
    same &= ~own[before] & own[after]
    return after[same] - len(records), records[before[same]]


def commits_of(events: Events) -> Commits:
    """Return a row for each COMMIT record of a window, in order of time.

    A phase is NEVER where the record has 0 (not seen), and where it began after the next known one
    or the commit's end, as only a damaged record has it.
    """
    rows = events.rows(Kind.COMMIT)
    records = events.fields(Kind.COMMIT, rows)

    phases: dict[str, I64] = {}
    later = events.ts[rows]
    for name in ("logging", "flushing", "locking", "started"):
        time = full_time(events, rows, records[name].astype(np.uint64))
        phases[name] = np.where(time <= later, time, NEVER)
        later = np.where(phases[name] == NEVER, later, phases[name])
    return Commits(
        end=events.ts[rows],
        started=phases["started"],
        locking=phases["locking"],
        flushing=phases["flushing"],
        logging=phases["logging"],
        dev=records["dev"].astype(np.uint32),
        transaction=records["transaction"].astype(np.uint32),
        tid=records["tid"].astype(np.uint32),
    )


def paths_at(events: Events, index: I64) -> PathColumn:
    """Return what is known of the path of some events (n,): nothing where the index is -1."""
    if events.path is None or not len(events):
        return PathColumn(np.full(len(index), -1, np.int32), unknown(0))
    found = events.path.take(np.maximum(index, 0))
    found.at[index < 0] = -1
    return found


def bio_paths(events: Events, number: I64, queued: I64) -> BioPaths:
    """Return a row for each bio with a known call, dirtying task or submission, by number.

    queued: per bio, index of its Q in `events`, -1 none: such bios have no row. `submission` is -1
    for all: `converters.submissions` sets it.
    """
    rows = paths_at(events, queued)
    said = (rows.field("call") != NO_CALL) | (rows.field("dirtied") != NEVER)
    known = np.flatnonzero(said | (rows.field("request", "req") != 0))
    known = known[np.argsort(number[known])]
    rows = rows.take(known)
    return BioPaths(
        number=number[known],
        call=rows.field("call"),
        foreign=rows.field("foreign").astype(np.bool_),
        entry=rows.field("entry"),
        args=rows.field("args"),
        dirtied=rows.field("dirtied"),
        dirty_tid=rows.field("tid"),
        dirty_pid=rows.field("pid"),
        dirty_comm=rows.field("comm"),
        submission=np.full(len(rows), -1, dtype=np.int64),
        dirty_cgroup=rows.field("cgroup"),
    )


def held_bios(events: Events, tasks: TaskNames, number: I64, queued: I64) -> HeldBios:
    """Return a row for each bio that a cgroup's limit held before its Q, by number.

    How long, and for which thread, where the bio was remapped before its Q: its first event is that
    A then, in the thread that submitted it. Else `held` is NEVER, and `converters.calls` sets it
    where a call's wait tells. The thread is also known where the bio says who waits for it.
    """
    paths = paths_at(events, queued)
    known = np.flatnonzero(paths.field("held"))
    known = known[np.argsort(number[known])]
    paths = paths.take(known)
    first = np.minimum(np.searchsorted(events.number, number[known]), max(len(events) - 1, 0))
    remapped = np.flatnonzero(
        (events.number[first] == number[known]) & (events.kind[first] == Kind.A)
    )
    held = np.full(len(known), NEVER, dtype=np.int64)
    since, tid = np.zeros(len(known), dtype=np.uint8), np.zeros(len(known), dtype=np.uint32)
    task = np.full(len(known), -1, dtype=np.int32)
    begun = events.ts[first[remapped]]
    waiter = paths.field("waiter")
    told = np.flatnonzero(waiter)
    tid[told] = waiter[told]
    task[told] = tasks.rows(waiter[told], events.ts[queued[known[told]]])
    held[remapped] = events.ts[queued[known[remapped]]] - begun
    since[remapped] = HeldSince.REMAP
    tid[remapped] = events.field(Kind.A, "tid", first[remapped])
    task[remapped] = tasks.rows(tid[remapped], begun)
    return HeldBios(
        number=number[known],
        limit=paths.field("limit"),
        bps=paths.field("bps"),
        iops=paths.field("iops"),
        limits=paths.field("limits"),
        held=held,
        since=since,
        tid=tid,
        task=task,
        entry=np.full(len(known), NEVER, dtype=np.int64),
    )


def interrupts(events: Events, number: I64, completed: I64) -> Interrupts:
    """Return a row for each request whose completion has an INTERRUPT record, sorted by number.

    completed: per request, index of its last C in `events`, -1 none: such requests have no row.
    """
    rows = paths_at(events, completed)
    known = np.flatnonzero(rows.field("context") >= 0)
    known = known[np.argsort(number[known])]
    rows = rows.take(known)
    columns = {name: rows.field(name) for name in ("hard", "raised", "soft", "irq")}
    return Interrupts(
        number=number[known], **columns, context=rows.field("context").astype(np.uint8)
    )


def driver_steps(events: Events, number: I64, completed: I64, start: I64) -> DriverSteps:
    """Return a row for each request whose completion has a DRIVER record, by number.

    completed: as for `interrupts`. start: per request, the time of its first event (ns), NEVER if
    it has none. `begun` before that time is NEVER: the beginning of this request was not recorded,
    and an earlier one's stood in its place.
    """
    rows = paths_at(events, completed)
    known = np.flatnonzero(rows.field("driver") > 0)
    known = known[np.argsort(number[known])]
    rows = rows.take(known)
    names = [f.name for f in fields(DriverSteps) if f.name != "number"]
    found = DriverSteps(number=number[known], **{name: rows.field(name) for name in names})
    found.begun = np.where(found.begun < start[known], NEVER, found.begun)
    return found


def waiter_rows(events: Events, queued: EventRows, queue_time: I64, tasks: TaskNames) -> I32:
    """Return the row in the trace's tasks of who waits for each Q's bio; -1: nobody is known.

    Or of who submitted the request of io_uring or aio for which a kernel thread queued it. queued:
    per bio, row of its Q in `events`; -1: not recorded. queue_time: ns.
    """
    found = np.full(len(queued), -1, dtype=np.int32)
    if events.path is None or not len(events):
        return found
    path = events.path.take(np.maximum(queued, 0))
    waiter, runner = path.field("waiter"), path.field("request", "runner")
    submitted = (path.field("request", "req") != 0) & (runner == Runner.KERNEL)
    submitted &= (path.field("request", "flags") & Flag.LATE) == 0
    waiter = np.where((waiter == 0) & submitted, path.field("request", "tid"), waiter)
    known = np.flatnonzero((waiter != 0) & (queued >= 0))
    found[known] = tasks.rows(waiter[known], queue_time[known])
    return found
