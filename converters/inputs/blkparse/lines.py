# SPDX-License-Identifier: Apache-2.0
"""Lines of blkparse as blktrace's records: what a block of text says, and what it leaves out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.converters.inputs.blktrace.files import RecordBatch
from biotrail.converters.inputs.blktrace.format import (
    ACT_MASK,
    CATEGORY_SHIFT,
    HEAD,
    REMAP,
    Act,
    Category,
)
from biotrail.converters.inputs.line_loops import COLUMNS
from biotrail.converters.inputs.lines import Lines, texts
from biotrail.converters.inputs.tracepoints.names import COMM_BYTES
from biotrail.converters.inputs.tracepoints.rows import THREAD_NAMES, TracepointRows

NOT_TOLD = 255
"""Action of a record whose line, in a layout of the user's, does not tell it all (`?`)."""
ACTS = bytearray(256)
"""Number of an action by its letter in a line; 0: there is none."""
for _number, _letter in enumerate(b"QMFGSRDCPUTIXBA", 1):
    ACTS[_letter] = _number
ACTS[ord("?")] = NOT_TOLD
_NO_NAMES = (b"(null)", b"unknown")
"""What blkparse prints for a thread whose name was not recorded."""
_NUMBER_WORD = np.dtype(">u8")


@dataclass
class RecordLines(Lines):
    """The lines of a block that blkparse printed."""

    @property
    def act(self) -> I64:
        """Each record's action (`Act`), (n,); of a message -1."""
        act = (self.column("action") & np.uint64(ACT_MASK)).astype(np.int64)
        act[self.is_message] = -1
        return act

    @property
    def is_message(self) -> Bool:
        """Which are messages, (n,)."""
        bit = np.uint64(int(Category.NOTIFY) << CATEGORY_SHIFT)
        found: Bool = (self.column("action") & bit) != 0
        return found

    @property
    def text_length(self) -> I64:
        """Bytes of each message, or thread's name, (n,)."""
        length: I64 = self.table[COLUMNS["comm"] + 1].view(np.int64)
        return length

    def before(self, row: int) -> "RecordLines":
        """Return the records before a row, and the lines that are none before its line."""
        line = int(self.line[row])
        others = [other for other in self.others if other.line < line]
        return RecordLines(self.data, self.table[:, :row], others, line)


def batch_of(lines: RecordLines) -> RecordBatch:
    """Return the records as blktrace's would be: what stands in the text in place of payloads.

    The action has no category of FS, and an A is of the device in column dev.
    """
    head = np.zeros(len(lines), HEAD)
    for name, column in (
        ("sequence", "number"),
        ("time", "time"),
        ("sector", "sector"),
        ("bytes", "bytes"),
        ("action", "action"),
        ("pid", "pid"),
        ("device", "dev"),
        ("cpu", "cpu"),
    ):
        head[name] = lines.column(column)
    head["error"] = lines.column("error").astype(np.uint16).view(np.int16)
    words, length = _payloads(lines)
    messages = np.flatnonzero(lines.is_message)
    at = np.arange(len(lines)) * REMAP.itemsize
    at[messages] = words.size + lines.column("comm")[messages].view(np.int64)
    length[messages] = np.minimum(lines.text_length[messages], 0xFFFF)
    head["pdu_len"] = length
    data = np.concatenate([words, np.frombuffer(lines.data, np.uint8)])
    return RecordBatch(data, "<", head, at, [])


def _payloads(lines: RecordLines) -> tuple[U8, NDArray[np.uint16]]:
    """Return (payloads of X, U and A, 16 bytes for each record, their lengths (n,))."""
    act = lines.act
    words = np.zeros((len(lines), REMAP.itemsize), np.uint8)
    length = np.zeros(len(lines), np.uint16)
    one = np.isin(act, (Act.SPLIT, Act.UNPLUG_IO, Act.UNPLUG_TIMER))
    first = lines.column("new_sector")[one].astype(_NUMBER_WORD)
    words[one, :8] = first.view(np.uint8).reshape(-1, 8)
    length[one] = 8
    remap = act == Act.REMAP
    where = np.zeros(int(np.count_nonzero(remap)), REMAP)
    where["device_from"] = lines.column("old_dev")[remap]
    where["device_to"] = lines.column("command")[remap]
    where["sector_from"] = lines.column("old_sector")[remap]
    words[remap] = where.view(np.uint8).reshape(-1, REMAP.itemsize)
    length[remap] = REMAP.itemsize
    return words.ravel(), length


def names_of(lines: RecordLines) -> list[TracepointRows]:
    """Return the threads' names in the lines, as rows of THREAD_NAMES, for those that have one."""
    named = np.flatnonzero((lines.text_length > 0) & ~lines.is_message)
    comm = texts(lines, "comm", COMM_BYTES, named)
    known = ~np.isin(comm, np.array(_NO_NAMES, comm.dtype))
    named, comm = named[known], comm[known]
    cpu, pid = lines.column("cpu")[named], lines.column("pid")[named]
    return [TracepointRows(THREAD_NAMES, lines.time[named], cpu, pid, named, {"comm": comm})]
