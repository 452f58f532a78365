# SPDX-License-Identifier: Apache-2.0
"""Directories of another user, and what that user may do in them while root works there."""

import itertools
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 65534
"""A user who is not this one."""
PRECIOUS = b"precious"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def precious(directory: Path, *names: str) -> Path:
    """Make a directory with files that have to stay as they are; return it."""
    directory.mkdir()
    for name in names:
        (directory / name).write_bytes(PRECIOUS)
    return directory


def untouched(directory: Path, *names: str) -> bool:
    """Return whether a directory holds exactly these files, as `precious` made them."""
    return sorted(os.listdir(directory)) == sorted(names) and all(
        (directory / name).read_bytes() == PRECIOUS for name in names
    )


def put(path: Path, kind: str, target: Path) -> None:
    """Put what is no directory at `path`; a symbolic link leads to `target`."""
    match kind:
        case "symbolic link":
            path.symlink_to(target)
        case "FIFO":
            os.mkfifo(path)
        case "regular file":
            path.write_bytes(b"x")
        case "socket":
            # A path in a deep directory may be longer than a socket's.
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                with socket.socket(socket.AF_UNIX) as one:
                    one.bind(f"/proc/self/fd/{directory}/{path.name}")
            finally:
                os.close(directory)


KINDS = ("symbolic link", "FIFO", "regular file", "socket")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def swapped(directory: Path, elsewhere: Path, owner: int = -1) -> Iterator[None]:
    """In the block, swap a directory with a link to another one as quickly as can be.

    owner: of the link; -1: this user.
    """
    moved, link = directory.with_name("moved"), directory.with_name("link")
    link.symlink_to(elsewhere)
    os.chown(link, owner, owner, follow_symlinks=False)
    over = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            directory.rename(moved)
            try:
                link.rename(directory)
                directory.rename(link)
                moved.rename(directory)
            except OSError:  # what is attacked made a new one meanwhile
                directory.rename(directory.with_name(f"made-{number}"))
                moved.rename(directory)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
