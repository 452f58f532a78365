# SPDX-License-Identifier: Apache-2.0
"""Parties: whose each bio is, by one of several dimensions, and by what name.

What a worker writes back is its writer's, where the log says who dirtied the page.
"""

import numpy as np

from biotrail.converters.analysis.distributions.keys import KEYS, RECORDER, WORKERS, Codes
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.keys import rows_dirtied
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.tables import I64, Lifecycles, Tasks

OWNER = "owner"
"""The dimension without an option: the most telling name of a bio's writer."""
WRITERS = (OWNER, "container", "unit", "cgroup", "process")
DIMENSIONS = (*WRITERS, "file", "dir", "device", "op", "purpose", "call")
"""Words of --by: what parties are told apart by."""
PROCESS_OF_OWNER = "process of owner"
"""A thread's name, and its owner where that is more than the thread: `dd of backup`."""
NOT_KNOWN = "(not known)"
_RECORDER = (1 << 31) - 1
"""Code of the party of the recording's own I/O, in each dimension; those of others are less."""
_U64 = (1 << 64) - 1


class Parties:
    """One dimension of parties. Codes are int64 of at least 0, and count on through windows."""

    def __init__(self, by: str, context: Context) -> None:
        """by: a word of DIMENSIONS, or PROCESS_OF_OWNER."""
        self._by, self._context = by, context
        self._key = KEYS[by](context) if by in DIMENSIONS and by not in WRITERS else None
        self.of_writers = self._key is None
        """Whether parties are who wrote the data, or reads it: a thread's name, and a cgroup."""
        self._writers = Codes[tuple[str, int]]()
        self.code_of_task: dict[int, int] = {}
        """Of writers: row of the thread in the log's tasks → code of the I/O it queued last."""

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        key = self._key
        found = self.codes_of_writers(window) if key is None else key.codes(window, samples)
        return np.where(window.bios.own, _RECORDER, found) if window.bios.own.any() else found

    def codes_of_writers(self, window: Lifecycles) -> I64:
        bios, comms, code = window.bios, window.tasks.comm, self._writers.of
        pairs, place = distinct(bios.task, bios.cgroup.view(np.int64))
        of_pair = [
            code((str(comms[task]) if task >= 0 else "", group & _U64)) for task, group in pairs
        ]
        self.code_of_task.update(zip((task for task, _ in pairs), of_pair, strict=True))
        found = np.array(of_pair, np.int64)[place]
        if window.path is None:
            return found
        paths = window.path.bios
        row, dirtied = rows_dirtied(paths, bios)
        if not len(dirtied):
            return found
        own, dirty = bios.cgroup[dirtied], paths.dirty_cgroup[row]
        group = np.where(dirty == 0, own, dirty)
        comm, which = np.unique(paths.dirty_comm[row], return_inverse=True)
        texts = [one.decode("utf-8", "replace") for one in comm.tolist()]
        pairs, place = distinct(which.reshape(-1), group.view(np.int64))
        of_pair = [code((texts[text], group & _U64)) for text, group in pairs]
        found[dirtied] = np.array(of_pair, np.int64)[place]
        return found

    def name(self, code: int) -> str:
        """By all that is known so far. Equal names are one party."""
        if code == _RECORDER:
            return RECORDER
        if self._key is None:
            return _name_of_writer(self._by, self._context, *self._writers.values[code])
        name = self._key.name(self._key.canonical(code))
        kind = name.get("file_kind")
        if kind == "device":
            return f"({name.get('device')}: metadata, or the device itself)"
        value = next((v for v in name.values() if v is not None), None)  # that says something
        return NOT_KNOWN if value is None else f"({value})" if value == kind else str(value)

    def of_task(self, tasks: Tasks, row: int) -> str:
        """Return a writer's name by its row in `tasks` and the cgroup of its I/O."""
        if row >= 0 and row in self.code_of_task:
            return self.name(self.code_of_task[row])
        comm = str(tasks.comm[row]) if row >= 0 else ""
        return _name_of_writer(self._by, self._context, comm, 0)

    def suspects(self, tasks: Tasks, pids: set[int], cgroup: str) -> tuple[set[int], set[int]]:
        """Return (codes of a suspect's I/O, those of them that others have, too), of writers."""
        its = {
            code
            for code, (_, group) in enumerate(self._writers.values)
            if cgroup and f"{self._context.cgroups.get(group, '')}/".startswith(f"{cgroup}/")
        }
        by_pid: set[int] = set()
        others: set[int] = set()
        for row, code in self.code_of_task.items():
            if row >= 0 and code not in its:
                (by_pid if tasks.pid(row) in pids else others).add(code)
        return its | by_pid, by_pid & others


def _name_of_writer(by: str, context: Context, comm: str, cgroup: int) -> str:
    process = WORKERS.rstrip("/") if comm.startswith(WORKERS) else comm or NOT_KNOWN
    path = context.cgroups.get(cgroup)
    if by == "process":
        return process
    if by == "cgroup":
        return path or (f"cgroup {cgroup}" if cgroup else NOT_KNOWN)
    named = context.cgroup_names.name(cgroup)
    if by == "unit":
        return named.unit or named.slice or "(no unit)"
    if by == "container" or named.container_id is not None or named.pod_uid is not None:
        # The name of the container, or its id; of a pod alone, the pod's.
        known = named.container or (named.container_id or "")[:12]
        pod = named.pod or named.pod_uid
        within = f"{pod} {known}".strip() if pod else known
        within = f"{named.namespace}/{within}" if named.namespace and pod else within
        owner = f"{within} (monitor)" if within and named.monitor else within or "(no container)"
    else:  # the unit, else the cgroup (but the root), or the thread
        owner = named.unit or (path if path and path != "/" else process)
    return f"{process} of {owner}" if by == PROCESS_OF_OWNER and owner != process else owner
