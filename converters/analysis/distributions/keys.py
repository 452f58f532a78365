# SPDX-License-Identifier: Apache-2.0
"""Keys that I/O is grouped by: each maps a window's bios to codes, and codes to group names."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from biotrail.converters.analysis.choosing.choosing import NO_FILES
from biotrail.converters.analysis.distributions.groups import OTHERS
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.behalf import doers
from biotrail.converters.calls.keys import rows_dirtied, rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.files import OTHER_DEV, File
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.tables import (
    I64,
    NO_CPU,
    OP_MASK,
    Bool,
    Lifecycles,
    PageKind,
    Tasks,
    known_id,
)
from biotrail.converters.lifecycles.operations import CLEARED, FLUSH
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.recorder.schema.cgroup_paths import CgroupName
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ConversionError

Value = TypeVar("Value", bound=Hashable)
Name = Mapping[str, str | int | None]
"""Name of a group: field (device, operation, process, …) → value."""


class Codes(Generic[Value]):
    """Codes of values, given out from 0 on in the order in which they come."""

    def __init__(self, *values: Value) -> None:
        self.values = list(values)
        self._codes = {value: code for code, value in enumerate(values)}

    def of(self, value: Value) -> int:
        code = self._codes.setdefault(value, len(self.values))
        if code == len(self.values):
            self.values.append(value)
        return code

    def all_of(self, values: Iterable[Value]) -> I64:
        return np.array([self.of(value) for value in values], dtype=np.int64)


OP_BITS = 8
"""Bits of the operation's number in a place: `dev << OP_BITS | operation` (Samples.place)."""


@dataclass
class Key(ABC):
    """One way of grouping bios. Codes are int64 of at least 0."""

    context: Context

    @abstractmethod
    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's group, (n,), by the window's bios or their samples.

        Windows have to come in the log's order, as keys may number groups as they occur.
        """

    @abstractmethod
    def name(self, code: int) -> Name: ...
    def canonical(self, code: int) -> int:
        """Return the group's code at the end: its name may be learned after its first I/O."""
        return code


@dataclass
class ByCall(Key):
    _names: Codes[str | None] = field(default_factory=lambda: Codes[str | None](None))

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        found = np.zeros(len(window.bios), dtype=np.int64)
        if window.path is None:
            return found
        paths = window.path.bios
        row, known = rows_of(paths.number, window.bios.number)
        with_call = np.flatnonzero(known)
        with_call = with_call[paths.call[row[with_call]] != NO_CALL]
        row = row[with_call]
        numbers = paths.call[row].astype(np.int64) * 2 + paths.foreign[row]
        distinct, place = np.unique(numbers, return_inverse=True)
        machine = self.context.machine
        names = (
            name_of_call(number >> 1, bool(number & 1), machine) for number in distinct.tolist()
        )
        found[with_call] = self._names.all_of(names)[place]
        return found

    def name(self, code: int) -> Name:
        return {"call": self._names.values[code]}


_MOST_NAMES = 3
"""Threads whose names stand for a process whose own name is not known."""
_ROOT = 1
WORKERS = "kworker/"
"""Beginning of the names of the kernel's workers, which write what others asked for."""


@dataclass
class ProcessNames:
    """The last name of each thread-group leader; without one, the names of its threads."""

    _read: int = 0
    _leaders: dict[int, str] = field(default_factory=dict)
    _threads: dict[int, dict[str, None]] = field(default_factory=dict)

    def take(self, tasks: Tasks) -> list[tuple[int, int, str]]:
        """Read and return the rows that are new since the last call: (tid, tgid, name) each."""
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
        names = self._threads.setdefault(tgid, {})
        if len(names) <= _MOST_NAMES:
            names.setdefault(comm)

    def __getitem__(self, tgid: int) -> str:
        """By what was read so far; "": nothing is known of it."""
        leader = self._leaders.get(tgid)
        if leader is not None:
            return leader
        names = list(self._threads.get(tgid, {}))
        return ", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])])


@dataclass
class ByProcess(Key):
    """Key: the process of the thread whose I/O it is, which need not have queued it."""

    _names: ProcessNames = field(default_factory=ProcessNames)
    _groups: Codes[tuple[int, str, int]] = field(default_factory=lambda: Codes((-1, "", 0)))
    _of_task: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _worker: Bool = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """What workers queued for nobody known is a group for each charged cgroup, but the root."""
        rows = self._names.take(window.tasks)
        # Idle tasks, one a CPU, share the id 0 and are no process: their names tell them apart.
        new = self._groups.all_of((tgid, "" if tgid else comm, 0) for _, tgid, comm in rows)
        self._of_task = np.concatenate([self._of_task, new])
        workers = np.array([comm.startswith(WORKERS) for *_, comm in rows], dtype=np.bool_)
        self._worker = np.concatenate([self._worker, workers])
        task = doers(window.bios)
        found = take_or(self._of_task, task, 0)
        charged = (window.bios.cgroup & np.uint64(0xFFFFFFFF)) > _ROOT
        for_cgroup = np.flatnonzero(charged & take_or(self._worker, task, False))
        if len(for_cgroup):
            cgroups, at = np.unique(window.bios.cgroup[for_cgroup], return_inverse=True)
            name = WORKERS.rstrip("/")
            codes = self._groups.all_of((0, name, cgroup) for cgroup in cgroups.tolist())
            found[for_cgroup] = codes[at]
        return found

    def name(self, code: int) -> Name:
        """Of what workers queued for a cgroup also `cgroup` and `cgroup_id`."""
        if not code:
            return {"process": None, "pid": None, "title": None}
        pid, named, cgroup = self._groups.values[code]
        if cgroup:
            path = self.context.cgroups.get(cgroup)
            nobody: Name = {"process": named, "pid": None, "title": None}
            return {**nobody, "cgroup": path, "cgroup_id": cgroup}
        process, known = named or self._names[pid], known_id(pid)
        title = self.context.titles.title(known, process)
        return {"process": process, "pid": known, "title": title}


@dataclass
class ByThread(Key):
    _names: ProcessNames = field(default_factory=ProcessNames)
    _groups: Codes[tuple[int, int, str]] = field(default_factory=lambda: Codes((-1, -1, "")))
    _of_task: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        new = self._groups.all_of(self._names.take(window.tasks))
        self._of_task = np.concatenate([self._of_task, new])
        return take_or(self._of_task, doers(window.bios), 0)

    def name(self, code: int) -> Name:
        if not code:
            return {"thread": None, "tid": None, "process": None, "pid": None}
        tid, tgid, comm = self._groups.values[code]
        process = self._names[tgid] if tgid else comm
        return {
            **{"thread": comm, "tid": known_id(tid)},
            **{"process": process, "pid": known_id(tgid)},
        }


@dataclass
class ByCgroup(Key):
    _ids: Codes[int] = field(default_factory=Codes[int])

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        ids, _, place = distinct_values(window.bios.cgroup)
        return self._ids.all_of(ids.view(np.uint64).tolist())[place]

    def name(self, code: int) -> Name:
        """cgroup: path, None if not in the log. cgroup_id: 0 if not known."""
        one, names = self._ids.values[code], self.context.cgroup_names
        path, named = self.context.cgroups.get(one), names.name(one)
        kind = "not known" if path is None else named.kind
        return {"cgroup": path, "cgroup_id": one, **named.fields(), "cgroup_kind": kind}


IDENTITIES: dict[str, tuple[tuple[str, ...], Callable[[CgroupName], str]]] = {
    "unit": (
        ("unit", "slice"),
        lambda named: "unit" if named.unit else "slice" if named.slice else "none",
    ),
    "container": (
        ("container", "container_id", "runtime", "pod", "pod_uid", "namespace"),
        lambda named: named.kind if named.kind in ("container", "monitor", "pod") else "none",
    ),
    "pod": (
        ("pod", "namespace", "pod_uid"),
        lambda named: "pod" if named.pod or named.namespace or named.pod_uid else "none",
    ),
    "namespace": (
        ("namespace",),
        lambda named: (
            "namespace"
            if named.namespace is not None
            else "none"
            if named.qos is None
            else "not known"
        ),
    ),
}
"""What a cgroup is: word that --by takes → (fields of CgroupName that name it, its kind).

A container is the innermost one, or a guest; its monitor is a group of its own."""


@dataclass
class ByIdentity(ByCgroup):
    """Key: what the cgroup is: all cgroups with the same name are one group.

    Codes are of cgroups, as a path, or a container's name, may become known after the first I/O.
    `canonical` maps them to the first code of the same group.
    """

    word: str = "unit"
    _first: list[int] = field(default_factory=list)
    """First code of each code's group, by what was known then: see `_known_at`."""
    _known_at: tuple[int, int] = (-1, -1)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Of cgroups that are known to be the same group it is the first one's code."""
        found, place = np.unique(super().codes(window, samples), return_inverse=True)
        firsts = np.array([self.canonical(code) for code in found.tolist()], dtype=np.int64)
        return firsts[place]

    def canonical(self, code: int) -> int:
        if code == OTHERS:
            return code
        known = self.context.cgroup_names.changes, len(self._ids.values)
        if known != self._known_at:
            first: dict[tuple[str | int | None, ...], int] = {}
            self._first = [
                first.setdefault(tuple(self.name(one).values()), one)
                for one in range(len(self._ids.values))
            ]
            self._known_at = known
        return self._first[code]

    def name(self, code: int) -> Name:
        one, names = self._ids.values[code], self.context.cgroup_names
        fields, kind_of = IDENTITIES[self.word]
        named = names.name(one)
        kind = kind_of(named) if names.knows(one) else "not known"
        return {**{name: getattr(named, name) for name in fields}, "cgroup_kind": kind}


_Writer = tuple[int, str, int]
_UNKNOWN_WRITER = (-1, "not known")
_EARLIER = (-1, "dirtied before the recording, or not kept")
"""Writers that are not known, and why; the reason stands where idle tasks have a name."""
_OTHERS_PAGES = (
    ((int(PageKind.FILE), int(PageKind.DEVICE)), _EARLIER),
    ((int(PageKind.SWAP),), _UNKNOWN_WRITER),
)
"""Kinds of pages that whoever writes them need not have dirtied, and what their writer is then."""
RECORDER = "(the recorder)"


@dataclass
class ByWriter(Key):
    """Key: the task that dirtied the page which is written back; else who queued for itself."""

    _names: ProcessNames = field(default_factory=ProcessNames)
    _writers: Codes[_Writer] = field(default_factory=Codes[_Writer])

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """A writer is a process and a cgroup: of who dirtied the bio's first page, if it is known.

        Else of the thread for which it was queued, or that queued it, with the cgroup that is
        charged. Who writes back a page of the cache, or swaps one out, is not its writer, and a
        worker of the kernel acts for others: then the writer is not known.
        """
        bios, tasks = window.bios, window.tasks
        self._names.take(tasks)
        pairs = np.empty(len(bios), np.dtype([("task", "<i8"), ("cgroup", "<u8")]))
        pairs["task"], pairs["cgroup"] = doers(bios), bios.cgroup
        distinct, place = np.unique(pairs, return_inverse=True)
        of_pair = [
            (
                *(self._who(int(tasks.tgid[t]), str(tasks.comm[t])) if t >= 0 else _UNKNOWN_WRITER),
                cgroup,
            )
            for t, cgroup in distinct.tolist()
        ]
        found = self._writers.all_of(of_pair)[place]
        op = (bios.opf & OP_MASK).astype(np.int64)
        numbers = [self.context.op_number(name) for name in ("write", "zone_append")]
        writes = np.isin(op, [number for number in numbers if number >= 0])
        for kinds, why in _OTHERS_PAGES:
            rows = np.flatnonzero(writes & np.isin(bios.page, kinds))
            found[rows] = self._writers.all_of([(*why, one) for one in bios.cgroup[rows].tolist()])
        if window.path is None:
            return found
        paths = window.path.bios
        row, dirtied = rows_dirtied(paths, bios)
        comms = [comm.decode("utf-8", "replace") for comm in paths.dirty_comm[row].tolist()]
        cgroup = paths.dirty_cgroup[row]
        cgroup = np.where(cgroup == 0, bios.cgroup[dirtied], cgroup)
        who = map(self._who, paths.dirty_pid[row].tolist(), comms)
        found[dirtied] = self._writers.all_of(
            [(*task, one) for task, one in zip(who, cgroup.tolist(), strict=True)]
        )
        return found

    def _who(self, pid: int, comm: str) -> tuple[int, str]:
        """Return a thread's process; with a name where that alone tells it apart (idle tasks)."""
        if comm.startswith(WORKERS):
            return _UNKNOWN_WRITER
        if pid <= 0:
            return pid, comm
        self._names.add_thread(pid, comm)
        return pid, ""

    def name(self, code: int) -> Name:
        """`writer` says why the writer is not known; then process and pid are None."""
        pid, comm, cgroup = self._writers.values[code]
        known = pid >= 0
        process = comm or self._names[pid]
        why = {} if known else {"writer": comm}
        return {
            **why,
            "process": process if known else None,
            "pid": known_id(pid) if known else None,
            "title": self.context.titles.title(known_id(pid), process) if known else None,
            "cgroup": self.context.cgroups.get(cgroup),
            "cgroup_id": cgroup,
        }


NO_DATA = frozenset({FLUSH, *CLEARED})
"""Operations whose bios carry no pages."""
_KINDS = ("no data", "not known", "swap", "journal", "metadata", "no I/O")
"""file_kind by code of what has no file; files follow."""
_EMPTY, _UNKNOWN, _SWAP, _JOURNAL, _METADATA, NO_IO = range(len(_KINDS))
_FIRST = len(_KINDS)
_PURPOSES = {
    Purpose.NONE: _EMPTY,
    Purpose.SWAP: _SWAP,
    Purpose.JOURNAL: _JOURNAL,
    Purpose.METADATA: _METADATA,
}
_OF_PURPOSE = np.array([_PURPOSES.get(one, _UNKNOWN) for one in sorted(Purpose)], np.int64)


@dataclass
class ByInode(Key):
    """Key: inode of the file whose pages the bio carries. Codes: row in Context.files, + _FIRST.

    Bios without a file: a code below _FIRST, by what they are for.
    """

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        row = window.bios.file.astype(np.int64)
        found = row + _FIRST
        missing = np.flatnonzero(row < 0)
        if len(missing):
            bios = window.bios if len(missing) == len(row) else window.bios.take(missing)
            found[missing] = _OF_PURPOSE[purposes(bios, window.tasks, self.context)]
            operations, names = self.context.op_codes(bios.opf)
            empty = np.array([name in NO_DATA for name in names], dtype=np.bool_)[operations]
            found[missing[empty | (bios.bytes == 0)]] = _EMPTY
        return found

    def name(self, code: int) -> Name:
        """file: the last path; `file_was`, if it was renamed: the one before.

        file_kind: "file"; "no name" (`file` then says the inode); "other" (a call's descriptor of
        what is no file); "device" (a block device's own pages: `device` names it); or one of _KINDS
        (the bio has no file). container_file: where containers see a file in a layer of an overlay.
        """
        if code < _FIRST:
            return {"file": None, "file_kind": _KINDS[code], "file_dev": None, "inode": None}
        file = self.context.files[code - _FIRST]
        path, inode = (None, None) if file.device else (file.path, file.inode)
        kind = "file" if file.known else "no name"
        if file.device:
            kind = "device"
        elif file.dev == OTHER_DEV:
            kind = "other"
        fields = {"file": path, "file_kind": kind}
        if file.dev == OTHER_DEV:
            return {**fields, "file_dev": None, "inode": None}
        if file.was is not None:
            fields["file_was"] = file.was
        device = {"device": file.path} if file.device else {}
        label = {"label": file.label} if file.label else {}
        if (seen := file.in_container) is not None:
            label["container_file"] = seen
        return {**fields, "file_dev": dev_text(file.dev), "inode": inode, **device, **label}


@dataclass
class ByPath(ByInode):
    """Key: path of the file, whichever inodes had that path; without a file as ByInode.

    A path can become known after the file's first I/O, and changes when the file is renamed: such
    I/O has a code of its own, which `canonical` maps to that of the last path. Only where another
    file got the earlier path before the change was noticed, the I/O until then stays with that.
    """

    _next: int = _FIRST
    _codes: dict[tuple[int, str], int] = field(default_factory=dict)
    """(dev_t, `_words` of the file) → code."""
    _inodes: dict[int, set[int]] = field(default_factory=dict)
    """Code → rows of its files in Context.files."""
    _renamed: int = 0
    """Rows of `Context.files.renamed` that were looked at."""
    _of_row: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per row of Context.files: code, or 0 if not asked for yet or without a name so far."""

    def _words(self, file: File) -> str:
        return file.path

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """The same path on two devices has two codes, and so has a file without a path yet."""
        self._take_renamed()
        inodes = super().codes(window, samples)
        rows, place = np.unique(inodes, return_inverse=True)
        if len(rows) and rows[-1] - _FIRST >= len(self._of_row):
            room = np.zeros(2 * int(rows[-1]), dtype=np.int64)
            room[: len(self._of_row)] = self._of_row
            self._of_row = room
        found = []
        for inode in rows.tolist():
            row, code = inode - _FIRST, inode
            if row >= 0 and not (code := int(self._of_row[row])):
                file = self.context.files[row]
                code = self._code_of(file)
                self._inodes.setdefault(code, set()).add(row)
                if file.known:  # else a path can follow
                    self._of_row[row] = code
            found.append(code)
        return np.array(found, dtype=np.int64)[place]

    def _take_renamed(self) -> None:
        """Free the codes of paths that renamed files alone had."""
        renamed = self.context.files.renamed
        for row in renamed[self._renamed :]:
            code = int(self._of_row[row]) if row < len(self._of_row) else 0
            if not code:
                continue
            self._of_row[row] = 0
            rows = self._inodes[code]
            if len(rows) > 1:
                rows.discard(row)
            else:
                self._codes = {key: one for key, one in self._codes.items() if one != code}
        self._renamed = len(renamed)

    def _code_of(self, file: File) -> int:
        code = self._codes.setdefault((file.dev, self._words(file)), self._next)
        self._next += code == self._next
        return code

    def canonical(self, code: int) -> int:
        if code < _FIRST:
            return code
        self._take_renamed()
        rows = self._inodes[code]
        codes = {self._code_of(self.context.files[row]) for row in rows}
        if len(codes) > 1:
            return code
        [path] = codes
        self._inodes.setdefault(path, set()).update(rows)
        return path

    def name(self, code: int) -> Name:
        """`inodes`: how many had the path; of several, `inode` is None."""
        if code < _FIRST:
            return {**super().name(code), "inodes": 0}
        rows = self._inodes[code]
        fields = super().name(min(rows) + _FIRST)
        if fields["file"] is None:
            return {**fields, "inodes": 0}
        if len(rows) > 1:
            fields = {name: value for name, value in fields.items() if name != "file_was"}
        inode = fields["inode"] if len(rows) == 1 else None
        return {**fields, "inode": inode, "inodes": len(rows)}


@dataclass
class ByDirectory(ByPath):
    """Key: directory of the file; files without a known name form one group per device."""

    def _words(self, file: File) -> str:
        if file.device:
            return file.path
        if not file.known:
            return ""
        parent = posixpath.dirname(file.path)  # `/srv/db`, `/`, or `sda1:` from `sda1:/db`
        return f"{parent}/" if parent.endswith(":") else parent

    def name(self, code: int) -> Name:
        """dir: None where file_kind is not "file"."""
        fields = super().name(code)
        path = None
        if fields["file_kind"] == "file":
            path = self._words(self.context.files[min(self._inodes[code])])
        of_file = ("file", "inode", "file_was", "label", "container_file")
        return {"dir": path, **{name: fields[name] for name in fields if name not in of_file}}


@dataclass
class ByNumber(Key):
    """Key: a number that each bio has: its place (Samples.place), or the one `word` names."""

    word: str = "place"

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        if self.word == "cpu":
            return window.bios.cpu.astype(np.int64)
        if self.word == "purpose":
            return purposes(window.bios, window.tasks, self.context).astype(np.int64)
        if self.word == "device":
            return samples.place >> OP_BITS
        return samples.place & OP_MASK if self.word == "op" else samples.place

    def name(self, code: int) -> Name:
        if self.word == "cpu":
            return {"cpu": None if code == NO_CPU else code}
        if self.word == "purpose":
            return {"purpose": PURPOSE_NAMES.get(Purpose(code), "no data")}
        operation: Name = {"operation": self.context.op_name(code & OP_MASK)}
        if self.word == "op":
            return operation
        dev = code if self.word == "device" else code >> OP_BITS
        device: Name = {"device": self.context.device_name(dev), "dev": dev_text(dev)}
        return device if self.word == "device" else {**device, **operation}


KEYS: dict[str, Callable[[Context], Key]] = {
    "process": ByProcess,
    "thread": ByThread,
    "device": partial(ByNumber, word="device"),
    "op": partial(ByNumber, word="op"),
    "cgroup": ByCgroup,
    **{word: partial(ByIdentity, word=word) for word in IDENTITIES},
    "file": ByPath,
    "inode": ByInode,
    "dir": ByDirectory,
    "cpu": partial(ByNumber, word="cpu"),
    "call": ByCall,
    "writer": ByWriter,
    "purpose": partial(ByNumber, word="purpose"),
}


OF_FILES = ("file", "inode", "dir")
"""Words of KEYS that need a log with files (record --files)."""

OF_PATH = {"call": "call", "writer": "dirty"}
"""Word of KEYS that needs a log with the path → part of `record --path` that it needs."""


def check_recorded(by: str | None, context: Context) -> None:
    """Raise ConversionError if the log lacks what I/O is to be grouped by."""
    if by in OF_FILES and not context.has_files:
        raise ConversionError(NO_FILES)
    part = OF_PATH.get(by or "")
    if part and part not in context.path_parts:
        raise ConversionError(
            f"--by {by} needs a log with the part {part} of the path: record again with biotrail "
            "record --path"
        )


def name_of(key: Key, code: int) -> Name:
    return {"others": 1} if code == OTHERS else key.name(code)
