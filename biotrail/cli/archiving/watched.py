# SPDX-License-Identifier: Apache-2.0
"""The watched directory: which of its logs are finished, and the shipper's own place among them."""

import fcntl
import os
import signal
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import FileId, HeldDirectory, explain
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError, OutputError
from biotrail.recorder.schema.strings import shown as as_shown


class Writer(Enum):
    NONE = "none"
    SOME = "some"
    UNKNOWN = "unknown"
    """The file system has no leases (NFS), or they are not permitted: the file is another's."""


@dataclass(frozen=True)
class FoundLog:
    name: str
    path: str
    file: FileId
    size: int


def hold_logs(directory: str) -> HeldDirectory:
    try:
        held = HeldDirectory(directory)
    except OutputError as error:
        if isinstance(error.__cause__, OSError):
            raise _unreadable(directory, error.__cause__) from error
        raise
    logs_in(held)  # says what is wrong with it
    return held


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
    with _readable(directory, log) as stream:
        status = os.fstat(stream.fileno())
        if (status.st_dev, status.st_ino) != log.file:
            raise LogNotFoundError(log.path)
        yield replace(log, size=status.st_size), stream


def _readable(directory: HeldDirectory, log: FoundLog) -> BinaryIO:
    try:
        return folders.open_regular(directory.fd, log.name, log.path)
    except FileNotFoundError as error:
        raise LogNotFoundError(log.path) from error
    except OSError as error:
        raise LogFormatError(
            f"{log.path}: cannot be opened: {error.strerror}; give the shipper's user the right to "
            "read it, or move it away"
        ) from error


def writer_of(directory: HeldDirectory, log: FoundLog) -> Writer:
    """Return whether any process has a log open for writing, in whatever namespace.

    The kernel grants a read lease (F_SETLEASE) on a file that nobody has open for writing, and no
    other. So a recorder that was killed is told from one that waits.
    """
    with _readable(directory, log) as stream:
        fd = stream.fileno()
        try:
            # Who opens the file before the lease is given back breaks it: SIGIO would end this
            # process.
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return Writer.SOME
        except OSError:
            return Writer.UNKNOWN
    return Writer.NONE


STAGING = ".shipping"
"""Directory in the watched one, of the user who ships alone."""
NOT_SHIPPED = "not-shipped"
"""File in it that lists the logs which were set apart, and why."""
_LOCK = "lock"
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_STAGED = "staged.parquet"
_LEFT = tuple(output.hidden_prefix(name) for name in (_STAGED, NOT_SHIPPED))
"""Beginnings of the names of what a shipper that was killed leaves, beside these two."""


@dataclass(frozen=True)
class Staging:
    """The directory, open. fd: its descriptor; shown: its path in messages."""

    fd: int
    shown: str
    archive: Path
    archive_shown: str

    def clear(self) -> None:
        """Delete what a shipper that was killed left, and nothing else."""
        for name in folders.entries(self.fd):
            left = name.startswith(_LEFT) and name.endswith(".part")
            if not left and name not in (_STAGED, NOT_SHIPPED):
                continue
            if stat.S_ISREG(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=self.fd)

    def list_not_shipped(self, reasons: Iterable[str]) -> None:
        """Write the list of logs that were set apart, a line each; without any, delete it."""
        path = folders.path_in(self.fd, NOT_SHIPPED)
        with suppress(OSError, OutputError):  # told already; shipping does not depend on it
            lines = "".join(f"{as_shown(reason)}\n" for reason in sorted(reasons))
            if not lines:
                os.unlink(NOT_SHIPPED, dir_fd=self.fd)
                return
            with output.replacing(path, force=True) as stream:
                stream.write(lines.encode())


@contextmanager
def locked(logs: HeldDirectory) -> Iterator[Staging]:
    """Yield the staging directory, cleared. The lock is released however this process ends."""
    shown = os.path.join(logs.path, STAGING)
    with ExitStack() as stack:
        try:
            at = folders.open_own(logs.fd, STAGING, shown)
            stack.callback(os.close, at)
            lock = os.open(_LOCK, _OPEN_LOCK, 0o600, dir_fd=at)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            archive = Path(folders.path_in(at, _STAGED))  # no renaming leads it elsewhere
            staging = Staging(at, shown, archive, f"{shown}/{_STAGED}")
            staging.clear()
        except BlockingIOError as error:
            raise OutputError(
                f"{logs.path}: another `biotrail archive --watch` ships its logs: end that first"
            ) from error
        except OSError as error:
            raise explain(error, shown) from error
        yield staging
