# SPDX-License-Identifier: Apache-2.0
"""Key that groups I/O by the task that wrote the data, and that task's cgroup."""

from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.keys_process import ProcessNames
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.behalf import doers
from biotrail.converters.calls.keys import rows_dirtied
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    OP_MASK,
    Bool,
    Lifecycles,
    PageKind,
    known_id,
)

Name = Mapping[str, str | int | None]
_Writer = tuple[int, str, int]
_UNKNOWN = (-1, "not known")
_EARLIER = (-1, "dirtied before the recording, or not kept")
"""Writers that are not known, and why; the reason stands where idle tasks have a name."""
_OTHERS_PAGES = (
    ((int(PageKind.FILE), int(PageKind.DEVICE)), _EARLIER),
    ((int(PageKind.SWAP),), _UNKNOWN),
)
"""Kinds of pages that whoever writes them need not have dirtied, and what their writer is then."""
RECORDER = "(the recorder)"
"""Name of who does the recording's own I/O, where it is told what devices did meanwhile."""
WORKERS = "kworker/"
"""Beginning of the names of the kernel's workers, which write what others asked for."""


class ByWriter:
    """Key: the task that dirtied the page which is written back; else who queued for itself."""

    def __init__(self, context: Context) -> None:
        """Start without writers. context: the log's, for the paths of cgroups."""
        self._context = context
        self._names = ProcessNames()
        self._known: dict[_Writer, int] = {}
        self._writers: list[_Writer] = []

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's writer: int64 (n,), by row of the window's bios.

        A writer is a process and a cgroup. Where it is known who dirtied the
        bio's first page, they are that thread's, with the cgroup that it was in then (where that is
        not known, the one that is charged for the bio); else that of the thread for which it was
        queued, or that queued it, with the cgroup that is charged. So the reader is charged for
        reads, readahead and pages that it swaps in. Who writes back a page of the cache, or swaps
        one out, is not its writer, and a worker of the kernel acts for others: then the writer is
        not known. A new writer gets the next code. samples: not used.
        """
        bios, tasks = window.bios, window.tasks
        self._names.take(tasks)
        pairs = np.empty(len(bios), np.dtype([("task", "<i8"), ("cgroup", "<u8")]))
        pairs["task"], pairs["cgroup"] = doers(bios), bios.cgroup
        distinct, place = np.unique(pairs, return_inverse=True)
        of_pair = [
            (*(self._who(int(tasks.tgid[t]), str(tasks.comm[t])) if t >= 0 else _UNKNOWN), cgroup)
            for t, cgroup in distinct.tolist()
        ]
        found = self._codes_of(of_pair)[place]
        for kinds, why in _OTHERS_PAGES:
            rows = np.flatnonzero(self._writes(window) & np.isin(bios.page, kinds))
            found[rows] = self._codes_of([(*why, one) for one in bios.cgroup[rows].tolist()])
        if window.path is None:
            return found
        paths = window.path.bios
        row, dirtied = rows_dirtied(paths, bios)
        comms = [comm.decode("utf-8", "replace") for comm in paths.dirty_comm[row].tolist()]
        cgroup = paths.dirty_cgroup[row]
        cgroup = np.where(cgroup == 0, bios.cgroup[dirtied], cgroup)
        who = map(self._who, paths.dirty_pid[row].tolist(), comms)
        found[dirtied] = self._codes_of(
            [(*task, one) for task, one in zip(who, cgroup.tolist(), strict=True)]
        )
        return found

    def _who(self, pid: int, comm: str) -> tuple[int, str]:
        """Return the process of a thread; _UNKNOWN for a kernel's worker, which acts for others.

        With a name where that alone tells: why it is not known, which idle task it is (id 0).
        """
        if comm.startswith(WORKERS):
            return _UNKNOWN
        if pid <= 0:
            return pid, comm
        self._names.add_thread(pid, comm)
        return pid, ""

    def _writes(self, window: Lifecycles) -> Bool:
        """Mark the window's bios that write data."""
        op = (window.bios.opf & OP_MASK).astype(np.int64)
        writes = [self._context.op_number(name) for name in ("write", "zone_append")]
        return np.asarray(np.isin(op, [n for n in writes if n >= 0]), dtype=np.bool_)

    def _codes_of(self, writers: list[_Writer]) -> I64:
        """Return the writers' codes; a new writer gets the next code."""
        for writer in writers:
            if self._known.setdefault(writer, len(self._writers)) == len(self._writers):
                self._writers.append(writer)
        return np.array([self._known[writer] for writer in writers], dtype=np.int64)

    def name(self, code: int) -> Name:
        """Return the name of a group: `process`, `pid`, `title`, `cgroup` and `cgroup_id`.

        process and pid are None where the writer is not known; `writer` then says why. cgroup:
        path, None if not in the log; cgroup_id: 0 if not known.
        """
        pid, comm, cgroup = self._writers[code]
        known = pid >= 0
        process = comm or self._names[pid]
        why = {} if known else {"writer": comm}
        return {
            **why,
            "process": process if known else None,
            "pid": known_id(pid) if known else None,
            "title": self._context.titles.title(known_id(pid), process) if known else None,
            "cgroup": self._context.cgroups.get(cgroup),
            "cgroup_id": cgroup,
        }
