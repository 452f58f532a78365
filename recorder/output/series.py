# SPDX-License-Identifier: Apache-2.0
"""Files of one recording that is kept in several: their names, and what each must repeat."""

import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.log.names import Found, Names
from biotrail.recorder.output import output
from biotrail.recorder.output.held_directory import FileId, HeldDirectory, identity
from biotrail.recorder.output.stack_notes import StackNotes

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

    Their directory is looked up once. Only files that this run made are ever deleted.
    """

    def __init__(
        self,
        path: str,
        max_files: int | None,
        *,
        force: bool = False,
        on_file: OnFile = lambda _stream: None,
        directory: HeldDirectory | None = None,
    ) -> None:
        """`path`: what the files are named after, its suffix left out.

        on_file: called with each new file, in the thread that makes it. directory: that of
        `path`; None: it is looked up when the first file is made.
        """
        self._on_file = on_file
        self.stem = path.removesuffix(SUFFIX)
        self._max = max_files
        self._force = force
        self._held = directory
        self._files: deque[tuple[str, FileId]] = deque()
        self._hidden = self._name = ""
        self.next = ""
        """Path that the file last created has, or will have."""
        self.made = 0
        self.deleted = 0
        self._gone = 0

    @property
    def files(self) -> list[str]:
        """Paths that are there, oldest first; where the directory was moved, of its new place."""
        held = self._held
        if held is None:
            return []
        place = held.place()
        return [os.path.join(place, name) for name, file in self._files if held.holds(name, file)]

    @property
    def gone(self) -> int:
        """How many files others have deleted, moved away or replaced."""
        return self._gone + len(self._files) - len(self.files)

    def _directory(self) -> HeldDirectory:
        if self._held is None:
            self._held = HeldDirectory(os.path.dirname(self.stem), shown=self.next or self.stem)
        return self._held

    def create(self) -> BinaryIO:
        """The next file, under a hidden name until `publish`. Raises OutputError."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.next = f"{self.stem}-{when}-{self.made + 1:06d}{SUFFIX}"
        self._name = os.path.basename(self.next)
        at = self._directory().fd
        output.ensure_free(self._name, self._force, at=at, shown=self.next)
        self._hidden = f".{self._name[:200]}.{secrets.token_hex(8)}.part"
        stream = output.create_at(at, self._hidden, shown=self.next)
        self._on_file(stream)
        return stream

    def publish(self, stream: BinaryIO) -> None:
        """Give it its name: from now on it reads as a log, whatever happens. Raises OutputError."""
        at = self._directory().fd
        try:
            output.publish(self._hidden, self._name, self._force, at=at, shown=self.next)
        except OSError as error:
            raise output.explain(error, self.next) from error
        self.give_up()  # the hidden name, where it is left as a second one
        self._files.append((self._name, identity(stream.fileno())))
        self.made += 1

    def give_up(self) -> None:
        """Remove what was created and not published."""
        if self._held is None:
            return
        with suppress(OSError):
            os.unlink(self._hidden, dir_fd=self._held.fd)

    def delete_old(self) -> None:
        """Delete the oldest files beyond the limit, unless others have taken their names."""
        while self._max is not None and len(self._files) > self._max:
            self._delete(*self._files.popleft())

    def _delete(self, name: str, file: FileId) -> None:
        held = self._directory()
        if held.remove(name, file):
            self.deleted += 1
        elif not held.holds(name, file):
            self._gone += 1

    def discard(self) -> None:
        """Delete all files: the recording could not begin."""
        while self._files:
            self._directory().remove(*self._files.popleft())


def removed(stream: BinaryIO) -> bool:
    """Whether the file has no name any more: what is written to it ends with this process."""
    try:
        return os.fstat(stream.fileno()).st_nlink == 0
    except OSError:
        return False
