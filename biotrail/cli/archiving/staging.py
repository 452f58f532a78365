# SPDX-License-Identifier: Apache-2.0
"""The shipper's own directory among the logs: its lock, and the archive that is being made."""

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import HeldDirectory, explain
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.strings import shown as as_shown

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

    @property
    def archive(self) -> Path:
        """Where the archive is made: a path that no renaming leads elsewhere."""
        return Path(folders.path_in(self.fd, _STAGED))

    @property
    def archive_shown(self) -> str:
        """The archive's path in messages."""
        return f"{self.shown}/{_STAGED}"

    def remove_archive(self) -> None:
        """Delete the archive, if there is one."""
        with suppress(FileNotFoundError):
            os.unlink(_STAGED, dir_fd=self.fd)

    def clear(self) -> None:
        """Delete what a shipper that was killed left, and nothing else. Raises OSError."""
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
    """Yield the staging directory, made and cleared, while no other shipper may work there.

    The kernel gives the lock back however this process ends. Raises OutputError: also where the
    directory is a link, or others may write to it.
    """
    shown = os.path.join(logs.path, STAGING)
    with ExitStack() as stack:
        try:
            at = folders.open_own(logs.fd, STAGING, shown)
            stack.callback(os.close, at)
            lock = os.open(_LOCK, _OPEN_LOCK, 0o600, dir_fd=at)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            staging = Staging(at, shown)
            staging.clear()
        except BlockingIOError as error:
            raise OutputError(
                f"{logs.path}: another `biotrail archive --watch` ships its logs: end that first"
            ) from error
        except OSError as error:
            raise explain(error, shown) from error
        yield staging
