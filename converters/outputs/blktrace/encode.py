# SPDX-License-Identifier: Apache-2.0
"""Encode events as the records that the kernel's blktrace would have written for them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, NO_CPU, U16, U32, Bool
from biotrail.converters.inputs.blktrace.format import (
    CATEGORY_SHIFT,
    MAGIC,
    RECORD,
    REMAP,
    VERSION,
    Act,
    Category,
)
from biotrail.converters.inputs.blktrace.rows import PID_WORD
from biotrail.recorder.schema.kernel_names import ERRNO, IOERR
from biotrail.recorder.schema.records import BY_KIND, NO_SECTOR, Kind

PDU_BYTES = 16
"""Most bytes of a payload."""
LITTLE = RECORD.newbyteorder("<")
"""`struct blk_io_trace` in little-endian byte order."""

_ACTIONS: dict[Kind, tuple[Act, Category]] = {
    Kind.Q: (Act.QUEUE, Category.QUEUE),
    Kind.G: (Act.GETRQ, Category.QUEUE),
    Kind.START: (Act.GETRQ, Category.QUEUE),
    Kind.M: (Act.BACKMERGE, Category.QUEUE),
    Kind.F: (Act.FRONTMERGE, Category.QUEUE),
    Kind.X: (Act.SPLIT, Category(0)),
    Kind.A: (Act.REMAP, Category.QUEUE),
    Kind.RQ_REMAP: (Act.REMAP, Category.QUEUE),
    Kind.BIO_COMPLETE: (Act.COMPLETE, Category.COMPLETE),
    Kind.I: (Act.INSERT, Category.QUEUE),
    Kind.R: (Act.REQUEUE, Category.REQUEUE),
    Kind.RQ_MERGE: (Act.BACKMERGE, Category.QUEUE),
    Kind.D: (Act.ISSUE, Category.ISSUE),
    Kind.C: (Act.COMPLETE, Category.COMPLETE),
    Kind.P: (Act.PLUG, Category.QUEUE),
    Kind.U: (Act.UNPLUG_TIMER, Category.QUEUE),
}
_OF_REQUESTS = (Kind.I, Kind.R, Kind.RQ_MERGE, Kind.D, Kind.C)
_WITH_TID = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A)
"""Kinds whose record has the thread in the upper half of word 4; P and U have it in word 1."""
_SUBMITTED = (Kind.START, Kind.I, Kind.D, Kind.RQ_MERGE)
"""Kinds without a thread, which get that of their request's first bio."""
_DICTIONARY = (Kind.TASK, Kind.CGROUP, Kind.FILE_NAME)
"""Kinds that are names, not events."""
_FLAGS = (
    ("SYNC", Category.SYNC),
    ("META", Category.META),
    ("FUA", Category.FUA),
    ("PREFLUSH", Category.FLUSH),
    ("RAHEAD", Category.AHEAD),
)
_OPS = (
    ("discard", Category.DISCARD),
    ("secure_erase", Category.DISCARD),
    ("flush", Category.FLUSH),
)


@dataclass
class Encoded:
    """Records of a window's events, in their order.

    ts: ns. head: `struct blk_io_trace` in little-endian byte order. pdu: uint8 of shape (records,
    16); the first `pdu_len` bytes of each are its payload. left_out: number of events without a
    blktrace action, by letter.
    """

    ts: I64
    head: NDArray[np.void]
    pdu: NDArray[np.uint8]
    left_out: Counter[str]

    def __len__(self) -> int:
        return len(self.head)

    def take(self, rows: I64) -> "Encoded":
        return Encoded(self.ts[rows], self.head[rows], self.pdu[rows], Counter())


class Encoder:
    """Encodes the windows of one trace, in order."""

    def __init__(self, context: Context) -> None:
        """Choose what becomes getrq: G, or if the log has none s, which comes right after a G."""
        self._context = context
        self._imported = context.header.get("backend") == "blktrace"
        letters = context.header.get("events", {}).get("letters", [])

        without = Kind.START if not letters or "G" in letters else Kind.G
        self._kinds = [int(kind) for kind in _ACTIONS if kind != without]
        self._next: dict[int, int] = {}
        """Per device << 32 | CPU: the next sequence number."""
        self._bio = np.zeros(0, np.uint64)
        """Pointers of the bios whose thread is known."""
        self._tid = np.zeros(0, np.uint32)
        """Per bio of `_bio`: its thread."""

    def encode(self, events: Events) -> Encoded:
        """Return records of the events that blktrace has an action for, and counts of the others.

        events: in order of time, directly after those of the last call. The counts are by event
        letter; names (dictionary records) are in neither.
        """
        has_action = np.isin(events.kind, self._kinds)
        left_out = Counter[str]()
        numbers, counts = np.unique(events.kind[~has_action], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number not in _DICTIONARY:
                left_out[BY_KIND[Kind(number)].letter] += count
        events = events.take(has_action)
        head = np.zeros(len(events), dtype=LITTLE)
        pdu = np.zeros((len(events), PDU_BYTES), dtype=np.uint8)
        head["magic"] = MAGIC | VERSION
        head["time"] = events.ts.view(np.uint64)
        head["device"] = events.dev
        # A record has a CPU in any case: where it is not known, the first.
        head["cpu"] = np.where(events.cpu == NO_CPU, 0, events.cpu)
        kind = events.kind
        # Plugs and unplugs have sector and bytes 0, and category READ.
        of_task = np.isin(kind, (Kind.P, Kind.U))
        sector = np.where(events.sector == NO_SECTOR, np.uint64(0), events.sector)
        head["sector"] = np.where(of_task, np.uint64(0), sector)
        head["bytes"] = np.where(of_task, 0, events.bytes)
        acts, categories = np.zeros((2, 256), np.uint32)
        for number, (action, bits) in _ACTIONS.items():
            acts[number], categories[number] = int(action), int(bits)
        act, category, opf = acts[kind], categories[kind], events.opf
        rows = events.rows(Kind.U)  # an unplug that the task asked for; else it slept
        act[rows[events.fields(Kind.U, rows)["explicit"] != 0]] = int(Act.UNPLUG_IO)
        # As __blk_add_trace gives them by operation and flags.
        by_opf = np.where((opf & 1) != 0, Category.WRITE, Category.READ).astype(np.uint32)
        for name, bit in _FLAGS:
            by_opf[(opf & np.uint32(self._context.flag_mask(name))) != 0] |= np.uint32(bit)
        for name, bit in _OPS:
            by_opf[self._is(opf, {name})] |= np.uint32(bit)
        category |= np.where(of_task, np.uint32(Category.READ), by_opf)
        passthrough = self._is(opf, PASSTHROUGH_OPS)
        of_request = np.isin(kind, _OF_REQUESTS)
        category[of_request & ~passthrough] |= np.uint32(Category.FS)
        category[of_request & passthrough] |= np.uint32(Category.PC)
        head["action"] = act | category << np.uint32(CATEGORY_SHIFT)
        head["pid"] = self._pid(events)
        # Negative statuses are errnos already; a positive one that is not known becomes -EIO.
        status = events.status
        error = np.where(status < 0, status, 0)
        for code, errno in ERRNO.items():
            error[status == code] = -errno
        error[(status > 0) & (error == 0)] = -ERRNO[IOERR]
        ended = np.isin(kind, (Kind.C, Kind.BIO_COMPLETE))
        head["error"] = np.where(ended, error, 0)
        _fill_payloads(events, head, pdu)
        head["sequence"] = self._sequence(events, head)
        return Encoded(events.ts, head, pdu, left_out)

    def _is(self, opf: U32, names: frozenset[str] | set[str]) -> Bool:
        """Mark the operations (n,) whose name is in `names`."""
        codes, all_names = self._context.op_codes(opf)
        wanted: Bool = np.array([n in names for n in all_names], dtype=np.bool_)[codes]
        return wanted

    def _pid(self, events: Events) -> U32:
        """Return the thread id of each event (n,), all of which have a blktrace action.

        Imported events keep theirs. Otherwise it is the thread that Q, G, M, F, X, A, P and U were
        recorded with; for s, I, D and m that of the request's first bio; 0 for C, c, R and a, where
        blktrace has whatever thread was interrupted, and a log has none.
        """
        kind, raw = events.kind, events.raw
        high = (raw[:, 4] >> np.uint64(32)).astype(np.uint32)
        early = (raw[:, 1] >> np.uint64(32)).astype(np.uint32)
        pid = np.where(np.isin(kind, _WITH_TID), high, np.uint32(0))
        pid = np.where(np.isin(kind, (Kind.P, Kind.U)), early, pid)
        if self._imported:
            pid = np.where(kind == Kind.Q, pid, raw[:, PID_WORD].astype(np.uint32))
            return pid.astype(np.uint32)
        return self._with_submitters(events, pid.astype(np.uint32))

    def _with_submitters(self, events: Events, pid: U32) -> U32:
        """Return a copy of `pid` (n,) with the threads of s, I, D and m filled in.

        That is the thread of the newest earlier event with one (Q, G, M, F, X, A) of the same bio
        pointer, also of an earlier call; 0: there is none, or no pointer.
        """
        recorded = np.isin(events.kind, _WITH_TID)
        rows = np.flatnonzero(recorded | np.isin(events.kind, _SUBMITTED))
        kept = len(self._bio)
        bio = np.concatenate([self._bio, events.bio[rows]])
        tid = np.concatenate([self._tid, pid[rows]])
        has_thread = np.concatenate([np.ones(kept, np.bool_), recorded[rows]])
        order = np.argsort(bio, kind="stable")
        bio, tid, has_thread = bio[order], tid[order], has_thread[order]
        # The thread is that of the newest earlier event with a thread, if of the same bio pointer.
        last = np.maximum.accumulate(np.where(has_thread, np.arange(len(bio)), -1))
        of_known_bio = (last >= 0) & (bio != 0) & (bio[last] == bio)
        tid = np.where(of_known_bio, tid[last], 0).astype(np.uint32)
        filled = np.empty(len(bio), np.uint32)
        filled[order] = tid
        result = pid.copy()
        result[rows] = np.where(recorded[rows], pid[rows], filled[kept:])
        ends = np.append(bio[1:] != bio[:-1], np.ones(min(len(bio), 1), np.bool_))
        self._bio, self._tid = bio[ends & of_known_bio], tid[ends & of_known_bio]
        return result

    def _sequence(self, events: Events, head: NDArray[np.void]) -> U32:
        """Return sequence numbers (n,) that count from 1 per device and CPU, as in the kernel.

        Imported events keep theirs, which have gaps where the kernel lost events, unless all are 0,
        as of the ftrace tracer; a Q, whose record has none, gets one more than the row before.
        """
        result = np.zeros(len(events), np.uint32)
        recorded = np.zeros(len(events), np.int64)
        if self._imported:
            recorded = (events.raw[:, PID_WORD] >> np.uint64(32)).astype(np.int64)
            recorded[events.kind == Kind.Q] = 0
        keys = head["device"].astype(np.uint64) << np.uint64(32) | head["cpu"]
        for key in np.unique(keys).tolist():
            rows = np.flatnonzero(keys == key)
            numbers = _numbers(recorded[rows], self._next.get(key, 1))
            self._next[key] = int(numbers[-1]) + 1
            result[rows] = numbers
        return result


def _numbers(recorded: I64, following: int) -> I64:
    """Return consecutive sequence numbers (n,), which begin anew at each recorded number.

    recorded: by the kernel (n,), 0: none. following: the number that comes next, 1 before the first
    event of this device and CPU, where rows count up to the first recorded one.
    """
    place = np.arange(len(recorded))
    recorded_row = np.flatnonzero(recorded > 0)
    if not len(recorded_row):
        return following + place
    offset = recorded[recorded_row] - place[recorded_row]
    last = np.searchsorted(recorded_row, place, side="right") - 1
    # Numbers below `following` were used in earlier windows of this CPU.
    begin = int(offset[0]) if following == 1 else following
    return place + take_or(offset, last, begin)


def _fill_payloads(events: Events, head: NDArray[np.void], pdu: NDArray[np.uint8]) -> None:
    """Write the events' payloads to `pdu` (n, 16), big-endian, and their bytes to `head`.

    X has the sector at which the rest of the bio begins, U the number of requests held back (8
    bytes each); A and the remap of a request (a) have `struct blk_io_trace_remap`.
    """
    length: U16 = np.zeros(len(events), np.uint16)
    for kind, name in ((Kind.X, "new_sector"), (Kind.U, "depth")):
        rows = events.rows(kind)
        number = events.fields(kind, rows)[name].astype(">u8")
        pdu[rows, :8] = number.view(np.uint8).reshape(len(rows), 8)
        length[rows] = 8
    for kind in (Kind.A, Kind.RQ_REMAP):
        rows = events.rows(kind)
        record = events.fields(kind, rows)
        remap = np.zeros(len(rows), dtype=REMAP)
        remap["device_from"] = record["from_dev"]
        remap["device_to"] = record["part"] if kind == Kind.A else record["dev"]
        remap["sector_from"] = record["from_sector"]
        pdu[rows] = remap.view(np.uint8).reshape(len(rows), PDU_BYTES)
        length[rows] = PDU_BYTES
    head["pdu_len"] = length


def note(action: int, ts: int, device: int, cpu: int, pid: int, payload: bytes) -> Encoded:
    """Return a note (action: BLK_TN_* with BLK_TC_NOTIFY; ts: ns), such as a thread's name."""
    head = np.zeros(1, dtype=LITTLE)
    head["magic"] = MAGIC | VERSION
    head["time"], head["action"], head["pid"] = ts, action, pid
    head["device"], head["cpu"], head["pdu_len"] = device, cpu, len(payload)
    pdu = np.frombuffer(payload.ljust(PDU_BYTES, b"\0"), dtype=np.uint8).reshape(1, PDU_BYTES)
    return Encoded(np.array([ts], dtype=np.int64), head, pdu.copy(), Counter())


def pack(head: NDArray[np.void], pdu: NDArray[np.uint8]) -> bytes:
    """Return records as a file has them: each header (48 bytes) followed by its payload."""
    sizes = head["pdu_len"].astype(np.int64)
    ends = np.cumsum(RECORD.itemsize + sizes)
    starts = ends - RECORD.itemsize - sizes
    out = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    plain = np.ascontiguousarray(head).view(np.uint8).reshape(len(head), RECORD.itemsize)
    out[starts[:, None] + np.arange(RECORD.itemsize)] = plain
    for size in np.unique(sizes[sizes > 0]).tolist():
        rows = np.flatnonzero(sizes == size)
        at = starts[rows] + RECORD.itemsize
        out[at[:, None] + np.arange(size)] = pdu[rows, :size]
    return out.tobytes()
