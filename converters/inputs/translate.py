# SPDX-License-Identifier: Apache-2.0
"""Translation of tracepoints' columns to a log's `Events`.

The tracepoints report no pointers: bio and rq are 0, as in the bcc backend's logs, whose records
(bpf/bcc.h) these equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.events import RAW_WORDS, Events
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U16, U32, U64, Bool
from biotrail.converters.inputs.foreign import NO_QUEUE, NO_TAGS, head_words, status_words
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.kernel_names import opf_of
from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID, NO_SECTOR, Kind

Column = NDArray[Any]
"""Values of one field, (n,): integers of any size and byte order, or bytes (S1 to S…)."""


THREAD_NAMES = "task_name"
"""`TracepointRows.event` of rows that only name threads; their column is "comm"."""


@dataclass
class TracepointRows:
    """Some records of one tracepoint, as columns of one length n, in the recording's order.

    event: the tracepoint's name without its system ("block_rq_issue"), or THREAD_NAMES. time: ns,
    int64. cpu: any integer. pid: id of the thread (the kernel's pid), any integer; negative: not
    known. arrival: position in the recording, ascending where records follow each other; decides
    the order of records of one time in a batch, whatever their tracepoint (an offset, or a line's
    number).

    columns: by the names of the tracepoint's own fields (dev, sector, nr_sector, bytes, rwbs,
    error, old_dev, old_sector, new_sector, nr_rq, comm); others are not looked at. dev and
    old_dev: the kernel's own numbers, major << 20 | minor. rwbs and comm: bytes, NUL-terminated or
    -padded. Columns that the recording lacks are absent; those of
    `schema.block_events.NEEDED` must be there, or the rows are counted as unreadable.
    """

    event: str
    time: I64
    cpu: Column
    pid: Column
    arrival: I64
    columns: Mapping[str, Column]
    tgid: Column | None = None
    """id of the thread's process (the kernel's tgid); None: not known."""
    comm: Column | None = None
    """Name of the thread, bytes, from beside the tracepoint's fields; None: only from these."""

    def __len__(self) -> int:
        return len(self.time)

    def without(self, rows: NDArray[np.bool_]) -> "TracepointRows":
        """Return the rows without those of the mask `rows`, (n,); copies."""
        keep = ~rows
        return TracepointRows(
            self.event,
            self.time[keep],
            self.cpu[keep],
            self.pid[keep],
            self.arrival[keep],
            {name: column[keep] for name, column in self.columns.items()},
            None if self.tgid is None else self.tgid[keep],
            None if self.comm is None else self.comm[keep],
        )


COMM_BYTES = 16


_MOST_THREADS = 1 << 20
"""Threads whose names are remembered; with more, all are named anew."""


@dataclass
class NameRows:
    """TASK events: time (ns), cpu and arrival (n,), raw (8, n), as `translate` takes them."""

    time: I64
    cpu: U16
    arrival: I64
    raw: U64


class ThreadNames:
    """The names that threads had last, so that only new ones become events."""

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        self._nameless: dict[bytes, int] = {}
        """By name: the id that stands for the threads of that name whose ids are not known."""

    def identified(self, rows: TracepointRows) -> TracepointRows:
        """Return the rows with ids that stand for those that are not known, one for each name.

        FIRST_UNKNOWN_TID itself stands for threads of which not even the name is known.
        """
        tid = np.asarray(rows.pid).astype(np.int64)
        unknown = np.flatnonzero(tid < 0)
        if not len(unknown):
            return rows
        comm, tgid = _comm(rows), rows.tgid
        tid[unknown] = FIRST_UNKNOWN_TID
        if comm is not None:
            names, of = np.unique(comm[unknown], return_inverse=True)
            tid[unknown] = np.array([self._id_of(name) for name in names.tolist()])[of]
        if tgid is not None:
            tgid = tgid.astype(np.int64)
            tgid[unknown] = tid[unknown]
        return replace(rows, pid=tid, tgid=tgid)

    def _id_of(self, name: bytes) -> int:
        name = name.split(b"\0")[0][: COMM_BYTES - 1]
        if not name or (len(self._nameless) >= _MOST_THREADS and name not in self._nameless):
            return FIRST_UNKNOWN_TID
        return self._nameless.setdefault(name, FIRST_UNKNOWN_TID + 1 + len(self._nameless))

    def rows(self, batch: Sequence[TracepointRows]) -> list[NameRows]:
        """Return a TASK event for each row whose thread's name is not the last one's of its thread.

        Of thread 0, each CPU's idle thread, only the first name counts. A process that is not known
        is the thread itself. Names are taken from `TracepointRows.comm`, else column "comm".
        """
        named = [(rows, comm) for rows in batch if (comm := _comm(rows)) is not None and len(rows)]
        if not named:
            return []
        time = np.concatenate([rows.time for rows, _ in named])
        arrival = np.concatenate([rows.arrival for rows, _ in named])
        words = np.concatenate([_words(comm) for _, comm in named], axis=1)
        pid = np.concatenate([np.asarray(rows.pid).astype(np.int64) for rows, _ in named])
        tgid = np.concatenate([_tgid(rows) for rows, _ in named])
        cpu = np.concatenate([np.asarray(rows.cpu).astype(np.uint16) for rows, _ in named])
        at = self._new(_changes(pid, words, time, arrival), pid, words)
        if not len(at):
            return []
        raw = np.zeros((RAW_WORDS, len(at)), np.uint64)
        raw[0] = head_words(Kind.TASK, time[at])
        low = np.uint64(0xFFFFFFFF)
        raw[1] = pid[at].view(np.uint64) & low | tgid[at].view(np.uint64) << np.uint64(32)
        raw[2:4] = words[:, at]
        return [NameRows(time[at], cpu[at], arrival[at], raw)]

    def _new(self, candidates: I64, pid: I64, words: U64) -> I64:
        """Return the rows among `candidates` whose name differs from their thread's last one.

        Takes these names over into `_last`.
        """
        if len(self._last) > _MOST_THREADS:
            self._last.clear()
        new = []
        for row in candidates.tolist():
            thread, name = int(pid[row]), words[:, row].tobytes()
            last = self._last.get(thread)
            if name != last and not (thread == 0 and last is not None):
                self._last[thread] = name
                new.append(row)
        return np.array(new, dtype=np.int64)


def _changes(pid: I64, words: U64, time: I64, arrival: I64) -> I64:
    """Return the rows, by time, whose name differs from the one before of the thread, or is first.

    words: (2, n), the names.
    """
    order = np.lexsort((arrival, time, pid))
    differs = np.ones(len(order), dtype=np.bool_)
    thread, name = pid[order], words[:, order]
    differs[1:] = (thread[1:] != thread[:-1]) | (name[:, 1:] != name[:, :-1]).any(axis=0)
    rows = order[differs]
    return rows[np.lexsort((arrival[rows], time[rows]))]


def _comm(rows: TracepointRows) -> Column | None:
    return rows.comm if rows.comm is not None else rows.columns.get("comm")


def _tgid(rows: TracepointRows) -> I64:
    tid = np.asarray(rows.pid).astype(np.int64)
    if rows.tgid is None:
        return tid
    tgid = np.asarray(rows.tgid).astype(np.int64)
    return np.where(tgid < 0, tid, tgid)


def _words(comm: Column) -> U64:
    """Return names as two words each, (2, n) uint64: NUL-padded to 16 bytes, 15 letters at most.

    What is behind a NUL, which may be anything in a kernel's buffer, becomes 0.
    """
    letters = np.ascontiguousarray(comm, dtype=f"S{COMM_BYTES}").view(np.uint8)
    letters = letters.reshape(len(comm), COMM_BYTES).copy()
    letters[:, COMM_BYTES - 1] = 0
    letters[np.maximum.accumulate(letters == 0, axis=1)] = 0
    return np.ascontiguousarray(letters.view("<u8").astype(np.uint64).T)


RWBS_BYTES = 8
"""Letters of rwbs that are read; no combination that occurs is longer."""
_LOW_BITS = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_NO_SECTOR_32 = 0xFFFFFFFF
"""Sector -1 of a kernel whose sectors have 32 bits."""


def packed_letters(rwbs: NDArray[np.bytes_]) -> U64:
    """Return the first 8 letters of each rwbs, (n,), as a uint64, the first lowest.

    What is behind the first NUL, which may be anything in a kernel's buffer, becomes 0.
    """
    wide = np.ascontiguousarray(rwbs, dtype=f"S{RWBS_BYTES}")
    words = wide.view("<u8").astype(np.uint64)
    zero = (words - _LOW_BITS) & ~words & _HIGH_BITS
    first = zero & (~zero + _ONE)
    # The bits below the first NUL's; all where there is no NUL.
    return words & ((first >> np.uint64(7)) - _ONE)


def opfs(letters: U64, nowhere: Bool) -> U32:
    """Return bi_opf or cmd_flags of each event, (n,), in the numbers of Linux 6.18 (kernel_names).

    letters: as `packed_letters` returns them. nowhere: which events are of requests without a
    position, whose letters mean something else: there N is passthrough (drv_in, whatever its
    direction), elsewhere write-zeroes; and of kernels before 4.8 "FW…" is a flush, which is
    the write of a bio elsewhere, and R and W are passthrough.
    """
    table, of = _by_letters(letters, lambda text: (opf_of(text), _opf_nowhere(text)))
    return table[of, nowhere.astype(np.int64)].astype(np.uint32)


def _opf_nowhere(text: str) -> int:
    if text[:2] == "FW":
        return opf_of("FF" + text[2:])
    if text[:1] == "W" and text[1:2] != "Z":
        return opf_of("N" + text[1:], "DRV_OUT")
    return opf_of("N" + text[1:] if text[:1] == "R" else text, "DRV_IN")


def without_position(letters: U64, sector: U64, nr_sector: U64, size: U64) -> Bool:
    """Return which request events, (n,), are of flush requests or passthrough.

    letters: as `packed_letters` returns them. size: bytes; nr_sector is 0 of passthrough when it is
    inserted and issued, whatever its size. An F is a flush request if it stands for the operation:
    alone, behind PREFLUSH's F, or before flags. Others have no position if the kernel says so, by
    sector -1 or, of passthrough, 0 with no sectors (blk_rq_trace_sector): N; and R and W, which
    kernels before 4.8 write for flushes and passthrough, too. There W at sector 0 with no sectors
    and no bytes is the write of a bio that only flushes.
    """
    table, of = _by_letters(letters, _kinds)
    flush, other, read, write = table[of].T != 0
    none = nr_sector == 0
    nowhere = (sector == np.uint64(NO_SECTOR)) | ((sector == np.uint64(_NO_SECTOR_32)) & none)
    start = (sector == 0) & none
    either = (other | read) & (nowhere | start)
    result: Bool = flush | either | (write & (nowhere | (start & (size != 0))))
    return result


def _kinds(text: str) -> tuple[bool, bool, bool, bool]:
    """Return whether rwbs is of a flush request ("F", "FF", "FS"; not "FWS" or "FN"), N, R, W."""
    flush = text[:1] == "F" and text[1:2] in ("", "F", "S", "M", "A")
    write = text.removeprefix("F").startswith("W") and "Z" not in text
    return flush, text.startswith(("N", "FN")), text[:1] == "R", write


def _by_letters(letters: U64, meant: Callable[[str], tuple[int, ...]]) -> tuple[I64, I64]:
    """Return (what `meant` returns of each different rwbs, a row each; each event's row (n,))."""
    names, _, of = distinct_values(letters.view(np.int64))
    packed = (name.to_bytes(RWBS_BYTES, "little") for name in names.view(np.uint64).tolist())
    texts = [word.rstrip(b"\0").decode("latin-1") for word in packed]
    return np.array([meant(text) for text in texts] or [meant("")], np.int64), of


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
