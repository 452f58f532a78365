# SPDX-License-Identifier: Apache-2.0
"""Makes the files that biotrail writes: private, never through a link, replacing only on request.

Logs and traces name processes, files and sectors of a production host and are often
written by root. So a file is created with mode 0600 by O_EXCL and O_NOFOLLOW, belongs to
the user who called sudo, and replaces an existing regular file only when asked to.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

from biotrail.recorder.output import folders
from biotrail.recorder.output.explaining import explain
from biotrail.recorder.output.held_directory import HeldDirectory, identity
from biotrail.recorder.output.ownership import PRIVATE_FILE, give_to_owner
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.file_kinds import file_kind

_BUFFER = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HIDDEN_BYTES = 200
"""Bytes of a name that its hidden one begins with: with 23 more it stays below 255."""


def hidden_name(name: str) -> str:
    """Return an unguessable hidden name for what will be called `name`."""
    return f"{hidden_prefix(name)}{os.urandom(8).hex()}.part"


def hidden_prefix(name: str) -> str:
    """Return what all hidden names of `name` begin with."""
    return f".{os.fsdecode(os.fsencode(name)[:_HIDDEN_BYTES])}."


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
        raise OutputError(
            f"{called} exists and is no {what} but a {file_kind(mode)}: give another path"
        )
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
    with _place(path, shown) as (at, name, called):
        return create_at(at, name, force=force, shown=called)


@contextmanager
def _place(
    path: str | os.PathLike[str], shown: str | os.PathLike[str] | None = None
) -> Iterator[tuple[int, str, str]]:
    """Yield (the directory's descriptor, the name in it, the path for messages) of a file.

    The directory is looked up once. Raises OutputError: there is none, or the path names no file.
    """
    called = os.fspath(path if shown is None else shown)
    directory, name = os.path.split(os.fspath(path))
    if name in ("", ".", ".."):
        raise OutputError(f"{called} is no name of a file: give another path")
    with folders.named(directory, called) as at:
        yield at, name, called


class NewFile:
    """A file that was made at a path that a person gave, and that may have to go again."""

    def __init__(self, path: str, *, force: bool = False) -> None:
        """Make it, as `create` does; `stream` is open for writing. Raises OutputError."""
        directory, self._name = os.path.split(path)
        if self._name in ("", ".", ".."):
            raise OutputError(f"{path} is no name of a file: give another path")
        self._directory = HeldDirectory(directory, shown=path)
        self.stream = create_at(self._directory.fd, self._name, force=force, shown=path)
        self._file = identity(self.stream.fileno())

    def discard(self) -> None:
        """Delete it, where it is now, unless its name is another file's."""
        self._directory.remove(self._name, self._file)

    def close(self) -> None:
        """Close it and its directory."""
        self.stream.close()
        self._directory.close()


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
        give_to_owner(stream.fileno(), shown)
    except (OSError, OutputError):
        stream.close()
        os.unlink(name, dir_fd=at)
        raise
    return stream


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    shown: str | os.PathLike[str] | None = None,
) -> Iterator[BinaryIO]:
    """Yield a buffered private file that gets the name `path` when the block ends without error.

    Until then the file is beside `path` under an unguessable name; an error deletes it. `force`:
    replace an existing regular file; without it, one at `path`, before or after the block, is an
    OutputError. `shown`: the path in messages; None: `path`. Raises OutputError, also for an
    OSError inside the block.
    """
    with _place(Path(path), shown or path) as (at, name, called):
        ensure_free(name, force, at=at, shown=called)
        part = hidden_name(name)
        raw = create_at(at, part, shown=called)
        try:
            with BufferedWriter(raw, _BUFFER) as stream:
                yield stream
            publish(part, name, force, at=at, shown=called)
        except OSError as error:
            raise explain(error, called) from error
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=at)


def publish(
    part: str, final: str, force: bool, *, at: int, shown: str, part_at: int | None = None
) -> None:
    """Give the file `part` its final name, in the directory open as `at`.

    Without `force` by a hard link if possible, so that `part` is left as a second name; else by a
    rename, with `force` over an existing regular file. `part_at`: the directory of `part`, on the
    same file system; None: `at`. `shown`: the path in error messages. Raises OutputError: `final`
    may not be replaced; OSError.
    """
    ensure_free(final, force, at=at, shown=shown)
    source = at if part_at is None else part_at
    if force:
        os.replace(part, final, src_dir_fd=source, dst_dir_fd=at)
        return
    try:  # unlike rename, never replaces
        os.link(part, final, src_dir_fd=source, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        ensure_free(final, force, at=at, shown=shown)
        raise  # deleted by now
    except OSError:  # a file system without hard links
        ensure_free(final, force, at=at, shown=shown)
        os.rename(part, final, src_dir_fd=source, dst_dir_fd=at)
