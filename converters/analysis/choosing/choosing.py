# SPDX-License-Identifier: Apache-2.0
"""Choice of I/Os by device, operation, file and submitter, and by their outcome."""

import errno
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U32,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    Requests,
    Tasks,
)
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.lifecycles.windows import first_seen, last_seen
from biotrail.recorder.schema.cgroup_names import NO_NAMED, NamedCgroups
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ConversionError
from biotrail.recorder.schema.records import BLK_STATUS

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import Calls, Waits

NO_FILES = "this log does not say which files I/O is of: record again with biotrail record --files"


def device_named(context: Context, name: str) -> int | None:
    """Return the dev_t of `nvme0n1`, `/dev/mapper/data`, `mapper/data`, `data`, or `259:0`."""
    short = name.removeprefix("/dev/").removeprefix("mapper/")
    for dev, entry in context.devices.items():
        if short in (entry.get("name"), entry.get("dm_name"), dev_text(dev)):
            return dev
    major, _, minor = short.partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in (major, minor)):
        return None
    return int(major) << 20 | int(minor)


def matches(name: str, wanted: Iterable[str]) -> bool:
    """A name is one of those wanted, or begins as one that ends in `*`."""
    return any(name.startswith(n[:-1]) if n.endswith("*") else name == n for n in wanted)


@dataclass(frozen=True)
class Who:
    """Submitters of I/O. A bio has to match one item of each set that is not empty."""

    pids: frozenset[int] = frozenset()
    """Process ids."""
    comms: frozenset[str] = frozenset()
    """Thread names; a `*` at the end matches any rest."""
    cgroups: frozenset[str] = frozenset()
    """Paths, each with its subtree, or decimal ids. With `named` one set."""
    named: NamedCgroups = NO_NAMED
    """Cgroups by what they are."""

    @property
    def by_cgroup(self) -> bool:
        return bool(self.cgroups or self.named)

    def mask(self, context: Context, bios: Bios, tasks: Tasks) -> Bool:
        """Where `bios.task` is -1, `pids` match the thread's id, and no name matches."""
        chosen = self.of_threads(bios, tasks)
        return chosen & self.of_cgroups(context, bios)[0] if self.by_cgroup else chosen

    def of_threads(self, table: "Bios | Calls | Waits", tasks: Tasks) -> Bool:
        """Mark the rows whose thread matches `pids` and `comms`, as `mask`; not by cgroup."""
        chosen = np.ones(len(table), dtype=np.bool_)
        if self.pids:
            chosen &= self.of_processes(table, tasks)
        if self.comms:
            wanted = {comm: matches(str(comm), self.comms) for comm in set(tasks.comm.tolist())}
            chosen_tasks = [wanted[comm] for comm in tasks.comm.tolist()]
            chosen &= take_or(np.array(chosen_tasks, dtype=np.bool_), table.task, False)
        if isinstance(table, Bios) and (queued := np.flatnonzero(table.whom >= 0)).size:
            theirs = table.take(queued)
            theirs.task, theirs.whom = theirs.whom, np.full_like(theirs.whom, -1)
            chosen[queued] |= self.of_threads(theirs, tasks)
        return chosen

    def of_processes(self, table: "Bios | Calls | Waits | Pairs", tasks: Tasks) -> Bool:
        """Where the thread's process is not known (`table.task` is -1), its own id has to match."""
        pids = np.array(sorted(self.pids), dtype=np.int64)
        tgid = take_or(np.isin(tasks.tgid, pids), table.task, False)
        alone = (table.tid > 0) & np.isin(table.tid, pids)
        return np.asarray(np.where(table.task >= 0, tgid, alone), dtype=np.bool_)

    def of_cgroups(self, context: Context, bios: Bios) -> tuple[Bool, Bool]:
        """Mark the bios whose cgroup is chosen, and those where it is not known whether it is."""
        ids, id_of_bio = np.unique(bios.cgroup, return_inverse=True)
        above, names = [name.rstrip("/") for name in self.cgroups], context.cgroup_names
        chosen, unknown = [], []
        for one in ids.tolist():
            path, named = context.cgroups.get(one), bool(self.named)
            inside = str(one) in self.cgroups
            if path is not None:
                inside |= any(path == (n or "/") or path.startswith(f"{n}/") for n in above)
                inside = inside or self.named.holds(path, names)
                named = named and self.named.may_hold(path, names)
            chosen.append(inside)
            unknown.append(one == 0 or named)
        return np.array(chosen, np.bool_)[id_of_bio], np.array(unknown, np.bool_)[id_of_bio]


ANYBODY = Who()


class Choice:
    def __init__(
        self,
        context: Context,
        devices: Collection[str] = (),
        wanted: Collection[str] = (),
        who: Who = ANYBODY,
        files: Collection[str] = (),
    ) -> None:
        """An I/O has to meet each restriction that is not empty.

        devices: names, as device_named takes them. wanted: names of operations. files: patterns of
        fnmatchcase for the whole path, or the one before a rename. Raises ConversionError if there
        are patterns and the log was recorded without files.
        """
        if files and not context.has_files:
            raise ConversionError(NO_FILES)
        self._files = tuple(files)
        self.context = context
        self._devices = tuple(devices)
        self._wanted = frozenset(wanted)
        self.who = who
        self.by_device = bool(devices)
        self.by_what_is_done = bool(wanted or files)
        """By operation or file, which nothing but I/O has."""
        self.by_bio = who != ANYBODY or bool(files)
        """Only bios can match: submitters and files are known of bios, not of requests."""
        self.all = not (devices or wanted or self.by_bio)
        others = self.by_device or self.by_what_is_done or who.by_cgroup
        self.by_thread_alone = who != ANYBODY and not others
        """By process or thread name alone, which calls have as well."""

    def mask(self, bios: Bios, tasks: Tasks) -> Bool:
        """An unknown device or file matches nothing; an empty PREFLUSH write is a flush."""
        chosen = self._meant(bios, bios.part)
        if self.who != ANYBODY:
            chosen &= self.who.mask(self.context, bios, tasks)
        if self._files:
            files, file_of_bio = np.unique(bios.file, return_inverse=True)
            wanted = []
            for row in files.tolist():
                file = self.context.files[row] if row >= 0 else None
                names = () if file is None else (file.path, file.was, file.label)
                known = [name for name in names if name is not None]
                wanted.append(any(fnmatchcase(name, one) for name in known for one in self._files))
            chosen &= np.array(wanted, dtype=np.bool_)[file_of_bio]
        return chosen

    def request_mask(self, requests: Requests) -> Bool:
        """None if the choice is by submitter or file, which are known of bios alone."""
        if self.by_bio:
            return np.zeros(len(requests), dtype=np.bool_)
        return self._meant(requests, requests.dev)

    def _meant(self, table: Bios | Requests, part: U32) -> Bool:
        """By device and operation; none if none of the devices is in the log."""
        chosen = np.ones(len(table), dtype=np.bool_)
        if self._devices:
            wanted = np.array(self.devices(), dtype=np.int64)
            chosen &= np.isin(table.dev, wanted) | np.isin(part, wanted)
        if self._wanted and len(table):
            codes, names = operations(self.context, table.opf, table.bytes)
            chosen &= np.array([name in self._wanted for name in names], dtype=np.bool_)[codes]
        return chosen

    def devices(self) -> list[int]:
        """Names not in the log so far are left out; a decimal `major:minor` never is."""
        devs = [device_named(self.context, name) for name in self._devices]
        return [dev for dev in devs if dev is not None]

    def check(self, seen: Collection[int]) -> None:
        """Raise ConversionError if a chosen device is not in the log. seen: those with events."""
        known = {*self.context.devices, *seen}
        for name in self._devices:
            if device_named(self.context, name) not in known:
                listed = ", ".join(sorted({self.context.device_name(d) for d in known}))
                raise ConversionError(f"the log has no device {name}; it has {listed or 'none'}")


_AGAIN = np.array(
    [*(number for number, name in BLK_STATUS.items() if name == "AGAIN"), -errno.EAGAIN]
)
"""BLK_STS_AGAIN, and -EAGAIN for kernels that report an errno."""


def failed_nowait(context: Context, table: Bios | Requests) -> Bool:
    """Mark REQ_NOWAIT bios that ended with BLK_STS_AGAIN or -EAGAIN (bio_wouldblock_error).

    io_uring submits the same I/O again, without REQ_NOWAIT.
    """
    asked: Bool = (table.opf & np.uint32(context.flag_mask("NOWAIT"))) != 0
    if not asked.any():
        return asked
    return np.asarray(asked & np.isin(table.status, _AGAIN), dtype=np.bool_)


@dataclass(frozen=True)
class OutcomeFilter:
    slower_than: int = 0
    """Only I/Os that took at least this long, ns."""
    slowest: int = 0
    """How many at most, the slowest ones; 0: all."""
    failed: bool = False
    """Only I/Os that ended with an error."""

    def marks(self, waited: I64, table: Bios | Requests) -> Bool:
        """waited: ns."""
        chosen = waited >= self.slower_than
        return chosen & (table.status != 0) if self.failed else chosen


ANYHOW = OutcomeFilter()


@dataclass
class Finder:
    """Finds the bios of a choice that have the wanted outcome, in a first pass over the log.

    A second pass over the same part of the log gives bios the same numbers.
    """

    choice: Choice
    wanted: OutcomeFilter
    _numbers: list[I64] = field(default_factory=list)
    _waited: list[I64] = field(default_factory=list)
    _held: int = 0

    def found(self) -> I64:
        """Return the numbers of the chosen bios, ascending."""
        return np.sort(self._best()[0])

    def watch(self, result: Result, window: Lifecycles) -> None:
        """result: the window's bios before a cut, whose time outside the cut counts, too."""
        bios = window.bios
        # From the first known time to the completion. Without one: to the last known time if it was
        # lost, else to the window's end. 0 if no time is known, or the completion is in doubt.
        whole = result.bios.take(np.searchsorted(result.bios.number, bios.number))
        start = first_seen(whole)
        going_on = np.where(whole.certainty == Certainty.LOST, last_seen(whole), window.end)
        until = np.where(whole.complete != NEVER, whole.complete, going_on)
        unknown = (start == NEVER) | whole.doubtful
        took = np.where(unknown, 0, np.maximum(until - start, 0))
        chosen = self.wanted.marks(took, bios) & self.choice.mask(bios, window.tasks)
        if self.wanted.failed:  # as reports count failures
            chosen &= ~failed_nowait(self.choice.context, bios)
        rows = np.flatnonzero(chosen)
        self._numbers.append(bios.number[rows])
        self._waited.append(took[rows])
        self._held += len(rows)
        if self.wanted.slowest and self._held > 2 * self.wanted.slowest:
            numbers, took = self._best()
            self._numbers, self._waited, self._held = [numbers], [took], len(numbers)

    def _best(self) -> tuple[I64, I64]:
        """Return (numbers, ns) of the bios found so far: all, or the `slowest`, slowest first."""
        none = np.zeros(0, dtype=np.int64)
        numbers = np.concatenate([none, *self._numbers])
        took = np.concatenate([none, *self._waited])
        if not self.wanted.slowest:
            return numbers, took
        order = np.lexsort((numbers, -took))[: self.wanted.slowest]
        return numbers[order], took[order]


_FIELDS = ("key0", "key1", "by")


def chosen_pairs(
    pairs: Pairs, tasks: Tasks, choice: Choice, wanted: OutcomeFilter = ANYHOW
) -> Bool:
    """Mark pairs by the thread that ended them, by devices in their key or --by, by their time.

    No pair is chosen by operation, file, cgroup, among the slowest I/Os, or as failed: it has none
    of these.
    """
    who = choice.who
    if choice.by_what_is_done or who.by_cgroup or wanted.slowest or wanted.failed:
        return np.zeros(len(pairs), dtype=np.bool_)
    chosen = np.asarray(pairs.latency >= wanted.slower_than)
    if who.pids:
        chosen &= who.of_processes(pairs, tasks)
    if who.comms:
        names, of = np.unique(pairs.comm, return_inverse=True)
        named = [matches(name.decode("utf-8", "replace"), who.comms) for name in names.tolist()]
        chosen &= np.array(named, dtype=np.bool_)[of]
    if choice.by_device:
        # Those of whose key or --by a field is one of the devices.
        sites: Any = choice.context.header.get("sites") or {}
        devices = np.array(choice.devices(), dtype=np.uint64)
        found = np.zeros(len(pairs), dtype=np.bool_)
        for number, facts in enumerate(sites.get("pairs", ())):
            formats = facts.get("formats") or {}
            rows = pairs.pair == number
            for name in _FIELDS:
                if formats.get(name) == "dev":
                    found |= rows & np.isin(getattr(pairs, name), devices)
        chosen &= found
    return chosen
