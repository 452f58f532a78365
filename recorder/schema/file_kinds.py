# SPDX-License-Identifier: Apache-2.0
"""What a file is called in messages, by its mode."""

import os
import stat

_KINDS = {
    stat.S_IFREG: "regular file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}


def file_kind(mode: int) -> str:
    """Return the kind of a file with the mode `st_mode`, as in "a symbolic link"."""
    return _KINDS.get(stat.S_IFMT(mode), "file of an unknown kind")


def no_regular_file(path: str | os.PathLike[str]) -> str:
    """Return what is at a path, links followed ("a FIFO"); "": a regular file, or not known."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        there = os.path.islink(path)
        return f"a link to {os.readlink(path)}, which is not there" if there else ""
    except OSError:
        return ""
    return "" if stat.S_ISREG(mode) else f"a {file_kind(mode)}"
