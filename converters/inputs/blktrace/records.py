# SPDX-License-Identifier: Apache-2.0
"""What is known of blktrace's records, whether they come as they were written or as text."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import Bool
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.blktrace.files import RecordBatch
from biotrail.converters.inputs.blktrace.format import Category, categories, has
from biotrail.converters.inputs.blktrace.rows import Message, Translator
from biotrail.converters.inputs.foreign import WITHOUT_BIOS, ForeignSource
from biotrail.recorder.schema.records import Kind

Key = tuple[int, int]


_WRAP, _HALF = 1 << 32, 1 << 31


class Step(NamedTuple):
    """A jump of a CPU's numbers for a device (ns). missing: -1 where they go back."""

    key: Key
    start: int
    end: int
    missing: int


class Numbers:
    """Checker that remembers the newest number and its time for each CPU and device."""

    def __init__(self) -> None:
        self._newest: dict[Key, tuple[int, int]] = {}

    def check(self, head: NDArray[np.void]) -> tuple[Bool, list[Step]]:
        """Compare the sequence numbers of records with those of earlier calls.

        Returns (which are no repeats, (n,); steps). head: HEAD, in their file's order. Each number
        of a CPU and device should be one above the newest before it. If not, the record is a repeat
        if neither its number nor its time is above those of the newest; else there is a step before
        it. The first record of a CPU and device begins the count. Notes, and the records of the
        ftrace tracer, have no numbers and are kept.
        """
        keep, steps = np.ones(len(head), dtype=np.bool_), list[Step]()
        counted = ~has(categories(head["action"]), Category.NOTIFY) & (head["sequence"] != 0)
        rows = np.flatnonzero(counted)
        keys = head["device"][rows].astype(np.uint64) << np.uint64(32) | head["cpu"][rows]
        for key in np.unique(keys).tolist():
            here = rows[keys == key]
            number = head["sequence"][here].astype(np.int64)
            time = head["time"][here].astype(np.int64)
            device_cpu = key >> 32, key & 0xFFFFFFFF
            first = int(number[0]) - 1, int(time[0])
            before, since = self._newest.setdefault(device_cpu, first)
            step = np.diff(number, prepend=before)
            if (step <= 0).any():
                # Numbers wrap at 2^32. A record that is not ahead in number and not later is a
                # repeat; not ahead but later, it is of another trace: a step of unknown length.
                newest, at = before, since
                columns = here.tolist(), number.tolist(), time.tolist()
                for row, now, ts in zip(*columns, strict=True):
                    ahead = (now - newest + _HALF) % _WRAP - _HALF
                    if ahead <= 0 and ts <= at:
                        keep[row] = False
                        continue
                    if ahead != 1:
                        missing = ahead - 1 if ahead > 0 else -1
                        steps.append(Step(device_cpu, at, max(at, ts), missing))
                    newest, at = now, ts
                self._newest[device_cpu] = newest, at
                continue
            times = np.concatenate([[since], time])
            for row in np.flatnonzero(step > 1).tolist():
                start, end = times[row : row + 2].tolist()
                steps.append(Step(device_cpu, start, end, int(step[row]) - 1))
            self._newest[device_cpu] = int(number[-1]), int(time[-1])
        return keep, steps


MESSAGES_KEPT = 10_000
LETTERS = "QGMFXAcIRmDCPU"


def kept_of(batch: RecordBatch, keep: Bool) -> RecordBatch:
    """Return the batch's records of the mask `keep`, (n,)."""
    places = np.concatenate([[0], np.cumsum(keep)]).tolist()
    lost = [(places[row], cpu, count) for row, cpu, count in batch.lost]
    return replace(batch, head=batch.head[keep], payload=batch.payload[keep], lost=lost)


class RecordSource(ForeignSource):
    """A Source of blktrace's records: their translation, and what their numbers tell.

    While `parts` is iterated over, `messages` collects the first MESSAGES_KEPT messages,
    `messages_met` counts all of them, and `left_out` counts, by action, records that have no kind
    in a log.
    """

    def __init__(self, given: PathOrStream, tool: str) -> None:
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
        if Kind.D in self._met and Kind.Q not in self._met:
            self.remark(f"Q (queue) does not occur: {WITHOUT_BIOS}")
        if self.left_out:
            what = ", ".join(f"{name} {count}" for name, count in sorted(self.left_out.items()))
            self.remark(f"records left out, as a log has no such kind: {what}")
        if self.messages_met > len(self.messages):
            self.remark(
                f"{self.messages_met} messages, of which the first {len(self.messages)} were kept"
            )

    def events_of(self, batch: RecordBatch, name: str, offset: int, reached: int) -> Events:
        """Return a batch's events without repeated records.

        name, offset, reached: of the file that the batch comes from, for messages, with the bytes
        read of it and the newest time (ns). Missing numbers are losses, and times at which the
        numbers go back are damaged.
        """
        keep, steps = self._numbers.check(batch.head)
        for step in steps:
            if step.missing < 0:
                self._begun_again[name] += 1
                self.add_damage(offset, step.start, step.end)
            elif self.numbers_tell:
                self.add_loss(step.start, step.end, step.key[1], step.missing)
        if not keep.all():
            self._repeats[name] += int(np.count_nonzero(~keep))
            batch = kept_of(batch, keep)
        rows = self._translator.rows(batch)
        self.left_out += rows.left_out
        self.messages_met += len(rows.messages)
        kept = rows.messages[: MESSAGES_KEPT - len(self.messages)]
        self.messages += kept
        self.notes += [("message", vars(message)) for message in kept]
        times = batch.head["time"]
        for row, cpu, count in batch.lost:
            # Between the records around the line; the newest of the file if the batch has none.
            after = int(times[min(row, len(times) - 1)]) if len(times) else max(reached, 0)
            self.add_loss(int(times[row - 1]) if row else after, after, cpu, count)
        self._met.update(np.unique(rows.events.kind).tolist())
        return rows.events
