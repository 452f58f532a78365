# SPDX-License-Identifier: Apache-2.0
"""Makes the files that biotrail writes: private, never through a link, replacing only on request.

Logs and traces name processes, files and sectors of a production host and are often
written by root. So a file is created with mode 0600 by O_EXCL and O_NOFOLLOW, belongs to
the user who called sudo, and replaces an existing regular file only when asked to.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

from biotrail.recorder.schema.errors import OutputError

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_BUFFER = 1 << 20
_URL = re.compile("[a-z][a-z0-9+.-]+:/")
"""How a URL begins, also one that was taken for a path."""
_NO_ID = (1 << 32) - 1  # (uid_t)-1
_ID_DIGITS = len(str(_NO_ID))
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
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


def owner() -> tuple[int, int] | None:
    """Return (uid, gid) of the user who called sudo, from SUDO_UID and SUDO_GID.

    None: this process is not root, or one of the variables is not set or no valid id. Files then
    belong to this process's user.
    """
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(text.isascii() and text.isdecimal() for text in ids):
        return None
    # The largest is (uid_t)-1, which chown takes as "do not change", so it is no user's id.
    found = [int(text) if len(text) <= _ID_DIGITS else _NO_ID for text in ids]
    return (found[0], found[1]) if max(found) < _NO_ID else None


def ensure_free(
    path: str | os.PathLike[str],
    force: bool,
    *,
    directory: bool = False,
    at: int | None = None,
    shown: str | os.PathLike[str] | None = None,
) -> None:
    """Raise OutputError unless nothing is at `path`, or what is there may be replaced.

    With `force` a regular file (or, with `directory`, a directory) may be replaced; symbolic links,
    devices and the like never; nor what cannot be looked at (stat fails). `at`: descriptor of the
    directory that `path` is relative to; None: the working directory. `shown`: the path in error
    messages; None: `path`. Changes nothing.
    """
    called = os.fspath(path if shown is None else shown)
    try:
        mode = os.stat(path, dir_fd=at, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, called) from error
    wanted = stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)
    if not wanted:
        what = "directory" if directory else "regular file"
        raise OutputError(f"{called} exists and is no {what}: give another path")
    if not force:
        raise OutputError(f"{called} already exists: will not overwrite it without --force")


def create(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    shown: str | os.PathLike[str] | None = None,
) -> BinaryIO:
    """Make a private file (mode 0600) at `path`; return it open for writing and unbuffered.

    It belongs to the user who called sudo, if any. With `force` an existing regular file is
    unlinked first: whoever has it open keeps the old one. The directory is looked up once. `shown`:
    the path in error messages; None: `path`. Raises OutputError, also where a file exists and
    `force` is not given, or anything but a regular file is there.
    """
    called = os.fspath(path if shown is None else shown)
    directory, name = os.path.split(os.fspath(path))
    if name in ("", ".", ".."):
        ensure_free(path, force, shown=called)
    try:
        at = os.open(directory or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise explain(error, called) from error
    try:
        return create_at(at, name, force=force, shown=called)
    finally:
        os.close(at)


def create_at(at: int, name: str, *, force: bool = False, shown: str) -> BinaryIO:
    """Make a private file (mode 0600) in a directory; return it open for writing, unbuffered.

    It belongs to the user who called sudo, if any. `at`: descriptor of the directory. `name`:
    without a directory. With `force` an existing regular file is unlinked first. `shown`: its path
    in error messages. Raises OutputError, also where a file exists and `force` is not given, or
    anything but a regular file is there.
    """
    ensure_free(name, force, at=at, shown=shown)
    try:
        if force:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
        return _open_private(at, name, shown)
    except FileExistsError as error:
        raise OutputError(
            f"{shown} appeared just now: will not overwrite it, give another path"
        ) from error
    except OSError as error:
        raise explain(error, shown) from error


def _open_private(at: int, name: str, shown: str) -> BinaryIO:
    """Create a file with O_EXCL, set mode and owner, and return it open for writing, unbuffered.

    `name`: in the directory with descriptor `at`. `shown`: its path in error messages. If mode or
    owner cannot be set, the file is deleted. Raises OSError, OutputError.
    """

    def opener(_shown: str, _flags: int) -> int:
        return os.open(name, _CREATE, PRIVATE_FILE, dir_fd=at)

    stream = open(shown, "wb", buffering=0, opener=opener)  # noqa: SIM115
    try:
        os.fchmod(stream.fileno(), PRIVATE_FILE)  # the umask may have taken bits away
        _give_to_owner(stream.fileno(), shown)
    except (OSError, OutputError):
        stream.close()
        os.unlink(name, dir_fd=at)
        raise
    return stream


def _give_to_owner(fd: int, shown: str) -> None:
    """Change the owner of the file open as `fd` to the user who called sudo, if any.

    `shown`: its path in error messages. Raises OutputError.
    """
    if (ids := owner()) is None:
        return
    try:
        os.fchown(fd, *ids)
    except OSError as error:
        raise OutputError(
            f"cannot give {shown} to the user who called sudo (SUDO_UID {ids[0]}, SUDO_GID "
            f"{ids[1]}): {error.strerror}; unset SUDO_UID and SUDO_GID, or give another path"
        ) from error


def _temporary(path: Path) -> Path:
    """Return an unguessable hidden name beside `path`."""
    return path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.part")


@contextmanager
def replacing(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[BinaryIO]:
    """Yield a buffered private file that gets the name `path` when the block ends without error.

    Until then the file is beside `path` under an unguessable name; an error deletes it. `force`:
    replace an existing regular file; without it, one at `path`, before or after the block, is an
    OutputError. Raises OutputError, also for an OSError inside the block.
    """
    final = Path(path)
    ensure_free(final, force)
    part = _temporary(final)
    raw = create(part, shown=final)
    try:
        with BufferedWriter(raw, _BUFFER) as stream:
            yield stream
        publish(part, final, force)
    except OSError as error:
        raise explain(error, final) from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def publish(
    part: str | Path, final: str | Path, force: bool, *, at: int | None = None, shown: str = ""
) -> None:
    """Give the file `part` its final name, in the same directory.

    Without `force` by a hard link if possible, so that `part` is left as a second name; else by a
    rename, with `force` over an existing regular file. `at`: descriptor of the directory that both
    are relative to; None: the working directory. `shown`: the path in error messages; "" for
    `final`. Raises OutputError: `final` may not be replaced; OSError.
    """
    called = shown or os.fspath(final)
    ensure_free(final, force, at=at, shown=called)
    if force:
        os.replace(part, final, src_dir_fd=at, dst_dir_fd=at)
        return
    try:  # unlike rename, never replaces
        os.link(part, final, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        ensure_free(final, force, at=at, shown=called)
        raise  # deleted by now
    except OSError:  # a file system without hard links
        ensure_free(final, force, at=at, shown=called)
        os.rename(part, final, src_dir_fd=at, dst_dir_fd=at)


@contextmanager
def replacing_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str
) -> Iterator[Path]:
    """Yield a private directory that gets the name `path` when the block ends without error.

    Until then it is beside `path` under an unguessable name; an error deletes it. A directory that
    already has the name `path` stays until then: it is deleted right before the rename, so that an
    error in the block leaves it whole. It is only deleted with `force`, and only if it is empty or
    has an entry that matches the glob pattern `marker`, so that a mistyped path deletes nothing of
    value. At the end all that is in the new one gets private modes and the user of sudo as owner.
    If it may not be deleted, OutputError is raised, before the block or after it. An OSError inside
    the block becomes an OutputError.
    """
    final = Path(path)
    _ensure_ours(final, force, marker)
    part = _temporary(final)
    try:
        part.mkdir(PRIVATE_DIRECTORY)
        yield part
        _make_private(part)
        _ensure_ours(final, force, marker)
        if final.exists():
            shutil.rmtree(final)
        part.rename(final)
    except OSError as error:
        raise explain(error, final) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def adding_to_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str
) -> Iterator[Path]:
    """Yield a private directory whose files move into `path` when the block ends without error.

    Files in folders of it move into the same folders of `path`, which are made if missing; empty
    folders do not move. Files get private modes and the user of sudo as owner. `path` is made if it
    does not exist; otherwise it has to be empty or have an entry that matches the glob pattern
    `marker`. `force`: replace regular files of the same name; without it, such a file is an
    OutputError, and none is moved (with it too for a link, device or directory of that name).
    Raises OutputError, also for an OSError inside the block.
    """
    final = Path(path)
    if not os.path.lexists(final):
        with replacing_directory(final, marker=marker) as part:
            yield part
        return
    _ensure_ours(final, True, marker)
    part = _temporary(final)
    try:
        part.mkdir(PRIVATE_DIRECTORY)
        yield part
        _make_private(part)
        files = [file.relative_to(part) for file in sorted(part.rglob("*")) if file.is_file()]
        for file in files:
            ensure_free(final / file, force)
        for file in files:
            make_parents(final, file)
            publish(part / file, final / file, force)
    except OSError as error:
        raise explain(error, final) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def make_parents(root: Path, file: Path) -> None:
    """Make the missing private directories between `root` and root / file, for the user of sudo.

    `file`: relative to `root`. Raises OSError.
    """
    for parent in reversed(file.parents[:-1]):
        folder = root / parent
        if not folder.exists():
            folder.mkdir(PRIVATE_DIRECTORY)
            if (ids := owner()) is not None:
                os.chown(folder, *ids, follow_symlinks=False)


def _ensure_ours(final: Path, force: bool, marker: str) -> None:
    """Raise OutputError unless `final` is free, or a directory that may be replaced.

    That takes `force`, and a directory that is empty or has an entry that matches the glob pattern
    `marker`; a link to one may never be replaced.
    """
    ensure_free(final, force, directory=True)
    if final.exists() and any(final.iterdir()) and not any(final.glob(marker)):
        raise OutputError(
            f"{final} holds other things (no {marker}): will not replace it, give another path"
        )


def _make_private(directory: Path) -> None:
    """Set private modes, and the user of sudo as owner, of a directory and all that is in it.

    Modes 0700 of directories, 0600 of files; the owner stays where sudo was not called. Raises
    OSError.
    """
    ids = owner()
    for folder, _, names in os.walk(directory):
        os.chmod(folder, PRIVATE_DIRECTORY)
        paths = [os.path.join(folder, name) for name in names]
        for path in paths:
            os.chmod(path, PRIVATE_FILE)
        if ids is not None:
            for path in [folder, *paths]:
                os.chown(path, *ids, follow_symlinks=False)
