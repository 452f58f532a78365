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
    events: Iterator[tuple[Events, int]], context: Context, directory: Path
) -> BlktraceSummary:
    """Write events as sets of blktrace's files, one set per device and one file per CPU in it.

    events: as `Trace.events` yields them. directory: gets a set for each device, under the device's
    name. Raises OutputError when a file exists already or cannot be written. After any exception
    the files written are removed; one that existed stays.
    """
    summary, sets = BlktraceSummary(), dict[int, _Set]()
    encoder, tasks = Encoder(context), TaskNames()
    try:
        for window, _ in events:
            tasks.add_records(window)
            encoded = encoder.encode(window)
            summary.records += len(encoded)
            summary.left_out += encoded.left_out
            device = encoded.head["device"]
            for dev in np.unique(device).tolist():
                if dev not in sets:
                    sets[dev] = _Set(dev, directory, context)
                sets[dev].add(encoded.take(np.flatnonzero(device == dev)), tasks)
        for files in sets.values():  # blkparse stops at the first missing file
            for cpu in set(range(max(files.paths, default=0))) - set(files.paths):
                files.append(cpu, b"")
    except BaseException:  # Ctrl-C, too: no part of a set stays
        for files in sets.values():
            for path in files.paths.values():
                path.unlink(missing_ok=True)
        raise
    summary.sets = {dev: files.prefix for dev, files in sets.items()}
    summary.bytes = sum(files.bytes for files in sets.values())
    return summary


class _Set:
    """One device's files, one per CPU, which are open only during a write."""

    def __init__(self, dev: int, directory: Path, context: Context) -> None:
        """Write a note of the wall clock to CPU 0's file if the log has a clock reading.

        A device without a name in the log's header is named by its numbers, `8_0`; in a name `/`
        becomes `_`, and what cannot be printed is escaped.
        """
        entry = context.devices.get(dev, {})
        name = shown(str(entry.get("name") or dev_text(dev).replace(":", "_"))).replace("/", "_")
        self.prefix = directory / name
        self.bytes = 0
        self._dev = dev
        self.paths: dict[int, Path] = {}
        """Per CPU: its file."""
        self._noted: set[tuple[int, int]] = set()
        """(thread, row in the task names) of the process notes written so far."""
        clock = next(iter(context.clocks), None)
        if clock is not None:  # blkparse reads seconds (low 32 bits) and ns of the wall clock
            seconds, rest = divmod(int(clock["realtime"]), 10**9)
            words = np.array([seconds & 0xFFFFFFFF, rest], dtype="<u4").tobytes()
            record = note(_NOTIFY | Note.TIMESTAMP, int(clock["monotonic"]), dev, 0, 0, words)
            self.append(0, pack(record.head, record.pdu))

    def add(self, encoded: Encoded, tasks: TaskNames) -> None:
        """Append events of this device, in order of time, with notes for new thread names."""
        pid = encoded.head["pid"].astype(np.uint32)
        name_row = tasks.rows(pid, encoded.ts)
        named = np.flatnonzero(name_row >= 0)
        names = tasks.table()
        pairs, first = np.unique(
            np.stack([pid[named], name_row[named].astype(np.uint32)]), axis=1, return_index=True
        )
        notes: dict[int, Encoded] = {}  # of new names, by the row that each must precede
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
        noted_row = np.array(list(notes), dtype=np.int64)
        records = [encoded, *notes.values()]
        # A note goes right before the first event of its thread, where blkparse needs the name.
        place = np.concatenate([np.arange(len(encoded)) * 2 + 1, noted_row * 2])
        order = np.argsort(place, kind="stable")
        head = np.concatenate([e.head for e in records])[order]
        pdu = np.concatenate([e.pdu for e in records])[order]
        for cpu in np.unique(head["cpu"]).tolist():
            rows = np.flatnonzero(head["cpu"] == cpu)
            self.append(cpu, pack(head[rows], pdu[rows]))

    def append(self, cpu: int, data: bytes) -> None:
        """Append to a CPU's file, which the first call for that CPU creates; adds to `bytes`."""
        path = self.prefix.with_name(f"{self.prefix.name}.blktrace.{cpu}")
        try:
            with open(path, "ab" if cpu in self.paths else "xb") as stream:
                self.paths[cpu] = path
                stream.write(data)
        except FileExistsError as error:
            raise OutputError(
                f"{path}: exists already; remove it, or give another directory"
            ) from error
        except OSError as error:
            why = error.strerror or error
            raise OutputError(f"{path}: cannot be written: {why}; give another place") from error
        self.bytes += len(data)
