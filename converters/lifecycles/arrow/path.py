# SPDX-License-Identifier: Apache-2.0
"""Columns of bios: which call queued each, who dirtied what it writes back, what held it."""

import numpy as np
import pyarrow as pa

from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import BioPaths
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.lifecycles.arrow.columns import BIO_SCHEMA, HELD_NAMES, PATH_NAMES
from biotrail.converters.lifecycles.arrow.named import named, nullable
from biotrail.converters.lifecycles.call_arguments import argument
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
    columns = _columns(paths, context)
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


def _columns(paths: BioPaths, context: Context) -> dict[str, pa.Array]:
    """Return the columns PATH_NAMES with a value per row of `paths`, by name.

    Null: the call, its entry or argument is not known, or the dirtying is not. A page fault is a
    call; a cgroup without a name is `id N`. context: of the log, for names.
    """
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
