# SPDX-License-Identifier: Apache-2.0
"""Tracepoints of the block layer, as other tools record them: columns, and a Source of them."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.foreign import (
    MAX_NS,
    WITHOUT_BIOS,
    ForeignSource,
)
from biotrail.converters.inputs.translate import (
    THREAD_NAMES,
    ThreadNames,
    TracepointRows,
    is_no_errno,
    translate,
)
from biotrail.recorder.schema.block_events import KIND_OF, NEEDED, OLD_NAMES
from biotrail.recorder.schema.errors import LogFormatError, ProbeError
from biotrail.recorder.schema.formats import Format, parse
from biotrail.recorder.schema.records import BY_KIND, Kind


class Loss(NamedTuple):
    """Records that were lost between two times (ns). cpu, lost: -1 unknown."""

    start: int
    end: int
    cpu: int
    lost: int


@dataclass
class Batch:
    """What a reader found in the next piece of a recording.

    complete_to: ns; later batches hold hardly any older record. offset: bytes of the recording that
    were read so far. passed_over: number of records of other events, by event ("sched_switch").
    """

    rows: list[TracepointRows]
    complete_to: int
    offset: int
    losses: list[Loss] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)


_NAME = re.compile(r"^name:\s*(\S+)\s*$", re.MULTILINE)
_MOST_RECORD_BYTES = 1 << 16


def parse_format(text: str, where: str) -> Format:
    """Return the format in tracefs's `events/SYSTEM/NAME/format`. Raises LogFormatError."""
    name = _NAME.search(text)
    try:
        found = parse(name[1] if name else "?", text)
    except ProbeError as error:
        raise LogFormatError(f"{where}: {error}") from error
    if name is None or found.size > _MOST_RECORD_BYTES:
        raise LogFormatError(
            f"{where}: an event's format has no name, or impossible sizes: it begins with "
            f"{text[:40]!r}; the file is damaged"
        )
    return found


def record_dtype(form: Format, order: Literal["<", ">"]) -> np.dtype[np.void]:
    """Return a structured dtype of the event's record: a member per integer and text field.

    order: byte order of the recording. Names, offsets, sizes and signs are the format's, the common
    fields (common_pid, …) too; the item size is the record's without what varies in length. Left
    out are fields whose value lies elsewhere (`__data_loc`), and arrays of numbers.
    """
    kept: dict[str, str] = {}
    for name, member in form.fields.items():
        if member.is_located or not member.size:
            continue
        if member.elements:
            if member.type.split()[-1:] == ["char"]:
                kept[name] = f"S{member.size}"
        elif member.size in (1, 2, 4, 8):
            kept[name] = f"{order}{'i' if member.signed else 'u'}{member.size}"
    return np.dtype(
        {
            "names": list(kept),
            "formats": list(kept.values()),
            "offsets": [form.fields[name].offset for name in kept],
            "itemsize": form.size,
        }
    )


_NAMED_AT_MOST = 8


class Owners:
    """The ftrace buffer that gives a device's events of a tracepoint: the first that has any.

    Two buffers that record the same I/O have each event twice, with times that differ a little, so
    that copies cannot be told from other I/O one by one.
    """

    def __init__(self, buffers: Collection[str] | None = None) -> None:
        """buffers: names of the buffers that are read, "" for the top one; None: not known yet."""
        self._several = buffers is None or len(buffers) > 1
        self._owner: dict[tuple[str, int], str] = {}
        self._left_out: Counter[tuple[str, str]] = Counter()

    def kept(self, rows: TracepointRows, buffer: str) -> TracepointRows:
        """Return the rows of a buffer without those that another buffer gives; counts these."""
        if not self._several or not len(rows):
            return rows
        column = rows.columns.get("dev")
        device = np.zeros(len(rows), np.int64) if column is None else column.astype(np.int64)
        if (device == device[0]).all() and self._owner.get((rows.event, int(device[0]))) == buffer:
            return rows
        numbers, of = np.unique(device, return_inverse=True)
        owners = [self._owner.setdefault((rows.event, n), buffer) for n in numbers.tolist()]
        foreign = np.array([owner != buffer for owner in owners])[of]
        if not foreign.any():
            return rows
        for index in np.flatnonzero(np.bincount(of[foreign], minlength=len(owners))).tolist():
            self._left_out[buffer, owners[index]] += int(np.count_nonzero(of == index))
        return rows.without(foreign)

    def remarks(self, name: str) -> list[str]:
        return [
            f"{name}: {count} events of buffer {buffer or 'top'!r} left out: buffer "
            f"{owner or 'top'!r} has the same events of the same devices"
            for (buffer, owner), count in self._left_out.most_common(_NAMED_AT_MOST)
        ]


class TracepointSource(ForeignSource):
    """A Source that makes events of the batches that a reader of one container yields.

    A subclass opens the recording in its `__init__`, adds what it knows to `header` (clocks,
    kernel, host, devices; `set_recorded` for the events) and `remarks`, and yields the contents by
    `batches`. It adds to `problems` and `unreadable_bytes` itself what it cannot read.
    """

    def __init__(self, given: PathOrStream, tool: str) -> None:
        super().__init__(given, tool)
        self.passed_over: Counter[str] = Counter()
        """Number of records of other events that were met, by event."""
        self._recorded: frozenset[str] | None = None
        self._met: set[str] = set()
        self._left_out: Counter[str] = Counter()
        self._names = ThreadNames()
        # What only older kernels write; docs/inputs.md has the table.
        self._without_size = self._odd_errors = 0
        self._has_old_errors = False

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Yield the recording, piece by piece; called once."""

    def set_recorded(self, tracepoints: Collection[str]) -> None:
        """Set which tracepoints were enabled; else what occurs is taken for it."""
        self._recorded = frozenset(OLD_NAMES.get(name, name) for name in tracepoints)
        self._set_letters(self._recorded)

    def _set_letters(self, tracepoints: Collection[str]) -> None:
        letters = [BY_KIND[kind].letter for name, kind in KIND_OF.items() if name in tracepoints]
        self.header["events"]["letters"] = letters

    def pieces(self) -> Iterator[tuple[Events, int, int]]:
        reached = complete_to = offset = 0
        for batch in self.batches():
            self.passed_over += batch.passed_over
            for loss in batch.losses:
                self.add_loss(*loss)
            rows = [used for used in map(self._used, batch.rows) if used]
            self._met.update(OLD_NAMES.get(r.event, r.event) for r in rows)
            events = translate(rows, self._names)
            offset, complete_to = batch.offset, max(complete_to, batch.complete_to)
            reached = max(reached, int(events.ts[-1]) if len(events) else 0)
            yield events, complete_to, offset
        self._report_rest()
        if not self._met & KIND_OF.keys():
            raise self._nothing_read()
        yield Events.empty(), max(reached, complete_to), max(offset, 0)

    def _nothing_read(self) -> LogFormatError:
        return self.without_block_events(
            f"only {_passed_over(self.passed_over)}" if self.passed_over else ""
        )

    def _used(self, rows: TracepointRows) -> TracepointRows | None:
        """Return the rows that become events; others are counted. None: there are none."""
        kind, columns = KIND_OF.get(rows.event), rows.columns
        if kind is not None:
            missing = [name for name in NEEDED[BY_KIND[kind].letter] if name not in columns]
            if missing:
                self._left_out[f"{rows.event} without the field {missing[0]}"] += len(rows)
                return None
        elif rows.event != THREAD_NAMES:
            self.passed_over[rows.event] += len(rows)
            return None
        late = (rows.time < 0) | (rows.time > MAX_NS)
        if late.any():
            self._left_out["records with times past 146 years"] += int(np.count_nonzero(late))
            rows = rows.without(late)
        columns = rows.columns
        # What only older kernels write so.
        if {"bytes", "nr_sector"} <= columns.keys() and kind is not None:
            empty = (columns["bytes"] == 0) & (columns["nr_sector"] != 0)
            self._without_size += int(np.count_nonzero(empty))
        self._has_old_errors |= kind == Kind.C and "errors" in columns and len(rows) > 0
        if kind == Kind.BIO_COMPLETE and "error" in columns:
            self._odd_errors += int(np.count_nonzero(is_no_errno(columns["error"])))
        # Before 5.11 passthrough has a getrq of its own: without a bio, so on device 0.
        if kind == Kind.G and (bare := columns["dev"] == 0).any():
            self.passed_over["block_getrq without a bio"] += int(np.count_nonzero(bare))
            rows = rows.without(bare)
        return rows if len(rows) else None

    def _report_rest(self) -> None:
        for what, count in self._left_out.items():
            self.problem(f"left out: {count} {what}")
        if self._without_size:
            self.remark(
                f"{self._without_size} records of requests have 0 bytes, as Linux before 4.11 "
                "writes of reads and writes: their sizes follow from their sectors"
            )
        if self._has_old_errors or self._without_size:
            self.remark(
                "of Linux before 4.12, by the fields: which requests failed is mostly not known, "
                "since `errors` is 0 of reads and writes; before 4.8 discards are writes (W) there"
            )
        if self._odd_errors:
            self.remark(
                f"{self._odd_errors} completions of bios have an `error` that is none, as Linux "
                "before 2.6.38 leaves it unset: whether they failed is not known"
            )
        if self._recorded is None:
            self._set_letters(self._met)
        costs, how = _COSTS, ("was not recorded", "were not recorded")
        if self._recorded is None:
            # What does not occur in I/O that needs none of it is no limit of the recording.
            costs, how = _COSTS[:3], ("does not occur", "do not occur")
        met = frozenset(self._met) if self._recorded is None else self._recorded
        for some, others, cost in costs:
            names, needs = some.split(), others.split()
            if met.isdisjoint(names) and not (needs and met.isdisjoint(needs)):
                self.remark(f"{' and '.join(names)} {how[len(names) > 1]}: {cost}")
        if self.passed_over:
            self.remark(f"events of other kinds passed over: {_passed_over(self.passed_over)}")


def _passed_over(counts: Counter[str]) -> str:
    shown = [f"{name} {count}" for name, count in counts.most_common(_NAMED_AT_MOST)]
    rest = sum(counts.values()) - sum(n for _, n in counts.most_common(_NAMED_AT_MOST))
    shown += [f"others {rest}"] if rest else []
    return ", ".join(shown)


_BEGINNINGS = "block_getrq block_io_start block_rq_insert"
"""Tracepoints of requests that are not issued yet."""

_QUEUED = "block_bio_queue"
_MERGES = "block_bio_backmerge block_bio_frontmerge"
_COSTS: tuple[tuple[str, str, str], ...] = (
    (
        "block_rq_complete",
        "",
        "no request and no bio of one ends, so there are no latencies of them",
    ),
    ("block_rq_issue", "", "I/O in queues cannot be told from I/O at the device"),
    (_QUEUED, "", WITHOUT_BIOS),
    (_BEGINNINGS, "", "a request begins when it is issued; the time in queues is not divided"),
    (_MERGES, _QUEUED, "which bios a merged request serves is known by sectors alone"),
    ("block_split", _QUEUED, "bios that were split end with one of their pieces, or not at all"),
    (
        *("block_bio_remap", _QUEUED),
        "partitions and the devices below dm and md are not linked to what was sent to them",
    ),
    ("block_bio_complete", _QUEUED, "bios of devices without requests (dm, md, zram) do not end"),
    ("block_rq_requeue", "", "a request that the driver returned seems to be issued twice"),
    ("block_rq_merge", _BEGINNINGS, "requests that were merged into others do not end"),
)
"""Tracepoints of which one would do; tracepoints without all of which that says nothing new; and
what it costs that all of the first are missing."""
