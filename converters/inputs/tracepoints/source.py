# SPDX-License-Identifier: Apache-2.0
"""A Source of tracepoints' records: what the readers of other tools' recordings share."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.foreign import (
    MAX_NS,
    ForeignSource,
    sorted_by_time,
    without_block_events,
)
from biotrail.converters.inputs.log import Part
from biotrail.converters.inputs.tracepoints.lacking import remarks_on
from biotrail.converters.inputs.tracepoints.names import ThreadNames
from biotrail.converters.inputs.tracepoints.old_kernels import WITHOUT_BIO, OldKernels
from biotrail.converters.inputs.tracepoints.rows import THREAD_NAMES, Batch, TracepointRows
from biotrail.converters.inputs.tracepoints.translate import translate
from biotrail.recorder.schema.block_events import KIND_OF, NEEDED, present_name
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import BY_KIND

PART_EVENTS = 100_000
_NAMED_AT_MOST = 8
"""Events that are passed over and named one by one; the others are counted together."""


class TracepointSource(ForeignSource):
    """A Source that makes events of the batches that a reader of one container yields.

    A subclass opens the recording in its `__init__`, adds what it knows to `header` (clocks,
    kernel, host, devices; `set_recorded` for the events) and `remarks`, and yields the contents by
    `batches`. It adds to `problems` and `unreadable_bytes` itself what it cannot read.
    """

    def __init__(self, name: str, tool: str) -> None:
        """Begin without events. name: the path, or what stands for a stream. tool: who wrote it."""
        super().__init__(name, tool)
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

    def parts(self) -> Iterator[Part]:
        """Yield all events, in parts of about PART_EVENTS, with `clock` None; can be called once.

        Problems, losses and remarks are added on the way, some only at the end. Raises
        LogFormatError at the end if there was no block event.
        """
        pending: list[Events] = []
        reached = complete_to = offset = 0
        for batch in self.batches():
            events = self._events_of(batch)
            pending.append(events)
            offset, complete_to = batch.offset, max(complete_to, batch.complete_to)
            reached = max(reached, int(events.ts[-1]) if len(events) else 0)
            if sum(map(len, pending)) >= PART_EVENTS:
                yield Part(sorted_by_time(Events.join(pending)), complete_to, None, offset)
                pending = []
        self._report_rest()
        if not self._met & KIND_OF.keys():
            raise self._nothing_read()
        yield Part(
            sorted_by_time(Events.join(pending)), max(reached, complete_to), None, max(offset, 0)
        )

    def _nothing_read(self) -> LogFormatError:
        """Return the error for a recording of which no block event was read."""
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
        """Add what is known at the end: problems, remarks, and the header's letters."""
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
    """Return the letters of tracepoints, in the order of the schema; others have none."""
    return [BY_KIND[kind].letter for name, kind in KIND_OF.items() if name in tracepoints]


def _passed_over(counts: Counter[str]) -> str:
    """Return `sched_switch 123, …`."""
    shown = [f"{name} {count}" for name, count in counts.most_common(_NAMED_AT_MOST)]
    rest = sum(counts.values()) - sum(n for _, n in counts.most_common(_NAMED_AT_MOST))
    shown += [f"others {rest}"] if rest else []
    return ", ".join(shown)
