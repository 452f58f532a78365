# SPDX-License-Identifier: Apache-2.0
"""The columns that the child sends, as tracepoints' rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.inputs.tracepoints.rows import Column, Loss, TracepointRows

_NS = 10**9
_OWN = ("number", "time", "cpu", "thread", "process", "procname")
"""Fields of a record that are not the tracepoint's own."""
_FIRST_WITH_BARRIER = (2, 2)
"""Version of lttng-modules that put BARRIER at bit 4, and moved those behind up by one."""
_BARRIER = 4
_LETTERS = ((1 << 1, b"D"), (1 << 0, b"W"), (1 << 2, b"R"), (1 << 8, b"F"))
"""Bits of the operation in LTTng's rwbs, and its letter: the first that is set counts, so that a
write with FLUSH, as Linux before 4.8 had it, is a write."""
_FLUSH, _PREFLUSH, _SECURE = 1 << 8, 1 << 10, 1 << 7
_FLAGS = ((1 << 9, b"F"), (1 << 3, b"A"), (1 << 5, b"S"), (1 << 6, b"M"))
"""Bits of FUA, RAHEAD, SYNC and META, in the order of blk_fill_rwbs()."""
_RWBS_BITS = 11


@dataclass(frozen=True)
class Clock:
    """A trace's clock: its name, cycles a second, and cycles from 1970 to its zero, if known."""

    name: str
    frequency: int
    offset: int | None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Clock":
        """Return the clock that the child described."""
        offset = facts["seconds"] * facts["frequency"] + facts["cycles"]
        since_1970 = facts["is_since_1970"]
        return cls(str(facts["name"]), int(facts["frequency"]), offset if since_1970 else None)

    def ns(self, cycles: int) -> int:
        """Return a time (ns) of the clock."""
        return cycles * _NS // self.frequency

    def ns_of(self, cycles: U64) -> I64:
        """Return times (ns), (n,), of the clock; past 292 years they are negative."""
        if self.frequency == _NS:
            return cycles.astype(np.int64)
        whole, rest = np.divmod(cycles, np.uint64(self.frequency))
        parts = rest.astype(np.float64) * (_NS / self.frequency)
        return (whole * np.uint64(_NS)).astype(np.int64) + parts.astype(np.int64)

    @property
    def realtime_of_zero(self) -> int | None:
        """CLOCK_REALTIME (ns) when the clock was 0; None: not known."""
        return None if self.offset is None else self.ns(self.offset)


def tables(
    facts: dict[str, Any], payload: bytes, clock: Clock, version: tuple[int, int] | None
) -> list[TracepointRows]:
    """Return a batch's rows by event. version: of lttng-modules; None: not known."""
    rows, at = [], 0
    for table in facts["tables"]:
        dtype = np.dtype([(name, kind) for name, kind in table["fields"]])
        records = np.frombuffer(payload, dtype, table["count"], at)
        rows.append(_rows(table["event"], records, clock, version))
        at += records.nbytes
    return rows


def _rows(
    event: str, records: NDArray[np.void], clock: Clock, version: tuple[int, int] | None
) -> TracepointRows:
    """Return an event's records as rows; the thread is the context's, else the event's own."""
    names = records.dtype.names or ()
    columns: dict[str, Column] = {name: records[name] for name in names if name not in _OWN}
    if "rwbs" in columns and columns["rwbs"].dtype.kind in "iu":
        columns["rwbs"] = letters(columns["rwbs"], version)
    thread = next((records[name] for name in ("thread", "tid") if name in names), None)
    return TracepointRows(
        event,
        clock.ns_of(records["time"]),
        records["cpu"],
        np.full(len(records), -1) if thread is None else thread,
        records["number"],
        columns,
        records["process"] if "process" in names else None,
        records["procname"] if "procname" in names else None,
    )


def letters(bits: NDArray[Any], version: tuple[int, int] | None = None) -> NDArray[np.bytes_]:
    """Return rwbs as the kernel's letters (S8), (n,), from LTTng's bits (blk_rwbs_ctf_integer).

    Operations that have no bit there (write-zeroes, those of zones, passthrough) get N. version: of
    lttng-modules, before 2.2 with other bits; None: those since 2.2.
    """
    bits = bits & ((1 << _RWBS_BITS) - 1)
    if version is not None and version < _FIRST_WITH_BARRIER:
        low = bits & ((1 << _BARRIER) - 1)
        bits = low | (bits >> _BARRIER << (_BARRIER + 1)) & ((1 << _RWBS_BITS) - 1)
    table = np.array([_letters(value) for value in range(1 << _RWBS_BITS)], "S8")
    return table[bits.astype(np.int64)]


def _letters(bits: int) -> bytes:
    """Return one value of LTTng's rwbs as letters."""
    operation = next((letter for bit, letter in _LETTERS if bits & bit), b"N")
    preflush = bits & _PREFLUSH or (bits & _FLUSH and operation != b"F")
    # Before Linux 4.8 discards are writes, but for secure ones.
    secure = bits & _SECURE and operation in b"DW"
    if secure:
        operation = b"D"
    flags = b"".join(letter for bit, letter in _FLAGS if bits & bit)
    return (b"F" if preflush else b"") + operation + (b"E" if secure else b"") + flags


def losses(facts: dict[str, Any], clock: Clock) -> list[Loss]:
    """Return a batch's losses."""
    return [Loss(clock.ns(b), clock.ns(e), cpu, count) for b, e, cpu, count in facts["losses"]]
