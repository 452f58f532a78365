# SPDX-License-Identifier: Apache-2.0
"""Titles of the processes of a recording's threads, looked up while they run, for the log."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from biotrail.recorder.host.process_titles import Process, look
from biotrail.recorder.log.names import Rows
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.schema.payloads import TitlesNote

AGAIN_NS = 2_000_000_000
"""Time between two looks at processes that are known already: titles are set, and change."""
_LOOK_NS = 10_000_000
"""Longest time that a look takes; what is left waits for the next."""
_MOST_PROCESSES = 1 << 14
_MOST_TITLES = 8
"""Titles of one process that are noted: some change with all that it does."""
_MOST_WAITING = 4096
_Thread = tuple[int, int, str]
"""Process, thread, and the thread's name."""


@dataclass
class _Known:
    """A process that was looked at."""

    found: Process
    noted: int
    """How many of its titles were noted."""


class TitleWatch:
    """Finds the titles of processes whose threads are named in the records."""

    def __init__(self, whole: bool, find: Callable[..., Process | None] = look) -> None:
        """whole: note whole command lines."""
        self._whole, self._find = whole, find
        self._waiting: deque[_Thread] = deque(maxlen=_MOST_WAITING)
        self._seen: dict[_Thread, None] = {}
        self._known: dict[int, _Known] = {}
        self._again_ns = 0

    def job(self, writer: WriterThread) -> Job:
        """Return a job that notes titles of processes in the chunks that are written before it."""
        return writer.note("titles", partial(self.changes, writer.tasks))

    def changes(self, unread: deque[Rows]) -> TitlesNote | None:
        """Return a `titles` note of what is new; `unread`: TASK records, which are taken away."""
        until = time.monotonic_ns() + _LOOK_NS
        while unread:
            for _, ids, *comm in unread.popleft().tolist():
                name = b"".join(word.to_bytes(8, "little") for word in comm).partition(b"\0")[0]
                thread = (ids >> 32, ids & 0xFFFFFFFF, name.decode("utf-8", "replace"))
                if thread[0] and thread not in self._seen:
                    _put(self._seen, thread, None)
                    self._waiting.append(thread)
        note: TitlesNote = {}
        while self._waiting and time.monotonic_ns() < until:
            thread = self._waiting.popleft()
            if (found := self._find(*thread, self._whole)) is not None:
                self._take(note, thread[0], found)
        if (now := time.monotonic_ns()) >= self._again_ns:
            self._again_ns = now + AGAIN_NS
            for pid in list(self._known):  # those that were not looked at for longest first
                if time.monotonic_ns() >= until:
                    break
                known = self._known.pop(pid)
                found = self._find(pid, pid, known.found.comm, self._whole)
                if found is not None and known.noted < _MOST_TITLES:
                    self._known[pid] = known
                    self._take(note, pid, found)
        return note or None

    def _take(self, note: TitlesNote, pid: int, found: Process) -> None:
        known = self._known.get(pid)
        if known is None:
            _put(self._known, pid, _Known(found, int(bool(found.title))))
            if not found.title:
                return
        elif known.found == found or (known.found.title == found.title == ""):
            known.found = found
            return
        else:
            known.found = found
            known.noted += 1
        note[str(pid)] = {"comm": found.comm, "title": found.title}


def _put(into: dict[Any, Any], key: Any, value: Any) -> None:
    into[key] = value
    if len(into) > _MOST_PROCESSES:
        del into[next(iter(into))]
