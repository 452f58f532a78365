# SPDX-License-Identifier: Apache-2.0
"""Makes the files that biotrail writes: private, never through a link, replacing only on request.

Logs and traces name processes, files and sectors of a production host and are often
written by root. So a file is created with mode 0600 by O_EXCL and O_NOFOLLOW, belongs to
the user who called sudo, and replaces an existing regular file only when asked to.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

from biotrail.recorder.output import folders
from biotrail.recorder.output.folders import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    HeldDirectory,
    explain,
    give_to_owner,
    identity,
    owner,
)
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
    devices and the like never. `at`: descriptor of the directory that `path` is in. `shown`: the
    path in error messages.
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


class NewFile:
    """A private file (mode 0600), of the user who called sudo, if any; hidden until `publish`.

    So a file of its name stays as it is if what was to be written cannot begin.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        directory: HeldDirectory | None = None,
    ) -> None:
        """Make the file in the directory of `path`, under an unguessable name.

        `force`: an existing regular file at `path` may be replaced. `directory`: that of `path`,
        kept open; None: it is opened. Raises OutputError.
        """
        self._path, self._force = os.fspath(path), force
        above, self.name = os.path.split(self._path)
        _check_name(self.name, self._path)
        self._directory = directory or HeldDirectory(above, shown=self._path)
        at = self._directory.fd
        ensure_free(self.name, force, at=at, shown=self._path)
        self._hidden = hidden_name(self.name)
        self.stream = create_at(at, self._hidden, shown=self._path)
        self.id = identity(os.fstat(self.stream.fileno()))

    def publish(self) -> None:
        """Give the file its name; whoever has a replaced file open keeps it. Raises OutputError."""
        try:
            publish(self._hidden, self.name, self._force, at=self._directory.fd, shown=self._path)
        except OSError as error:
            raise explain(error, self._path) from error
        self.give_up()  # the hidden name, where it is left as a second one

    def give_up(self) -> None:
        """Delete the hidden name, if it is there."""
        self._directory.remove(self._hidden, self.id)

    def discard(self) -> None:
        """Delete the file, where it is now, unless its name is another file's."""
        self.give_up()
        self._directory.remove(self.name, self.id)

    def close(self) -> None:
        """Close the file, and its directory."""
        self.stream.close()
        self._directory.close()


def _check_name(name: str, shown: str) -> None:
    if name in ("", ".", ".."):
        raise OutputError(f"{shown} is not a file name: give another path")


def create_at(at: int, name: str, *, shown: str) -> BinaryIO:
    """Make a private file `name` in `at`, of the user who called sudo, if any; open, unbuffered."""
    ensure_free(name, False, at=at, shown=shown)

    def opener(_shown: str, _flags: int) -> int:
        return os.open(name, _CREATE, PRIVATE_FILE, dir_fd=at)

    try:
        stream = open(shown, "wb", buffering=0, opener=opener)  # noqa: SIM115
        try:
            os.fchmod(stream.fileno(), PRIVATE_FILE)  # the umask may have taken bits away
            give_to_owner(stream.fileno(), shown)
        except (OSError, OutputError):
            stream.close()
            os.unlink(name, dir_fd=at)
            raise
    except FileExistsError as error:
        raise OutputError(
            f"{shown} appeared just now: will not overwrite it, give another path"
        ) from error
    except OSError as error:
        raise explain(error, shown) from error
    return stream


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    shown: str | os.PathLike[str] | None = None,
) -> Iterator[BinaryIO]:
    """Yield a buffered private file that gets the name `path` when the block ends without error.

    Until then it is beside `path` under an unguessable name; an error deletes it. `force`: replace
    an existing regular file. Raises OutputError, also for an OSError inside the block.
    """
    called = os.fspath(shown or path)
    directory, name = os.path.split(Path(path))
    _check_name(name, called)
    with folders.named(directory, called) as at:
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
    rename. `part_at`: the directory of `part`, on the same file system; None: `at`. Raises
    OutputError: `final` may not be replaced; OSError.
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


@contextmanager
def replacing_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str
) -> Iterator[Path]:
    """Yield a private directory that gets the name `path` when the block ends without error.

    Until then it is beside `path` under an unguessable name; an error deletes it. What is yielded
    leads to it by its descriptor. A directory that has the name `path` is deleted once the new one
    is whole, but only with `force`, and only if it is empty or has an entry that matches the glob
    pattern `marker`, so that a mistyped path deletes nothing of value. All that is in the new one
    gets private modes and the user of sudo as owner. Raises OutputError, also for an OSError inside
    the block.
    """
    with _above(path) as (at, name, shown):
        _ensure_ours(at, name, shown, force, marker)
        with _part(at, name) as (part, fd):
            yield Path(folders.path_in(fd))
            _make_private(fd)
            # What has the name is moved aside first, so that what is looked at is what is deleted.
            aside = hidden_name(name)
            try:
                os.rename(name, aside, src_dir_fd=at, dst_dir_fd=at)
            except FileNotFoundError:
                os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
                return
            try:
                _ensure_ours(at, aside, shown, force, marker)
                os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                os.rename(aside, name, src_dir_fd=at, dst_dir_fd=at)
                raise
            shutil.rmtree(aside, dir_fd=at)


@contextmanager
def adding_to_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str
) -> Iterator[Path]:
    """Yield a private directory whose files move into `path` when the block ends without error.

    Into the same folders of `path`, which are made if missing; no link below `path` is followed.
    Files get private modes and the user of sudo as owner. An existing `path` has to be empty or
    have an entry that matches the glob pattern `marker`. `force`: replace regular files of the same
    name; if any may not be replaced, none is moved. Raises OutputError, also for an OSError inside
    the block.
    """
    if not os.path.lexists(path):
        with replacing_directory(path, marker=marker) as part:
            yield part
        return
    with _above(path) as (at, name, shown):
        _ensure_ours(at, name, shown, True, marker)
        with _part(at, name) as (_, new), folders.descend(at, [name], "") as (_, final):
            yield Path(folders.path_in(new))
            _make_private(new)
            root = Path(folders.path_in(new))
            files = [file.relative_to(root) for file in sorted(root.rglob("*")) if file.is_file()]
            for file in files:  # before any is moved; a folder that is not there has no such file
                place = os.path.join(shown, file)
                with (
                    suppress(FileNotFoundError),
                    folders.descend(final, file.parts[:-1], shown) as to,
                ):
                    ensure_free(file.name, force, at=to[-1], shown=place)
            for file in files:
                place = os.path.join(shown, file)
                with (
                    folders.descend(final, file.parts[:-1], shown, make=True) as to,
                    folders.descend(new, file.parts[:-1], shown) as source,
                ):
                    publish(file.name, file.name, force, at=to[-1], shown=place, part_at=source[-1])


def make_directory(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it that are missing, private and of the user of sudo."""
    there = Path(os.path.abspath(path))
    missing: list[str] = []
    while not there.is_dir():
        missing.insert(0, there.name)
        there = there.parent
    try:
        with (
            folders.named(str(there), path) as at,
            folders.descend(at, missing, str(there), make=True),
        ):
            pass
    except OSError as error:
        raise explain(error, path) from error


@contextmanager
def _above(path: str | os.PathLike[str]) -> Iterator[tuple[int, str, str]]:
    """Yield (the descriptor of what is above, the name in it, the path for messages).

    An OSError inside the block becomes an OutputError.
    """
    given = os.fspath(path)
    above, name = os.path.split(Path(given))
    if name in ("", ".", ".."):
        above, name = os.path.split(os.path.abspath(given))
    with folders.named(above, given) as at:
        try:
            yield at, name, given
        except OSError as error:
            raise explain(error, given) from error


@contextmanager
def _part(at: int, name: str) -> Iterator[tuple[str, int]]:
    """Yield a new directory beside `name`: its name, and a descriptor; what is left is deleted."""
    part = hidden_name(name)
    os.mkdir(part, PRIVATE_DIRECTORY, dir_fd=at)
    try:
        with folders.descend(at, [part], "") as (_, fd):
            yield part, fd
    finally:
        with suppress(FileNotFoundError):
            os.stat(part, dir_fd=at, follow_symlinks=False)
            shutil.rmtree(part, ignore_errors=True, dir_fd=at)


def _ensure_ours(at: int, name: str, shown: str, force: bool, marker: str) -> None:
    """Raise OutputError unless `name` is free, or a directory that `force` may replace."""
    ensure_free(name, force, directory=True, at=at, shown=shown)
    try:
        fd = folders.open_below(at, name, shown)
    except FileNotFoundError:
        return
    try:
        place = Path(folders.path_in(fd))
        if any(place.iterdir()) and not any(place.glob(marker)):
            raise OutputError(
                f"{shown} holds other things (no {marker}): will not replace it, give another path"
            )
    finally:
        os.close(fd)


def _make_private(directory: int) -> None:
    """Set private modes and owner of all in a directory, itself last: until then nobody gets in."""
    ids = owner()
    for _, _, names, at in os.fwalk(".", topdown=False, dir_fd=directory):
        for name in (*names, "."):
            mode = PRIVATE_DIRECTORY if name == "." else PRIVATE_FILE
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            try:
                if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
                    os.fchmod(fd, mode)
                if ids is not None:
                    os.fchown(fd, *ids)
            finally:
                os.close(fd)
