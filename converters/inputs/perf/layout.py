# SPDX-License-Identifier: Apache-2.0
"""perf's records: their types, `struct perf_event_attr`, and where a sample has which field.

Numbers are those of include/uapi/linux/perf_event.h and tools/lib/perf/include/perf/event.h.
"""

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Literal

from biotrail.recorder.schema.errors import LogFormatError

ByteOrder = Literal["<", ">"]
ENDIAN: dict[ByteOrder, Literal["little", "big"]] = {"<": "little", ">": "big"}


class Cursor:
    """A position in bytes; every method returns what is there and goes on behind it.

    All raise LogFormatError where the bytes end before; `where` says of what file and part.
    """

    def __init__(self, data: bytes, order: ByteOrder, where: str) -> None:
        self._data, self._where = data, where
        self._endian = ENDIAN[order]
        self.at = 0

    @property
    def rest(self) -> int:
        return len(self._data) - self.at

    def take(self, count: int) -> bytes:
        if count > self.rest:
            raise LogFormatError(
                f"{self._where}: {count} bytes are needed at offset {self.at}, {self.rest} are "
                "there: the file is cut off or damaged; record again, or copy it again"
            )
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), self._endian)

    def text_until_nul(self) -> str:
        end = self._data.find(b"\0", self.at)
        text = self.take((end if end >= 0 else len(self._data) + 1) - self.at)
        self.take(1)
        return text.decode("utf-8", "replace")

    def padded_text(self) -> str:
        """Return a text of perf's headers: a length of 4 bytes, and as many, NUL-padded."""
        return self.take(self.number(4)).split(b"\0")[0].decode("utf-8", "replace")


HEADER_BYTES = 8
"""Bytes of `struct perf_event_header`: type (4), misc (2), size (2) of the whole record."""
TRACEPOINT = 2
"""perf_event_attr.type of tracepoints: PERF_TYPE_TRACEPOINT."""


class RecordType(IntEnum):
    """perf_event_header.type of the records that are read, or that have a size of their own."""

    LOST = 2
    COMM = 3
    THROTTLE = 5
    UNTHROTTLE = 6
    SAMPLE = 9
    LOST_SAMPLES = 13
    ATTR = 64
    TRACING_DATA = 66
    FINISHED_ROUND = 68
    ID_INDEX = 69
    AUXTRACE_INFO = 70
    AUXTRACE = 71
    AUXTRACE_ERROR = 72
    THREAD_MAP = 73
    CPU_MAP = 74
    STAT_CONFIG = 75
    STAT = 76
    STAT_ROUND = 77
    EVENT_UPDATE = 78
    TIME_CONV = 79
    FEATURE = 80
    COMPRESSED = 81
    FINISHED_INIT = 82
    COMPRESSED2 = 83


FIRST_OF_PERF = 64
"""Types from here on are perf's own records; those of the kernel are below."""
LAST_OF_KERNEL, LAST_OF_PERF = 22, 86
"""PERF_RECORD_CALLCHAIN_DEFERRED (Linux 6.19), and the last one of perf's (6.19), beyond the ones
that are named above: no record has a type beyond these, or 0."""


class SampleType(IntFlag):
    """Fields of a sample, in their order in it, but for ID (see `_SAMPLE_ORDER`)."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    IDENTIFIER = 1 << 16


class ReadFormat(IntFlag):
    """What a sample's READ holds."""

    TIME_ENABLED = 1 << 0
    TIME_RUNNING = 1 << 1
    ID = 1 << 2
    GROUP = 1 << 3
    LOST = 1 << 4


_SAMPLE_ORDER = (
    SampleType.IDENTIFIER,
    SampleType.IP,
    SampleType.TID,
    SampleType.TIME,
    SampleType.ADDR,
    SampleType.ID,
    SampleType.STREAM_ID,
    SampleType.CPU,
    SampleType.PERIOD,
)
"""Fields of 8 bytes at a sample's beginning, those that its type has."""
_TRAILER_ORDER = (
    SampleType.TID,
    SampleType.TIME,
    SampleType.ID,
    SampleType.STREAM_ID,
    SampleType.CPU,
    SampleType.IDENTIFIER,
)
"""Fields of 8 bytes at the end of all other records of the kernel (`struct sample_id`)."""

_BEHIND_RAW = ~int(2 * SampleType.RAW - 1 | SampleType.IDENTIFIER)
"""Bits of the fields that lie behind RAW: all higher ones, but for IDENTIFIER."""
_FREQ, _ENABLE_ON_EXEC, _SAMPLE_ID_ALL = 10, 12, 18
"""Bits of perf_event_attr's flags."""
_LEAST_ATTR_BYTES = 48


@dataclass
class Attr:
    """What is needed of a `struct perf_event_attr`, and where a sample of the event has its fields.

    config: of a tracepoint its ID. size: bytes in the file. period: 1: every event is recorded;
    n: each n-th; 0: as many as a frequency allows.

    at: offset (bytes) from the record's start of each field of 8 bytes that a sample has. id_at:
    that of the id by which its event is known; None: it has none. fixed: bytes before READ,
    CALLCHAIN and RAW, which vary in length. ends_with_raw: whether nothing lies behind RAW.
    trailer_at: offset from the record's *end* (negative) of the fields that other records of the
    kernel end with, if `sample_id_all`.
    """

    type: int
    size: int
    config: int
    period: int
    sample_type: SampleType
    read_format: ReadFormat
    sample_id_all: bool
    enable_on_exec: bool
    at: dict[SampleType, int] = field(init=False)
    id_at: int | None = field(init=False)
    fixed: int = field(init=False)
    ends_with_raw: bool = field(init=False)
    trailer_at: dict[SampleType, int] = field(init=False)

    def __post_init__(self) -> None:
        present = [one for one in _SAMPLE_ORDER if one in self.sample_type]
        self.at = {one: HEADER_BYTES + 8 * i for i, one in enumerate(present)}
        self.id_at = self.at.get(SampleType.IDENTIFIER, self.at.get(SampleType.ID))
        self.fixed = HEADER_BYTES + 8 * len(present)
        self.ends_with_raw = not int(self.sample_type) & _BEHIND_RAW
        last = [one for one in _TRAILER_ORDER if one in self.sample_type and self.sample_id_all]
        self.trailer_at = {one: -8 * (len(last) - i) for i, one in enumerate(last)}


def read_attr(data: bytes, order: ByteOrder, where: str) -> Attr:
    """Return the attr at the beginning of `data`. Raises LogFormatError: the bytes end before."""
    cursor = Cursor(data, order, where)
    kind, size = cursor.number(4), cursor.number(4)
    config, period, sample_type, read_format, bits = (cursor.number(8) for _ in range(5))

    def flag(bit: int) -> bool:
        # Bit fields begin at the other end on big-endian machines.
        return bool(bits >> (bit if order == "<" else 63 - bit) & 1)

    return Attr(
        kind,
        max(size, _LEAST_ATTR_BYTES),
        config,
        0 if flag(_FREQ) else period,
        SampleType(sample_type),
        ReadFormat(read_format),
        flag(_SAMPLE_ID_ALL),
        flag(_ENABLE_ON_EXEC),
    )
