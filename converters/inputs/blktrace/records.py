# SPDX-License-Identifier: Apache-2.0
"""What is known of blktrace's records, whether they come as they were written or as text."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.blktrace.files import RecordBatch
from biotrail.converters.inputs.blktrace.format import Category, categories, has
from biotrail.converters.inputs.blktrace.rows import Message, Translator
from biotrail.converters.inputs.foreign import WITHOUT_BIOS, ForeignSource
from biotrail.recorder.schema.records import Kind

Key = tuple[int, int]
"""Device (dev_t) and CPU."""

_WRAP, _HALF = 1 << 32, 1 << 31


@dataclass
class Step:
    """A jump of the numbers between two records of a CPU and device, at `start` and `end` (ns).

    count: number of missing records; -1: not known, as the numbers go back at a later time.
    """

    key: Key
    start: int
    end: int
    count: int


@dataclass
class NumberCheck:
    """Result of `Numbers.check`. keep: per record, whether it is not a repeat."""

    keep: Bool
    steps: list[Step] = field(default_factory=list)
    repeats: list[tuple[Key, int, int]] = field(default_factory=list)
    """(device and CPU, count of repeated records, number of the first)."""


class Numbers:
    """Checker that remembers the newest number and its time for each CPU and device."""

    def __init__(self) -> None:
        self._newest: dict[Key, tuple[int, int]] = {}

    def check(self, head: NDArray[np.void]) -> NumberCheck:
        """Compare the sequence numbers of records with those of earlier calls; return what is odd.

        head: HEAD, in their file's order. Each number of a CPU and device should be one above the
        newest before it. If not, the record is a repeat if neither its number nor its time is above
        those of the newest; else there is a step before it. The first record of a CPU and device
        begins the count. Notes, and the records of the ftrace tracer, have no numbers and are kept.
        """
        found = NumberCheck(np.ones(len(head), dtype=np.bool_))
        counted = ~has(categories(head["action"]), Category.NOTIFY) & (head["sequence"] != 0)
        rows = np.flatnonzero(counted)
        keys = head["device"][rows].astype(np.uint64) << np.uint64(32) | head["cpu"][rows]
        for key in np.unique(keys).tolist():
            here = rows[keys == key]
            number = head["sequence"][here].astype(np.int64)
            time = head["time"][here].astype(np.int64)
            self._compare((key >> 32, key & 0xFFFFFFFF), here, number, time, found)
        return found

    def _compare(self, key: Key, rows: I64, number: I64, time: I64, found: NumberCheck) -> None:
        """Add the steps and repeats among records (`rows`) of one device and CPU to `found`."""
        if key not in self._newest:
            self._newest[key] = int(number[0]) - 1, int(time[0])
        before, since = self._newest[key]
        step = np.diff(number, prepend=before)
        if (step > 0).all():
            times = np.concatenate([[since], time])
            for row in np.flatnonzero(step > 1).tolist():
                end = int(times[row + 1])
                found.steps.append(Step(key, int(times[row]), end, int(step[row]) - 1))
            self._newest[key] = int(number[-1]), int(time[-1])
            return
        self._go_back(key, rows.tolist(), number.tolist(), time.tolist(), found)

    def _go_back(
        self, key: Key, rows: list[int], number: list[int], time: list[int], found: NumberCheck
    ) -> None:
        """Add steps and repeats, record by record, where a number is not above the last.

        Numbers wrap at 2^32. A record that is not ahead in number and not later is a repeat; not
        ahead but later, it is of another trace: a step with count -1.
        """
        newest, at = self._newest[key]
        repeated: list[int] = []
        for row, now, ts in zip(rows, number, time, strict=True):
            ahead = (now - newest + _HALF) % _WRAP - _HALF
            if ahead <= 0 and ts <= at:
                found.keep[row] = False
                repeated.append(now)
                continue
            if ahead != 1:
                found.steps.append(Step(key, at, max(at, ts), ahead - 1 if ahead > 0 else -1))
            newest, at = now, ts
        self._newest[key] = newest, at
        if repeated:
            found.repeats.append((key, len(repeated), repeated[0]))


def kept_rows(keep: Bool, rows: list[tuple[int, Any, Any]]) -> list[tuple[int, Any, Any]]:
    """Return the tuples with their row replaced by its index among the records that are kept."""
    places = np.concatenate([[0], np.cumsum(keep)]).tolist()
    return [(places[row], *rest) for row, *rest in rows]


MESSAGES_KEPT = 10_000


class Place(Protocol):
    """Where records are read: name, for messages; offset, bytes read; reached, newest time (ns)."""

    name: str
    reached: int

    @property
    def offset(self) -> int:
        """Bytes that were read so far."""


class RecordSource(ForeignSource):
    """A Source of blktrace's records: their translation, and what their numbers tell.

    While `parts` is iterated over, `messages` collects the first MESSAGES_KEPT messages,
    `messages_met` counts all of them, and `left_out` counts, by action, records that have no kind
    in a log.
    """

    def __init__(self, given: PathOrStream, tool: str) -> None:
        """Begin without records."""
        super().__init__(given, tool)
        self.messages: list[Message] = []
        self.messages_met = 0
        self.left_out: Counter[str] = Counter()
        self.numbers_tell = True
        """Whether a gap in the records' numbers is a loss."""
        self._translator = Translator(Context(self.header))
        self._numbers = Numbers()
        self._repeats: Counter[str] = Counter()
        self._begun_again: Counter[str] = Counter()
        self._met: set[int] = set()

    def report_rest(self) -> None:
        """Add what is known at the end only.

        To `problems` repeats and steps back of sequence numbers, to `remarks` the counts of records
        left out by action and, if not all were kept, of messages, and what it costs that there was
        no bio.
        """
        self._report_numbers()
        if Kind.D in self._met and Kind.Q not in self._met:
            self.remarks.append(f"{self.name}: Q (queue) does not occur: {WITHOUT_BIOS}")
        if self.left_out:
            what = ", ".join(f"{name} {count}" for name, count in sorted(self.left_out.items()))
            self.remarks.append(f"{self.name}: records left out, as a log has no such kind: {what}")
        if self.messages_met > len(self.messages):
            self.remarks.append(
                f"{self.name}: {self.messages_met} messages, of which the first "
                f"{len(self.messages)} were kept"
            )

    def events_of(self, batch: RecordBatch, file: Place) -> Events:
        """Return a batch's events without repeated records. file: where the batch comes from.

        Adds to `left_out`, `messages_met`, `messages` and, as "message", `notes`; losses by
        sequence numbers and by LOST EVENTS lines to `losses`.
        """
        batch = self._without_repeats(batch, file)
        rows = self._translator.rows(batch)
        self.left_out += rows.left_out
        self.messages_met += len(rows.messages)
        kept = rows.messages[: MESSAGES_KEPT - len(self.messages)]
        self.messages += kept
        self.notes += [("message", vars(message)) for message in kept]
        self._add_losses(batch, file)
        self._met.update(np.unique(rows.events.kind).tolist())
        return rows.events

    def _without_repeats(self, batch: RecordBatch, file: Place) -> RecordBatch:
        """Return the batch without repeated records.

        Missing numbers are losses, and times at which the numbers go back are damaged.
        """
        found = self._numbers.check(batch.head)
        for step in found.steps:
            if step.count >= 0:
                if self.numbers_tell:
                    self.add_loss(step.start, step.end, step.key[1], step.count)
            else:
                self._begun_again[file.name] += 1
                window = {"offset": file.offset, "start": step.start, "end": step.end}
                self.damaged.append(window)
        for _, count, _ in found.repeats:
            self._repeats[file.name] += count
        if found.keep.all():
            return batch
        lost = kept_rows(found.keep, batch.lost)
        head, payload = batch.head[found.keep], batch.payload[found.keep]
        return replace(batch, head=head, payload=payload, lost=lost)

    def _report_numbers(self) -> None:
        for name, count in self._repeats.items():
            self.problems.append(
                f"{name}: {count} records have numbers and times that were there before: a part "
                "of the file is there twice, or another trace follows; left out"
            )
        for name, count in self._begun_again.items():
            self.problems.append(
                f"{name}: the sequence numbers of a CPU's records go back {count} times, at later "
                "times: other traces follow; kept, but how many records are missing between them "
                "is not known"
            )

    def _add_losses(self, batch: RecordBatch, file: Place) -> None:
        """Add what LOST EVENTS lines say: a loss from the record before the line to the one after.

        If the batch lacks one of them, the other's time is both; without any it is the newest of
        `file`.
        """
        for row, cpu, count in batch.lost:
            times = batch.head["time"]
            after = int(times[min(row, len(times) - 1)]) if len(times) else max(file.reached, 0)
            before = int(times[row - 1]) if row else after
            self.add_loss(before, after, cpu, count)
