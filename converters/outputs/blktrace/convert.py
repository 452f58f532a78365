# SPDX-License-Identifier: Apache-2.0
"""Write events as files that blkparse, btt, iowatcher and seekwatcher read.

A device's events become a set of files `NAME.blktrace.CPU`, as blktrace itself writes.
`docs/blktrace.md` says which events they contain.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.inputs.blktrace.format import CATEGORY_SHIFT, Category, Note
from biotrail.converters.outputs.blktrace.encode import Encoded, Encoder, note, pack
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.strings import shown

_NOTIFY = int(Category.NOTIFY) << CATEGORY_SHIFT
_COMM_BYTES = 16


@dataclass
class BlktraceSummary:
    """What was written.

    sets: per dev_t the prefix of its files, which `blkparse -i PREFIX` reads. records: events
    written; left_out: events that blktrace has no record for, by event letter.
    """

    sets: dict[int, Path] = field(default_factory=dict)
    records: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    bytes: int = 0


def write(
    events: Iterator[tuple[Events, int]], context: Context, out_prefix: Path
) -> BlktraceSummary:
    """Write events as sets of blktrace's files, one set per device and one file per CPU in it.

    events: as `Trace.events` yields them. out_prefix: an existing directory gets a set for each
    device, under the device's name. Otherwise the files of a log with events of one device are
    PREFIX.blktrace.CPU, which are written as PREFIX.NAME.blktrace.CPU first; those of several
    devices keep that name.
    Raises OutputError when a file exists already or cannot be written. After any exception the
    files written are removed; one that existed stays.
    """
    output = _Output(context, out_prefix)
    try:
        for window, _ in events:
            output.add(window)
        return output.finish()
    except BaseException:
        for files in output.sets.values():
            for path in files.paths.values():
                path.unlink(missing_ok=True)
        raise


class _Output:
    """All sets of files of one conversion."""

    def __init__(self, context: Context, prefix: Path) -> None:
        self._context = context
        self._prefix = prefix
        self._encoder = Encoder(context)
        self._tasks = TaskNames()
        self.sets: dict[int, _Set] = {}
        self._summary = BlktraceSummary()

    def add(self, window: Events) -> None:
        """Append events, in order of time, to the files of their devices, and count them."""
        self._tasks.add_records(window)
        encoded = self._encoder.encode(window)
        self._summary.records += len(encoded)
        self._summary.left_out += encoded.left_out
        head = encoded.head
        for dev in np.unique(head["device"]).tolist():
            rows = np.flatnonzero(head["device"] == dev)
            if dev not in self.sets:
                self.sets[dev] = _Set(dev, self._path(dev), self._context)
            self.sets[dev].add(encoded.take(rows), self._tasks)

    def _path(self, dev: int) -> Path:
        """Return the prefix of a device's files.

        A device without a name in the log's header is named by its numbers, `8_0`; in a name `/`
        becomes `_`, and what cannot be printed is escaped.
        """
        entry = self._context.devices.get(dev, {})
        name = shown(str(entry.get("name") or dev_text(dev).replace(":", "_"))).replace("/", "_")
        if self._prefix.is_dir():
            return self._prefix / name
        return self._prefix.with_name(f"{self._prefix.name}.{name}")

    def finish(self) -> BlktraceSummary:
        """Complete all sets of files, and return the summary with sets and bytes filled in.

        A single set of files is renamed to the prefix that was asked for, unless that is a
        directory.
        """
        for files in self.sets.values():
            files.fill()
        if len(self.sets) == 1 and not self._prefix.is_dir():
            next(iter(self.sets.values())).rename(self._prefix)
        self._summary.sets = {dev: files.prefix for dev, files in self.sets.items()}
        self._summary.bytes = sum(files.bytes for files in self.sets.values())
        return self._summary


class _Set:
    """One device's files, one per CPU, which are open only during a write."""

    def __init__(self, dev: int, prefix: Path, context: Context) -> None:
        """Write a note of the wall clock to CPU 0's file if the log has a clock reading."""
        self.prefix = prefix
        self.bytes = 0
        self._dev = dev
        self.paths: dict[int, Path] = {}
        """Per CPU: where its file is now."""
        self._noted: set[tuple[int, int]] = set()
        """(thread, row in the task names) of the process notes written so far."""
        clock = next(iter(context.clocks), None)
        if clock is not None:  # blkparse reads seconds (low 32 bits) and ns of the wall clock
            seconds, rest = divmod(int(clock["realtime"]), 10**9)
            words = np.array([seconds & 0xFFFFFFFF, rest], dtype="<u4").tobytes()
            record = note(_NOTIFY | Note.TIMESTAMP, int(clock["monotonic"]), dev, 0, 0, words)
            self._append(0, pack(record.head, record.pdu))

    def add(self, encoded: Encoded, tasks: TaskNames) -> None:
        """Append events of this device, in order of time, with notes for new thread names."""
        notes = self._notes(encoded, tasks)
        noted_row = np.array(list(notes), dtype=np.int64)
        records = [encoded, *notes.values()]
        # A note goes right before the first event of its thread, where blkparse needs the name.
        place = np.concatenate([np.arange(len(encoded)) * 2 + 1, noted_row * 2])
        order = np.argsort(place, kind="stable")
        head = np.concatenate([e.head for e in records])[order]
        pdu = np.concatenate([e.pdu for e in records])[order]
        for cpu in np.unique(head["cpu"]).tolist():
            rows = np.flatnonzero(head["cpu"] == cpu)
            self._append(cpu, pack(head[rows], pdu[rows]))

    def _notes(self, encoded: Encoded, tasks: TaskNames) -> dict[int, Encoded]:
        """Return process notes (BLK_TN_PROCESS), by the row of `encoded` that each must precede.

        That is the first row at which a thread has a name that this set has no note of yet. A note
        has the time and CPU of its event, and the name's first 15 bytes.
        """
        pid = encoded.head["pid"].astype(np.uint32)
        name_row = tasks.rows(pid, encoded.ts)
        named = np.flatnonzero(name_row >= 0)
        names = tasks.table()
        pairs, first = np.unique(
            np.stack([pid[named], name_row[named].astype(np.uint32)]), axis=1, return_index=True
        )
        notes = {}
        for thread, name, row in zip(*pairs.tolist(), named[first].tolist(), strict=True):
            if (thread, name) in self._noted:
                continue
            self._noted.add((thread, name))
            comm = str(names.comm[name]).encode()[: _COMM_BYTES - 1].ljust(_COMM_BYTES, b"\0")
            notes[row] = note(
                _NOTIFY | Note.PROCESS,
                int(encoded.ts[row]),
                self._dev,
                int(encoded.head["cpu"][row]),
                thread,
                comm,
            )
        return notes

    def fill(self) -> None:
        """Add empty files for CPUs without events: blkparse stops at the first missing file."""
        for cpu in range(max(self.paths, default=0)):
            if cpu not in self.paths:
                self._append(cpu, b"")

    def rename(self, prefix: Path) -> None:
        """Rename the files to `prefix`.blktrace.CPU; sets `prefix` and each of `paths`.

        Raises OutputError where a file of that name exists, before any file is renamed.
        """
        targets = {cpu: _file(prefix, cpu) for cpu in sorted(self.paths)}
        for target in targets.values():
            if target.exists():
                raise _exists(target)
        for cpu, target in targets.items():
            try:
                self.paths[cpu].rename(target)
            except OSError as error:
                raise _unwritable(target, error) from error
            self.paths[cpu] = target
        self.prefix = prefix

    def _append(self, cpu: int, data: bytes) -> None:
        """Append to a CPU's file, which the first call for that CPU creates; adds to `bytes`.

        `paths` has the file once it was created.
        """
        path = _file(self.prefix, cpu)
        try:
            with open(path, "ab" if cpu in self.paths else "xb") as stream:
                self.paths[cpu] = path
                stream.write(data)
        except FileExistsError as error:
            raise _exists(path) from error
        except OSError as error:
            raise _unwritable(path, error) from error
        self.bytes += len(data)


def _file(prefix: Path, cpu: int) -> Path:
    return prefix.with_name(f"{prefix.name}.blktrace.{cpu}")


def _exists(path: Path) -> OutputError:
    return OutputError(f"{path}: exists already; remove it, or give another prefix")


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written: {error.strerror or error}; give another place")
