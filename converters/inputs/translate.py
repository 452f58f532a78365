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
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U32, U64, Bool
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

    @property
    def thread_names(self) -> Column | None:
        return self.columns.get("comm") if self.comm is None else self.comm

    def without(self, rows: Bool) -> "TracepointRows":
        keep = ~rows
        return replace(
            self,
            **{n: getattr(self, n)[keep] for n in ("time", "cpu", "pid", "arrival")},
            columns={name: column[keep] for name, column in self.columns.items()},
            tgid=None if self.tgid is None else self.tgid[keep],
            comm=None if self.comm is None else self.comm[keep],
        )


COMM_BYTES = 16
_MOST_THREADS = 1 << 20


_Records = tuple[I64, Column, I64, U64]
"""Records' time (ns), CPU and arrival, (n,), and words, (8, n)."""


class ThreadNames:
    """The names that threads had last, so that only new ones become events.

    A thread whose id is not recorded has its name instead: threads are told apart by it, by an id
    that stands for "not known, of this name" (`records.FIRST_UNKNOWN_TID`).
    """

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        self._nameless: dict[bytes, int] = {}

    def identified(self, rows: TracepointRows) -> TracepointRows:
        """Return the rows with ids that stand for those that are not known, one for each name.

        FIRST_UNKNOWN_TID itself stands for threads of which not even the name is known.
        """
        tid = np.asarray(rows.pid).astype(np.int64)
        unknown = np.flatnonzero(tid < 0)
        if not len(unknown):
            return rows
        comm, tgid = rows.thread_names, rows.tgid
        tid[unknown] = FIRST_UNKNOWN_TID
        if comm is not None:
            names, of = np.unique(comm[unknown], return_inverse=True)
            ids = []
            for full in names.tolist():
                name = full.split(b"\0")[0][: COMM_BYTES - 1]
                if name and len(self._nameless) < _MOST_THREADS:
                    self._nameless.setdefault(name, FIRST_UNKNOWN_TID + 1 + len(self._nameless))
                ids.append(self._nameless.get(name, FIRST_UNKNOWN_TID))
            tid[unknown] = np.array(ids)[of]
        if tgid is not None:
            tgid = tgid.astype(np.int64)
            tgid[unknown] = tid[unknown]
        return replace(rows, pid=tid, tgid=tgid)

    def tasks(self, batch: Sequence[TracepointRows]) -> list[_Records]:
        """Return a TASK event for each row whose thread's name is not the last one's of its thread.

        Of thread 0, each CPU's idle thread, only the first name counts. A process that is not known
        is the thread itself.
        """
        named = [(r, comm) for r in batch if (comm := r.thread_names) is not None and len(r)]
        if not named:
            return []
        time = np.concatenate([rows.time for rows, _ in named])
        arrival = np.concatenate([rows.arrival for rows, _ in named])
        words = np.concatenate([_words(comm) for _, comm in named], axis=1)
        pid = np.concatenate([np.asarray(rows.pid).astype(np.int64) for rows, _ in named])
        cpu = np.concatenate([np.asarray(rows.cpu).astype(np.uint16) for rows, _ in named])
        tgid = np.concatenate(
            [np.asarray(r.pid if r.tgid is None else r.tgid).astype(np.int64) for r, _ in named]
        )
        tgid = np.where(tgid < 0, pid, tgid)
        order = np.lexsort((arrival, time, pid))
        differs = np.ones(len(order), dtype=np.bool_)
        thread, names = pid[order], words[:, order]
        differs[1:] = (thread[1:] != thread[:-1]) | (names[:, 1:] != names[:, :-1]).any(axis=0)
        candidates = order[differs]
        candidates = candidates[np.lexsort((arrival[candidates], time[candidates]))]
        if len(self._last) > _MOST_THREADS:
            self._last.clear()
        new = []
        for row in candidates.tolist():
            tid, name = int(pid[row]), words[:, row].tobytes()
            last = self._last.get(tid)
            if name != last and not (tid == 0 and last is not None):
                self._last[tid] = name
                new.append(row)
        at = np.array(new, dtype=np.int64)
        if not new:
            return []
        raw = np.zeros((RAW_WORDS, len(at)), np.uint64)
        raw[0] = head_words(Kind.TASK, time[at])
        raw[1] = pid[at].view(np.uint64) & _LOW | tgid[at].view(np.uint64) << _SHIFT_32
        raw[2:4] = words[:, at]
        return [(time[at], cpu[at], arrival[at], raw)]


def _words(comm: Column) -> U64:
    """Return names as two words each, (2, n): NUL-padded, cut to 15 letters, junk behind NUL 0."""
    letters = np.ascontiguousarray(comm, dtype=f"S{COMM_BYTES}").view(np.uint8)
    letters = letters.reshape(len(comm), COMM_BYTES).copy()
    letters[:, COMM_BYTES - 1] = 0
    letters[np.maximum.accumulate(letters == 0, axis=1)] = 0
    return np.ascontiguousarray(letters.view("<u8").astype(np.uint64).T)


# Operations and flags of many events at once, from the letters of blk_fill_rwbs(). What they mean
# changed with the kernel; docs/inputs.md has the table.

RWBS_BYTES = 8
"""Letters of rwbs that are read; no combination that occurs is longer."""
_LOW_BITS = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_NO_SECTOR_32 = 0xFFFFFFFF  # of a kernel whose sectors have 32 bits


def packed_letters(rwbs: NDArray[np.bytes_]) -> U64:
    """Return the first 8 letters of each rwbs, (n,), as a uint64, the first lowest.

    What is behind the first NUL, which may be anything in a kernel's buffer, becomes 0.
    """
    wide = np.ascontiguousarray(rwbs, dtype=f"S{RWBS_BYTES}")
    words = wide.view("<u8").astype(np.uint64)
    zero = (words - _LOW_BITS) & ~words & _HIGH_BITS
    first = zero & (~zero + np.uint64(1))
    # The bits below the first NUL's; all where there is no NUL.
    return words & ((first >> np.uint64(7)) - np.uint64(1))


def opfs(letters: U64, nowhere: Bool) -> U32:
    """Return bi_opf or cmd_flags of each event, (n,), in the numbers of Linux 6.18 (kernel_names).

    letters: of `packed_letters`. nowhere: which events are of requests without a position, whose
    letters mean something else: there N is passthrough (drv_in, whatever its direction), elsewhere
    write-zeroes; and of kernels before 4.8 "FW…" is a flush, which is the write of a bio elsewhere,
    and R and W are passthrough.
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

    letters: of `packed_letters`. size: bytes; nr_sector is 0 of passthrough when it is inserted and
    issued, whatever its size. An F is a flush request if it stands for the operation: alone, behind
    PREFLUSH's F, or before flags. Others have no position if the kernel says so, by sector -1 or,
    of passthrough, 0 with no sectors (blk_rq_trace_sector): N; and R and W, which kernels before
    4.8 write for flushes and passthrough, too. There W at sector 0 with no sectors and no bytes is
    the write of a bio that only flushes.
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
    names, _, of = distinct_values(letters.view(np.int64))
    packed = (name.to_bytes(RWBS_BYTES, "little") for name in names.view(np.uint64).tolist())
    texts = [word.rstrip(b"\0").decode("latin-1") for word in packed]
    return np.array([meant(text) for text in texts] or [meant("")], np.int64), of


_MAX_ERRNO = 4095
_SHIFT_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_BIO_KINDS = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A, Kind.BIO_COMPLETE)


def translate(batch: Sequence[TracepointRows], names: ThreadNames | None = None) -> Events:
    """Return the rows of all tracepoints as Events, sorted by (time, arrival), `number` 0.

    batch: rows of tracepoints in `KIND_OF`, each with the columns of NEEDED, and of THREAD_NAMES.
    names: of the recording's threads so far; their events come first at equal times and arrival.
    """
    parts: list[_Records] = []
    if names is not None:
        batch = [names.identified(rows) for rows in batch]
        parts = names.tasks(batch)
    for rows in batch:
        if len(rows) and rows.event != THREAD_NAMES:
            parts.append((rows.time, np.asarray(rows.cpu), rows.arrival, _records(rows)))
    if not parts:
        return Events.empty()
    times, cpus, arrivals, raws = zip(*parts, strict=True)
    time, arrival = np.concatenate(times), np.concatenate(arrivals)
    cpu = np.concatenate([numbers.astype(np.uint16) for numbers in cpus])
    raw = np.concatenate(raws, axis=1)
    order = np.lexsort((arrival, time))
    if not (order[1:] > order[:-1]).all():
        time, cpu, raw = time[order], cpu[order], raw[:, order]
    return Events(time, cpu, np.zeros(len(time), np.int64), raw.T)


def _records(rows: TracepointRows) -> U64:
    """Return the records of a tracepoint's rows: (8, n) uint64, a word of the record per row.

    Requests are without tags; flushes and passthrough get NO_SECTOR.
    """
    kind = KIND_OF[rows.event]
    words = np.zeros((RAW_WORDS, len(rows)), np.uint64)
    words[0] = head_words(kind, rows.time)
    thread = rows.pid.astype(np.int64).view(np.uint64) << _SHIFT_32
    if kind in (Kind.P, Kind.U):
        words[1] = thread
        words[2] = _number(rows, "nr_rq") & _LOW
        return words
    dev = _number(rows, "dev") & _LOW
    if kind == Kind.DONE:
        words[2] = dev
        return words
    sector, sectors = _number(rows, "sector"), _number(rows, "nr_sector")
    letters = packed_letters(rows.columns["rwbs"])
    size = (sectors * np.uint64(SECTOR_BYTES)) & _LOW
    if "bytes" in rows.columns:
        # Kernels before 4.11 fill it for passthrough alone, which has no sectors: 0 is not known.
        said = _number(rows, "bytes") & _LOW
        size = np.where(said == 0, size, said)
    if kind not in _BIO_KINDS:
        nowhere = without_position(letters, sector, sectors, size)
        words[3] = np.where(nowhere, np.uint64(NO_SECTOR), sector)
        words[4] = size | opfs(letters, nowhere).astype(np.uint64) << _SHIFT_32
        words[5] = dev | NO_TAGS
        if kind == Kind.D:
            ioprio = _number(rows, "ioprio") & np.uint64(0xFFFF)  # of Linux 6.12 and later
            words[6] = np.uint64(NO_QUEUE) | ioprio << np.uint64(16)
        elif kind in (Kind.C, Kind.E):
            error = rows.columns.get("error", rows.columns.get("errors"))
            words[5] = dev if error is None else dev | status_words(error)
        elif kind == Kind.RQ_REMAP:
            words[5] = dev | (_number(rows, "old_dev") & _LOW) << _SHIFT_32
            words[6] = _number(rows, "old_sector")
        return words
    opf = opfs(letters, np.zeros(len(rows), np.bool_)).astype(np.uint64) << _SHIFT_32
    words[2] = sector
    words[3] = size | opf
    words[4] = dev | thread
    if kind == Kind.Q:
        words[5] = dev  # the partition, which the tracepoint does not report
    elif kind == Kind.X:
        # The front piece reaches up to new_sector, which the kernel passes in 32 bits.
        rest = _number(rows, "new_sector")
        words[3] = opf | (((rest - sector) & _LOW) * np.uint64(SECTOR_BYTES) & _LOW)
        words[6] = rest
    elif kind == Kind.A:
        words[5] = _number(rows, "old_sector")
        words[6] = _number(rows, "old_dev") & _LOW | dev << _SHIFT_32
    elif kind == Kind.BIO_COMPLETE:
        words[4] = dev
        if (error := rows.columns.get("error")) is not None:
            words[4] |= status_words(np.where(is_no_errno(error), 0, error))
    return words


def _number(rows: TracepointRows, name: str) -> U64:
    column = rows.columns.get(name)
    if column is None:
        return np.zeros(len(rows), np.uint64)
    return column.astype(np.int64 if column.dtype.kind == "i" else np.uint64).view(np.uint64)


def is_no_errno(error: Column) -> Bool:
    """Return which errors of bios are no errno: Linux before 2.6.38 left them unset."""
    found: Bool = (error > 0) | (error < -_MAX_ERRNO)
    return found
