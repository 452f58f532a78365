# SPDX-License-Identifier: Apache-2.0
"""Ftrace events of a block of packets, and the block layer's as rows of its tracepoints.

Field numbers are those of protos/perfetto/trace/ftrace/ (ftrace_event_bundle.proto,
ftrace_event.proto, block.proto, generic.proto); tests hold them against the published descriptors.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.perfetto import wire_loops as loops
from biotrail.converters.inputs.perfetto.packets import MISSING, NUMBER, Fields, Messages
from biotrail.converters.inputs.translate import TEXTS, Column, TracepointRows

FTRACE = 1
_DESCRIPTORS = 11
"""FtraceEventBundle.generic_event_descriptors, of Perfetto 50 and later."""


@dataclass(frozen=True)
class Ftrace:
    """Events (n,) of bundles (m,), each of one CPU."""

    packet: I64
    """(m,): row of the packet that each bundle is."""
    cpu: I64
    """(m,)"""
    lost: Bool
    """(m,): whether the kernel overwrote events before the bundle's."""
    owner: I64
    """(n,): each event's bundle."""
    time: I64
    """(n,): ns of BOOTTIME, as far as is known; -1: it has none."""
    tid: I64
    kind: I64
    """(n,): number of the event's own message in FtraceEvent; 0: it has none."""
    body: Messages
    broken: int
    """Number of events that end in something that is no field, or have no time or no message of
    their own, and of bundles that do, whose further events are not known."""
    descriptors: Messages
    """Descriptions of events that Perfetto has no message for (GenericEventDescriptor)."""


def ftrace_of(fields: Fields) -> Ftrace:
    packet, bundles = fields.messages(FTRACE)
    owner, events = bundles.repeated(2)
    heads = np.empty((5, len(events)), dtype=np.int64)
    scratch = np.zeros(4, dtype=np.int64)
    loops.ftrace_events(events.data, events.begin, events.end, heads, scratch)
    inner = bundles.fields([1, 3, 5, 6, 7, _DESCRIPTORS])
    # Those that are broken have no message of their own, either.
    broken = int(np.count_nonzero((heads[2] == 0) | (heads[0] < 0))) + inner.broken
    cpu, lost = inner.values(1), inner.values(3) != 0
    # Where a bundle names another ftrace clock, it has a reading of that and of BOOTTIME.
    clock, there, boot = (inner.values(number) for number in (5, 6, 7))
    moved = np.where((clock != 0) & (there > 0) & (boot > 0), boot - there, 0)
    time = heads[0]
    if moved.any():
        time = np.where(time >= 0, time + moved[owner], -1)
    body = Messages(fields.data, heads[3], heads[4])
    described, _ = inner.messages(_DESCRIPTORS)
    _, descriptors = bundles.take(described).repeated(_DESCRIPTORS)
    return Ftrace(packet, cpu, lost, owner, time, heads[1], heads[2], body, broken, descriptors)


_BIO = {"dev": 1, "sector": 2, "nr_sector": 3, "rwbs": 4, "comm": 5}
_REMAP = {"dev": 1, "sector": 2, "nr_sector": 3, "old_dev": 4, "old_sector": 5}
_SENT = {"dev": 1, "sector": 2, "nr_sector": 3, "bytes": 4, "rwbs": 5, "comm": 6}
_DONE = {"dev": 1, "sector": 2, "nr_sector": 3, "errors": 4, "rwbs": 5}
_IO = {"dev": 1, "sector": 2, "nr_sector": 3, "bytes": 4, "ioprio": 5, "rwbs": 6, "comm": 7}
MESSAGES: dict[int, tuple[str, dict[str, int]]] = {
    45: ("block_rq_issue", _SENT),
    115: ("block_bio_backmerge", _BIO),
    117: ("block_bio_complete", {**_BIO, "error": 4, "rwbs": 5, "comm": 0}),
    118: ("block_bio_frontmerge", _BIO),
    119: ("block_bio_queue", _BIO),
    120: ("block_bio_remap", {**_REMAP, "rwbs": 6}),
    122: ("block_getrq", _BIO),
    123: ("block_plug", {"comm": 1}),
    125: ("block_rq_complete", {**_DONE, "error": 7}),
    126: ("block_rq_insert", _SENT),
    128: ("block_rq_remap", {**_REMAP, "rwbs": 7}),
    129: ("block_rq_requeue", _DONE),
    131: ("block_split", {"dev": 1, "sector": 2, "new_sector": 3, "rwbs": 4, "comm": 5}),
    133: ("block_unplug", {"nr_rq": 1, "comm": 2}),
    546: ("block_io_start", _IO),
    547: ("block_io_done", _IO),
}
"""By the number of the event's message in FtraceEvent: the tracepoint, and its fields' numbers (0:
it has none)."""
GENERIC = 327
"""FtraceEvent.generic: an event that Perfetto has no message for, with the names of its fields."""
_DEVICES = ("dev", "old_dev")


def rows_of(
    found: Ftrace, tgid: I64, before: int, messages: Mapping[int, tuple[str, dict[str, int]]]
) -> tuple[list[TracepointRows], Counter[int]]:
    """Return (rows of the block layer's tracepoints, number of other events by kind of message).

    tgid: each event's process, (n,). before: number of the trace's events before these. messages:
    MESSAGES, and those that the trace describes.
    """
    read: list[tuple[I64, str, dict[str, Column]]] = []
    passed: Counter[int] = Counter()
    timed = np.flatnonzero((found.kind != 0) & (found.time >= 0))
    kinds, _, of = distinct_values(found.kind[timed])
    for number, kind in enumerate(kinds.tolist()):
        at = timed[of == number]
        body = found.body.take(at)
        name, numbers = messages.get(kind, ("", {}))
        if name.startswith("block_"):
            read.append((at, name, _columns(body, numbers)))
        elif kind == GENERIC:
            names = body.fields([1]).texts(1, 64).view("S64")[:, 0]
            is_block = np.char.startswith(names, b"block_")
            for raw in np.unique(names[is_block]):
                chosen = np.flatnonzero(names == raw)
                columns = _generic_columns(body.take(chosen))
                read.append((at[chosen], raw.decode("ascii", "replace"), columns))
            passed[kind] = int(np.count_nonzero(~is_block))
        else:
            passed[kind] = len(at)
    rows = []
    for at, name, columns in read:
        cpu, time, tid = found.cpu[found.owner[at]], found.time[at], found.tid[at]
        rows.append(TracepointRows(name, time, cpu, tid, before + at, columns, tgid=tgid[at]))
    return rows, +passed


def _columns(body: Messages, numbers: dict[str, int]) -> dict[str, Column]:
    """Return the columns of messages of one kind; a field that a message lacks is 0 or empty.

    A request's completion has `error` since Linux 4.12, and `errors` before.
    """
    wanted = {name: number for name, number in numbers.items() if number}
    fields = body.fields(tuple(wanted.values()))
    columns: dict[str, Column] = {}
    for name, number in wanted.items():
        if name in TEXTS:
            columns[name] = fields.texts(number, TEXTS[name]).view(f"S{TEXTS[name]}")[:, 0]
        else:
            values = fields.values(number)
            columns[name] = kernel_dev(values) if name in _DEVICES else values
    if {"error", "errors"} <= columns.keys():
        has_new = (fields.length[fields.numbers.index(wanted["error"])] != MISSING).any()
        columns.pop("errors" if has_new else "error")
    return columns


def kernel_dev(userspace: I64) -> I64:
    """Return the kernel's device numbers of glibc's, into which Perfetto translates them."""
    number = userspace.view(np.uint64)
    low, middle = np.uint64(0xFF), np.uint64(0xFFF)
    major = (number >> np.uint64(8)) & middle | (number >> np.uint64(32)) & ~middle
    minor = number & low | (number >> np.uint64(12)) & np.uint64(0xFFF00)
    kernel: I64 = ((major << np.uint64(20) | minor) & np.uint64(0xFFFFFFFF)).view(np.int64)
    return kernel


def _generic_columns(events: Messages) -> dict[str, Column]:
    owner, parts = events.repeated(2)
    fields = parts.fields([1, 3, 4, 5])
    names = fields.texts(1, 32).view("S32")[:, 0]
    number = np.where(
        fields.length[2] == NUMBER,
        fields.value[2],
        np.where(fields.length[3] == NUMBER, fields.value[3], 0),
    )
    columns: dict[str, Column] = {}
    for raw in np.unique(names[owner == 0]):
        name = raw.decode("ascii", "replace")
        of = names == raw
        if name in TEXTS:
            column: Column = np.zeros(len(events), f"S{TEXTS[name]}")
            column[owner[of]] = fields.texts(3, TEXTS[name]).view(column.dtype)[:, 0][of]
        elif (fields.length[1][of] != MISSING).any():
            continue
        else:
            column = np.zeros(len(events), np.int64)
            column[owner[of]] = kernel_dev(number)[of] if name in _DEVICES else number[of]
        columns[name] = column
    return columns
