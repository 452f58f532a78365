# SPDX-License-Identifier: Apache-2.0
"""Keys that group I/O by the process or the thread that queued it."""

from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, Lifecycles, Tasks, known_id

Name = Mapping[str, str | int | None]
_MOST_NAMES = 3
"""Threads whose names stand for a process whose own name is not known."""


class ProcessNames:
    """Names of processes: the last one that each thread-group leader had.

    Where the leader was not recorded, names of the process's threads stand for it.
    """

    def __init__(self) -> None:
        self._read = 0
        self._leaders: dict[int, str] = {}
        self._threads: dict[int, dict[str, None]] = {}

    def take(self, tasks: Tasks) -> list[tuple[int, int, str]]:
        """Read and return the rows that are new since the last call: (tid, tgid, name) each.

        tasks: of the log's next window; a row never changes.
        """
        old, self._read = self._read, len(tasks)
        columns = (tasks.tid[old:].tolist(), tasks.tgid[old:].tolist(), tasks.comm[old:].tolist())
        rows = [(tid, tgid, str(comm)) for tid, tgid, comm in zip(*columns, strict=True)]
        for tid, tgid, comm in rows:
            if tid == tgid:
                self._leaders[tgid] = comm
            else:
                self.add_thread(tgid, comm)
        return rows

    def add_thread(self, tgid: int, comm: str) -> None:
        """Note the name of a thread of a process."""
        names = self._threads.setdefault(tgid, {})
        if len(names) <= _MOST_NAMES:
            names.setdefault(comm)

    def __getitem__(self, tgid: int) -> str:
        """Return the name of a process, by what was read so far; "": nothing is known of it."""
        leader = self._leaders.get(tgid)
        if leader is not None:
            return leader
        names = list(self._threads.get(tgid, {}))
        return ", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])])


class ByProcess:
    """Key: the process of the submitting thread."""

    def __init__(self, context: Context) -> None:
        self._names = ProcessNames()
        self._known: dict[tuple[int, str], int] = {(-1, ""): 0}
        self._groups: list[tuple[int, str]] = [(-1, "")]
        self._of_task = np.zeros(0, dtype=np.int64)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's process: int64 (n,), by row of the window's bios.

        0: the submitter is not known. New processes get the next codes. samples: not used. A row of
        `window.tasks` never changes from window to window, so only rows that are new since the last
        call are read.
        """
        rows = self._names.take(window.tasks)
        # Idle tasks, one a CPU, share the id 0 and are no process: their names tell them apart.
        new = [self._code((tgid, "" if tgid else comm)) for _, tgid, comm in rows]
        self._of_task = np.concatenate([self._of_task, np.array(new, dtype=np.int64)])
        return take_or(self._of_task, window.bios.task, 0)

    def _code(self, group: tuple[int, str]) -> int:
        """Return the code of a process; a new process gets the next code."""
        code = self._known.setdefault(group, len(self._groups))
        if code == len(self._groups):
            self._groups.append(group)
        return code

    def name(self, code: int) -> Name:
        """See Key. Both are None if the submitter is not known (code 0), pid if its id is not."""
        if not code:
            return {"process": None, "pid": None}
        pid, idle = self._groups[code]
        return {"process": idle or self._names[pid], "pid": known_id(pid)}


class ByThread:
    """Key: the submitting thread, by its id and name, and its process."""

    def __init__(self, context: Context) -> None:
        self._names = ProcessNames()
        self._known: dict[tuple[int, int, str], int] = {}
        self._groups: list[tuple[int, int, str]] = []
        self._of_task = np.zeros(0, dtype=np.int64)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key and ByProcess.codes."""
        rows = self._names.take(window.tasks)
        new = []
        for row in rows:
            code = self._known.setdefault(row, len(self._groups) + 1)
            if code > len(self._groups):
                self._groups.append(row)
            new.append(code)
        self._of_task = np.concatenate([self._of_task, np.array(new, dtype=np.int64)])
        return take_or(self._of_task, window.bios.task, 0)

    def name(self, code: int) -> Name:
        """See Key: `thread`, `tid`, `process` and `pid`; None where they are not known."""
        if not code:
            return {"thread": None, "tid": None, "process": None, "pid": None}
        tid, tgid, comm = self._groups[code - 1]
        process = self._names[tgid] if tgid else comm
        return {
            **{"thread": comm, "tid": known_id(tid)},
            **{"process": process, "pid": known_id(tgid)},
        }
