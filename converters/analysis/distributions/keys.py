# SPDX-License-Identifier: Apache-2.0
"""What I/O can be grouped by: each key gives codes for a window's bios, and codes' names."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from biotrail.converters.analysis.distributions.groups import OTHERS
from biotrail.converters.analysis.distributions.keys_files import ByDirectory, ByInode, ByPath
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.tables import I64, NO_CPU, Lifecycles

OP_BITS = 8
Name = Mapping[str, str | int | None]
"""What a group is called, by field: device, operation, process, …"""


@runtime_checkable
class NamedLate(Protocol):
    """A key whose codes can turn out to be one group's."""

    def canonical(self, code: int) -> int:
        """Return the code that `code` counts for."""


class Key(Protocol):
    """Codes are int64 of at least 0."""

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """The group of each of the window's bios."""

    def name(self, code: int) -> Name:
        """What a code stands for."""


def canonical(key: Key, code: int) -> int:
    """Return the code that `code` counts for, once the log has been read to its end.

    They differ where a group's name was learned after its first I/O: see ByPath.
    """
    return code if code == OTHERS or not isinstance(key, NamedLate) else key.canonical(code)


def operation(context: Context, place: int) -> str:
    """Operation of a Samples.place."""
    return context.op_name(place & ((1 << OP_BITS) - 1))


class ByPlace:
    """Device and operation: `Samples.place`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return samples.place

    def name(self, code: int) -> Name:
        """See Key."""
        dev = code >> OP_BITS
        return {
            "device": self._context.device_name(dev),
            "dev": dev_numbers(dev),
            "operation": operation(self._context, code),
        }


class ByDevice:
    """Device."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return samples.place >> OP_BITS

    def name(self, code: int) -> Name:
        """See Key."""
        return {"device": self._context.device_name(code), "dev": dev_numbers(code)}


class ByOperation:
    """Operation, of all devices."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return samples.place & ((1 << OP_BITS) - 1)

    def name(self, code: int) -> Name:
        """See Key."""
        return {"operation": operation(self._context, code)}


class ByProcess:
    """Name of the thread that submitted, and its process's id."""

    def __init__(self, context: Context) -> None:
        self._known: dict[tuple[int, str], int] = {(0, ""): 0}
        self._names: list[tuple[int, str]] = [(0, "")]
        self._of_task = np.zeros(0, dtype=np.int64)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key. Rows of the window's tasks never change: only new ones are looked at."""
        tasks, old = window.tasks, len(self._of_task)
        new = [
            self._code(int(tgid), str(comm))
            for tgid, comm in zip(tasks.tgid[old:].tolist(), tasks.comm[old:].tolist(), strict=True)
        ]
        self._of_task = np.concatenate([self._of_task, np.array(new, dtype=np.int64)])
        task = window.bios.task
        if not len(self._of_task):
            return np.zeros(len(task), dtype=np.int64)
        return np.where(task >= 0, self._of_task[np.maximum(task, 0)], 0)

    def _code(self, tgid: int, comm: str) -> int:
        code = self._known.setdefault((tgid, comm), len(self._names))
        if code == len(self._names):
            self._names.append((tgid, comm))
        return code

    def name(self, code: int) -> Name:
        """See Key. Both None: not known."""
        pid, comm = self._names[code]
        return {"process": comm, "pid": pid} if code else {"process": None, "pid": None}


class ByCgroup:
    """The cgroup that is charged."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[int, int] = {}
        self._ids: list[int] = []

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        ids, place = np.unique(window.bios.cgroup, return_inverse=True)
        new = [self._code(one) for one in ids.tolist()]
        return np.array(new, dtype=np.int64)[place]

    def _code(self, one: int) -> int:
        code = self._known.setdefault(one, len(self._ids))
        if code == len(self._ids):
            self._ids.append(one)
        return code

    def name(self, code: int) -> Name:
        """See Key. A path of None: the log does not name this id; an id of 0: not known."""
        one = self._ids[code]
        return {"cgroup": self._context.cgroups.get(one), "cgroup_id": one}


class ByCpu:
    """The CPU that queued it."""

    def __init__(self, context: Context) -> None:
        pass

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return window.bios.cpu.astype(np.int64)

    def name(self, code: int) -> Name:
        """See Key. None: not known."""
        return {"cpu": None if code == NO_CPU else code}


KEYS: dict[str, Callable[[Context], Key]] = {
    "process": ByProcess,
    "device": ByDevice,
    "op": ByOperation,
    "cgroup": ByCgroup,
    "file": ByPath,
    "inode": ByInode,
    "dir": ByDirectory,
    "cpu": ByCpu,
}
"""By the word that --by takes."""


OF_FILES = ("file", "inode", "dir")
"""Of these, those that need a log with files."""


def name_of(key: Key, code: int) -> Name:
    """The group's name; of all that were too many to be kept apart: {"others": 1}."""
    return {"others": 1} if code == OTHERS else key.name(code)
