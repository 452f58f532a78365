# SPDX-License-Identifier: Apache-2.0
"""The files of a recording that is written to several: names, and facts that each file repeats."""

import os
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.log.names import Names
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.output.output import NewFile
from biotrail.recorder.schema.payloads import Clock, Header, Note

STACKS_PER_NOTE = 1000
"""Stacks in one note, so few that however deep they are no note reaches the log's size limit."""


def split_into_notes(stacks: dict[tuple[str, str], list[Any]]) -> list[dict[str, Any]]:
    """Return payloads of `stacks` notes; `stacks`: frames by (side, id), as NOTES has them."""
    items = list(stacks.items())
    found = []
    for first in range(0, len(items), STACKS_PER_NOTE):
        note: dict[str, Any] = {}
        for (side, number), frames in items[first : first + STACKS_PER_NOTE]:
            note.setdefault(side, {})[number] = frames
        found.append(note)
    return found


SUFFIX = ".biotrail"
MAX_CGROUPS = 1 << 16
"""Cgroups that are repeated in later files, the newest."""


def shifted(clock: Clock, monotonic: int) -> Clock:
    """Return a copy of a clock reading, moved to the time `monotonic` (ns)."""
    back = clock["monotonic"] - monotonic
    # A clock never reads less than 0, but soon after boot the shift can be more than its time.
    return {k: ns if k == "uncertainty" else max(0, ns - back) for k, ns in clock.items()}


class Background:
    """Facts recorded so far that every later file has to repeat, as it must be readable alone."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._devices = {int(entry["dev"]): entry for entry in header.get("devices", [])}
        self._notes: dict[str, dict[str, Any]] = {
            name: {} for name in ("cgroups", "titles", "mounts", "call_timing")
        }
        self._containers: dict[str, dict[str, dict[str, str]]] = {"containers": {}, "pods": {}}
        self._stacks: dict[tuple[str, str], list[Any]] = {}
        self.names = Names()
        """Names in the records so far."""

    def note(self, name: str, payload: Note) -> None:
        """Add the facts of a note to those that later files repeat; ignore other notes."""
        if name == "devices":
            self._devices.update({int(entry["dev"]): entry for entry in payload["devices"]})
        elif name == "containers":
            for kind, known in self._containers.items():
                known.update(payload[kind])
                keep_newest(known, MAX_CGROUPS)
        elif name == "stacks":
            for side, stacks in payload.items():
                self._stacks.update({(side, number): frames for number, frames in stacks.items()})
        elif name == "mounts":
            self._notes[name].update(payload)
        elif name in self._notes:
            self._notes[name].update(payload)
            keep_newest(self._notes[name], MAX_CGROUPS)

    def begin(self, clock: Clock, more: Header) -> tuple[Header, "Facts"]:
        """Return copies of what a file that begins at `clock` has first; `more`: for its header."""
        header: Header = {
            **self._header,
            "log_id": os.urandom(16).hex(),
            "clocks": clock,
            "devices": list(self._devices.values()),
            **more,
        }
        containers = {kind: dict(known) for kind, known in self._containers.items() if known}
        notes: list[tuple[str, dict[str, Any]]] = [
            ("cgroups", dict(self._notes["cgroups"])),
            ("containers", containers),
            ("titles", dict(self._notes["titles"])),
            ("mounts", dict(self._notes["mounts"])),
            *(("stacks", note) for note in split_into_notes(self._stacks)),
            ("call_timing", dict(self._notes["call_timing"])),
        ]
        names = self.names.segments(clock["monotonic"])
        return header, Facts([(name, one) for name, one in notes if one], names, clock)


def keep_newest(known: dict[Any, Any], most: int) -> None:
    """Delete the entries that were added first, but the last `most`."""
    for oldest in list(islice(known, max(len(known) - most, 0))):
        del known[oldest]


class Facts(NamedTuple):
    """Facts that a later file has right behind its header."""

    notes: list[tuple[str, dict[str, Any]]]
    """(name, payload)."""
    names: list[Segment]
    """Records of TASK, CGROUP and FILE_NAME names, which form a chunk of their own."""
    clock: Clock
    """When the file begins."""

    def write(self, log: LogWriter) -> None:
        for name, payload in self.notes:
            log.write_note(name, payload)
        if self.names:
            log.write_chunk(self.names, self.clock)


class Series:
    """The numbered files of one run: `STEM-20261107T101530Z-000001.biotrail`, time in UTC.

    Their directory is looked up once. Only files that this run made are ever deleted.
    """

    def __init__(
        self,
        path: str,
        max_files: int | None,
        *,
        force: bool = False,
        on_file: Callable[[BinaryIO], None] = lambda _stream: None,
        directory: HeldDirectory | None = None,
    ) -> None:
        """`path`: the stem, with or without SUFFIX. `max_files`: for `delete_old`; None: all stay.

        `force`: replace existing regular files of the same name. `on_file`: called with each new
        file, in the thread that makes it. `directory`: that of `path`; None: it is opened. Raises
        OutputError.
        """
        self._on_file = on_file
        self._stem = path.removesuffix(SUFFIX)
        self._max = max_files
        self._force = force
        self._directory = directory or HeldDirectory(os.path.dirname(path), shown=path)
        self._files: deque[NewFile] = deque()
        self.next = ""
        """Path of the file last created, once it is published."""
        self.made = 0
        """Number of files published."""
        self.deleted = 0
        """Number of files that delete_old() deleted."""
        self._gone = 0  # files that delete_old() found deleted or replaced by others

    @property
    def files(self) -> list[str]:
        """Paths of published files that still exist, oldest first, where the directory is now."""
        place, holds = self._directory.place(), self._directory.holds
        return [os.path.join(place, one.name) for one in self._files if holds(one.name, one.id)]

    @property
    def taken_away(self) -> int:
        """Number of published files that others have deleted, moved away or replaced."""
        return self._gone + len(self._files) - len(self.files)

    def create(self) -> NewFile:
        """Make the next file, hidden until `publish`; set `next`. Raises OutputError, OSError."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.next = f"{self._stem}-{when}-{self.made + 1:06d}{SUFFIX}"
        new = NewFile(self.next, force=self._force, directory=self._directory)
        self._on_file(new.stream)
        return new

    def publish(self, new: NewFile) -> None:
        """Give a file that was created, whose header is written, its name. Raises OutputError."""
        new.publish()
        self._files.append(new)
        self.made += 1

    def delete_old(self) -> None:
        """Delete the oldest files beyond `max_files`, except names that are other files now."""
        while self._max is not None and len(self._files) > self._max:
            oldest = self._files.popleft()
            if self._directory.remove(oldest.name, oldest.id):
                self.deleted += 1
            elif not self._directory.holds(oldest.name, oldest.id):
                self._gone += 1

    def discard(self) -> None:
        """Delete all published files, as the recording could not begin."""
        while self._files:
            self._files.popleft().discard()


def removed(stream: BinaryIO) -> bool:
    """Return whether a file has no name any more; False where another thread has closed it."""
    try:
        return os.fstat(stream.fileno()).st_nlink == 0
    except (OSError, ValueError):
        return False
