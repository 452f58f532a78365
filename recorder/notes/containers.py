# SPDX-License-Identifier: Apache-2.0
"""Names of containers and pods that cgroups belong to, looked up while recording for the log.

Files with names need rights that the recorder gives up, so a child process (containers_child.py)
that keeps these alone reads them.
"""

import json
import select
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.host import container_state
from biotrail.recorder.rights import helpers
from biotrail.recorder.schema.cgroup_paths import identity
from biotrail.recorder.schema.payloads import ContainersNote

_CHILD = Path(__file__).with_name("containers_child.py")
_PATIENCE = 1.0
"""Seconds that an answer may take."""
_AGAIN_NS = (200_000_000, 1_000_000_000, 5_000_000_000, 20_000_000_000)
"""After how long a name is looked for again before it is given up: files may be written late."""
_MAX_SEARCHES = 1 << 16
"""Containers and pods that are remembered, the newest."""


class NamesChild:
    """The process that reads names; it is started by this object's making."""

    def __init__(self, program: Path = _CHILD) -> None:
        """Start the process, with the rights that this one has now. Raises OSError."""
        self._process = helpers.begin(program, answers=True)

    def ask(self, containers: Iterable[str], pods: Iterable[str]) -> ContainersNote:
        """Return what is known of containers and pods (container_state.resolve).

        Raises OSError: the process has ended, or has not answered within _PATIENCE.
        """
        asked, answer = self._process.stdin, self._process.stdout
        if asked is None or answer is None:
            raise OSError("it was not started")
        question = {"containers": sorted(containers), "pods": sorted(pods)}
        asked.write(json.dumps(question).encode() + b"\n")
        until, data = time.monotonic() + _PATIENCE, b""
        while not data.endswith(b"\n"):
            left = max(until - time.monotonic(), 0)
            if not select.select([answer], [], [], left)[0]:
                raise OSError("it does not answer")
            if not (piece := answer.read(1 << 20)):
                raise OSError("it has ended")
            data += piece
        found: ContainersNote = json.loads(data)
        return found

    def close(self) -> None:
        """End the process, by the end of its input, after a second by SIGKILL; wait for its end."""
        if self._process.stdout is not None:
            self._process.stdout.close()
        helpers.end(self._process)


def start(tell: Callable[[str], None]) -> NamesChild | None:
    """Start the process that reads names; None: there is nothing to read here, or it cannot start.

    tell: called with a message where it cannot be started.
    """
    if not container_state.present():
        return None
    try:
        return NamesChild()
    except OSError as error:
        tell(f"names of containers: ids stand for them, no process to read them: {error}")
        return None


@dataclass
class _Search:
    """The search for a name."""

    is_pod: bool
    next_ns: int = 0
    """CLOCK_MONOTONIC of the next look."""
    looks: int = 0


class ContainerWatch:
    """Finds names of containers and pods as cgroups become known. Any thread may call."""

    def __init__(
        self,
        child: NamesChild | None,
        tell: Callable[[str], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """child: reads names; None: there are none. tell: called with a message if it fails.

        clock: ns.
        """
        self._child = child
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._searches: dict[str, _Search] = {}
        """By id or uid; one that is over stays, so that it does not begin anew."""
        self._open: set[str] = set()
        self._unwritten: ContainersNote = {"containers": {}, "pods": {}}
        self._unseen: ContainersNote = {"containers": {}, "pods": {}}

    def look(self, paths: Iterable[str] = (), *, last: bool = False) -> None:
        """Look for the names of these cgroups' containers and pods, and for others that are due.

        paths: of cgroups that are new. last: there will be no later look, so all are due.
        """
        with self._lock:
            now = self._clock()
            for path in paths if self._child is not None else ():
                self._begin(path, now)
            due = {one for one in self._open if last or self._searches[one].next_ns <= now}
            if self._child is None or not due:
                return
            pods = {one for one in due if self._searches[one].is_pod}
            try:
                found = self._child.ask(due - pods, pods)
            except (OSError, ValueError) as error:
                self._child = None
                self._open.clear()
                self._tell(f"names of containers: ids stand for those to come, no process: {error}")
                return
            for note in (self._unwritten, self._unseen):
                note["containers"].update(found["containers"])
                note["pods"].update(found["pods"])
            self._open -= {*found["containers"], *found["pods"]}
            for one in due & self._open:
                self._put_off(one, now)

    def _begin(self, path: str, now: int) -> None:
        what = identity(path)
        found = [(what.container, False)] if what.has_id else []
        found += [(what.pod, True)] if what.qos is not None else []
        for one, is_pod in found:
            if one is not None and one not in self._searches:
                self._searches[one] = _Search(is_pod, now)
                self._open.add(one)
        for oldest in list(self._searches)[: len(self._searches) - _MAX_SEARCHES]:
            self._open.discard(oldest)
            del self._searches[oldest]

    def _put_off(self, one: str, now: int) -> None:
        search = self._searches[one]
        if search.looks == len(_AGAIN_NS):
            self._open.discard(one)
            return
        search.next_ns = now + _AGAIN_NS[search.looks]
        search.looks += 1

    def due_ns(self) -> int | None:
        """Return the time (CLOCK_MONOTONIC) of the next look; None: nothing is looked for."""
        with self._lock:
            return min((self._searches[one].next_ns for one in self._open), default=None)

    def unseen(self) -> ContainersNote:
        """Return the names found since the last call of this method."""
        with self._lock:
            found, self._unseen = self._unseen, {"containers": {}, "pods": {}}
        return found

    def due(self) -> bool:
        """Return whether there is a note to write."""
        return bool(self._unwritten["containers"] or self._unwritten["pods"])

    def changes(self) -> ContainersNote | None:
        """Return a `containers` note with names found since the last one; None: there are none."""
        with self._lock:
            found, self._unwritten = self._unwritten, {"containers": {}, "pods": {}}
        return found if found["containers"] or found["pods"] else None
