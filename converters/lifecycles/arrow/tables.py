# SPDX-License-Identifier: Apache-2.0
"""A window's bios and requests as Arrow tables, with names instead of numbers."""

from typing import Any

import numpy as np
import pyarrow as pa

from biotrail.converters.events.context import Context
from biotrail.converters.events.path import DRIVERS
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import BioPaths, Calls, DriverSteps, Waits
from biotrail.converters.events.submission_tables import Submissions
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    NO_CPU,
    Bios,
    Bool,
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
from biotrail.converters.lifecycles.call_arguments import argument
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.recorder.schema import cgroup_names
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID, NO_SECTOR, NO_TAG
from biotrail.recorder.schema.syscalls import shown_name

NO_NAME = "(not known)"
"""Column `limit`: a limit held the bio, and whose is not known."""


def path_columns(window: Lifecycles, context: Context) -> dict[str, pa.Array]:
    """Return the columns PATH_NAMES with a value per bio of the window, in the order of its `bios`.

    Null: the log was recorded without that part of the path; no program's thread queued the bio
    (no call), or it did not write back a page whose dirtying is known (the `dirty_` columns); the
    call was not timed (its entry); the call has no such argument (fd, offset, length). context: of
    the log, for names of calls and cgroups.
    """
    bios = window.bios.number
    paths = None if window.path is None else window.path.bios
    if paths is None or not len(paths):
        return {name: pa.nulls(len(bios), BIO_SCHEMA.field(name).type) for name in PATH_NAMES}
    columns = _path_columns(paths, context)
    place = np.searchsorted(paths.number, bios)
    known = paths.number[np.minimum(place, len(paths) - 1)] == bios
    rows = pa.array(place, mask=~known)
    return {name: columns[name].take(rows) for name in PATH_NAMES}


def held_columns(window: Lifecycles, context: Context) -> dict[str, pa.Array]:
    """Return the columns HELD_NAMES with a value per bio of the window, in the order of its `bios`.

    Null: no cgroup's limit held the bio, or that is not known. context: of the log, for names.
    """
    bios = window.bios.number
    held = None if window.path is None else window.path.held
    if held is None or not len(held):
        return {name: pa.nulls(len(bios), BIO_SCHEMA.field(name).type) for name in HELD_NAMES}
    place = np.minimum(np.searchsorted(held.number, bios), len(held) - 1)
    rows = pa.array(place, mask=held.number[place] != bios)
    columns = {
        "limit": named(
            held.limit, lambda cg: context.cgroups.get(cg, f"id {cg}") if cg else NO_NAME
        ),
        "held_ns": nullable(held.held),
        "held_tid": nullable(held.tid, 0),
    }
    return {name: columns[name].take(rows) for name in HELD_NAMES}


def _path_columns(paths: BioPaths, context: Context) -> dict[str, pa.Array]:
    """Return the columns PATH_NAMES with a value per row of `paths`, by name."""
    machine, cgroups = context.machine, context.cgroups
    number = paths.call.astype(np.int64)
    coded = np.where(number == NO_CALL, -1, (number + 1) * 2 + paths.foreign)
    given = {
        what: argument(paths.args, paths.call, paths.foreign, machine, what)
        for what in ("fd", "offset", "length")
    }
    dirtied = paths.dirtied != NEVER
    comms, code = np.unique(paths.dirty_comm, return_inverse=True)
    texts = [comm.decode("utf-8", "replace") for comm in comms.tolist()]
    return {
        "call": named(
            coded, lambda c: None if c < 0 else shown_name((c >> 1) - 1, bool(c & 1), machine)
        ),
        "entry_ns": nullable(paths.entry),
        **{
            f"call_{what}": pa.array(values, mask=~known) for what, (values, known) in given.items()
        },
        "dirty_ns": nullable(paths.dirtied),
        "dirty_tid": pa.array(paths.dirty_tid, mask=~dirtied),
        "dirty_pid": pa.array(paths.dirty_pid, mask=~dirtied),
        "dirty_cgroup": named(
            paths.dirty_cgroup, lambda cg: cgroups.get(cg, f"id {cg}") if cg else None
        ),
        "dirty_comm": named(np.where(dirtied, code, -1), lambda c: texts[c] if c >= 0 else None),
    }


_NVME, _SCSI = DRIVERS.index("nvme"), DRIVERS.index("scsi")


def driver_columns(window: Lifecycles) -> dict[str, pa.Array]:
    """Return the columns DRIVER_NAMES with a value per request of the window, in their order.

    Null: the log was recorded without the part driver of the path, the request's driver is none of
    DRIVERS or its steps are not in the log, or that step is not known. Counts of errors and
    time-outs are SCSI's, the queue's head and tail NVMe's, where its answer was recorded.
    """
    numbers = window.requests.number
    steps = None if window.path is None else window.path.steps
    if steps is None or not len(steps):
        return {
            name: pa.nulls(len(numbers), REQUEST_SCHEMA.field(name).type) for name in DRIVER_NAMES
        }
    columns = _driver_columns(steps)
    place = np.searchsorted(steps.number, numbers)
    known = steps.number[np.minimum(place, len(steps) - 1)] == numbers
    rows = pa.array(place, mask=~known)
    return {name: columns[name].take(rows) for name in DRIVER_NAMES}


def _driver_columns(steps: DriverSteps) -> dict[str, pa.Array]:
    """Return the columns DRIVER_NAMES with a value per row of `steps`, by name.

    Null: the driver is none of DRIVERS, a time is not known, the counts of a driver that is not
    SCSI, and the queue's head and tail of one that is not NVMe or whose answer was not recorded.
    """
    names = pa.array([name or None for name in DRIVERS], pa.string())
    number = np.minimum(steps.driver, len(DRIVERS) - 1).astype(np.int32)
    other = steps.driver >= len(DRIVERS)
    scsi = steps.driver == _SCSI
    queue = (steps.driver == _NVME) & (steps.answered != NEVER)
    times = {"begun": steps.begun, "answered": steps.answered, "finished": steps.finished}
    return {
        "driver": pa.DictionaryArray.from_arrays(pa.array(number, mask=other), names),
        **{f"driver_{name}_ns": pa.array(t, mask=t == NEVER) for name, t in times.items()},
        "driver_errors": pa.array(steps.errors, mask=~scsi),
        "driver_timeouts": pa.array(steps.timeouts, mask=~scsi),
        "sq_head": pa.array(steps.sq_head, mask=~queue),
        "sq_tail": pa.array(steps.sq_tail, mask=~queue),
    }


def bios_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of BIO_SCHEMA with one row per bio that ended in the window.

    In the order of `window.bios`. context: gives the names of devices, operations, cgroups and
    files. Times, numbers and names that are not known are null; so are `partition` for a bio sent
    to the disk itself, and `file` for a block device's own pages. A cgroup without a path is
    `id N`. The columns of the path are null where the log has no --path.
    """
    bios, tasks = window.bios, window.tasks
    columns = {
        **_common(bios, window.bio_stages, context, bios.queue),
        "partition": named(
            np.where(bios.part == bios.dev, np.uint32(0), bios.part),
            lambda part: context.device_name(part) if part else None,
        ),
        **thread_columns(bios, tasks),
        **_whom_columns(bios, tasks),
        "cgroup": named(
            bios.cgroup, lambda cg: context.cgroups.get(cg, f"id {cg}") if cg else None
        ),
        **_cgroup_names(bios, context),
        "title": titles(bios, tasks, context),
        "file": named(bios.file, lambda row: _path(context, row)),
        "file_was": former_paths(bios, context),
        **path_columns(window, context),
        **held_columns(window, context),
        "purpose": named(
            purposes(bios, tasks, context), lambda purpose: PURPOSE_NAMES.get(Purpose(purpose))
        ),
        "cpu": nullable(bios.cpu, NO_CPU),
        "queue_time": wall_clock(context, bios.queue),
        "request": nullable(bios.request),
    }
    return filled(BIO_SCHEMA, bios, **columns)


def _cgroup_names(bios: Bios, context: Context) -> dict[str, pa.Array]:
    found, codes = np.unique(bios.cgroup, return_inverse=True)
    names = [context.cgroup_names.name(int(one)) for one in found]
    return {
        field: dictionary(codes, [getattr(name, field) for name in names])
        for field in cgroup_names.FIELDS
    }


def titles(table: Bios | Calls | Waits, tasks: Tasks, context: Context) -> pa.Array:
    """Return the column of what each row's process calls itself; null where it does not."""
    return named(
        table.task,
        lambda row: (
            context.titles.title(tasks.pid(row), str(tasks.comm[row])) if row >= 0 else None
        ),
    )


def former_paths(table: Bios | Calls | Waits, context: Context) -> pa.Array:
    """Return the column of the path of each row's file before it was renamed; null: it was not."""
    return named(table.file, lambda row: context.files[row].was if row >= 0 else None)


def thread_columns(table: Bios | Calls | Waits | Submissions, tasks: Tasks) -> dict[str, pa.Array]:
    """Return the columns tid, pid and comm of the rows' threads, by name.

    tasks: the threads' names, whose rows `table.task` has. tid is null where it is 0; pid and comm
    are where `task` is -1, pid also where only the name is known.
    """
    pids = np.append(tasks.tgid, np.uint32(0))[table.task]
    return {
        "tid": nullable(table.tid, 0),
        "pid": pa.array(pids, mask=(table.task < 0) | (pids >= FIRST_UNKNOWN_TID)),
        "comm": named(table.task, lambda row: str(tasks.comm[row]) if row >= 0 else None),
    }


def _whom_columns(bios: Bios, tasks: Tasks) -> dict[str, pa.Array]:
    tids = np.append(tasks.tid, np.uint32(0))[bios.whom]
    pids = np.append(tasks.tgid, np.uint32(0))[bios.whom]
    nobody = bios.whom < 0
    return {
        "for_tid": pa.array(tids, mask=nobody),
        "for_pid": pa.array(pids, mask=nobody | (pids >= FIRST_UNKNOWN_TID)),
        "for_comm": named(bios.whom, lambda row: str(tasks.comm[row]) if row >= 0 else None),
    }


def _path(context: Context, row: int) -> str | None:
    return None if row < 0 or context.files[row].device else context.files[row].path


def requests_table(window: Lifecycles, context: Context) -> pa.Table:
    """Return a table of REQUEST_SCHEMA with a row per request that ended in the window.

    In the order of `window.requests`. context: gives the names of devices and operations. Times,
    numbers and tags that are not known are null; the columns of the driver are where the log has no
    --path driver.
    """
    requests = window.requests
    columns = {
        **_common(requests, window.request_stages, context, requests.start),
        "kind": named(requests.kind, lambda kind: RequestKind(kind).name.lower()),
        "tag": nullable(requests.tag, NO_TAG),
        "sched_tag": nullable(requests.sched_tag, NO_TAG),
        "hctx": nullable(requests.hctx, NO_TAG),
        "start_time": wall_clock(context, requests.start),
        "absorbed_by": nullable(requests.absorbed_by),
        **driver_columns(window),
    }
    return filled(REQUEST_SCHEMA, requests, **columns)


def _common(table: Bios | Requests, stages: Stages, context: Context, begin: I64) -> dict[str, Any]:
    """Return the columns, by name, that bios and requests share and that are not attributes."""
    ended = (begin != NEVER) & (table.complete != NEVER)
    latency = np.maximum(table.complete - begin, 0)
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
        **_stage_columns(table.number, stages, table.doubtful),
    }


def _stage_columns(number: I64, stages: Stages, doubtful: Bool) -> dict[str, pa.Array]:
    """Return a column per stage, by name: each owner's total time in that stage (ns).

    Null where the owner has no such stage, or is `doubtful` (n,). number: owners in ascending
    order, a row each, among which every stage's owner must be.
    """
    sums = np.zeros((len(Stage), len(number)), np.int64)
    there = np.zeros((len(Stage), len(number)), np.bool_)
    if len(stages) and len(number):
        rows = np.searchsorted(number, stages.owner)
        np.add.at(sums, (stages.stage, rows), stages.end - stages.start)
        there[stages.stage, rows] = True
    there &= ~doubtful
    return {stage_column(s): pa.array(sums[s], mask=~there[s]) for s in Stage}


def wall_clock(context: Context, times: I64) -> pa.Array:
    """Return CLOCK_MONOTONIC times (ns) as UTC timestamps, each by the nearest clock reading.

    Null for NEVER; all null if the log has no clock readings. int64 ns, without interpolation.
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
