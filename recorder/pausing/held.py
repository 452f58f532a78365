# SPDX-License-Identifier: Apache-2.0
"""The list, in /run, of what is stopped now: for whoever has to undo it when a guard is gone.

Imports the standard library alone, as stops.py does.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress

from biotrail.recorder.host import cgroups
from biotrail.recorder.pausing import stops

DIRECTORY = "/run/biotrail"
_GROUP = "biotrail"
_PREFIX, _SUFFIX = "stopped-", ".json"


def _directory(path: str = DIRECTORY) -> int:
    """Open the directory of lists, made if needed; it is this user's alone. Raises OSError."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(at)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(at)
        raise PermissionError(1, "it is another user's, or others may write to it", path)
    return at


def groups() -> list[str]:
    """Return where guards have their cgroups: in the hierarchies by which processes are ended.

    These are that of version 2, and systemd's of version 1.
    """
    return [
        os.path.join(mount.point, _GROUP)
        for mount in cgroups.mounted()
        if mount.fstype == "cgroup2" or "name=systemd" in mount.options
    ]


class Entry:
    """This process's entry in the list; there while its suspect is stopped."""

    def __init__(self, facts: Mapping[str, str | int], label: str) -> None:
        """Open the directory; nothing is listed yet. Raises OSError."""
        self._at = _directory()
        self._name = f"{_PREFIX}{os.getpid()}{_SUFFIX}"
        guard = {"guard": os.getpid(), "guard_start": stops.start_of(os.getpid())}
        self._text = json.dumps({**guard, "label": label, **facts}) + "\n"

    def add(self) -> None:
        """List it. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._name, flags, 0o600, dir_fd=self._at), "w") as file:
            file.write(self._text)

    def remove(self) -> None:
        """Take it off the list."""
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._at)


def resume() -> Iterator[str]:
    """Let everything on the list go on, and yield a line for each; nothing is listed afterwards.

    What a living guard holds goes on, too: its period is then broken, which it notices. Empty
    cgroups of guards are removed. Raises OSError: the directory cannot be read, or something cannot
    be let go on.
    """
    for group in groups():
        with suppress(OSError):
            for name in (*os.listdir(group), ""):
                if os.path.isdir(os.path.join(group, name)):
                    with suppress(OSError):
                        os.rmdir(os.path.join(group, name))
    try:
        at = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        for name in sorted(os.listdir(at)):
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                yield _resume_one(at, name)
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=at)
    finally:
        os.close(at)


def _resume_one(at: int, name: str) -> str:
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)) as file:
            entry = json.loads(file.read(1 << 16))
        label = str(entry.get("label"))
        stop = stops.opened(entry)
    except (ValueError, AttributeError):
        return f"{DIRECTORY}/{name}: not read: it is not what was written there"
    except (FileNotFoundError, ProcessLookupError):
        return f"{label}: is gone"
    try:
        stop.end()
    finally:
        stop.close()
    return f"{label}: goes on"
