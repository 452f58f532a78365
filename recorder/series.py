# SPDX-License-Identifier: Apache-2.0
"""Files of one recording that is kept in several: their names, and what each must repeat."""

import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from recorder import output
from recorder.log import LogWriter, Segment
from recorder.names import Found, Names
from recorder.stack_notes import StackNotes

Clock = dict[str, int]
OnFile = Callable[[BinaryIO], None]
SUFFIX = ".biotrail"
MAX_CGROUPS = 1 << 16


def shifted(clock: Clock, monotonic: int) -> Clock:
    """A reading of the clocks moved to an earlier time, from when on nothing stepped them."""
    back = clock["monotonic"] - monotonic
    # Not below 0, where no clock has been: the reading's uncertainty can be more than its time.
    return {k: ns if k == "uncertainty" else max(0, ns - back) for k, ns in clock.items()}


class Background:
    """What went by while recording and every later file has to say again by itself."""

    def __init__(self, header: dict[str, Any]) -> None:
        """`header` of the recording, as it began."""
        self._header = header
        self._devices = {int(entry["dev"]): entry for entry in header.get("devices", [])}
        self._cgroups: dict[str, str] = {}
        self._mounts: dict[str, Any] = {}
        self._stacks = StackNotes()
        self._names = Names()

    def note(self, name: str, payload: dict[str, Any]) -> None:
        """Take in a note as the recorder writes them."""
        if name == "devices":
            self._devices.update({int(entry["dev"]): entry for entry in payload["devices"]})
        elif name == "cgroups":
            self._cgroups.update(payload)
            for oldest in list(self._cgroups)[: len(self._cgroups) - MAX_CGROUPS]:
                del self._cgroups[oldest]
        elif name == "mounts":
            self._mounts.update(payload)
        elif name == "stacks":
            self._stacks.add(payload)

    def learn(self, found: Found) -> None:
        """Take in the name records of a chunk."""
        self._names.learn(found)

    def header(self, clock: Clock, facts: dict[str, Any]) -> dict[str, Any]:
        """The header of a file that begins at `clock`."""
        return {
            **self._header,
            "log_id": secrets.token_hex(16),
            "clocks": clock,
            "devices": list(self._devices.values()),
            **facts,
        }

    def facts(self, clock: Clock) -> "Facts":
        """What the file is to begin with, as it is now."""
        names = self._names.segments(clock["monotonic"])
        return Facts(dict(self._cgroups), dict(self._mounts), self._stacks.all(), names, clock)


class Facts(NamedTuple):
    """Cgroups, mounts, stacks and names that a log begins with."""

    cgroups: dict[str, str]
    mounts: dict[str, Any]
    stacks: list[dict[str, Any]]
    names: list[Segment]
    clock: Clock

    def write(self, log: LogWriter) -> None:
        """Right behind the header."""
        if self.cgroups:
            log.write_note("cgroups", dict(self.cgroups))
        if self.mounts:
            log.write_note("mounts", dict(self.mounts))
        for note in self.stacks:
            log.write_note("stacks", note)
        if self.names:
            log.write_chunk(self.names, self.clock)


class Series:
    """Numbered files `STEM-20261107T101530Z-000001.biotrail` of this run.

    Only files that it made are ever deleted.
    """

    def __init__(
        self,
        path: str,
        max_files: int | None,
        *,
        force: bool = False,
        on_file: OnFile = lambda _stream: None,
    ) -> None:
        """`path`: what the files are named after, its suffix left out.

        on_file: called with each new file, in the thread that makes it.
        """
        self._on_file = on_file
        self.stem = path.removesuffix(SUFFIX)
        self._max = max_files
        self._force = force
        self._files: deque[tuple[str, int, int]] = deque()
        self._hidden = ""
        self.next = ""
        """Path that the file last created has, or will have."""
        self.made = 0
        self.deleted = 0

    @property
    def files(self) -> list[str]:
        """Paths that are there, oldest first."""
        return [path for path, _, _ in self._files]

    def create(self) -> BinaryIO:
        """The next file, under a hidden name until `publish`. Raises OutputError."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.next = f"{self.stem}-{when}-{self.made + 1:06d}{SUFFIX}"
        output.ensure_free(self.next, self._force)
        directory, name = os.path.split(self.next)
        self._hidden = os.path.join(directory, f".{name}.{secrets.token_hex(8)}.part")
        stream = output.create(self._hidden)
        self._on_file(stream)
        return stream

    def publish(self, stream: BinaryIO) -> None:
        """Give it its name: from now on it reads as a log, whatever happens. Raises OutputError."""
        output.publish(Path(self._hidden), Path(self.next), self._force)
        with suppress(FileNotFoundError):
            os.unlink(self._hidden)
        status = os.fstat(stream.fileno())
        self._files.append((self.next, status.st_dev, status.st_ino))
        self.made += 1

    def give_up(self) -> None:
        """Remove what was created and not published."""
        with suppress(OSError):
            os.unlink(self._hidden)

    def delete_old(self) -> None:
        """Delete the oldest files beyond the limit, unless others have taken their names."""
        while self._max is not None and len(self._files) > self._max:
            path, dev, inode = self._files.popleft()
            with suppress(OSError):  # gone already, or not ours to delete: nothing is lost
                status = os.lstat(path)
                if (status.st_dev, status.st_ino) == (dev, inode):
                    Path(path).unlink()
                    self.deleted += 1


def removed(stream: BinaryIO) -> bool:
    """Whether the file has no name any more: what is written to it ends with this process."""
    try:
        return os.fstat(stream.fileno()).st_nlink == 0
    except OSError:
        return False
