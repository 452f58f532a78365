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

from recorder.errors import OutputError

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_BUFFER = 1 << 20
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
    """(uid, gid) of the user who called sudo; None when we are not root under sudo."""
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (uid, gid) if os.geteuid() == 0 and uid >= 0 and gid >= 0 else None


def ensure_free(path: str | os.PathLike[str], force: bool, *, directory: bool = False) -> None:
    """Raise OutputError unless `path` is free, or may be replaced.

    With `force` a regular file (or, with `directory`, a directory) may be replaced; links,
    devices and the like never are.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, path) from error
    wanted = stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)
    if not wanted:
        what = "directory" if directory else "regular file"
        raise OutputError(f"{os.fspath(path)} exists and is no {what}: give another path")
    if not force:
        raise OutputError(
            f"{os.fspath(path)} already exists: will not overwrite it without --force"
        )


def create(path: str | os.PathLike[str], *, force: bool = False) -> BinaryIO:
    """A new, empty, private file at `path`, unbuffered; the caller closes it.

    With `force` an existing regular file is unlinked first: whoever has it open keeps the
    old one. Raises OutputError.
    """
    ensure_free(path, force)
    try:
        if force:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return _open_private(path)
    except FileExistsError as error:
        raise OutputError(
            f"{os.fspath(path)} appeared just now: will not overwrite it, give another path"
        ) from error
    except OSError as error:
        raise explain(error, path) from error


def _open_private(path: str | os.PathLike[str]) -> BinaryIO:
    def opener(name: str, _flags: int) -> int:
        return os.open(name, _CREATE, PRIVATE_FILE)

    stream = open(os.fspath(path), "wb", buffering=0, opener=opener)  # noqa: SIM115
    try:
        os.fchmod(stream.fileno(), PRIVATE_FILE)  # the umask may have taken bits away
        if (ids := owner()) is not None:
            os.fchown(stream.fileno(), *ids)
    except OSError:
        stream.close()
        os.unlink(path)
        raise
    return stream


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
    raw = create(part)
    try:
        with BufferedWriter(raw, _BUFFER) as stream:
            yield stream
        publish(part, final, force)
    except OSError as error:
        raise explain(error, final) from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def publish(part: Path, final: Path, force: bool) -> None:
    """Give a file its final name; `part` may be left as a second one. Raises OutputError."""
    ensure_free(final, force)
    if force:
        part.replace(final)
        return
    try:
        os.link(part, final, follow_symlinks=False)  # unlike rename, never replaces
    except FileExistsError:
        ensure_free(final, force)
    except OSError:  # a file system without hard links
        ensure_free(final, force)
        part.rename(final)


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
