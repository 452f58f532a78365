# SPDX-License-Identifier: Apache-2.0
"""A window's bios and requests as Arrow tables, with names instead of numbers."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from biotrail.converters.events.context import Context
from biotrail.converters.events.path import DRIVERS
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import BioPaths, Calls, DriverSteps, HeldBios, Waits
from biotrail.converters.events.submission_tables import Submissions
from biotrail.converters.events.tables import (
    I32,
    I64,
    NEVER,
    NO_CPU,
    U64,
    Bios,
    Certainty,
    Lifecycles,
    RequestKind,
    Requests,
    Stage,
    Stages,
    Tasks,
)
from biotrail.converters.lifecycles.arrow.columns import (
    BIO_SCHEMA,
    DRIVER_NAMES,
    HELD_NAMES,
    PATH_NAMES,
    REQUEST_SCHEMA,
    WALL,
    dictionary,
    filled,
    named,
    nullable,
    stage_column,
)
from biotrail.converters.lifecycles.call_arguments import WHATS, argument
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.recorder.schema import cgroup_paths
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID, NO_SECTOR, NO_TAG
from biotrail.recorder.schema.syscalls import shown_name

NO_NAME = "(not known)"
"""Column `limit`: a limit held the bio, and whose is not known."""

Rows = TypeVar("Rows", BioPaths, HeldBios, DriverSteps)
_NVME, _SCSI = DRIVERS.index("nvme"), DRIVERS.index("scsi")
Columns = dict[str, Any]
"""Columns by name."""


def cgroups(ids: U64, context: Context) -> pa.Array:
    """Return the column of cgroups' paths; `id N` without a path, null for 0."""
    return named(ids, lambda cg: context.cgroups.get(cg, f"id {cg}") if cg else None)


def _of_rows(
    names: tuple[str, ...],
    schema: pa.Schema,
    numbers: I64,
    rows: Rows | None,
    columns: Callable[[Rows, Context], Columns],
    context: Context,
) -> Columns:
    """Return the columns of a table that has rows for some bios or requests; null for the others.

    numbers: of the bios or requests. rows: the table, sorted by number. columns: returns its own.
    """
    if rows is None or not len(rows):
        return {name: pa.nulls(len(numbers), schema.field(name).type) for name in names}
    number: I64 = rows.number
    place = np.minimum(np.searchsorted(number, numbers), len(number) - 1)
    taken = pa.array(place, mask=number[place] != numbers)
    own = columns(rows, context)
    return {name: own[name].take(taken) for name in names}


def _held_columns(held: HeldBios, context: Context) -> Columns:
    def name(cgroup: int) -> str:
        return context.cgroups.get(cgroup, f"id {cgroup}") if cgroup else NO_NAME

    return {
        "limit": named(held.limit, name),
        "held_ns": nullable(held.held),
        "held_tid": nullable(held.tid, 0),
    }


def _path_columns(paths: BioPaths, context: Context) -> Columns:
    """Return the columns PATH_NAMES.

    Null: no program's thread queued the bio (no call), it did not write back a page whose dirtying
    is known (`dirty_`), the call was not timed (its entry), or has no such argument.
    """
    machine = context.machine
    number = paths.call.astype(np.int64)
    coded = np.where(number == NO_CALL, -1, (number + 1) * 2 + paths.foreign)
    arguments: Columns = {}
    for what in WHATS:
        values, known = argument(paths.args, paths.call, paths.foreign, machine, what)
        arguments[f"call_{what}"] = pa.array(values, mask=~known)
    dirtied = paths.dirtied != NEVER
    comms, code = np.unique(paths.dirty_comm, return_inverse=True)
    texts = [comm.decode("utf-8", "replace") for comm in comms.tolist()]
    return {
        "call": named(
            coded, lambda c: None if c < 0 else shown_name((c >> 1) - 1, bool(c & 1), machine)
        ),
        "entry_ns": nullable(paths.entry),
        **arguments,
        "dirty_ns": nullable(paths.dirtied),
        "dirty_tid": pa.array(paths.dirty_tid, mask=~dirtied),
        "dirty_pid": pa.array(paths.dirty_pid, mask=~dirtied),
        "dirty_cgroup": cgroups(paths.dirty_cgroup, context),
        "dirty_comm": named(np.where(dirtied, code, -1), lambda c: texts[c] if c >= 0 else None),
    }


def _driver_columns(steps: DriverSteps, _context: Context) -> Columns:
    """Return the columns DRIVER_NAMES.

    Null: the driver is none of DRIVERS, a time is not known, the counts of a driver that is not
    SCSI, and the queue's head and tail of one that is not NVMe or whose answer was not recorded.
    """
    # (A dictionary with a null in it cannot be written as Parquet in several files.)
    names = pa.array(DRIVERS, pa.string())
    number = np.minimum(steps.driver, len(DRIVERS) - 1).astype(np.int32)
    other = (steps.driver == 0) | (steps.driver >= len(DRIVERS))
    scsi = steps.driver == _SCSI
    queue = (steps.driver == _NVME) & (steps.answered != NEVER)
    return {
        "driver": pa.DictionaryArray.from_arrays(pa.array(number, mask=other), names),
        "driver_begun_ns": nullable(steps.begun),
        "driver_answered_ns": nullable(steps.answered),
        "driver_finished_ns": nullable(steps.finished),
        "driver_errors": pa.array(steps.errors, mask=~scsi),
        "driver_timeouts": pa.array(steps.timeouts, mask=~scsi),
        "sq_head": pa.array(steps.sq_head, mask=~queue),
        "sq_tail": pa.array(steps.sq_tail, mask=~queue),
    }


def bios_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of BIO_SCHEMA with one row per bio that ended in the window, in their order.

    Times, numbers and names that are not known are null; so are `partition` for a bio sent to the
    disk itself, `file` for a block device's own pages, and the columns of the path where the log
    has no --path.
    """
    bios, tasks, path, files = window.bios, window.tasks, window.path, context.files
    found, codes = np.unique(bios.cgroup, return_inverse=True)
    names = [context.cgroup_names.name(int(one)) for one in found]
    paths, held = (None, None) if path is None else (path.bios, path.held)
    number = bios.number
    columns = {
        **_common(bios, window.bio_stages, context, bios.queue),
        "partition": named(
            np.where(bios.part == bios.dev, np.uint32(0), bios.part),
            lambda part: context.device_name(part) if part else None,
        ),
        **who_columns(bios, tasks, context),
        "for_tid": pa.array(np.append(tasks.tid, np.uint32(0))[bios.whom], mask=bios.whom < 0),
        **_named_thread("for_", bios.whom, tasks),
        "cgroup": cgroups(bios.cgroup, context),
        **{
            field: dictionary(codes, [getattr(name, field) for name in names])
            for field in cgroup_paths.FIELDS
        },
        "file": named(
            bios.file, lambda row: None if row < 0 or files[row].device else files[row].path
        ),
        **_of_rows(PATH_NAMES, BIO_SCHEMA, number, paths, _path_columns, context),
        **_of_rows(HELD_NAMES, BIO_SCHEMA, number, held, _held_columns, context),
        "purpose": named(
            purposes(bios, tasks, context), lambda purpose: PURPOSE_NAMES.get(Purpose(purpose))
        ),
        "cpu": nullable(bios.cpu, NO_CPU),
        "queue_time": wall_clock(context, bios.queue),
        "request": nullable(bios.request),
    }
    return filled(BIO_SCHEMA, bios, **columns)


def who_columns(table: Bios | Calls | Waits, tasks: Tasks, context: Context) -> Columns:
    """Return tid, pid, comm, title of the rows' threads, and the former paths of their files."""

    def title(row: int) -> str | None:
        return context.titles.title(tasks.pid(row), str(tasks.comm[row])) if row >= 0 else None

    return {
        **thread_columns(table, tasks),
        "title": named(table.task, title),
        "file_was": named(table.file, lambda row: context.files[row].was if row >= 0 else None),
    }


def thread_columns(table: Bios | Calls | Waits | Submissions, tasks: Tasks) -> Columns:
    return {"tid": nullable(table.tid, 0), **_named_thread("", table.task, tasks)}


def _named_thread(prefix: str, task: I32, tasks: Tasks) -> Columns:
    """Return pid and comm of rows of `tasks`; null for -1, pid also where it is not known."""
    pids = np.append(tasks.tgid, np.uint32(0))[task]
    return {
        f"{prefix}pid": pa.array(pids, mask=(task < 0) | (pids >= FIRST_UNKNOWN_TID)),
        f"{prefix}comm": named(task, lambda row: str(tasks.comm[row]) if row >= 0 else None),
    }


def requests_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of REQUEST_SCHEMA with a row per request that ended, in their order.

    Times, numbers and tags that are not known are null; the columns of the driver are where the log
    has no --path driver.
    """
    requests = window.requests
    steps, number = None if window.path is None else window.path.steps, requests.number
    columns = {
        **_common(requests, window.request_stages, context, requests.start),
        "kind": named(requests.kind, lambda kind: RequestKind(kind).name.lower()),
        "tag": nullable(requests.tag, NO_TAG),
        "sched_tag": nullable(requests.sched_tag, NO_TAG),
        "hctx": nullable(requests.hctx, NO_TAG),
        "start_time": wall_clock(context, requests.start),
        "absorbed_by": nullable(requests.absorbed_by),
        **_of_rows(DRIVER_NAMES, REQUEST_SCHEMA, number, steps, _driver_columns, context),
    }
    return filled(REQUEST_SCHEMA, requests, **columns)


def _common(table: Bios | Requests, stages: Stages, context: Context, begin: I64) -> Columns:
    """Return the columns that bios and requests share and that are not attributes.

    Of stages, each owner's total time (ns); null where it has no such stage, or is in doubt.
    """
    ended = (begin != NEVER) & (table.complete != NEVER)
    latency = np.maximum(table.complete - begin, 0)
    sums = np.zeros((len(Stage), len(table)), np.int64)
    there = np.zeros((len(Stage), len(table)), np.bool_)
    if len(stages) and len(table):
        rows = np.searchsorted(table.number, stages.owner)
        np.add.at(sums, (stages.stage, rows), stages.end - stages.start)
        there[stages.stage, rows] = True
    there &= ~table.doubtful
    return {
        "device": named(table.dev, context.device_name),
        "dev": named(table.dev, dev_text),
        "op": dictionary(*operations(context, table.opf, table.bytes)),
        "flags": named(table.opf, context.flag_names),
        "sector": pa.array(table.sector, mask=table.sector == NO_SECTOR),
        "latency_ns": pa.array(latency, mask=~ended | table.doubtful),
        "doubtful_ns": pa.array(latency, mask=~ended | ~table.doubtful),
        "status": named(table.status, context.status_name),
        "certainty": named(table.certainty, lambda c: Certainty(c).name.lower()),
        "parent": nullable(table.parent),
        "family": nullable(table.family),
        **{stage_column(s): pa.array(sums[s], mask=~there[s]) for s in Stage},
    }


def wall_clock(context: Context, times: I64) -> pa.Array:
    """Return CLOCK_MONOTONIC times (ns) as UTC timestamps, each by the nearest clock reading.

    Null for NEVER; all null if the log has no clock readings.
    """
    if not context.clocks:
        return pa.nulls(len(times), WALL)
    readings = np.array(sorted({(c["monotonic"], c["realtime"]) for c in context.clocks}), np.int64)
    monotonic, realtime = readings.T
    after = np.clip(np.searchsorted(monotonic, times), 1, max(1, len(readings) - 1))
    after = np.minimum(after, len(readings) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.where(times - monotonic[before] < monotonic[after] - times, before, after)
    shown = realtime[nearer] + (times - monotonic[nearer])
    return pa.array(shown, pa.int64(), mask=times == NEVER).cast(WALL)
