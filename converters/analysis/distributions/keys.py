# SPDX-License-Identifier: Apache-2.0
"""Keys that I/O is grouped by: each maps a window's bios to codes, and codes to group names."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from biotrail.converters.analysis.choosing.choosing import NO_FILES
from biotrail.converters.analysis.distributions.groups import OTHERS
from biotrail.converters.analysis.distributions.keys_cgroup import (
    ByCgroup,
    ByContainer,
    ByNamespace,
    ByPod,
    ByUnit,
)
from biotrail.converters.analysis.distributions.keys_files import ByDirectory, ByInode, ByPath
from biotrail.converters.analysis.distributions.keys_path import ByCall, ByPurpose
from biotrail.converters.analysis.distributions.keys_writer import ByWriter
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.tables import I64, NO_CPU, Lifecycles, known_id
from biotrail.recorder.schema.errors import ConversionError

OP_BITS = 8
"""Bits of the operation's number in a place: `dev << OP_BITS | operation` (Samples.place)."""
Name = Mapping[str, str | int | None]
"""Name of a group: field (device, operation, process, …) → value."""


@runtime_checkable
class NamedLate(Protocol):
    """A key by which two codes can turn out, later in the log, to be the same group."""

    def canonical(self, code: int) -> int:
        """Return the code of the group to which the I/O of `code` belongs."""


class Key(Protocol):
    """One way of grouping bios. Codes are int64 of at least 0."""

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's group: int64, shape (len(window.bios),), at least 0.

        samples: of the window's bios, row by row. Windows have to come in the log's order, because
        keys may number groups as they occur.
        """

    def name(self, code: int) -> Name:
        """Return the name of the group with a code that `codes` returned."""


def canonical(key: Key, code: int) -> int:
    """Return the code of the group to which the I/O of `code` belongs, at the log's end.

    It differs from `code` where a group's name was learned after its first I/O, which then had a
    code of its own (see ByPath). For OTHERS (I/O of groups that were too many), and for keys
    without `canonical`, it is `code`.
    """
    return code if code == OTHERS or not isinstance(key, NamedLate) else key.canonical(code)


def operation(context: Context, place: int) -> str:
    """Return the name of the operation of a place (as in Samples.place)."""
    return context.op_name(place & ((1 << OP_BITS) - 1))


class ByPlace:
    """Key: device and operation. Codes are those of `Samples.place`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return samples.place

    def name(self, code: int) -> Name:
        """Return the name of a device and operation: `device`, `dev` (major:minor) and `operation`.

        code: a value of Samples.place, dev_t << OP_BITS | operation number.
        """
        dev = code >> OP_BITS
        return {
            "device": self._context.device_name(dev),
            "dev": dev_numbers(dev),
            "operation": operation(self._context, code),
        }


class ByDevice:
    """Key: device. Codes are dev_t."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return samples.place >> OP_BITS

    def name(self, code: int) -> Name:
        """See Key."""
        return {"device": self._context.device_name(code), "dev": dev_numbers(code)}


class ByOperation:
    """Key: operation, all devices together. Codes are operations' numbers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return samples.place & ((1 << OP_BITS) - 1)

    def name(self, code: int) -> Name:
        """See Key."""
        return {"operation": operation(self._context, code)}


class ByProcess:
    """Key: name of the submitting thread, and its process id."""

    def __init__(self, context: Context) -> None:
        self._titles = context.titles
        self._known: dict[tuple[int, str], int] = {(0, ""): 0}
        self._names: list[tuple[int, str]] = [(0, "")]
        self._of_task = np.zeros(0, dtype=np.int64)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's process: int64 (n,), by row of the window's bios.

        A process is a pair of process id and name of the submitting thread. 0: the submitter is not
        known. New processes get the next codes. samples: not used. A row of `window.tasks` never
        changes from window to window, so only rows that are new since the last call are read.
        """
        tasks, old = window.tasks, len(self._of_task)
        new = [
            self._code(int(tgid), str(comm))
            for tgid, comm in zip(tasks.tgid[old:].tolist(), tasks.comm[old:].tolist(), strict=True)
        ]
        self._of_task = np.concatenate([self._of_task, np.array(new, dtype=np.int64)])
        task = window.bios.task
        return take_or(self._of_task, task, 0)

    def _code(self, tgid: int, comm: str) -> int:
        """Return the code of a process; a new process gets the next code."""
        code = self._known.setdefault((tgid, comm), len(self._names))
        if code == len(self._names):
            self._names.append((tgid, comm))
        return code

    def name(self, code: int) -> Name:
        """See Key. All are None if the submitter is not known (code 0), pid if its id is not."""
        number, comm = self._names[code]
        if not code:
            return {"process": None, "pid": None, "title": None}
        pid = known_id(number)
        return {"process": comm, "pid": pid, "title": self._titles.title(pid, comm)}


class ByCpu:
    """Key: the CPU that queued the bio."""

    def __init__(self, context: Context) -> None:
        pass

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        return window.bios.cpu.astype(np.int64)

    def name(self, code: int) -> Name:
        """See Key. cpu is None where it is not known (NO_CPU)."""
        return {"cpu": None if code == NO_CPU else code}


KEYS: dict[str, Callable[[Context], Key]] = {
    "process": ByProcess,
    "device": ByDevice,
    "op": ByOperation,
    "cgroup": ByCgroup,
    "unit": ByUnit,
    "container": ByContainer,
    "pod": ByPod,
    "namespace": ByNamespace,
    "file": ByPath,
    "inode": ByInode,
    "dir": ByDirectory,
    "cpu": ByCpu,
    "call": ByCall,
    "writer": ByWriter,
    "purpose": ByPurpose,
}
"""Word that --by takes → key."""


OF_FILES = ("file", "inode", "dir")
"""Words of KEYS that need a log with files (record --files)."""

OF_PATH = {"call": "call", "writer": "dirty"}
"""Word of KEYS that needs a log with the path → part of `record --path` that it needs."""


def check_recorded(by: str | None, context: Context) -> None:
    """Raise ConversionError if the log lacks what I/O is to be grouped by.

    by: a word of KEYS; None: no grouping. context: the log's.
    """
    if by in OF_FILES and not context.has_files:
        raise ConversionError(NO_FILES)
    part = OF_PATH.get(by or "")
    if part and part not in context.path_parts:
        raise ConversionError(
            f"--by {by} needs a log with the part {part} of the path: record again with biotrail "
            "record --path"
        )


def name_of(key: Key, code: int) -> Name:
    """Return the group's name; for OTHERS {"others": 1}."""
    return {"others": 1} if code == OTHERS else key.name(code)
