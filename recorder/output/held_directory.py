# SPDX-License-Identifier: Apache-2.0
"""A directory that is held by its descriptor while files are made and deleted in it.

Whoever may write to the directory above can move this one away and put a link in its place.
A recorder that runs as root for weeks must not follow such a link: it looks the path up once.
"""

import os
import weakref
from contextlib import suppress

from biotrail.recorder.output.output import explain

FileId = tuple[int, int]
"""st_dev and st_ino."""

_HOLD = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def identity(fd: int) -> FileId:
    """Return the file of an open descriptor. Raises OSError."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class HeldDirectory:
    """The directory that a path led to when this object was made.

    One that is deleted and made again is taken up again, if it stands under the same name in the
    same directory above, is no link, and belongs to the same user and group.
    """

    def __init__(self, path: str, *, shown: str = "") -> None:
        """`path`: "" is the working directory. shown: the file that an error is about.

        Raises OutputError.
        """
        self.path = path
        try:
            self._fd = os.open(path or ".", _HOLD)
            above, self._name = os.path.split(os.path.realpath(path or "."))
            self._above = os.open(above, _HOLD)
        except OSError as error:
            raise explain(error, shown or path or ".") from error
        status = os.fstat(self._fd)
        self._owner = (status.st_uid, status.st_gid)
        self._closing = [weakref.finalize(self, os.close, fd) for fd in (self._fd, self._above)]

    def close(self) -> None:
        """Give the descriptors back; may be called again."""
        for closing in self._closing:
            closing()

    @property
    def fd(self) -> int:
        """The descriptor (O_PATH), for functions that take `dir_fd`. Raises OSError."""
        if os.fstat(self._fd).st_nlink == 0:
            self._look_again()
        return self._fd

    def _look_again(self) -> None:
        with suppress(OSError):  # whoever makes a file is told that there is no directory
            found = os.open(self._name, _HOLD | os.O_NOFOLLOW, dir_fd=self._above)
            status = os.fstat(found)
            if (status.st_uid, status.st_gid) != self._owner:
                os.close(found)
                return
            self._closing[0]()
            self._fd = found
            self._closing[0] = weakref.finalize(self, os.close, found)

    def place(self) -> str:
        """Return a path that leads to the directory now: the given one, unless it was moved."""
        try:
            if os.path.samestat(os.stat(self.path or "."), os.fstat(self.fd)):
                return self.path
        except OSError:
            pass  # the given path leads nowhere
        with suppress(OSError):
            return os.readlink(f"/proc/self/fd/{self.fd}")
        return self.path

    def holds(self, name: str, file: FileId) -> bool:
        """Return whether `name` in the directory is still that file."""
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == file

    def remove(self, name: str, file: FileId) -> bool:
        """Delete `name` if it is still that file; return whether it was deleted."""
        if not self.holds(name, file):
            return False
        try:
            os.unlink(name, dir_fd=self.fd)
        except OSError:  # gone just now, or not ours to delete: nothing is lost
            return False
        return True
