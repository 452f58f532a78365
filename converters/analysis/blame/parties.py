# SPDX-License-Identifier: Apache-2.0
"""Parties: whose each bio is, by one of several dimensions, and by what name.

What a worker writes back is its writer's, where the log says who dirtied the page.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from biotrail.converters.analysis.distributions.keys import (
    KEYS,
    RECORDER,
    WORKERS,
    Codes,
    Key,
)
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.keys import rows_dirtied
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.tables import I64, Lifecycles, Tasks

OWNER = "owner"
"""The dimension without an option: the most telling name of a bio's writer."""
NOT_KNOWN = "(not known)"


_RECORDER = (1 << 31) - 1
"""Code of the party of the recording's own I/O, in each dimension; those of others are less."""


class Parties(ABC):
    """One dimension of parties. Codes are int64 of at least 0, and count on through windows."""

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        found = self._codes(window, samples)
        return np.where(window.bios.own, _RECORDER, found) if window.bios.own.any() else found

    def name(self, code: int) -> str:
        """By all that is known so far. Equal names are one party."""
        return RECORDER if code == _RECORDER else self._name(code)

    @abstractmethod
    def _codes(self, window: Lifecycles, samples: Samples) -> I64: ...
    @abstractmethod
    def _name(self, code: int) -> str: ...


class Writers(Parties):
    """Parties by who wrote the data, or reads it: a thread's name, and a cgroup."""

    def __init__(self, context: Context, named: "Callable[[Context, str, int], str]") -> None:
        self._context = context
        self._named = named
        self._parties = Codes[tuple[str, int]]()
        self.code_of_task: dict[int, int] = {}
        """Row of the thread in the log's tasks → code of the I/O that it queued last."""

    def _codes(self, window: Lifecycles, samples: Samples) -> I64:
        return self.of_bios(window)

    def of_bios(self, window: Lifecycles) -> I64:
        bios, comms = window.bios, window.tasks.comm
        pairs, place = distinct(bios.task, bios.cgroup.view(np.int64))
        unsigned = [(task, group & (1 << 64) - 1) for task, group in pairs]
        of_pair = [
            self._parties.of((str(comms[task]) if task >= 0 else "", group))
            for task, group in unsigned
        ]
        tasks = (task for task, _ in unsigned)
        self.code_of_task.update(zip(tasks, of_pair, strict=True))
        found = np.array(of_pair, np.int64)[place]
        if window.path is None:
            return found
        paths = window.path.bios
        row, dirtied = rows_dirtied(paths, bios)
        if not len(dirtied):
            return found
        group = np.where(
            paths.dirty_cgroup[row] == 0, bios.cgroup[dirtied], paths.dirty_cgroup[row]
        )
        comm, which = np.unique(paths.dirty_comm[row], return_inverse=True)
        texts = [one.decode("utf-8", "replace") for one in comm.tolist()]
        pairs, place = distinct(which.reshape(-1), group.view(np.int64))
        of_pair = [self._parties.of((texts[text], group & (1 << 64) - 1)) for text, group in pairs]
        found[dirtied] = np.array(of_pair, np.int64)[place]
        return found

    def of_task(self, tasks: Tasks, row: int) -> str:
        """By its row in `tasks` and the cgroup of its I/O."""
        code = self.code_of_task.get(row)
        comm = str(tasks.comm[row]) if row >= 0 else ""
        return self._named(self._context, comm, 0) if code is None or row < 0 else self.name(code)

    def _name(self, code: int) -> str:
        return self._named(self._context, *self._parties.values[code])

    def suspects(self, tasks: Tasks, pids: set[int], cgroup: str) -> tuple[set[int], set[int]]:
        """Return (codes of a suspect's I/O, those of them that others have, too)."""
        its = {
            code
            for code, (_, group) in enumerate(self._parties.values)
            if cgroup and f"{self._context.cgroups.get(group, '')}/".startswith(f"{cgroup}/")
        }
        by_pid: set[int] = set()
        others: set[int] = set()
        for row, code in self.code_of_task.items():
            if row >= 0 and code not in its:
                (by_pid if tasks.pid(row) in pids else others).add(code)
        return its | by_pid, by_pid & others


class Keyed(Parties):
    def __init__(self, key: Key) -> None:
        self._key = key

    def _codes(self, window: Lifecycles, samples: Samples) -> I64:
        return self._key.codes(window, samples)

    def _name(self, code: int) -> str:
        name = self._key.name(self._key.canonical(code))
        kind = name.get("file_kind")
        if kind == "device":
            return f"({name.get('device')}: metadata, or the device itself)"
        value = next((v for v in name.values() if v is not None), None)  # that says something
        return NOT_KNOWN if value is None else f"({value})" if value == kind else str(value)


def _process(_context: Context, comm: str, _cgroup: int) -> str:
    return WORKERS.rstrip("/") if comm.startswith(WORKERS) else comm or NOT_KNOWN


def _cgroup(context: Context, _comm: str, cgroup: int) -> str:
    return context.cgroups.get(cgroup) or (f"cgroup {cgroup}" if cgroup else NOT_KNOWN)


def _container(context: Context, _comm: str, cgroup: int) -> str:
    """The name of the container, or its id; of a pod alone, the pod's."""
    named = context.cgroup_names.name(cgroup)
    known = named.container or (named.container_id or "")[:12]
    pod = named.pod or named.pod_uid
    within = f"{pod} {known}".strip() if pod else known
    within = f"{named.namespace}/{within}" if named.namespace and pod else within
    return f"{within} (monitor)" if within and named.monitor else within or "(no container)"


def _unit(context: Context, _comm: str, cgroup: int) -> str:
    named = context.cgroup_names.name(cgroup)
    return named.unit or named.slice or "(no unit)"


def _owner(context: Context, comm: str, cgroup: int) -> str:
    """The container, else the unit, else the cgroup (but the root), or the thread."""
    named = context.cgroup_names.name(cgroup)
    if named.container_id is not None or named.pod_uid is not None:
        return _container(context, comm, cgroup)
    if named.unit:
        return named.unit
    path = context.cgroups.get(cgroup)
    return path if path and path != "/" else _process(context, comm, cgroup)


def process_of_owner(context: Context, comm: str, cgroup: int) -> str:
    """Return a thread's name, and its owner where that is more than the thread: `dd of backup`."""
    process, owner = _process(context, comm, cgroup), _owner(context, comm, cgroup)
    return process if owner == process else f"{process} of {owner}"


_OF_WRITERS: dict[str, Callable[[Context, str, int], str]] = {
    OWNER: _owner,
    "container": _container,
    "unit": _unit,
    "cgroup": _cgroup,
    "process": _process,
}
_OF_KEYS = ("file", "dir", "device", "op", "purpose", "call")
DIMENSIONS = (*_OF_WRITERS, *_OF_KEYS)
"""Words of --by: what parties are told apart by."""
WRITERS = tuple(_OF_WRITERS)


def parties(by: str, context: Context) -> Parties:
    if by in _OF_WRITERS:
        return Writers(context, _OF_WRITERS[by])
    return Keyed(KEYS[by](context))
