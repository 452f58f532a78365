# SPDX-License-Identifier: Apache-2.0
"""Finds cgroups that appear while recording: for notes in the log, and for filters by their names.

The programs tell of a cgroup when it is made, and when it is first charged for a bio, so that one
which lives for a moment has its path. Beside that the directories are walked from time to time, for
those that were there before, and for kernels and backends whose programs tell nothing.
"""

import threading
import time
from collections.abc import Callable

from biotrail.recorder.host import cgroups
from biotrail.recorder.notes.hotplug import Periodic
from biotrail.recorder.probes.maps.cgroup_maps import ToldCgroup
from biotrail.recorder.schema.payloads import CgroupsNote

CGROUP_PERIOD_NS = 10_000_000_000
MAX_TOLD = 1 << 16
"""Cgroups that the programs told of which are remembered, the newest."""


class CgroupWatch(Periodic):
    """Cgroups that are new or renamed since the last look. Any thread may call its methods."""

    def __init__(self, told: Callable[[], list[ToldCgroup]] = list) -> None:
        """Begin without cgroups, so that the first `walk` finds all of them.

        told: returns what the programs told of since its last call.
        """
        super().__init__(CGROUP_PERIOD_NS)
        self.where = cgroups.hierarchy()
        self._ask = told
        self._lock = threading.Lock()
        self._walked: dict[int, str] = {}
        self._told: dict[int, str] = {}
        """What is known from the programs: whole paths, also where a part is mounted here."""
        self._unwritten: dict[int, str] = {}
        self._unseen: dict[int, str] = {}

    def take(self) -> None:
        """Take what the programs have told of."""
        with self._lock:
            for number, path in self._ask():
                if path is not None and self._told.get(number) != path:
                    if self._walked.get(number) != path:
                        self._add({number: path})
                    self._told[number] = path
            for oldest in list(self._told)[: len(self._told) - MAX_TOLD]:
                del self._told[oldest]

    def walk(self) -> None:
        """Walk the directories, and plan the next time."""
        began = time.monotonic_ns()
        now = cgroups.paths(self.where)
        with self._lock:
            known = {**self._walked, **self._told}
            self._add({n: p for n, p in now.items() if known.get(n) != p and n not in self._told})
            self._walked = now  # without removed cgroups, whose ids are not reused
            self.schedule_next(began)

    def _add(self, fresh: dict[int, str]) -> None:
        """Take cgroups that are new or renamed."""
        self._unwritten.update(fresh)
        self._unseen.update(fresh)

    def unseen(self) -> dict[int, str]:
        """Return {id: path} of cgroups found since the last call of this method."""
        with self._lock:
            found, self._unseen = self._unseen, {}
        return found

    def due(self, now_ns: int) -> bool:
        """Return whether there is a note to write, or a walk is due at `now_ns`."""
        return bool(self._unwritten) or super().due(now_ns)

    def changes(self, *, always: bool) -> CgroupsNote | None:
        """Return a `cgroups` note {id as text: path} of those found since the last; None: none.

        Takes what the programs have told of, and walks the directories if that is due, or `always`.
        Removed cgroups are not reported.
        """
        self.take()
        if always or super().due(time.monotonic_ns()):
            self.walk()
        with self._lock:
            found, self._unwritten = self._unwritten, {}
        return {str(number): path for number, path in found.items()} or None
