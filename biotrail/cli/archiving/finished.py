# SPDX-License-Identifier: Apache-2.0
"""Which logs of a directory are finished: as the kernel tells of who writes to them."""

import fcntl
import os
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from biotrail.recorder.output.held_directory import FileId
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.errors import LogNotFoundError, OutputError

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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


def logs_in(directory: str) -> list[FoundLog]:
    """Return the logs in a directory, sorted by name: files of one run in the order of writing.

    Hidden files (the recorder's, before they have their header), links, empty files and folders are
    not among them. Raises OutputError: the directory cannot be read.
    """
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX) or entry.name.startswith("."):
                    continue
                with suppress(FileNotFoundError):  # deleted just now
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_size:
                        file = status.st_dev, status.st_ino
                        found.append(FoundLog(entry.name, entry.path, file, status.st_size))
    except OSError as error:
        raise OutputError(
            f"{directory}: cannot be read: {error.strerror}; give the directory that `biotrail "
            "record -o` writes to"
        ) from error
    return sorted(found, key=lambda log: log.name)


def looked_up_again(log: FoundLog) -> FoundLog:
    """Return the log with its present size. Raises LogNotFoundError: it is gone, or another file.

    To be called once nobody writes to it: its size was looked up while somebody may have.
    """
    try:
        status = os.stat(log.path, follow_symlinks=False)
    except OSError as error:
        raise LogNotFoundError(log.path) from error
    if (status.st_dev, status.st_ino) != log.file:
        raise LogNotFoundError(log.path)
    return replace(log, size=status.st_size)


def writer_of(path: str) -> Writer:
    """Return whether any process has a file open for writing, in whatever namespace.

    The kernel grants a read lease (F_SETLEASE) on a file that nobody has open for writing, and no
    other; it is given back at once. So a recorder that was killed is told from one that waits.
    Raises LogNotFoundError: the file is gone, or became a link; OSError: it cannot be opened.
    """
    try:
        fd = os.open(path, _OPEN)
    except FileNotFoundError as error:
        raise LogNotFoundError(path) from error
    try:
        # Who opens the file before the lease is given back breaks it: SIGIO would end this process.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return Writer.SOME
    except OSError:
        return Writer.UNKNOWN
    finally:
        os.close(fd)
    return Writer.NONE
