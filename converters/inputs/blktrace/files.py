# SPDX-License-Identifier: Apache-2.0
"""blktrace's files: finding the files of a set, and reading their records block by block."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8
from biotrail.converters.inputs.beginning import PathOrStream, name_of, open_file, read_some
from biotrail.converters.inputs.blktrace.format import (
    CUT_PDU_LEN_AT,
    MAGIC_BYTES,
    ByteOrder,
    byte_order,
    find_records,
    heads,
    recognise,
)
from biotrail.converters.inputs.foreign import MAX_NS

_SET_FILE = re.compile(r"(?P<name>.+)\.blktrace\.(?P<cpu>\d+)")
_LOST = re.compile(rb"CPU:(\d+) \[LOST (?:(\d+) )?EVENTS\]\n")
_TAIL_BYTES = 1 << 16
_BEGIN_BYTES = 256
_KEEP_GARBAGE = 64  # a LOST EVENTS line may lie across two blocks


def find(path: str | os.PathLike[str]) -> dict[int, Path]:
    """Return the files of a set `NAME.blktrace.CPU` by CPU number, ascending.

    path: the set's prefix or one of its files, such as `sda`, `traces/sda` and
    `traces/sda.blktrace.3`. Empty if there are no such files or the directory cannot be read.
    """
    path, name = Path(path), set_name(path)
    try:
        neighbours = list(path.parent.iterdir())
    except OSError:
        return {}
    found = {}
    for file in neighbours:
        match = _SET_FILE.fullmatch(file.name)
        if match and match["name"] == name and file.is_file():
            found[int(match["cpu"])] = file
    return dict(sorted(found.items()))


def set_name(path: str | os.PathLike[str]) -> str:
    name = Path(path).name
    member = _SET_FILE.fullmatch(name)
    return member["name"] if member else name


@dataclass
class RecordBatch:
    """Records of one file, in its order.

    data: the bytes read. head: (n,) HEAD. payload: (n,) offset of each record's payload in `data`.
    lost: (index of the record that follows, CPU, count or -1 for unknown) for each LOST EVENTS
    line of the ftrace tracer.
    """

    data: U8
    order: ByteOrder
    head: NDArray[np.void]
    payload: I64
    lost: list[tuple[int, int, int]]


class RecordFile:
    """One file or stream of records, read once, a block at a time.

    cpu: the file's CPU, -1 for a stream of all. size: bytes, -1 unknown. offset: bytes parsed so
    far. reached: time (ns) of the newest record yielded, the least int64 before any. unreadable:
    bytes that belong to no record. cut: whether the records are CUT ones.
    """

    def __init__(
        self, source: PathOrStream, block_bytes: int, problems: list[str], cpu: int = -1
    ) -> None:
        """Read the first block. Raises LogFormatError; an empty file is accepted.

        problems: what descriptions of damage are added to.
        """
        self.name = name_of(source)
        self._stream = open_file(source, "a file or set of files that blktrace wrote")
        owned = isinstance(source, str | os.PathLike)
        self.size = os.fstat(self._stream.fileno()).st_size if owned else -1
        self.cpu = cpu
        self.offset = 0
        self.unreadable = 0
        self.problems = problems
        self.reached = np.iinfo(np.int64).min
        self.order: ByteOrder = "<"
        self.cut = False
        self._block = block_bytes
        self._rest = b""
        self._ended = False
        while len(self._rest) < _BEGIN_BYTES and not self._ended:
            self._rest += self._read(self._block)
        self.empty = not self._rest
        self.first: RecordBatch | None = None
        """The first batch, which `batches` yields as well."""
        if not self.empty:
            # A LOST EVENTS line may precede the first record.
            lost = re.match(rb"(?:" + _LOST.pattern + rb")+", self._rest)
            start = self._rest[lost.end() if lost else 0 :]
            self.order, self.cut = recognise(start, self.name)
            self.first = self._read_block()

    def newest(self) -> int:
        """Return the newest time (ns) in the last bytes of a file on disk; -1: there is none."""
        with open(self.name, "rb") as stream:
            stream.seek(max(0, self.size - _TAIL_BYTES))
            data = np.frombuffer(stream.read(), np.uint8)
        found = find_records(data, self.order, self.cut)
        head, _ = heads(data, found.at, self.order, self.cut)
        times = head["time"][head["time"] <= np.uint64(MAX_NS)]
        return int(times.max()) if len(times) else -1

    def batches(self) -> Iterator[RecordBatch]:
        """Yield all records, and set `reached` to the newest time. Closes the file at the end."""
        batch, self.first = self.first, None
        while batch is not None:
            if len(batch.head):
                self.reached = max(self.reached, int(batch.head["time"].max()))
            yield batch
            batch = self._read_block()
        if self.size >= 0:
            self._stream.close()

    def _read(self, count: int) -> bytes:
        """Return at most `count` bytes; b"" at the end, which sets `_ended`."""
        data = read_some(self._stream, count, self.name, self.offset)
        self._ended = self._ended or not data
        return data

    def _read_block(self) -> RecordBatch | None:
        """Return all whole records in `_rest`, maybe none, and read on; None at the end."""
        while True:
            data = np.frombuffer(self._rest, dtype=np.uint8)
            found = find_records(data, self.order, self.cut)
            if len(found.at) or found.gaps:
                break
            if self._ended:
                # What is left is unreadable, but for losses in it.
                rest, self._rest = self._rest, b""
                lost = []
                if byte_order(rest[:MAGIC_BYTES]) is None:
                    none = np.zeros(0, np.int64)
                    lost = self._losses_in_gaps(data, [(0, len(rest))], none)
                elif rest:
                    self.unreadable += len(rest)
                    self.problems.append(
                        f"{self.name}: the last record is cut off at offset {self.offset}: "
                        f"{len(rest)} bytes left out"
                    )
                self.offset += len(rest)
                head, payload = heads(data, found.at, self.order, self.cut)
                return RecordBatch(data, self.order, head, payload, lost) if lost else None
            self._rest += self._read(self._block)
            drop = len(self._rest) - self._block - _KEEP_GARBAGE
            if drop > 0 and not self._ended and byte_order(self._rest[:MAGIC_BYTES]) is None:
                self._add_unreadable(self.offset, drop)
                self.offset += drop
                self._rest = self._rest[drop:]
        head, payload = heads(data, found.at, self.order, self.cut)
        good = head["time"] <= np.uint64(MAX_NS)
        if not good.all():
            bad = found.at[~good]
            self.problems.append(
                f"{self.name}: {len(bad)} records, from offset {self.offset + int(bad[0])} on, "
                "have times past 146 years: left out"
            )
        lost = self._losses_in_gaps(data, found.gaps, found.at[good])
        self.offset += found.rest
        self._rest = self._rest[found.rest :]
        self._rest += self._read(self._block)
        return RecordBatch(data, self.order, head[good], payload[good], lost)

    def _losses_in_gaps(
        self, data: U8, gaps: list[tuple[int, int]], at: I64
    ) -> list[tuple[int, int, int]]:
        """Return (index of the next record, CPU, lost or -1) per LOST EVENTS line in the gaps.

        Other bytes in gaps are unreadable, but for what follows a CUT record: as many bytes as its
        payload has, their number, pdu_len, among them. gaps: (start, end) offsets in `data`. at:
        offset of each record in `data`, ascending.
        """
        lost = []
        for start, end in gaps:
            text = data[start:end].tobytes()
            length = text[CUT_PDU_LEN_AT : CUT_PDU_LEN_AT + 2]
            if self.cut and len(length) == 2:
                count = int.from_bytes(length, "little" if self.order == "<" else "big")
                text = text[count:] if count <= len(text) else text
            following = int(np.searchsorted(at, start))
            bad = len(text)
            for match in _LOST.finditer(text):
                lost.append((following, int(match[1]), int(match[2] or -1)))
                bad -= len(match[0])
            if bad:
                self._add_unreadable(self.offset + start, bad)
        return lost

    def _add_unreadable(self, offset: int, count: int) -> None:
        self.unreadable += count
        self.problems.append(
            f"{self.name}: {count} bytes at offset {offset} belong to no record; reading went on "
            "after them"
        )
