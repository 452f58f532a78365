# SPDX-License-Identifier: Apache-2.0
"""Arguments of bios and requests from the path beside the block layer, and from drivers."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.drivers import DRIVERS
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import (
    BioPaths,
    DriverSteps,
    HeldBios,
    Interrupts,
    PathTables,
)
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U64,
    Bios,
    Bool,
    Requests,
    Tasks,
)
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import Interned
from biotrail.recorder.schema.syscalls import call_name

_CONTEXTS = ("task", "softirq", "interrupt")


def add_bio_path(
    slices: Slices,
    table: Bios,
    path: PathTables | None,
    tasks: Tasks,
    context: Context,
    strings: Interned,
) -> None:
    """Add the arguments names.PATH_BIO_ARGUMENTS to the slices of bios where they are known.

    `limit_of`, `held_ns` and `held_for` are of bios in `path.held`.
    `purpose`, where the log has the part `dirty`, needs no `path`. `fd` is the call's first
    argument, of any known system call. The others need the bio's row in `path.bios`: call and
    submission, and those on who dirtied the page where `dirtied` is known (dirtied_before_ns: if Q
    is, and is not earlier). table: the bio of each slice. path: the window's; None: the purpose
    alone is added. tasks: the threads that `table.task` is the row of. strings: the interned texts,
    to which new ones are added.
    """
    if "dirty" in context.path_parts:
        _add_purposes(slices, table, tasks, context, strings)
    if path is None or not len(table):
        return
    if len(path.held):
        _add_limits(slices, table, path.held, tasks, context, strings)
    if not len(path.bios):
        return
    row, known = _rows_by_number(path.bios.number, table.number)
    bios = path.bios.take(row)
    called = known & (bios.call != NO_CALL)
    slices.text("call", np.where(called, _call_ids(bios, context, strings), np.uint64(0)))
    slices.uint("fd", bios.args[:, 0] & np.uint64(0xFFFFFFFF), called & (bios.call >= 0))
    slices.uint("submission", bios.submission, known & (bios.submission >= 0))
    dirtied = known & (bios.dirtied != NEVER)
    if not dirtied.any():
        return
    slices.text("dirtied_by", np.where(dirtied, _names(bios.dirty_comm, strings), np.uint64(0)))
    slices.uint("dirtied_pid", bios.dirty_pid, dirtied)
    before = table.queue - bios.dirtied
    slices.uint("dirtied_before_ns", before, dirtied & (before >= 0) & (table.queue != NEVER))
    groups = _cgroup_ids(np.where(dirtied, bios.dirty_cgroup, np.uint64(0)), context, strings)
    slices.text("dirtied_in", groups)


def _add_limits(
    slices: Slices,
    table: Bios,
    held: HeldBios,
    tasks: Tasks,
    context: Context,
    strings: Interned,
) -> None:
    """Add the cgroup whose limit held a bio, for how long and for whom, where these are known."""
    row, known = _rows_by_number(held.number, table.number)
    held = held.take(row)
    limits = _cgroup_ids(np.where(known, held.limit, np.uint64(0)), context, strings)
    unnamed = known & (held.limit == 0)
    slices.text("limit_of", np.where(unnamed, np.uint64(strings.id("not known")), limits))
    told = known & (held.held != NEVER)
    slices.uint("held_ns", held.held, told)
    named = np.where(told, held.task, -1)
    slices.text("held_for", strings.ids(named, lambda one: tasks.comm[one] if one >= 0 else ""))


def _add_purposes(
    slices: Slices, table: Bios, tasks: Tasks, context: Context, strings: Interned
) -> None:
    """Add `purpose` to the slices of bios for metadata, the journal, swap and readahead."""
    found = purposes(table, tasks, context)
    names = {p: name for p, name in PURPOSE_NAMES.items() if p != Purpose.DATA}
    ids = [strings.id(names[p]) if p in names else 0 for p in Purpose]
    slices.text("purpose", np.array(ids, dtype=np.uint64)[found])


def _cgroup_ids(cgroups: U64, context: Context, strings: Interned) -> U64:
    """Return per cgroup id (n,) the interned id of its path, `id N` without a path; 0 for 0."""
    found, codes = np.unique(cgroups, return_inverse=True)
    texts = [context.cgroups.get(int(one), f"id {one}") if one else "" for one in found]
    return np.array([strings.id(t) if t else 0 for t in texts], dtype=np.uint64)[codes]


def _call_ids(bios: BioPaths, context: Context, strings: Interned) -> U64:
    """Return per bio (n,) the interned id of its call's name; all have one, also NO_CALL."""
    machine = str(context.header.get("host", {}).get("machine", ""))
    ids = strings.ids(bios.call, lambda number: call_name(number, machine))
    if bios.foreign.any():
        ids[bios.foreign] = strings.id("32-bit system call")
    return ids


def _names(comm: NDArray[np.bytes_], strings: Interned) -> U64:
    """Return per bio (n,) the interned id of a thread's name, given as bytes; UTF-8 is decoded."""
    found, codes = np.unique(comm, return_inverse=True)
    texts = [bytes(name).decode("utf-8", "replace") for name in found]
    return np.array([strings.id(text) for text in texts], dtype=np.uint64)[codes]


def add_interrupts(
    slices: Slices, table: Requests, path: PathTables | None, strings: Interned
) -> None:
    """Add arguments on how requests were completed to the slices of those of which it is known.

    They are completed_in, irq, and the times between issue, interrupt, softirq and completion
    (ns, see `_add_times`); not those of drivers. table: the request of each slice. path: the
    window's; None: nothing is added. strings: the interned texts, to which new ones are added.
    """
    if path is None or not len(path.interrupts) or not len(table):
        return
    row, known = _rows_by_number(path.interrupts.number, table.number)
    ends = path.interrupts.take(row)
    names = np.array([strings.id(name) for name in _CONTEXTS], dtype=np.uint64)
    context = names[np.minimum(ends.context, len(_CONTEXTS) - 1)]
    slices.text("completed_in", np.where(known, context, np.uint64(0)))
    _add_times(slices, table, ends, known)


def _add_times(slices: Slices, table: Requests, ends: Interrupts, known: Bool) -> None:
    """Add the interrupt's number and the times between issue, interrupt, softirq and completion."""
    hard = known & (ends.hard != NEVER) & (ends.hard >= table.issue) & (table.issue != NEVER)
    soft = known & (ends.soft != NEVER) & (table.complete != NEVER)
    slices.uint("irq", ends.irq, hard)
    slices.uint("issue_to_interrupt_ns", ends.hard - table.issue, hard)
    both = hard & soft & (ends.soft >= ends.hard)
    slices.uint("interrupt_to_softirq_ns", ends.soft - ends.hard, both)
    slices.uint("softirq_to_complete_ns", table.complete - ends.soft, soft)


def _rows_by_number(number: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return per wanted number its row in `number` (sorted, not empty), and whether it is there."""
    row = np.minimum(np.searchsorted(number, wanted), len(number) - 1)
    return row, np.asarray(number[row] == wanted, dtype=np.bool_)


_NVME = DRIVERS.index("nvme")


def add_steps(slices: Slices, table: Requests, path: PathTables | None, strings: Interned) -> None:
    """Add arguments on what the driver did to the slices of requests of which it is known.

    They are those of names.PATH_REQUEST_ARGUMENTS from `driver` on. Times between D, the driver's
    steps and C are added where both ends are known, in this order, and the request was not
    requeued; numbers of errors and timeouts where above 0. table: the request of each slice. path:
    the window's; None: nothing is added. strings: the interned texts, to which the drivers' names
    are added.
    """
    if path is None or not len(path.steps) or not len(table):
        return
    row = np.minimum(np.searchsorted(path.steps.number, table.number), len(path.steps) - 1)
    known = path.steps.number[row] == table.number
    steps = path.steps.take(row)
    names = np.array([strings.id(name) if name else 0 for name in DRIVERS], dtype=np.uint64)
    named = known & (steps.driver < len(DRIVERS))
    ids = names[np.minimum(steps.driver, len(DRIVERS) - 1)]
    slices.text("driver", np.where(named, ids, np.uint64(0)))
    _add_driver_times(slices, table, steps, known & (table.requeues == 0))
    slices.uint("driver_errors", steps.errors, known & (steps.errors > 0))
    slices.uint("driver_timeouts", steps.timeouts, known & (steps.timeouts > 0))


def _add_driver_times(slices: Slices, table: Requests, steps: DriverSteps, known: Bool) -> None:
    """Add the times between issue, steps and completion of the `known` rows to `slices`."""
    nvme = steps.driver == _NVME
    sent = np.where(nvme, table.issue, steps.begun)

    def between(name: str, begin: I64, end: I64, where: Bool) -> None:
        there = known & where & (begin != NEVER) & (end != NEVER) & (end >= begin)
        slices.uint(name, end - begin, there)

    between("setup_to_issue_ns", steps.begun, table.issue, nvme)
    between("issue_to_dispatch_ns", table.issue, steps.begun, ~nvme)
    between("dispatch_to_answer_ns", sent, steps.answered, known)
    between("answer_to_complete_ns", steps.answered, table.complete, known)
    between("driver_done_to_complete_ns", steps.finished, table.complete, nvme)
