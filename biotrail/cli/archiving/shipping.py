# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive --watch`: finished logs are archived, checked, stored, and then deleted."""

import fcntl
import math
import os
import signal
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import quote

from biotrail.cli.archiving.checking import check
from biotrail.cli.archiving.dataset import folder_of, write_events
from biotrail.cli.archiving.destination import (
    Destination,
    NotShippedError,
    destination,
    ensure_same,
)
from biotrail.cli.options.ending import ERROR_STATUS, stopped_by_signals
from biotrail.cli.options.recordings import Recording
from biotrail.converters.inputs.log import LogSource
from biotrail.converters.inputs.parquet.account import Metadata
from biotrail.converters.inputs.parquet.locations import LocationError, reason
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import FileId, HeldDirectory, explain
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.errors import (
    LogFormatError,
    LogNotFoundError,
    OutputError,
    TraceError,
)
from biotrail.recorder.schema.strings import shown as as_shown
from biotrail.text import units
from biotrail.text.printing import StatusLine, tell

if TYPE_CHECKING:
    from biotrail.cli.archive import ArchiveOptions

# The watched directory: which of its logs are finished, and the shipper's own place among them.


@dataclass(frozen=True)
class FoundLog:
    name: str
    path: str
    file: FileId
    size: int


def _unreadable(directory: str, error: OSError) -> OutputError:
    return OutputError(
        f"{directory}: cannot be read: {error.strerror}; give the directory that `biotrail "
        "record -o` writes to"
    )


def logs_in(directory: HeldDirectory) -> list[FoundLog]:
    """Return the logs in a directory, sorted by name; hidden ones have no header yet."""
    found = []
    try:
        with folders.readable(directory.fd) as fd, os.scandir(fd) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX) or entry.name.startswith("."):
                    continue
                with suppress(FileNotFoundError):  # deleted just now
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_size:
                        file = status.st_dev, status.st_ino
                        path = os.path.join(directory.path, entry.name)
                        found.append(FoundLog(entry.name, path, file, status.st_size))
    except OSError as error:
        raise _unreadable(directory.path, error) from error
    return sorted(found, key=lambda log: log.name)


@contextmanager
def opened(directory: HeldDirectory, log: FoundLog) -> Iterator[tuple[FoundLog, BinaryIO]]:
    try:
        stream = folders.open_regular(directory.fd, log.name, log.path)
    except FileNotFoundError as error:
        raise LogNotFoundError(log.path) from error
    except OSError as error:
        raise LogFormatError(
            f"{log.path}: cannot be opened: {error.strerror}; give the shipper's user the right to "
            "read it, or move it away"
        ) from error
    with stream:
        status = os.fstat(stream.fileno())
        if (status.st_dev, status.st_ino) != log.file:
            raise LogNotFoundError(log.path)
        yield replace(log, size=status.st_size), stream


def is_written(directory: HeldDirectory, log: FoundLog) -> bool | None:
    """Return whether any process has a log open for writing, in whatever namespace.

    The kernel grants a read lease (F_SETLEASE) on a file that nobody has open for writing, and no
    other. So a recorder that was killed is told from one that waits. None: the file system has no
    leases (NFS), or they are not permitted: the file is another's.
    """
    with opened(directory, log) as (_, stream):
        fd = stream.fileno()
        try:
            # Who opens the file before the lease is given back breaks it: SIGIO would end this
            # process.
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return True
        except OSError:
            return None
    return False


STAGING = ".shipping"
"""Directory in the watched one, of the user who ships alone."""
NOT_SHIPPED = "not-shipped"
"""File in it that lists the logs which were set apart, and why."""
_LOCK = "lock"
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_STAGED = "staged.parquet"
_LEFT = tuple(output.hidden_prefix(name) for name in (_STAGED, NOT_SHIPPED))
"""Beginnings of the names of what a shipper that was killed leaves, beside these two."""


class Staging(NamedTuple):
    """The directory, open. fd: its descriptor; shown: its path in messages."""

    fd: int
    shown: str
    archive: Path


@contextmanager
def locked(logs: HeldDirectory) -> Iterator[Staging]:
    """Yield the staging directory, without what a shipper that was killed left in it.

    The lock is released however this process ends.
    """
    shown = os.path.join(logs.path, STAGING)
    with ExitStack() as stack:
        try:
            at = folders.open_own(logs.fd, STAGING, shown)
            stack.callback(os.close, at)
            lock = os.open(_LOCK, _OPEN_LOCK, 0o600, dir_fd=at)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in folders.entries(at):
                left = name.startswith(_LEFT) and name.endswith(".part")
                if not left and name not in (_STAGED, NOT_SHIPPED):
                    continue
                if stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=at)
        except BlockingIOError as error:
            raise OutputError(
                f"{logs.path}: another `biotrail archive --watch` ships its logs: end that first"
            ) from error
        except OSError as error:
            raise explain(error, shown) from error
        # The archive is by the descriptor: no renaming leads it elsewhere.
        yield Staging(at, shown, Path(folders.path_in(at, _STAGED)))


_ID_DIGITS = 12
"""Digits of a log's id (32) in its archive's name."""
LOOK_SECONDS = 1.0
MOST_SECONDS = 300.0
"""Longest time until a destination that failed is tried again; the first is LOOK_SECONDS."""
_DESTINATION_ERRORS = (OutputError, LocationError)


def watch(directory: str, to: str, asked: "ArchiveOptions") -> int:
    """Ship logs until a signal, or (--once) those that are finished; 1: one could not be.

    The log that is being shipped when a signal comes is finished; a second SIGINT interrupts that.
    """
    place = destination(to)
    try:
        logs = HeldDirectory(directory)
    except OutputError as error:
        if isinstance(error.__cause__, OSError):
            raise _unreadable(directory, error.__cause__) from error
        raise
    logs_in(logs)  # says what is wrong with it
    with locked(logs) as staging, stopped_by_signals() as stop:
        shipper = Shipper(logs, staging, place, asked, stop)
        if asked.once:
            shipper.look()
            shipper.sum_up()
        else:
            shipper.go_on()
        return ERROR_STATUS if shipper.apart else 0


class _Apart(NamedTuple):
    """Why a log was set apart. wait: seconds until it is tried again; again: then, monotonic."""

    reason: str
    wait: float = math.inf
    again: float = math.inf


@dataclass
class Shipper:
    """Ships a directory's logs, each of which is settled, set apart or gone in the end."""

    logs: HeldDirectory
    staging: Staging
    place: Destination
    asked: "ArchiveOptions"
    stop: threading.Event
    apart: dict[FoundLog, _Apart] = field(default_factory=dict)
    _settled: set[FoundLog] = field(default_factory=set)
    _first_failure: dict[FoundLog, int] = field(default_factory=dict)
    """How many logs had been shipped when one was first refused."""
    _shipped: int = 0
    _kept: int = 0
    _written: int = 0
    _unknown_said: bool = False
    _trouble: str = ""

    def ship(self, log: FoundLog) -> tuple[str, bool] | None:
        """Ship a finished log, or go on with what an earlier shipper began; None: all was done.

        Returns (a line for the user, whether the log is gone). Nothing is deleted unless its
        archive was read whole, and its copy at the destination was read back and is the same.
        OutputError or LocationError is the fault of the destination or the staging directory; any
        other TraceError is the log's own.
        """
        with opened(self.logs, log) as (log, stream):  # noqa: PLR1704 - the same, with its size
            trace = Trace(stream)
            source = trace.reader
            log_id = str(source.header.get("log_id", ""))
            if not isinstance(source, LogSource) or not log_id:
                raise NotShippedError("not a biotrail log: not shipped")
            stem = log.name.removesuffix(SUFFIX)
            digits = quote(log_id[:_ID_DIGITS], safe="")
            name = f"{folder_of(trace)}/{stem}-{digits}.parquet"
            staged = self.staging.archive
            shown = f"{self.staging.shown}/{_STAGED}"
            status = StatusLine()
            try:
                there = self._stored(name, log_id, log)
                if there is not None and self._reason_to_keep(there):
                    return None
                if there is None or not self._fetched_whole(name, shown):
                    recording = Recording([log.path], trace)
                    write_events(recording, staged, self.asked.level, True, shown)
                    found = check(str(staged))
                    wanted = (source.end or {}).get("log", {}).get("chunks")
                    problems = list(found.problems)
                    if not problems and not source.problems and wanted not in (None, found.chunks):
                        problems.append(
                            f"it has {found.chunks} chunks where the log's end says {wanted}"
                        )
                    if problems:
                        raise NotShippedError(
                            f"not shipped: its archive is not whole: "
                            f"{'; '.join(problems)}; the log stays; please report it"
                        )
                    status.show(f"storing {self.place.shown(name)}")
                    self.place.put(staged, name)
                    ensure_same(self.place, staged, name)
                return self._finish(log, name, ArchiveSource(staged).metadata)
            finally:
                status.clear()
                staged.unlink(missing_ok=True)
                self.place.clear(name)

    def _stored(self, name: str, log_id: str, log: FoundLog) -> Metadata | None:
        stream = self.place.open(name)
        if stream is None:
            return None
        with stream:
            try:
                metadata = ArchiveSource(stream).metadata
            except LogFormatError:
                return None
        if metadata.facts.header.get("log_id") != log_id:
            raise NotShippedError(
                f"not shipped: {self.place.shown(name)} is the archive of another log; "
                "rename one of them"
            )
        return metadata if metadata.account.log_bytes == log.size else None

    def _fetched_whole(self, name: str, shown: str) -> bool:
        stream = self.place.open(name)
        if stream is None:
            return False
        staged = self.staging.archive
        with stream, output.replacing(staged, force=True, shown=shown) as copy:
            try:
                while piece := stream.read(1 << 20):
                    copy.write(piece)
            except OSError as error:
                where = self.place.shown(name)
                raise LocationError(f"{where}: cannot be read: {reason(error)}") from error
        return check(str(staged)).intact

    def _reason_to_keep(self, metadata: Metadata) -> str:
        """Return why a log stays after it was shipped; "": it is deleted."""
        account = metadata.account
        if self.asked.keep_logs:
            return "--keep-logs"
        if account.problems and not self.asked.take_damaged:
            return f"damaged: {'; '.join(account.problems)}"
        if (account.unknown or account.unreadable_bytes) and not self.asked.take_damaged:
            return "it has records that this biotrail cannot read"
        return ""

    def _finish(self, log: FoundLog, name: str, metadata: Metadata) -> tuple[str, bool]:
        """Delete a log that was stored, unless it is kept, was changed or taken away."""
        account = metadata.account
        keep, deleted = self._reason_to_keep(metadata), False
        if not keep:
            size = -1
            with suppress(OSError):
                size = os.stat(log.name, dir_fd=self.logs.fd, follow_symlinks=False).st_size
            deleted = size == log.size and self.logs.remove(log.name, log.file)
        line = (
            f"{log.name} ({units.size(log.size)}): {units.plural(account.events, 'event')} in "
            f"{self.place.shown(name)}, verified there"
        )
        if account.interrupted:
            line += "; its recorder was interrupted, so up to a second may be missing at its end"
        if deleted:
            damage = f"; damaged: {'; '.join(account.problems)}" if account.problems else ""
            return f"{line}{damage}; log deleted", True
        return f"{line}; log kept ({keep or 'it was changed or taken away'})", False

    def look(self) -> None:
        """Ship every finished log that was not dealt with, those that were refused last.

        Whose fault a refusal is, the next log shows: if that is stored and the first is refused
        again, it is the log's own, which is set apart; else the destination's, which is raised.
        """
        self._written = 0
        found = logs_in(self.logs)
        # Logs that were renamed or changed are new ones.
        self._settled &= set(found)
        for known in (self.apart, self._first_failure):
            for log in known.keys() - set(found):
                del known[log]
                self._list_apart()
        now = time.monotonic()
        later = {log for log, apart in self.apart.items() if now < apart.again}
        left = self._settled | later
        ready = [log for log in found if log not in left]
        queue = deque(sorted(ready, key=lambda log: log in self._first_failure))
        refused: set[FoundLog] = set()
        while queue and not self.stop.is_set():
            log = queue.popleft()
            try:
                self._deal_with(log)
            except _DESTINATION_ERRORS as error:
                # Others were shipped since it was first refused: it is the log's own fault.
                if self._shipped > self._first_failure.setdefault(log, self._shipped):
                    self._set_apart(log, f"{log.path}: not shipped: {error}", for_good=False)
                elif refused or not queue:
                    raise
                else:
                    refused.add(log)
                    queue.append(log)

    def _deal_with(self, log: FoundLog) -> None:
        """Ship a log, if it is finished; what concerns this log alone is said, and counted."""
        try:
            if not self._finished(log):
                self._written += 1
                return
            shipped = self.ship(log)
        except LogNotFoundError:
            return  # the recorder deleted it: --max-files
        except _DESTINATION_ERRORS:
            raise
        except NotShippedError as error:
            self._set_apart(log, f"{log.path}: {error}", for_good=True)
            return
        except TraceError as error:
            self._set_apart(log, str(error), for_good=True)
            return
        if self._trouble:
            self._trouble = ""
            tell("the destination works again")
        if self.apart.pop(log, None):
            self._list_apart()
        line, deleted = shipped or ("", False)
        if not deleted:
            self._settled.add(log)
            self._kept += 1
        if line:
            self._shipped += 1
            if not self.asked.quiet:
                tell(line)

    def _set_apart(self, log: FoundLog, reason: str, *, for_good: bool) -> None:
        """Leave a log out from now on, or until it is tried again; say so the first time."""
        before = self.apart.get(log)
        if for_good:
            self.apart[log] = _Apart(reason)
        else:
            wait = min(MOST_SECONDS, 2 * (before.wait if before is not None else LOOK_SECONDS))
            self.apart[log] = _Apart(reason, wait, time.monotonic() + wait)
        if before is None:
            later = "" if for_good or self.asked.once else "; the others go on, it is tried again"
            tell(f"{reason}{later}")
        self._list_apart()

    def _list_apart(self) -> None:
        """Write the list of logs that were set apart, a line each; without any, delete it."""
        with suppress(OSError, OutputError):  # told already; shipping does not depend on it
            if not self.apart:
                os.unlink(NOT_SHIPPED, dir_fd=self.staging.fd)
                return
            path = folders.path_in(self.staging.fd, NOT_SHIPPED)
            lines = (
                f"{as_shown(apart)}\n" for apart in sorted(a.reason for a in self.apart.values())
            )
            with output.replacing(path, force=True) as stream:
                stream.write("".join(lines).encode())

    def _finished(self, log: FoundLog) -> bool:
        """Return whether no program writes a log; without leases, whether it has its end."""
        written = is_written(self.logs, log)
        if written is not None:
            return not written
        from biotrail.recorder.log import LogReader

        with opened(self.logs, log) as (_, stream), LogReader(stream) as reader:
            ended = reader.end is not None
        if not ended and not self._unknown_said:
            self._unknown_said = True
            tell(
                f"{log.path}: has no end, and this file system does not tell whether it "
                "is being written: left alone; move it elsewhere once its recorder has ended"
            )
        return ended

    def go_on(self) -> None:
        """Look at the directory each second until `stop`; after a failure less and less often."""
        wait = LOOK_SECONDS
        while not self.stop.is_set():
            try:
                self.look()
                wait = LOOK_SECONDS
            except _DESTINATION_ERRORS as error:
                if not self._trouble:
                    tell(f"{error}; nothing is deleted; tried again until it works")
                self._trouble = str(error)
                wait = min(MOST_SECONDS, 2 * wait)
            self.stop.wait(wait)
        self.sum_up()

    def sum_up(self) -> None:
        if self.asked.quiet:
            return
        listed = os.path.join(self.staging.shown, NOT_SHIPPED)
        parts = [f"{units.plural(self._shipped, 'log')} shipped"]
        for count, what in (
            (self._kept, "kept"),
            (self._written, "still being written"),
            (len(self.apart), f"not shipped (listed in {listed})"),
        ):
            parts += [f"{count} {what}"] if count else []
        tell(", ".join(parts))
