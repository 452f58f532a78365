# SPDX-License-Identifier: Apache-2.0
"""Translation of tracepoints' columns to a log's `Events`.

The tracepoints report no pointers: bio and rq are 0, as in the bcc backend's logs, whose records
(bpf/bcc.h) these equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from biotrail.converters.events.events import RAW_WORDS, Events
from biotrail.converters.events.tables import SECTOR_BYTES, U64, Bool
from biotrail.converters.inputs.foreign import NO_QUEUE, NO_TAGS, head_words, status_words
from biotrail.converters.inputs.tracepoints.letters import opfs, packed_letters, without_position
from biotrail.converters.inputs.tracepoints.names import NameRows
from biotrail.converters.inputs.tracepoints.rows import Column, TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.records import NO_SECTOR, Kind

_MAX_ERRNO = 4095
_SHIFT_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def translate(batch: Sequence[TracepointRows], names: Sequence[NameRows]) -> Events:
    """Return the rows of all tracepoints as Events, sorted by (time, arrival), `number` 0.

    batch: rows of tracepoints in `KIND_OF`, each with the columns of NEEDED. names: threads' names
    that TASK events are made of; at equal times and arrival these come first.
    """
    batch = [rows for rows in batch if len(rows)]
    if not batch and not names:
        return Events.empty()
    parts: list[NameRows | TracepointRows] = [*names, *batch]
    raws = [name.raw for name in names] + [records(rows) for rows in batch]
    time = np.concatenate([part.time for part in parts])
    arrival = np.concatenate([part.arrival for part in parts])
    cpu = np.concatenate([np.asarray(part.cpu).astype(np.uint16) for part in parts])
    raw = np.concatenate(raws, axis=1)
    order = np.lexsort((arrival, time))
    if not (order[1:] > order[:-1]).all():
        time, cpu, raw = time[order], cpu[order], raw[:, order]
    return Events(time, cpu, np.zeros(len(time), np.int64), raw.T)


def records(rows: TracepointRows) -> U64:
    """Return the records of a tracepoint's rows: (8, n) uint64, a word of the record per row."""
    kind = KIND_OF[rows.event]
    words = np.zeros((RAW_WORDS, len(rows)), np.uint64)
    words[0] = head_words(kind, rows.time)
    _FILLERS[kind](rows, words)
    return words


def _number(rows: TracepointRows, name: str) -> U64:
    """Return a column of integers as uint64, (n,); negative numbers wrap. 0 if there is none."""
    column = rows.columns.get(name)
    if column is None:
        return np.zeros(len(rows), np.uint64)
    return column.astype(np.int64 if column.dtype.kind == "i" else np.uint64).view(np.uint64)


def _bytes(rows: TracepointRows) -> U64:
    """Return the sizes (bytes), (n,): column "bytes", else whole sectors of "nr_sector".

    Kernels before 4.11 fill "bytes" for passthrough alone, which has no sectors: 0 is not known.
    """
    whole = (_number(rows, "nr_sector") * np.uint64(SECTOR_BYTES)) & _LOW
    if "bytes" not in rows.columns:
        return whole
    said = _number(rows, "bytes") & _LOW
    return np.where(said == 0, whole, said)


def _dev(rows: TracepointRows, name: str = "dev") -> U64:
    return _number(rows, name) & _LOW


def _tid(rows: TracepointRows) -> U64:
    return rows.pid.astype(np.int64).view(np.uint64) << _SHIFT_32


def _fill_bio(rows: TracepointRows, words: U64) -> None:
    """Write sector, bytes, opf, dev and tid of bio records into `words` (8, n)."""
    letters = packed_letters(rows.columns["rwbs"])
    opf = opfs(letters, np.zeros(len(rows), np.bool_)).astype(np.uint64)
    words[2] = _number(rows, "sector")
    words[3] = _bytes(rows) | opf << _SHIFT_32
    words[4] = _dev(rows) | _tid(rows)


def _fill_queue(rows: TracepointRows, words: U64) -> None:
    """Write a Q: the disk is its partition, too, as the tracepoint reports none."""
    _fill_bio(rows, words)
    words[5] = _dev(rows)


def _fill_split(rows: TracepointRows, words: U64) -> None:
    """Write an X: the front piece, up to new_sector, which the kernel passes in 32 bits."""
    _fill_bio(rows, words)
    rest = _number(rows, "new_sector")
    size = ((rest - words[2]) & _LOW) * np.uint64(SECTOR_BYTES)
    words[3] = (words[3] >> _SHIFT_32 << _SHIFT_32) | (size & _LOW)
    words[6] = rest


def _fill_remap(rows: TracepointRows, words: U64) -> None:
    """Write an A: `dev` is its disk and its partition, which only `old_dev` can be."""
    _fill_bio(rows, words)
    words[5] = _number(rows, "old_sector")
    words[6] = _dev(rows, "old_dev") | _dev(rows) << _SHIFT_32


def _fill_bio_complete(rows: TracepointRows, words: U64) -> None:
    _fill_bio(rows, words)
    error = rows.columns.get("error")
    if error is not None and (odd := is_no_errno(error)).any():
        rows = replace(rows, columns={**rows.columns, "error": np.where(odd, 0, error)})
    words[4] = _dev(rows) | _status(rows)


def is_no_errno(error: Column) -> Bool:
    """Return which errors of bios, (n,), are neither 0 nor a negative errno.

    Linux before 2.6.38 left the field as the ring buffer had it.
    """
    found: Bool = (error > 0) | (error < -_MAX_ERRNO)
    return found


def _fill_rq(rows: TracepointRows, words: U64) -> None:
    """Write sector, bytes, opf and dev of request records into `words`, and that they have no tags.

    Flush requests and passthrough get NO_SECTOR.
    """
    letters = packed_letters(rows.columns["rwbs"])
    sector, size = _number(rows, "sector"), _bytes(rows)
    nowhere = without_position(letters, sector, _number(rows, "nr_sector"), size)
    words[3] = np.where(nowhere, np.uint64(NO_SECTOR), sector)
    words[4] = size | opfs(letters, nowhere).astype(np.uint64) << _SHIFT_32
    words[5] = _dev(rows) | NO_TAGS


def _fill_issue(rows: TracepointRows, words: U64) -> None:
    """Write a D: hctx is not known, ioprio where the kernel reports it (6.12 and later)."""
    _fill_rq(rows, words)
    words[6] = np.uint64(NO_QUEUE) | (_number(rows, "ioprio") & np.uint64(0xFFFF)) << np.uint64(16)


def _fill_complete(rows: TracepointRows, words: U64) -> None:
    _fill_rq(rows, words)
    words[5] = _dev(rows) | _status(rows)


def _fill_rq_remap(rows: TracepointRows, words: U64) -> None:
    _fill_rq(rows, words)
    words[5] = _dev(rows) | _dev(rows, "old_dev") << _SHIFT_32
    words[6] = _number(rows, "old_sector")


def _fill_done(rows: TracepointRows, words: U64) -> None:
    """Write a d: the device is all that it says."""
    words[2] = _dev(rows)


def _fill_plug(rows: TracepointRows, words: U64) -> None:
    """Write a P or U: the thread, and how many requests were held back; no device is reported."""
    words[1] = _tid(rows)
    words[2] = _number(rows, "nr_rq") & _LOW


def _status(rows: TracepointRows) -> U64:
    """Return blk_status_t of the column "error" (0 or a negative errno) in the upper 32 bits."""
    column = rows.columns.get("error", rows.columns.get("errors"))
    if column is None:
        return np.zeros(len(rows), np.uint64)
    return status_words(column)


_FILLERS: dict[Kind, Callable[[TracepointRows, U64], None]] = {
    Kind.Q: _fill_queue,
    **dict.fromkeys((Kind.G, Kind.M, Kind.F), _fill_bio),
    Kind.X: _fill_split,
    Kind.A: _fill_remap,
    Kind.BIO_COMPLETE: _fill_bio_complete,
    **dict.fromkeys((Kind.START, Kind.I, Kind.R, Kind.RQ_MERGE), _fill_rq),
    Kind.D: _fill_issue,
    Kind.C: _fill_complete,
    Kind.E: _fill_complete,
    Kind.RQ_REMAP: _fill_rq_remap,
    Kind.DONE: _fill_done,
    Kind.P: _fill_plug,
    Kind.U: _fill_plug,
}
