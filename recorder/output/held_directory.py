# SPDX-License-Identifier: Apache-2.0
"""Holds a directory by its descriptor while files are made and deleted in it.

Whoever may write to the parent directory can move this one away and put a symbolic link in its
place. A recorder that runs as root for weeks must not follow such a link, so it resolves the path
once.
"""

import os
import weakref
from contextlib import suppress

from biotrail.recorder.output import folders
from biotrail.recorder.output.explaining import explain
from biotrail.recorder.schema.errors import OutputError

FileId = tuple[int, int]
"""st_dev and st_ino of a file."""


def identity(fd: int) -> FileId:
    """Return (st_dev, st_ino) of the file behind an open descriptor. Raises OSError."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class HeldDirectory:
    """The directory that a path led to when this object was made.

    If the directory was deleted, a new one is opened in its stead where it has the same name in
    the same parent directory, is no symbolic link, and belongs to the same user and group.
    """

    def __init__(self, path: str, *, shown: str = "") -> None:
        """Open the directory and its parent, without checking whether files can be made in it.

        `path`: of the directory; "" is the working directory. `shown`: the file that an error
        message names; "" for `path`. Raises OutputError: there is no such directory, or it is not
        accessible.
        """
        self.path = path
        self._closing: list[weakref.finalize[..., HeldDirectory]] = []
        try:
            self._fd = self._hold(path or ".")
            above, self._name = os.path.split(folders.path_of(self._fd))
            self._above = self._hold(above)
            status = os.fstat(self._fd)
        except OSError as error:
            self.close()
            raise explain(error, shown or path or ".") from error
        except OutputError:
            self.close()
            raise
        self._owner = (status.st_uid, status.st_gid)

    def _hold(self, path: str) -> int:
        """Open a directory and add its closing to `_closing`; return its descriptor.

        Raises OSError; OutputError: root would follow another user's link.
        """
        fd = folders.open_named(path)
        self._closing.append(weakref.finalize(self, os.close, fd))
        return fd

    def close(self) -> None:
        """Close the descriptors. Closing again has no effect."""
        for closing in self._closing:
            closing()

    @property
    def fd(self) -> int:
        """The directory's descriptor (O_PATH), for the argument `dir_fd`. Raises OSError.

        Where the held directory was deleted, first replaced by that of a new one with the same name
        in the same parent, no link and of the same owner; without one it stays, and making a file
        in it fails with ENOENT. close() closes it.
        """
        if os.fstat(self._fd).st_nlink == 0:
            self._look_again()
        return self._fd

    def _look_again(self) -> None:
        """Replace the descriptor of the deleted directory by that of a new one, if one qualifies.

        It must have the same name in the same parent, be no symbolic link, and have the same owner.
        Sets `_fd` and its entry in `_closing`, and closes the old one; else changes nothing.
        """
        with suppress(
            OSError, OutputError
        ):  # making a file in the deleted directory fails with ENOENT
            found = folders.open_below(self._above, self._name, self.path)
            unused = weakref.finalize(self, os.close, found)
            try:
                status = os.fstat(found)
                if (status.st_uid, status.st_gid) == self._owner:
                    self._fd = found
                    unused, self._closing[0] = self._closing[0], unused
            finally:
                unused()

    def place(self) -> str:
        """Return a path to the directory: the given one, or where it was moved to.

        A deleted one is first replaced by a new one, as by `fd`. Of a deleted directory that was
        not made again, the kernel's name for it, which ends in " (deleted)". The given one too
        where /proc cannot be read.
        """
        try:
            if os.path.samestat(os.stat(self.path or "."), os.fstat(self.fd)):
                return self.path
        except OSError:
            pass  # the given path leads nowhere
        with suppress(OSError):
            return os.readlink(f"/proc/self/fd/{self.fd}")
        return self.path

    def holds(self, name: str, file: FileId) -> bool:
        """Return whether `name` in the directory is `file`; False if it cannot be looked up.

        `name`: of an entry, without a directory; a symbolic link is not followed.
        """
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == file

    def remove(self, name: str, file: FileId) -> bool:
        """Delete the entry `name` of the directory if it is `file`; return whether it was deleted.

        `name`: of an entry, without a directory; a symbolic link is not followed. `file`: (st_dev,
        st_ino). False too where deleting fails; then it stays.
        """
        if not self.holds(name, file):
            return False
        try:
            os.unlink(name, dir_fd=self.fd)
        except OSError:  # deleted just now, or not permitted: the file stays, which harms nothing
            return False
        return True
