# SPDX-License-Identifier: Apache-2.0
"""Key that groups I/O by the task that wrote the data, and that task's cgroup."""

from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, Lifecycles, known_id

Name = Mapping[str, str | int | None]
_Writer = tuple[int, str, int]
_UNKNOWN = (-1, "")


class ByWriter:
    """Key: the task that dirtied the page which the bio writes back; else who queued the bio."""

    def __init__(self, context: Context) -> None:
        """Start without writers. context: the log's, for the paths of cgroups."""
        self._context = context
        self._known: dict[_Writer, int] = {}
        self._writers: list[_Writer] = []

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's writer: int64 (n,), by row of the window's bios.

        A writer is a process id, the thread's name and a cgroup. Where it is known who dirtied the
        bio's first page, they are that thread's, with the cgroup that it was in then (where that is
        not known, the one that is charged for the bio); else the submitting thread's, with the
        cgroup that is charged. So the reader is charged for reads, readahead and pages that it
        swaps in. A new writer gets the next code. samples: not used.
        """
        bios, tasks = window.bios, window.tasks
        pairs = np.empty(len(bios), np.dtype([("task", "<i8"), ("cgroup", "<u8")]))
        pairs["task"], pairs["cgroup"] = bios.task, bios.cgroup
        distinct, place = np.unique(pairs, return_inverse=True)
        of_pair = [
            (*((int(tasks.tgid[t]), str(tasks.comm[t])) if t >= 0 else _UNKNOWN), cgroup)
            for t, cgroup in distinct.tolist()
        ]
        found = self._codes_of(of_pair)[place]
        if window.path is None:
            return found
        paths = window.path.bios
        row, known = rows_of(paths.number, bios.number)
        dirtied = np.flatnonzero(known)
        dirtied = dirtied[paths.dirtied[row[dirtied]] != NEVER]
        row = row[dirtied]
        comms = [comm.decode("utf-8", "replace") for comm in paths.dirty_comm[row].tolist()]
        cgroup = paths.dirty_cgroup[row]
        cgroup = np.where(cgroup == 0, bios.cgroup[dirtied], cgroup)
        who = zip(paths.dirty_pid[row].tolist(), comms, cgroup.tolist(), strict=True)
        found[dirtied] = self._codes_of(list(who))
        return found

    def _codes_of(self, writers: list[_Writer]) -> I64:
        """Return the writers' codes; a new writer gets the next code."""
        for writer in writers:
            if self._known.setdefault(writer, len(self._writers)) == len(self._writers):
                self._writers.append(writer)
        return np.array([self._known[writer] for writer in writers], dtype=np.int64)

    def name(self, code: int) -> Name:
        """Return the name of a group: `process`, `pid`, `cgroup` and `cgroup_id`.

        process and pid are None where the submitter is not known. cgroup: path, None if not in the
        log; cgroup_id: 0 if not known.
        """
        pid, comm, cgroup = self._writers[code]
        known = pid >= 0
        return {
            "process": comm if known else None,
            "pid": known_id(pid) if known else None,
            "cgroup": self._context.cgroups.get(cgroup),
            "cgroup_id": cgroup,
        }
