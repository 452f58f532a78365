# SPDX-License-Identifier: Apache-2.0
"""Makes directories with files in them, as `output` makes files: private, and whole or not at all.

What is written into a directory gets a path by its descriptor, so that nobody who may write beside
it can lead the files elsewhere.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from biotrail.recorder.output import folders
from biotrail.recorder.output.explaining import explain
from biotrail.recorder.output.output import ensure_free, hidden_name, publish
from biotrail.recorder.output.ownership import PRIVATE_DIRECTORY, PRIVATE_FILE, owner
from biotrail.recorder.schema.errors import OutputError


@contextmanager
def replacing_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str
) -> Iterator[Path]:
    """Yield a private directory that gets the name `path` when the block ends without error.

    Until then it is beside `path` under an unguessable name; an error deletes it. The path that is
    yielded leads to it by its descriptor. A directory that already has the name `path` stays until
    then: it is deleted once the new one is whole, so that an error in the block leaves it. It is
    only deleted with `force`, and only if it is empty or has an entry that matches the glob pattern
    `marker`, so that a mistyped path deletes nothing of value. At the end all that is in the new
    one gets private modes and the user of sudo as owner. If it may not be deleted, OutputError is
    raised, before the block or after it. An OSError inside the block becomes an OutputError.
    """
    with _place(path) as (at, name, shown), _explained(shown):
        _ensure_ours(at, name, shown, force, marker)
        with _part(at, name) as part:
            yield Path(folders.path_in(part[1]))
            _make_private(part[1])
            _exchange(at, part[0], name, shown, force, marker)


def _exchange(at: int, part: str, name: str, shown: str, force: bool, marker: str) -> None:
    """Give the directory `part` in `at` its name; delete what had the name. OSError, OutputError.

    What had it is moved aside first, so that what is looked at is what is deleted.
    """
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

    Files in folders of it move into the same folders of `path`, which are made if missing; empty
    folders do not move, and no link below `path` is followed. Files get private modes and the user
    of sudo as owner. `path` is made if it does not exist; otherwise it has to be empty or have an
    entry that matches the glob pattern `marker`. `force`: replace regular files of the same name;
    without it, such a file is an OutputError, and none is moved (with it too for a link, device or
    directory of that name). Raises OutputError, also for an OSError inside the block.
    """
    if not os.path.lexists(path):
        with replacing_directory(path, marker=marker) as part:
            yield part
        return
    with _place(path) as (at, name, shown), _explained(shown):
        _ensure_ours(at, name, shown, True, marker)
        with _part(at, name) as (_, new), folders.descend(at, [name], "") as (_, final):
            yield Path(folders.path_in(new))
            _make_private(new)
            root = Path(folders.path_in(new))
            files = [file.relative_to(root) for file in sorted(root.rglob("*")) if file.is_file()]
            for checked in (True, False):
                for file in files:
                    _move(new, final, file, shown, force, checked)


def _move(part: int, final: int, file: Path, shown: str, force: bool, only_check: bool) -> None:
    """Move a file from one directory to the same folder of another; `only_check`: see if it may be.

    Raises OSError, OutputError.
    """
    place, names = os.path.join(shown, file), file.parts[:-1]
    try:
        with folders.descend(final, names, shown, make=not only_check) as chain:
            ensure_free(file.name, force, at=chain[-1], shown=place)
            if not only_check:
                with folders.descend(part, names, shown) as source:
                    publish(
                        file.name, file.name, force, at=chain[-1], shown=place, part_at=source[-1]
                    )
    except FileNotFoundError:
        if not only_check:  # a folder that is not there yet has no such file
            raise


def make_directory(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it that are missing, private and of the user of sudo.

    What is there stays as it is. Raises OutputError.
    """
    there = Path(os.path.abspath(path))
    missing: list[str] = []
    while not there.is_dir():
        missing.insert(0, there.name)
        there = there.parent
    with (
        _explained(os.fspath(path)),
        folders.named(str(there), path) as at,
        folders.descend(at, missing, str(there), make=True),
    ):
        pass


@contextmanager
def _place(path: str | os.PathLike[str]) -> Iterator[tuple[int, str, str]]:
    """Yield (the descriptor of what is above, the name in it, the path for messages)."""
    given = os.fspath(path)
    above, name = os.path.split(Path(given))
    if name in ("", ".", ".."):
        above, name = os.path.split(os.path.abspath(given))
    with folders.named(above, given) as at:
        yield at, name, given


@contextmanager
def _explained(shown: str) -> Iterator[None]:
    """Raise an OSError of the block as OutputError, with the path `shown`."""
    try:
        yield
    except OSError as error:
        raise explain(error, shown) from error


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
    """Raise OutputError unless `name` is free in `at`, or a directory that may be replaced.

    That takes `force`, and a directory that is empty or has an entry that matches the glob pattern
    `marker`; a link to one may never be replaced. Raises OSError.
    """
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
    """Set private modes, and the user of sudo as owner, of a directory and all that is in it.

    Modes 0700 of directories, 0600 of files; the owner stays where sudo was not called. The
    outermost comes last: until then nobody else can get in. Raises OSError.
    """
    ids = owner()
    for _, _, names, at in os.fwalk(".", topdown=False, dir_fd=directory):
        for name in names:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            try:
                _set(fd, PRIVATE_FILE, ids)
            finally:
                os.close(fd)
        _set(at, PRIVATE_DIRECTORY, ids)


def _set(fd: int, mode: int, ids: tuple[int, int] | None) -> None:
    """Set the mode of an open file or directory, and its owner if `ids` are given."""
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        os.fchmod(fd, mode)
    if ids is not None:
        os.fchown(fd, *ids)
