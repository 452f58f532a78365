# SPDX-License-Identifier: Apache-2.0
"""What is known of blktrace's records, whether they come as they were written or as text."""

from collections import Counter
from dataclasses import replace
from typing import Protocol

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.blktrace.files import RecordBatch
from biotrail.converters.inputs.blktrace.numbers import Numbers, kept_rows
from biotrail.converters.inputs.blktrace.rows import Message, Translator
from biotrail.converters.inputs.foreign import WITHOUT_BIOS, ForeignSource
from biotrail.recorder.schema.records import Kind

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
