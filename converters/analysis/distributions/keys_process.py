# SPDX-License-Identifier: Apache-2.0
"""Keys that group I/O by the process or the thread for which it was queued."""

from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.behalf import doers
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, Lifecycles, Tasks, known_id

Name = Mapping[str, str | int | None]
_MOST_NAMES = 3
"""Threads whose names stand for a process whose own name is not known."""
_WORKER, _ROOT = "kworker", 1
"""Beginning of the names of the kernel's workers; id of the cgroup above all, its low half."""


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
    """Key: the process of the thread whose I/O it is, which need not have queued it."""

    def __init__(self, context: Context) -> None:
        """Start without processes. context: the log's, for the paths of cgroups."""
        self._context = context
        self._names = ProcessNames()
        self._known: dict[tuple[int, str, int], int] = {(-1, "", 0): 0}
        self._groups: list[tuple[int, str, int]] = [(-1, "", 0)]
        self._of_task = np.zeros(0, dtype=np.int64)
        self._worker = np.zeros(0, dtype=np.bool_)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's process: int64 (n,), by row of the window's bios.

        The process is that of the thread for which the bio was queued or, unless that was another
        one (`Bios.whom`), of the thread that queued it. What workers of the kernel queued for
        nobody that is known is one group for each cgroup that is charged for it, but the root. 0:
        the thread is not known. New processes get the next codes. samples: not used. A row of
        `window.tasks` never changes from window to window, so only rows that are new since the last
        call are read.
        """
        rows = self._names.take(window.tasks)
        # Idle tasks, one a CPU, share the id 0 and are no process: their names tell them apart.
        new = [self._code((tgid, "" if tgid else comm, 0)) for _, tgid, comm in rows]
        self._of_task = np.concatenate([self._of_task, np.array(new, dtype=np.int64)])
        workers = np.array([comm.startswith(f"{_WORKER}/") for *_, comm in rows], dtype=np.bool_)
        self._worker = np.concatenate([self._worker, workers])
        task = doers(window.bios)
        found = take_or(self._of_task, task, 0)
        charged = (window.bios.cgroup & np.uint64(0xFFFFFFFF)) > _ROOT
        for_cgroup = np.flatnonzero(charged & take_or(self._worker, task, False))
        if len(for_cgroup):
            cgroups, at = np.unique(window.bios.cgroup[for_cgroup], return_inverse=True)
            codes = [self._code((0, _WORKER, cgroup)) for cgroup in cgroups.tolist()]
            found[for_cgroup] = np.array(codes, dtype=np.int64)[at]
        return found

    def _code(self, group: tuple[int, str, int]) -> int:
        """Return the code of a process; a new process gets the next code."""
        code = self._known.setdefault(group, len(self._groups))
        if code == len(self._groups):
            self._groups.append(group)
        return code

    def name(self, code: int) -> Name:
        """See Key. All are None if the thread is not known (code 0), pid if its id is not.

        Of what workers queued for a cgroup also `cgroup` (its path; None: not in the log) and
        `cgroup_id`.
        """
        if not code:
            return {"process": None, "pid": None, "title": None}
        pid, named, cgroup = self._groups[code]
        if cgroup:
            path = self._context.cgroups.get(cgroup)
            return {
                **{"process": named, "pid": None, "title": None},
                **{"cgroup": path, "cgroup_id": cgroup},
            }
        process, known = named or self._names[pid], known_id(pid)
        title = self._context.titles.title(known, process)
        return {"process": process, "pid": known, "title": title}


class ByThread:
    """Key: the thread whose I/O it is, by its id and name, and its process."""

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
        return take_or(self._of_task, doers(window.bios), 0)

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
