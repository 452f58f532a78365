# SPDX-License-Identifier: Apache-2.0
"""Tracepoints of the block layer, as other tools record them: columns, and a Source of them."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.foreign import (
    MAX_NS,
    WITHOUT_BIOS,
    ForeignSource,
    without_block_events,
)
from biotrail.converters.inputs.translate import (
    THREAD_NAMES,
    ThreadNames,
    TracepointRows,
    is_no_errno,
    translate,
)
from biotrail.recorder.schema.block_events import KIND_OF, NEEDED, present_name
from biotrail.recorder.schema.errors import LogFormatError, ProbeError
from biotrail.recorder.schema.formats import Field, Format, parse
from biotrail.recorder.schema.records import BY_KIND, Kind


@dataclass(frozen=True)
class Loss:
    """Records that were lost between two times (ns). cpu: -1 unknown. count: -1 unknown."""

    start: int
    end: int
    cpu: int
    count: int


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
    """Return the format in `text`, the content of tracefs's `events/SYSTEM/NAME/format`.

    where: the recording, for messages. Raises LogFormatError: no name, no ID, no field, or a record
    of more than 64 KiB, which no tracepoint has.
    """
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

    order: byte order of the recording. The members have the format's names, offsets, sizes and
    signedness, the common fields (common_pid, …) too; the item size is the record's without what
    varies in length. Left out are fields whose value lies elsewhere (`__data_loc`), arrays of
    numbers, and members of other sizes than 1, 2, 4 and 8 bytes. Records of an event then are read
    as columns: `np.frombuffer(data, dtype)["sector"]`.
    """
    kept = {name: kind for name, f in form.fields.items() if (kind := _member(f, order))}
    return np.dtype(
        {
            "names": list(kept),
            "formats": list(kept.values()),
            "offsets": [form.fields[name].offset for name in kept],
            "itemsize": form.size,
        }
    )


def _member(field: Field, order: str) -> str | None:
    if field.is_located or not field.size:
        return None
    if field.elements:
        return f"S{field.size}" if field.type.split()[-1:] == ["char"] else None
    if field.size not in (1, 2, 4, 8):
        return None
    return f"{order}{'i' if field.signed else 'u'}{field.size}"


_NAMED_AT_MOST = 8
"""Events that are passed over and named one by one; the others are counted together."""


class TracepointSource(ForeignSource):
    """A Source that makes events of the batches that a reader of one container yields.

    A subclass opens the recording in its `__init__`, adds what it knows to `header` (clocks,
    kernel, host, devices; `set_recorded` for the events) and `remarks`, and yields the contents by
    `batches`. It adds to `problems` and `unreadable_bytes` itself what it cannot read.
    """

    def __init__(self, given: PathOrStream, tool: str) -> None:
        """Begin without events. tool: who wrote it."""
        super().__init__(given, tool)
        self._tool = tool
        self.passed_over: Counter[str] = Counter()
        """Number of records of other events that were met, by event."""
        self._recorded: frozenset[str] | None = None
        self._met: set[str] = set()
        self._left_out: Counter[str] = Counter()
        self._names = ThreadNames()
        self._old = OldKernels()

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Yield the recording, piece by piece; called once."""

    def set_recorded(self, tracepoints: Collection[str]) -> None:
        """Set which tracepoints were enabled ("block_rq_issue"), where the recording says so.

        Not called: what occurs is taken for what was enabled. Sets the header's letters.
        """
        self._recorded = frozenset(map(present_name, tracepoints))
        self.header["events"]["letters"] = _letters(self._recorded)

    def pieces(self) -> Iterator[tuple[Events, int, int]]:
        """Yield each batch's events, as `parts` wants them."""
        reached = complete_to = offset = 0
        for batch in self.batches():
            events = self._events_of(batch)
            offset, complete_to = batch.offset, max(complete_to, batch.complete_to)
            reached = max(reached, int(events.ts[-1]) if len(events) else 0)
            yield events, complete_to, offset
        self._report_rest()
        if not self._met & KIND_OF.keys():
            raise self._nothing_read()
        yield Events.empty(), max(reached, complete_to), max(offset, 0)

    def _nothing_read(self) -> LogFormatError:
        held = f"only {_passed_over(self.passed_over)}" if self.passed_over else ""
        return without_block_events(self.name, self._tool, held, "".join(self.problems[:1]))

    def _events_of(self, batch: Batch) -> Events:
        """Return a batch's events; adds its losses, and counts what is passed over or left out."""
        self.passed_over += batch.passed_over
        for loss in batch.losses:
            self.add_loss(loss.start, loss.end, loss.cpu, loss.count)
        rows = [self._in_time(rows) for rows in batch.rows if self._is_readable(rows)]
        rows = [self._names.identified(self._of_kernel(rows)) for rows in rows]
        self._met.update(present_name(rows.event) for rows in rows if len(rows))
        names = self._names.rows(rows)
        return translate([r for r in rows if r.event != THREAD_NAMES], names)

    def _is_readable(self, rows: TracepointRows) -> bool:
        """Return whether the rows are of a tracepoint that is read, and have the fields for it.

        Counts others in `passed_over` or, for want of fields, for `problems`.
        """
        if rows.event == THREAD_NAMES:
            return True
        kind = KIND_OF.get(rows.event)
        if kind is None:
            self.passed_over[rows.event] += len(rows)
            return False
        missing = [name for name in NEEDED[BY_KIND[kind].letter] if name not in rows.columns]
        if missing:
            self._left_out[f"{rows.event} without the field {missing[0]}"] += len(rows)
        return not missing

    def _of_kernel(self, rows: TracepointRows) -> TracepointRows:
        """Return the rows that are of a bio or request on their kernel; counts others."""
        if rows.event == THREAD_NAMES:
            return rows
        kept = self._old.read(rows)
        if left := len(rows) - len(kept):
            self.passed_over[WITHOUT_BIO] += left
        return kept

    def _in_time(self, rows: TracepointRows) -> TracepointRows:
        """Return the rows without those whose time is negative or past 146 years, counted."""
        bad = (rows.time < 0) | (rows.time > MAX_NS)
        if not bad.any():
            return rows
        self._left_out["records with times past 146 years"] += int(np.count_nonzero(bad))
        return rows.without(bad)

    def _report_rest(self) -> None:
        for what, count in self._left_out.items():
            self.problems.append(f"{self.name}: left out: {count} {what}")
        if self._recorded is None:
            self.header["events"]["letters"] = _letters(self._met)
        recorded = self._met if self._recorded is None else self._recorded
        found = [*self._old.remarks(), *remarks_on(recorded, enabled=self._recorded is not None)]
        self.remarks += [f"{self.name}: {remark}" for remark in found]
        if self.passed_over:
            passed_over = _passed_over(self.passed_over)
            self.remarks.append(f"{self.name}: events of other kinds passed over: {passed_over}")


def _letters(tracepoints: Collection[str]) -> list[str]:
    return [BY_KIND[kind].letter for name, kind in KIND_OF.items() if name in tracepoints]


def _passed_over(counts: Counter[str]) -> str:
    shown = [f"{name} {count}" for name, count in counts.most_common(_NAMED_AT_MOST)]
    rest = sum(counts.values()) - sum(n for _, n in counts.most_common(_NAMED_AT_MOST))
    shown += [f"others {rest}"] if rest else []
    return ", ".join(shown)


# What records say of the kernel that wrote them, where fields meant something else there.
#
# docs/inputs.md has the table of what means what on which kernel.

WITHOUT_BIO = "block_getrq without a bio"
"""Name under which G of passthrough is counted."""


class OldKernels:
    """Counts records that only older kernels write so, and says what that costs."""

    def __init__(self) -> None:
        self._without_size = 0
        self._odd_errors = 0
        self._has_errors = False

    def read(self, rows: TracepointRows) -> TracepointRows:
        """Take in the rows of one tracepoint; return those that are of a bio or request.

        Before 5.11 passthrough has a getrq of its own: without a bio, so on device 0.
        """
        kind, columns = KIND_OF[rows.event], rows.columns
        if "bytes" in columns:
            empty = (columns["bytes"] == 0) & (columns["nr_sector"] != 0)
            self._without_size += int(np.count_nonzero(empty))
        if kind == Kind.C:
            self._has_errors |= "errors" in columns and len(rows) > 0
        if kind == Kind.BIO_COMPLETE and "error" in columns:
            self._odd_errors += int(np.count_nonzero(is_no_errno(columns["error"])))
        if kind == Kind.G and (bare := columns["dev"] == 0).any():
            return rows.without(bare)
        return rows

    def remarks(self) -> list[str]:
        """Return a sentence for each thing that is not known of such a recording."""
        found = []
        if self._without_size:
            found.append(
                f"{self._without_size} records of requests have 0 bytes, as Linux before 4.11 "
                "writes of reads and writes: their sizes follow from their sectors"
            )
        if self._has_errors or self._without_size:
            found.append(
                "of Linux before 4.12, by the fields: which requests failed is mostly not known, "
                "since `errors` is 0 of reads and writes; before 4.8 discards are writes (W) there"
            )
        if self._odd_errors:
            found.append(
                f"{self._odd_errors} completions of bios have an `error` that is none, as Linux "
                "before 2.6.38 leaves it unset: whether they failed is not known"
            )
        return found


# What a recording of tracepoints lacks, and what that costs, for the user.

_BEGINNINGS = ("block_getrq", "block_io_start", "block_rq_insert")
"""Tracepoints of requests that are not issued yet."""

_COSTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("block_rq_complete",),
        "no request and no bio of one ends, so there are no latencies of them",
    ),
    (("block_rq_issue",), "I/O in queues cannot be told from I/O at the device"),
    (
        ("block_bio_queue",),
        WITHOUT_BIOS,
    ),
    (
        _BEGINNINGS,
        "a request begins when it is issued; the time in queues is not divided",
    ),
    (
        ("block_bio_backmerge", "block_bio_frontmerge"),
        "which bios a merged request serves is known by sectors alone",
    ),
    (("block_split",), "bios that were split end with one of their pieces, or not at all"),
    (
        ("block_bio_remap",),
        "partitions and the devices below dm and md are not linked to what was sent to them",
    ),
    (
        ("block_bio_complete",),
        "bios of devices without requests (dm, md, zram) do not end",
    ),
    (("block_rq_requeue",), "a request that the driver returned seems to be issued twice"),
    (("block_rq_merge",), "requests that were merged into others do not end"),
)
"""Tracepoints of which one would do, and what it costs that all of them are missing."""
_OF_BIOS = ("block_bio_backmerge", "block_split", "block_bio_remap", "block_bio_complete")
"""First tracepoints of rows that say nothing new where bios are not recorded."""


def remarks_on(recorded: Collection[str], *, enabled: bool) -> list[str]:
    """Return a sentence for each event that is not recorded and what that costs.

    recorded: names of tracepoints that the recording has. enabled: they are those that were
    enabled; False: those that occur, as the recording does not say which were enabled.
    """
    how = "was not recorded" if enabled else "does not occur"
    hows = "were not recorded" if enabled else "do not occur"
    found = []
    for names, cost in _COSTS:
        if set(names) & set(recorded):
            continue
        if names[0] in _OF_BIOS and "block_bio_queue" not in recorded:
            continue
        if names[0] == "block_rq_merge" and not set(_BEGINNINGS) & set(recorded):
            continue
        # What does not occur in I/O that needs none of it is no limit of the recording.
        if not enabled and names[0] not in (
            "block_rq_complete",
            "block_rq_issue",
            "block_bio_queue",
        ):
            continue
        found.append(f"{' and '.join(names)} {how if len(names) == 1 else hows}: {cost}")
    return found
