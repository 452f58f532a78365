# SPDX-License-Identifier: Apache-2.0
"""Which logs of a directory are finished: as the kernel tells of who writes to them."""

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import BinaryIO

from biotrail.recorder.output import folders
from biotrail.recorder.output.folders import FileId, HeldDirectory
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError, OutputError


class Writer(Enum):
    """Whether a program has a file open for writing."""

    NONE = "none"
    SOME = "some"
    UNKNOWN = "unknown"
    """The file system has no leases (NFS), or they are not permitted: the file is another's."""


@dataclass(frozen=True)
class FoundLog:
    """A regular file `*.biotrail` in a directory. file: (st_dev, st_ino); size: bytes."""

    name: str
    path: str
    file: FileId
    size: int


def hold_logs(directory: str) -> HeldDirectory:
    """Return the directory of the logs, held open. Raises OutputError: it cannot be read."""
    try:
        held = HeldDirectory(directory)
    except OutputError as error:
        if isinstance(error.__cause__, OSError):
            raise _unreadable(directory, error.__cause__) from error
        raise
    logs_in(held)  # says what is wrong with it
    return held


def _unreadable(directory: str, error: OSError) -> OutputError:
    """Return the error to raise where the directory of the logs cannot be read."""
    return OutputError(
        f"{directory}: cannot be read: {error.strerror}; give the directory that `biotrail "
        "record -o` writes to"
    )


def logs_in(directory: HeldDirectory) -> list[FoundLog]:
    """Return the logs in a directory, sorted by name: files of one run in the order of writing.

    Hidden files (the recorder's, before they have their header), links, empty files and folders are
    not among them. Raises OutputError: the directory cannot be read.
    """
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
    """Yield a log with its present size, and open for reading; it is the file that was found.

    To be called once nobody writes to it: its size was looked up while somebody may have. Raises
    LogNotFoundError: it is gone, or another file; LogFormatError: it cannot be opened.
    """
    with _readable(directory, log) as stream:
        status = os.fstat(stream.fileno())
        if (status.st_dev, status.st_ino) != log.file:
            raise LogNotFoundError(log.path)
        yield replace(log, size=status.st_size), stream


def _readable(directory: HeldDirectory, log: FoundLog) -> BinaryIO:
    """Open a log, no link. Raises LogNotFoundError: it is gone; LogFormatError."""
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
    other; it is given back at once. So a recorder that was killed is told from one that waits.
    Raises LogNotFoundError: the file is gone; LogFormatError: it cannot be opened.
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
