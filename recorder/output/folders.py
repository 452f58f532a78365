# SPDX-License-Identifier: Apache-2.0
"""Directories opened by descriptor, and whose they are: what is written to is what was looked at.

Who may write to a directory can move what is in it away at any time, and put a link in its place;
a service of root's must not follow it. So the path that a person gave is followed once, by root
through nobody else's links (`open_named`). What is below it is opened by name and never through a
link (`open_below`, `descend`); a directory for biotrail's own work must also be this user's alone
(`open_own`). Files are then made, renamed and deleted by `dir_fd`; what takes paths gets `path_in`.
"""

import errno
import os
import re
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.file_kinds import file_kind

_URL = re.compile("[a-z][a-z0-9+.-]+:/")
"""How a URL begins, also one that was taken for a path."""
_REMEDIES = {
    errno.ENOENT: "its directory does not exist: make it, or give another path",
    errno.ENOTDIR: "a part of the path is not a directory: give another path",
    errno.EACCES: "permission denied: give a path you may write to",
    errno.EPERM: "permission denied: give a path you may write to",
    errno.EROFS: "the file system is read-only: give another path",
    errno.ENOSPC: "no space left on the device: free some, or give another path",
    errno.EDQUOT: "the disk quota is used up: free some space, or give another path",
    errno.EFBIG: "the file would be too large here: raise the limit, or give another path",
    errno.EIO: "the device failed: give another path",
    errno.EPIPE: "its reader went away",
    errno.ENAMETOOLONG: "the name is too long: give a shorter one",
}


def explain(error: OSError, path: str | os.PathLike[str]) -> OutputError:
    """Return an OutputError that says why writing to `path` failed, and what to do about it."""
    reason = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    if error.errno == errno.ENOENT and _URL.match(os.fspath(path)):
        reason = (
            "it is a URL, and this command writes files of this machine: give a path; "
            "`biotrail archive --watch DIR --to URL` ships recordings"
        )
    return OutputError(f"cannot write {os.fspath(path)}: {reason}")


PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_NO_ID = (1 << 32) - 1  # (uid_t)-1
_ID_DIGITS = len(str(_NO_ID))


def owner() -> tuple[int, int] | None:
    """Return (uid, gid) of the user who called sudo; None: not root, or no valid ids in SUDO_…."""
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(text.isascii() and text.isdecimal() for text in ids):
        return None
    # The largest is (uid_t)-1, which chown takes as "do not change", so it is no user's id.
    found = [int(text) if len(text) <= _ID_DIGITS else _NO_ID for text in ids]
    return (found[0], found[1]) if max(found) < _NO_ID else None


def trusted() -> set[int]:
    """Return the users whose links and directories count as this user's own."""
    ids = owner()
    return {0, os.geteuid(), *([] if ids is None else ids[:1])}


def give_to_owner(fd: int, shown: str) -> None:
    """Give the file open as `fd` to the user who called sudo, if any. Raises OutputError."""
    if (ids := owner()) is None:
        return
    try:
        os.fchown(fd, *ids)
    except OSError as error:
        raise OutputError(
            f"cannot give {shown} to the user who called sudo (SUDO_UID {ids[0]}, SUDO_GID "
            f"{ids[1]}): {error.strerror}; unset SUDO_UID and SUDO_GID, or give another path"
        ) from error


_HOLD = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_MOST_LINKS = 40
"""Links on the way to a file, as the kernel follows (MAXSYMLINKS)."""
_OTHERS_WRITE = 0o022


def path_in(fd: int, name: str = "") -> str:
    """Return a path to an open directory, or to `name` in it, that no renaming leads elsewhere."""
    return f"/proc/self/fd/{fd}/{name}".rstrip("/")


def open_named(path: str) -> int:
    """Open the directory at a path that a person gave ("": the present one); return O_PATH's fd.

    Links on the way are followed. Root follows only those of root, and of the user who called sudo.
    Raises OSError; OutputError: another user's link.
    """
    if os.geteuid() != 0:
        return os.open(path or ".", _HOLD)
    names = _parts(path)
    followed = 0
    at = os.open("/" if path.startswith("/") else ".", _HOLD)
    try:
        while names:
            found = os.open(names[-1], _LOOK, dir_fd=at)
            try:
                status = os.fstat(found)
                name = names.pop()
                if stat.S_ISLNK(status.st_mode) and not _of_proc(at):
                    followed += 1
                    if followed > _MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if status.st_uid not in trusted():
                        raise OutputError(
                            f"{os.path.join(path_of(at), name)} is a link of another user (uid "
                            f"{status.st_uid}), which root does not follow: give the path that it "
                            "leads to"
                        )
                    target = os.readlink("", dir_fd=found)
                    names += _parts(target)
                    following = os.open("/", _HOLD) if target.startswith("/") else os.dup(at)
                else:
                    following = os.open(name, _HOLD, dir_fd=at) if _of_proc(at) else os.dup(found)
            finally:
                os.close(found)
            os.close(at)
            at = following
            if not stat.S_ISDIR(os.fstat(at).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    except BaseException:
        os.close(at)
        raise
    return at


def _parts(path: str) -> list[str]:
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _of_proc(at: int) -> bool:
    """Return whether a directory is /proc's, whose links lead where their text does not say."""
    with suppress(OSError):
        return os.fstat(at).st_dev == os.stat("/proc/self").st_dev
    return False


def path_of(fd: int) -> str:
    """Return the path of an open directory as the kernel knows it, for messages."""
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")
    return "its directory"


@contextmanager
def named(path: str, shown: str | os.PathLike[str] = "") -> Iterator[int]:
    """Yield `open_named`'s descriptor. shown: for messages; "": `path`. Raises OutputError."""
    try:
        fd = open_named(path)
    except OSError as error:
        raise explain(error, shown or path or ".") from error
    try:
        yield fd
    finally:
        os.close(fd)


def open_below(at: int, name: str, shown: str) -> int:
    """Open a directory in `at`, no link (O_PATH). Raises OSError; OutputError: it is none."""
    try:
        return os.open(name, _HOLD | os.O_NOFOLLOW, dir_fd=at)
    except NotADirectoryError as error:
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        raise OutputError(
            f"{shown} is a {file_kind(mode)} where a directory is needed: move it away, or give "
            "another path; no link is followed here"
        ) from error


def make_below(at: int, name: str, shown: str) -> int:
    """Open a directory as `open_below`, or make it: private, and of the user who called sudo."""
    try:
        os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=at)
    except FileExistsError:
        return open_below(at, name, shown)
    fd = open_below(at, name, shown)
    try:
        if owner() is not None:
            with readable(fd) as open_fd:
                # Whoever may write to `at` may have put another one there since.
                if os.fstat(fd).st_uid == os.geteuid() and not os.listdir(open_fd):
                    give_to_owner(open_fd, shown)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_own(at: int, name: str, shown: str) -> int:
    """Open the directory `name` in `at`, in which biotrail alone works; make it if it is missing.

    It has to be a directory of this user that nobody else may write to. Raises OSError,
    OutputError.
    """
    with suppress(FileExistsError):
        os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=at)
    fd = open_below(at, name, shown)
    status = os.fstat(fd)
    problem = ""
    if status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, and this is user {os.geteuid()}"
    elif status.st_mode & _OTHERS_WRITE:
        problem = f"may be written to by others (mode {stat.S_IMODE(status.st_mode):04o})"
    if problem:
        os.close(fd)
        raise OutputError(f"{shown} {problem}: move it away, and a private one is made")
    return fd


@contextmanager
def descend(
    at: int, names: Sequence[str], shown: str, *, make: bool = False
) -> Iterator[list[int]]:
    """Yield descriptors of nested directories: `at`, names[0] in it, names[1] in that, and so on.

    make: make those that are missing. Raises OSError, OutputError.
    """
    found = [at]
    try:
        for number, name in enumerate(names):
            place = os.path.join(shown, *names[: number + 1])
            found.append((make_below if make else open_below)(found[-1], name, place))
        yield found
    finally:
        for fd in found[1:]:
            os.close(fd)


@contextmanager
def readable(at: int) -> Iterator[int]:
    """Yield a descriptor of the same directory that can be listed, synced and given away."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


def entries(at: int) -> list[str]:
    """Return the sorted names in a directory. Raises OSError."""
    with readable(at) as fd:
        return sorted(os.listdir(fd))


def open_regular(at: int, name: str, shown: str) -> BinaryIO:
    """Return the regular file `name` in a directory, open for reading; `shown`: its path.

    No link is followed, no FIFO waited for. Raises OSError: also ELOOP for a link, EINVAL for what
    else is no regular file.
    """

    def opener(_shown: str, _flags: int) -> int:
        fd = os.open(name, _READ, dir_fd=at)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            raise OSError(errno.EINVAL, f"it is a {file_kind(mode)}")
        return fd

    return open(shown, "rb", opener=opener)


def others_may_replace(status: os.stat_result) -> bool:
    """Return whether others than root and this user may replace what is in a directory."""
    shared = bool(status.st_mode & _OTHERS_WRITE) and not status.st_mode & stat.S_ISVTX
    return shared or status.st_uid not in trusted()


FileId = tuple[int, int]
"""st_dev and st_ino of a file."""


def identity(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


class HeldDirectory:
    """The directory that a path led to when this object was made.

    If the directory was deleted, a new one is opened in its stead where it has the same name in
    the same parent directory, is no symbolic link, and belongs to the same user and group.
    """

    def __init__(self, path: str, *, shown: str = "") -> None:
        """`path`: "": the working one. `shown`: for messages, if not `path`. Raises OutputError."""
        self.path = path
        self._closing: list[weakref.finalize[..., HeldDirectory]] = []
        try:
            self._fd = self._hold(path or ".")
            above, self._name = os.path.split(path_of(self._fd))
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
        fd = open_named(path)
        self._closing.append(weakref.finalize(self, os.close, fd))
        return fd

    def close(self) -> None:
        for closing in self._closing:
            closing()

    @property
    def fd(self) -> int:
        """The directory's descriptor (O_PATH); making a file in a deleted one fails with ENOENT."""
        if os.fstat(self._fd).st_nlink == 0:
            with suppress(OSError, OutputError):
                found = open_below(self._above, self._name, self.path)
                unused = weakref.finalize(self, os.close, found)
                try:
                    status = os.fstat(found)
                    if (status.st_uid, status.st_gid) == self._owner:
                        self._fd = found
                        unused, self._closing[0] = self._closing[0], unused
                finally:
                    unused()
        return self._fd

    def place(self) -> str:
        """Return a path to the directory: the given one, or where it is now, as the kernel says."""
        try:
            if os.path.samestat(os.stat(self.path or "."), os.fstat(self.fd)):
                return self.path
        except OSError:
            pass  # the given path leads nowhere
        with suppress(OSError):
            return os.readlink(path_in(self.fd))
        return self.path

    def holds(self, name: str, file: FileId) -> bool:
        """Return whether the entry `name` in the directory is `file`; no link is followed."""
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError:
            return False
        return identity(status) == file

    def remove(self, name: str, file: FileId) -> bool:
        if not self.holds(name, file):
            return False
        try:
            os.unlink(name, dir_fd=self.fd)
        except OSError:  # deleted just now, or not permitted: the file stays, which harms nothing
            return False
        return True
