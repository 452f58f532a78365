# SPDX-License-Identifier: Apache-2.0
"""blktrace's data as a source of events: sets `DEV.blktrace.CPU`, and merged streams."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import U64
from biotrail.converters.inputs.blktrace.files import Batch, RecordFile, find, is_blktrace, set_name
from biotrail.converters.inputs.blktrace.format import Category, categories, has
from biotrail.converters.inputs.blktrace.numbers import Numbers, kept_rows
from biotrail.converters.inputs.blktrace.rows import Message, Rows, Translator
from biotrail.converters.inputs.foreign import (
    WITHOUT_BIOS,
    ForeignSource,
    foreign_header,
    sorted_by_time,
    without_block_events,
)
from biotrail.converters.inputs.log import Part
from biotrail.recorder.schema.records import Kind

__all__ = ["BlktraceSource", "find", "is_blktrace"]

PART_EVENTS = 100_000
BLOCK_BYTES = 1 << 20
_ALL_BLOCKS_BYTES = 32 << 20
"""Bytes of blocks that all files of a set may hold in memory at once."""
_LEAST_BLOCK_BYTES = 1 << 16
MESSAGES_KEPT = 10_000
_CLOCK_UNCERTAINTY_NS = 1_000
_TOOL = "blktrace"
_LETTERS = "QGMFXAcIRmDCPU"


class BlktraceSource(ForeignSource):
    """A set of blktrace's files, by its prefix or one of its files, or one stream, as a Source.

    While `parts` is iterated over, `messages` collects the first MESSAGES_KEPT messages,
    `messages_met` counts all of them, and `left_out` counts, by action, records that have no kind
    in a log.
    """

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Open every file, read its first block, and make a log's header of what is there.

        path: the prefix of a set, one of its files, another file, or a binary stream. Raises
        LogFormatError: a file is no blktrace data, of a newer version, or cannot be read, or all
        files are empty.
        """
        name = str(getattr(path, "name", "the stream"))
        super().__init__(os.fspath(path) if isinstance(path, str | os.PathLike) else name, _TOOL)
        self.set_name: str | None = None
        """Name of the set, which is its device's; None: the data are no set."""
        self.messages: list[Message] = []
        self.messages_met = 0
        self.left_out: Counter[str] = Counter()
        self._files = self._open(path)
        self._remark_cut()
        sizes = [file.size for file in self._files]
        self.size = -1 if -1 in sizes else sum(sizes)
        self.header = self._header()
        self._translator = Translator(Context(self.header))
        self._numbers = Numbers()
        self._repeats: Counter[str] = Counter()
        self._begun_again: Counter[str] = Counter()
        self._reported = [0] * len(self._files)
        self._met: set[int] = set()

    def _open(self, path: str | os.PathLike[str] | BinaryIO) -> list[RecordFile]:
        """Return the files of the set that `path` is of, by CPU; else the one file or stream.

        For a set sets `set_name`, and adds a remark on CPUs without a file. Raises LogFormatError:
        a file is no blktrace data, of a newer version, or cannot be read, or all are empty.
        """
        if not isinstance(path, str | os.PathLike):
            files = [RecordFile(path, BLOCK_BYTES)]
        elif found := self._files_of_set(path):
            share = _ALL_BLOCKS_BYTES // len(found)
            block = min(BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, share))
            files = [RecordFile(file, block, cpu) for cpu, file in found.items()]
            self._remark_missing(list(found))
        else:
            files = [RecordFile(path, BLOCK_BYTES)]
        if all(file.empty for file in files):
            raise without_block_events(self.name, _TOOL, "empty: there is not one record")
        return files

    def _files_of_set(self, path: str | os.PathLike[str]) -> dict[int, Path]:
        """Return the files by CPU of the set that `path` is of; sets `set_name` if there are any.

        Empty if there is no set, or `path` exists, is no directory, and is not of the set: another
        file, or a FIFO.
        """
        found = find(path)
        exists = os.path.exists(path) and not os.path.isdir(path)
        if exists and Path(path) not in found.values():  # a Path knows ./sda as sda
            return {}
        if found:
            self.set_name = set_name(path)
        return found

    def _remark_missing(self, cpus: list[int]) -> None:
        """Add a remark that names the CPUs below the highest of `cpus` without a file, if any."""
        missing = sorted(set(range(max(cpus))) - set(cpus))
        if missing:
            numbers = ", ".join(map(str, missing))
            self.remarks.append(
                f"{self.name}: no file for CPU {numbers}: it was offline, or its events are "
                "missing (blkparse stops reading at the first CPU without a file)"
            )

    def _remark_cut(self) -> None:
        """Add a remark for each file with CUT records, on what the ftrace tracer leaves out."""
        for file in self._files:
            if file.cut:
                self.remarks.append(
                    f"{file.name}: the ftrace blk tracer of Linux 6.19 and later leaves out a part "
                    "of each record: errors, unplug depths, split sectors and the sources of "
                    "remaps are not known; blktrace and biotrail record them"
                )

    def _header(self) -> dict[str, Any]:
        """Return a log's header for the data, by the first batch of each file.

        `clocks` is there if one of them has a timestamp note: the earliest of the batches' last
        ones. `devices` has an entry if all these records are of one device and the files are a set,
        whose name is the device's; else it is empty. The kernel's facts are empty. May add a remark
        (`_event_time_of`).
        """
        first: list[tuple[int, int]] = []
        devices: set[int] = set()
        header = foreign_header(_TOOL)
        header["events"]["letters"] = list(_LETTERS)
        for file in self._files:
            batch = file.peek()
            if batch is None:
                continue
            notes = has(categories(batch.head["action"]), Category.NOTIFY)
            devices.update(np.unique(batch.head["device"]).tolist())
            rows = Translator(Context({})).rows(batch) if notes.any() else Rows(Events.empty())
            if rows.clock is not None:
                times = batch.head["time"][~notes]
                first.append((self._event_time_of(rows.clock[0], times), rows.clock[1]))
        if first:
            header["clocks"] = _reading(*min(first))
        if self.set_name is not None and len(devices) == 1:
            header["devices"] = [{"dev": devices.pop(), "name": self.set_name}]
        return header

    def _event_time_of(self, noted: int, times: U64) -> int:
        """Return the time (ns) of a timestamp note in the time base of the events.

        noted: the note's own time, returned if no event is earlier. times: of the batch's events.
        `blkparse -d` subtracts the first event's time from events but not from notes: if an event
        is earlier than the note, the earliest event's time is returned, and a remark is added.
        """
        if not len(times) or int(times.min()) >= noted:
            return noted
        self.remarks.append(
            f"{self.name}: blkparse -d made all times relative to the first event; wall-clock "
            "times are early by the time between the trace's start and that event"
        )
        return int(times.min())

    def parts(self) -> Iterator[Part]:
        """Yield all events, in parts of about PART_EVENTS, with `clock` None; can be called once.

        Always the file that is furthest behind in time is read next, so that memory is bounded; a
        part is sorted, and `complete_to` is the time that all unfinished files have reached. The
        last part has the rest, maybe no event, and the newest time of all. Problems, remarks,
        notes, losses, damaged windows and messages are added on the way, some only at the end.
        Raises LogFormatError at the end if there was no block event.
        """
        readers = {index: file.batches() for index, file in enumerate(self._files)}
        pending: list[Events] = []
        while readers:
            # Read from the file that is furthest behind in time, so that all advance together.
            index = min(readers, key=lambda i: self._files[i].reached)
            batch = next(readers[index], None)
            self._report_damage(index)
            if batch is None:
                del readers[index]
                continue
            pending.append(self._events_of(batch, self._files[index]))
            if sum(map(len, pending)) >= PART_EVENTS:
                yield self._part(pending, min(self._files[i].reached for i in readers))
                pending = []
        self._report_rest()
        if not self._met - {int(Kind.TASK)}:
            raise without_block_events(self.name, _TOOL, problem="".join(self.problems[:1]))
        yield self._part(pending, max(file.reached for file in self._files))

    def _part(self, pending: list[Events], complete_to: int) -> Part:
        """Return the pending batches' events as one part, sorted by time. complete_to: ns."""
        offset = sum(file.offset for file in self._files)
        return Part(sorted_by_time(Events.join(pending)), complete_to, None, offset)

    def _report_damage(self, index: int) -> None:
        """Add to `problems` what file `index` has found since the last call.

        Sets `unreadable_bytes` to the sum over all files.
        """
        file = self._files[index]
        self.problems += file.problems[self._reported[index] :]
        self._reported[index] = len(file.problems)
        self.unreadable_bytes = sum(f.unreadable for f in self._files)

    def _report_rest(self) -> None:
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

    def _events_of(self, batch: Batch, file: RecordFile) -> Events:
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

    def _without_repeats(self, batch: Batch, file: RecordFile) -> Batch:
        """Return the batch without repeated records; the batch itself if there are none.

        By sequence numbers adds missing records to `losses`, and times at which the numbers go back
        to `damaged`; counts both repeats and steps back by file name, for `_report_numbers`.
        """
        found = self._numbers.check(batch.head)
        for step in found.steps:
            if step.count >= 0:
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
        """Add to `problems` a text for each file with repeated records, or numbers that go back.

        Those with repeats first; a file with both has two. By the counts of all records read so
        far: to be called once, at the end.
        """
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

    def _add_losses(self, batch: Batch, file: RecordFile) -> None:
        """Add to `losses` what the LOST EVENTS lines in a batch say (`Batch.lost`).

        The time is from the record before the line to the one after. If the batch lacks one of
        them, the other's time is both; in a batch without records both are the newest time of
        `file`, where the batch comes from, or 0 if that had no record either.
        """
        for row, cpu, count in batch.lost:
            times = batch.head["time"]
            after = int(times[min(row, len(times) - 1)]) if len(times) else max(file.reached, 0)
            before = int(times[row - 1]) if row else after
            self.add_loss(before, after, cpu, count)


def _reading(monotonic: int, realtime: int) -> dict[str, int]:
    """Return clock readings as in a log's header (name → ns), from a timestamp note.

    blktrace does not record CLOCK_BOOTTIME: monotonic is put in its place.
    """
    return {
        "monotonic": monotonic,
        "boottime": monotonic,
        "realtime": realtime,
        "uncertainty": _CLOCK_UNCERTAINTY_NS,
    }
