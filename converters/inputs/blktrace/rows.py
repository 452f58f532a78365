# SPDX-License-Identifier: Apache-2.0
"""Translation of blktrace's records to a log's `Events`, column by column.

blktrace has no pointers: bio and rq are 0. Operations that share a category (write and
write-zeroes, discard and secure erase) are translated as the more common one.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import RAW_WORDS, Events
from biotrail.converters.events.tables import I64, U8, U32, U64, Bool
from biotrail.converters.inputs.blktrace.files import RecordBatch
from biotrail.converters.inputs.blktrace.format import (
    ACT_MASK,
    CGROUP,
    CGROUP_BYTES,
    REMAP,
    Act,
    Category,
    Note,
    categories,
    has,
)
from biotrail.converters.inputs.foreign import (
    NO_QUEUE,
    NO_TAGS,
    head_words,
    records_at,
    status_words,
)
from biotrail.recorder.schema.records import NO_SECTOR, Kind

PID_WORD = 7
"""Word of `raw` that holds pid | sequence << 32, past the end of all records but Q, which lacks
this word."""

_KINDS = np.zeros(ACT_MASK + 1, dtype=np.uint8)
for _act, _kind in {
    Act.QUEUE: Kind.Q,
    Act.BACKMERGE: Kind.M,
    Act.FRONTMERGE: Kind.F,
    Act.GETRQ: Kind.G,
    Act.REQUEUE: Kind.R,
    Act.ISSUE: Kind.D,
    Act.COMPLETE: Kind.C,
    Act.PLUG: Kind.P,
    Act.UNPLUG_IO: Kind.U,
    Act.UNPLUG_TIMER: Kind.U,
    Act.INSERT: Kind.I,
    Act.SPLIT: Kind.X,
    Act.REMAP: Kind.A,
}.items():
    _KINDS[_act] = _kind
_REQUEST_KINDS = (Kind.I, Kind.R, Kind.D, Kind.C, Kind.RQ_MERGE)

_OPERATIONS = (
    *(Category.DISCARD, Category.ZONE_APPEND, Category.ZONE_RESET, Category.ZONE_RESET_ALL),
    *(Category.ZONE_FINISH, Category.ZONE_OPEN, Category.ZONE_CLOSE, Category.WRITE_ZEROES),
)
_FLAGS = {
    Category.SYNC: "SYNC",
    Category.META: "META",
    Category.FUA: "FUA",
    Category.FLUSH: "PREFLUSH",
    Category.AHEAD: "RAHEAD",
}
_NAMES_LEFT_OUT = {int(act): act.name.lower() for act in Act} | {
    int(Act.COMPLETE): "zone append's place"
}
_SHIFT_32 = np.uint64(32)
_NUMBER = np.dtype(">u8")
"""Of the payloads of X and U."""


Message = dict[str, Any]
"""What the kernel or a program wrote into the trace: ts (ns), cpu, dev (a dev_t), pid, text."""


def realtime_of(batch: RecordBatch) -> tuple[int, int] | None:
    """Return (ns of the trace's clock, ns of CLOCK_REALTIME) of the last timestamp note, if any."""
    action = batch.head["action"]
    is_note = has(categories(action), Category.NOTIFY)
    stamps = np.flatnonzero(is_note & (action & np.uint64(ACT_MASK) == Note.TIMESTAMP))
    for row in stamps[::-1].tolist():
        if len(payload := _payload(batch, row)) == 8:
            seconds, ns = np.frombuffer(payload, dtype=f"{batch.order}u4").tolist()
            return int(batch.head["time"][row]), seconds * 10**9 + ns
    return None


class Translator:
    def __init__(self, context: Context) -> None:
        self._op = context.op_number
        self._flag = context.flag_mask
        self._swapper_named = False

    def rows(self, batch: RecordBatch) -> tuple[Events, list[Message], Counter[str]]:
        """Return a batch's events, its messages, and how many others there are, by action.

        Events are records that have a record kind, in the batch's order, with `number` 0. Process
        notes become TASK events, with the time of the next record that is no note, which they are
        about, or else of the last; messages have their own times.
        """
        head = batch.head
        action = head["action"]
        category = categories(action)
        # 0: a log has no kind for the action. A merge of a request (category FS or PC) is m, not M;
        # a completion of a bio (neither) is c, not C.
        kind = _KINDS[(action & np.uint64(ACT_MASK)).astype(np.int64)]
        of_request = has(category, Category.FS | Category.PC)
        kind[(kind == Kind.M) & of_request] = Kind.RQ_MERGE
        kind[(kind == Kind.C) & ~of_request] = Kind.BIO_COMPLETE
        # Version 2 reports a zone append's sector by a second COMPLETE without that category.
        sector_only = (kind == Kind.C) & ~has(category, Category.COMPLETE)
        kind[sector_only & has(category, Category.ZONE_APPEND)] = 0
        notes = np.flatnonzero(has(category, Category.NOTIFY))
        kind[notes] = 0
        unknown: Bool = (kind == 0) & ~has(category, Category.NOTIFY)
        numbers, counts = np.unique(action[unknown] & np.uint64(ACT_MASK), return_counts=True)
        left_out = Counter(
            {
                _NAMES_LEFT_OUT.get(number, f"action {number}"): count
                for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
            }
        )
        messages = self._read_notes(batch, notes, kind, left_out)
        at = np.flatnonzero(kind)
        raw = np.zeros((len(at), RAW_WORDS), np.uint64)
        times = head["time"].astype(np.int64)
        # `blkparse -d` subtracts the first event's time from the times of events, but not of notes.
        others = np.setdiff1d(np.arange(len(times)), notes, assume_unique=True)
        if len(others):
            following = np.searchsorted(others, notes)
            times[notes] = times[others[np.minimum(following, len(others) - 1)]]
        self._fill(batch, at, kind[at], category[at], raw)
        raw[:, 0] = head_words(kind[at], times[at])
        cpu = head["cpu"][at].astype(np.uint16)
        events = Events(times[at], cpu, np.zeros(len(at), np.int64), raw)
        return events, messages, left_out

    def _read_notes(
        self, batch: RecordBatch, notes: I64, kind: U8, left_out: Counter[str]
    ) -> list[Message]:
        """Set `kind` (per record) of process notes to TASK; return messages, count other notes."""
        messages: list[Message] = []
        for row in notes.tolist():
            head = batch.head[row]
            note = int(head["action"]) & ACT_MASK
            if note == Note.PROCESS and (head["pid"] or not self._swapper_named):
                # pid 0 is every CPU's idle thread: the first name is kept, as blkparse does.
                self._swapper_named = self._swapper_named or not head["pid"]
                kind[row] = Kind.TASK
            elif note == Note.MESSAGE:
                fields = {"ts": "time", "cpu": "cpu", "dev": "device", "pid": "pid"}
                message: Message = {key: int(head[name]) for key, name in fields.items()}
                message["text"] = _payload(batch, row).decode("utf-8", "replace")
                messages.append(message)
            elif note > Note.MESSAGE:
                left_out[f"note {note}"] += 1
        return messages

    def _fill(self, batch: RecordBatch, at: I64, kind: U8, category: U32, raw: U64) -> None:
        """Write the words of the records `at` into `raw`, (n, 8), all but the first."""
        head = batch.head[at]
        pid = head["pid"].astype(np.uint64)
        dev = head["device"].astype(np.uint64)
        write = has(category, Category.WRITE)
        opf = np.where(write, self._op("write"), self._op("read")).astype(np.uint32)
        flush = has(category, Category.FLUSH)
        opf[flush & ~write] = self._op("flush")
        for bit in _OPERATIONS:
            opf[has(category, bit)] = self._op(str(bit.name).lower())
        driver = has(category, Category.PC)
        opf[driver] = np.where(write, self._op("drv_out"), self._op("drv_in"))[driver]
        for bit, name in _FLAGS.items():
            opf[has(category, bit)] |= np.uint32(self._flag(name))
        length = head["bytes"].astype(np.uint64) | opf.astype(np.uint64) << _SHIFT_32
        is_rq = np.isin(kind, _REQUEST_KINDS)
        alone = (kind == Kind.P) | (kind == Kind.U)
        is_bio = ~is_rq & ~alone & (kind != Kind.TASK)
        sector = head["sector"].copy()
        # The kernel's blktrace writes sector 0 for flush requests, whose sector is 2^64-1.
        sector[is_rq & ((opf & 0xFF) == self._op("flush"))] = NO_SECTOR
        raw[is_rq, 3], raw[is_rq, 4] = sector[is_rq], length[is_rq]
        raw[is_bio, 2], raw[is_bio, 3] = sector[is_bio], length[is_bio]
        with_tid = is_bio & (kind != Kind.BIO_COMPLETE)
        raw[with_tid, 4] = (dev | pid << _SHIFT_32)[with_tid]
        status = status_words(head["error"])
        ended = kind == Kind.BIO_COMPLETE
        raw[ended, 4] = (dev | status)[ended]
        high = np.where(kind == Kind.C, status, NO_TAGS)
        raw[is_rq, 5] = (dev | high)[is_rq]
        raw[kind == Kind.D, 6] = NO_QUEUE
        raw[alone, 1] = (dev | pid << _SHIFT_32)[alone]
        keep = kind != Kind.Q
        sequence = head["sequence"].astype(np.uint64) << _SHIFT_32
        raw[keep, PID_WORD] = (pid | sequence)[keep]
        self._fill_payloads(batch, at, kind, head, raw)

    def _fill_payloads(
        self, batch: RecordBatch, at: I64, kind: U8, head: NDArray[np.void], raw: U64
    ) -> None:
        """Write into `raw` what comes from payloads, and words 1 to 3 of TASK records.

        These are Q's partition (its device) and cgroup, X's new sector, U's depth and whether it
        was asked for, and A's source and partition. Where the payload is too short they stay as
        they are, but A's partition then is its device.
        """
        skip = np.where((head["action"] & np.uint64(CGROUP)) != 0, CGROUP_BYTES, 0)
        payload = batch.payload[at] + skip
        length = head["pdu_len"].astype(np.int64) - skip
        queued = kind == Kind.Q
        raw[queued, 5] = head["device"][queued]
        grouped = np.flatnonzero(queued & (skip > 0) & (length >= 0))
        raw[grouped, 6] = records_at(
            batch.data, batch.payload[at][grouped], np.dtype(f"{batch.order}u8")
        )
        has_word = length >= 8
        split = np.flatnonzero((kind == Kind.X) & has_word)
        raw[split, 6] = records_at(batch.data, payload[split], _NUMBER)
        unplug = np.flatnonzero((kind == Kind.U) & has_word)
        depth = records_at(batch.data, payload[unplug], _NUMBER).astype(np.uint64)
        asked = (head["action"] & np.uint64(ACT_MASK)) == Act.UNPLUG_IO
        raw[unplug, 2] = depth | asked[unplug].astype(np.uint64) << _SHIFT_32
        unknown = (kind == Kind.A) & (length < REMAP.itemsize)
        raw[unknown, 6] = head["device"][unknown].astype(np.uint64) << _SHIFT_32
        remap = np.flatnonzero((kind == Kind.A) & ~unknown)
        where = records_at(batch.data, payload[remap], REMAP)
        to = where["device_to"].astype(np.uint64) << _SHIFT_32
        raw[remap, 5] = where["sector_from"]
        raw[remap, 6] = where["device_from"] | to
        for row in np.flatnonzero(kind == Kind.TASK).tolist():
            pid = int(head["pid"][row])
            name = _payload(batch, int(at[row]))[:15].split(b"\0")[0].ljust(16, b"\0")
            # blktrace does not record a thread's process: the tid stands for the tgid.
            raw[row, 1] = pid | pid << 32
            raw[row, 2:4] = np.frombuffer(name, dtype="<u8")


def _payload(batch: RecordBatch, row: int) -> bytes:
    start, length = int(batch.payload[row]), int(batch.head["pdu_len"][row])
    if int(batch.head["action"][row]) & CGROUP:
        start, length = start + CGROUP_BYTES, length - CGROUP_BYTES
    return batch.data[start : start + max(length, 0)].tobytes()
