# SPDX-License-Identifier: Apache-2.0
"""Files that biotrail writes: private, never through a link, never over something by surprise.

Logs and traces name processes, files and sectors of a production host and are often
written by root. So a file is created with mode 0600 by O_EXCL and O_NOFOLLOW, belongs to
the user who called sudo, and replaces an existing regular file only when asked to.
"""

import errno
import os
import secrets
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
_NO_ID = (1 << 32) - 1
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
    """An OutputError that says what failed on `path` and what to do next."""
    reason = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return OutputError(f"cannot write {os.fspath(path)}: {reason}")


def owner() -> tuple[int, int] | None:
    """(uid, gid) of the user who called sudo; None when we are not root under sudo.

    Variables that hold no ids of a user count as none: the file stays the recorder's.
    """
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(text.isascii() and text.isdecimal() for text in ids):
        return None
    # Nobody has the largest: it is -1, which tells chown to change nothing.
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
    """Raise OutputError unless `path` is free, or may be replaced.

    With `force` a regular file (or, with `directory`, a directory) may be replaced; links,
    devices and the like never are. at: descriptor of the directory that `path` is a name in.
    shown: what messages call it, where that is not `path`.
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
    """A new, empty, private file at `path`, unbuffered; the caller closes it.

    With `force` an existing regular file is unlinked first: whoever has it open keeps the
    old one. The directory is looked up once. shown: as in `ensure_free`. Raises OutputError.
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
    """As `create`, in the directory whose descriptor is `at`. Raises OutputError."""
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
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.part")


@contextmanager
def replacing(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[BinaryIO]:
    """A private file that gets its name only when the block ends well.

    Until then it stands beside `path` under an unguessable name; an error removes it.
    Raises OutputError, also for any OSError of writing inside the block.
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
    """Give a file its final name; `part` may be left as a second one. Raises OutputError.

    at: descriptor of the directory that both are names in. shown: what messages call `final`.
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
    except OSError:  # a file system without hard links
        ensure_free(final, force, at=at, shown=called)
        os.rename(part, final, src_dir_fd=at, dst_dir_fd=at)


@contextmanager
def replacing_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str
) -> Iterator[Path]:
    """A private directory that gets its name only when the block ends well.

    With `force` an existing directory is replaced, but only one that holds a file like
    `marker` (a name or a pattern), so that a mistyped path deletes nothing of value. Raises
    OutputError.
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
    """A private directory whose files get their place under `path` when the block ends well.

    `path` is made where it does not exist; else it has to hold something like `marker`. With
    `force` files of the same name are replaced. Raises OutputError.
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
            _make_parents(final, file)
            publish(part / file, final / file, force)
    except OSError as error:
        raise explain(error, final) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _make_parents(root: Path, file: Path) -> None:
    for parent in reversed(file.parents[:-1]):
        folder = root / parent
        if not folder.exists():
            folder.mkdir(PRIVATE_DIRECTORY)
            if (ids := owner()) is not None:
                os.chown(folder, *ids, follow_symlinks=False)


def _ensure_ours(final: Path, force: bool, marker: str) -> None:
    ensure_free(final, force, directory=True)
    if final.exists() and any(final.iterdir()) and not any(final.glob(marker)):
        raise OutputError(
            f"{final} holds other things (no {marker}): will not replace it, give another path"
        )


def _make_private(directory: Path) -> None:
    ids = owner()
    for folder, _, names in os.walk(directory):
        os.chmod(folder, PRIVATE_DIRECTORY)
        paths = [os.path.join(folder, name) for name in names]
        for path in paths:
            os.chmod(path, PRIVATE_FILE)
        if ids is not None:
            for path in [folder, *paths]:
                os.chown(path, *ids, follow_symlinks=False)
