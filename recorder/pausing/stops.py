# SPDX-License-Identifier: Apache-2.0
"""Three ways to stop processes and let them go on, and whether the kernel says that they stand.

Imports the standard library alone: the guard (guard_child.py) and `record --resume` use it, too.
Everything that is needed to let them go on is open before anything is stopped. What is stopped now
is listed in /run, for whoever has to undo it when a guard is gone.
"""

import errno
import json
import os
import signal
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress

from biotrail.recorder.host import cgroups

PATIENCE = 1.0
"""Seconds that stopping may take: a task that waits for the disk stops when it no longer does."""
LONGEST = 5.0
"""Seconds that a suspect stands at most at once."""
_GLANCE = 0.002
_BEGAN = 19
"""The field of stat_of() with the time of the process's begin, in clock ticks since boot."""


class Stop(ABC):
    """One suspect that can be stopped. A method raises OSError if it is gone."""

    facts: dict[str, str | int]
    """What `opened` needs to make it again, in another process or later."""
    _open: list[int]
    """Descriptors by which it is stopped, and let go on."""

    @abstractmethod
    def standing(self) -> bool:
        """Return whether all of it stands, whoever stopped it."""

    def free(self) -> bool:
        """Return whether nobody stops it now."""
        return not self.standing()

    @abstractmethod
    def begin(self) -> None:
        """Tell the kernel to stop it."""

    @abstractmethod
    def end(self) -> None:
        """Let it go on; nothing if it is gone. Raises OSError."""

    def close(self) -> None:
        """Close what is open; it can be stopped no more."""
        for descriptor in self._open:
            os.close(descriptor)

    def hold(self) -> bool:
        """Stop it and wait until all stands; False, and all goes on, where that takes too long."""
        until = time.monotonic() + PATIENCE
        try:
            self.begin()
            while not self.standing():
                if time.monotonic() > until:
                    self.end()
                    return False
                time.sleep(_GLANCE)
        except BaseException:
            with suppress(OSError):
                self.end()
            raise
        return True


class FrozenCgroup(Stop):
    """A cgroup of version 2, or of the first version's controller `freezer`."""

    def __init__(self, directory: str, *, v2: bool) -> None:
        """Open. directory: the cgroup's. Raises OSError, e.g. v2 before Linux 5.2."""
        self.facts = {"kind": "cgroup2" if v2 else "freezer", "directory": directory}
        file, self._frozen, self._free = "freezer.state", b"FROZEN", b"THAWED"
        if v2:
            file, self._frozen, self._free = "cgroup.freeze", b"1", b"0"
        self._fd = os.open(os.path.join(directory, file), os.O_RDWR | os.O_CLOEXEC)
        self._events = None
        self._open = [self._fd]
        if v2:
            events = os.path.join(directory, "cgroup.events")
            self._events = os.open(events, os.O_RDONLY | os.O_CLOEXEC)
            self._open.append(self._events)

    def standing(self) -> bool:
        if self._events is None:
            return os.pread(self._fd, 4096, 0).strip() == self._frozen
        # cgroup.freeze has what was asked for.
        return b"frozen 1" in os.pread(self._events, 4096, 0)

    def free(self) -> bool:
        return os.pread(self._fd, 4096, 0).strip() == self._free and not self.standing()

    def begin(self) -> None:
        os.pwrite(self._fd, self._frozen, 0)

    def end(self) -> None:
        try:
            os.pwrite(self._fd, self._free, 0)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.ENOENT):  # the cgroup was removed
                raise


class StoppedProcess(Stop):
    """One process with all its threads, by SIGSTOP and SIGCONT to its pidfd."""

    def __init__(self, pid: int, start: int | None = None) -> None:
        """start: of its life, in clock ticks; another life of the number is refused."""
        self._pid = pid
        self._fd = os.pidfd_open(pid)
        self._open = [self._fd]
        self.facts = {"kind": "process", "pid": pid, "start": int(stat_of(pid)[_BEGAN])}
        if start not in (None, self.facts["start"]):
            os.close(self._fd)
            raise ProcessLookupError(errno.ESRCH, "it has ended, and its number is another's")

    def standing(self) -> bool:
        states = []
        for tid in os.listdir(f"/proc/{self._pid}/task"):
            with suppress(OSError):
                states.append(stat_of(int(tid), self._pid)[0])
        alive = [state for state in states if state not in "ZX"]
        return bool(alive) and all(state in "Tt" for state in alive)

    def begin(self) -> None:
        signal.pidfd_send_signal(self._fd, signal.SIGSTOP)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGCONT)


def stat_of(tid: int, pid: int | None = None) -> list[str]:
    """Return the fields of a task's stat behind its name: state, parent, … (proc_pid_stat(5))."""
    where = f"/proc/{tid}/stat" if pid is None else f"/proc/{pid}/task/{tid}/stat"
    with open(where, encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def opened(facts: Mapping[str, str | int]) -> Stop:
    """Return what `Stop.facts` describes. Raises OSError: it is gone; ValueError: wrong facts."""
    match facts:
        case {"kind": "cgroup2" | "freezer" as kind, "directory": str(directory)}:
            return FrozenCgroup(directory, v2=kind == "cgroup2")
        case {"kind": "process", "pid": int(pid), "start": int(start)}:
            return StoppedProcess(pid, start)
    raise ValueError(f"{facts!r} names nothing that can be stopped")


DIRECTORY = "/run/biotrail"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GROUP = "biotrail"
_PREFIX, _SUFFIX = "stopped-", ".json"


def groups() -> list[str]:
    """Return where guards have their cgroups: in the hierarchies by which processes are ended."""
    return [
        os.path.join(mount.point, _GROUP)
        for mount in cgroups.mounted()
        if mount.fstype == "cgroup2" or "name=systemd" in mount.options
    ]


class Entry:
    """This process's entry in the list; there while its suspect is stopped."""

    def __init__(self, facts: Mapping[str, str | int], label: str) -> None:
        """Open the directory of lists, made if needed; nothing is listed yet. Raises OSError."""
        with suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o700)
        self._at = os.open(DIRECTORY, _OPEN_DIRECTORY)
        status = os.fstat(self._at)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            os.close(self._at)
            raise PermissionError(1, "it is another user's, or others may write to it", DIRECTORY)
        self._name = f"{_PREFIX}{os.getpid()}{_SUFFIX}"
        guard = {"guard": os.getpid(), "guard_start": int(stat_of(os.getpid())[_BEGAN])}
        self._text = json.dumps({**guard, "label": label, **facts}) + "\n"

    def add(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._name, flags, 0o600, dir_fd=self._at), "w") as file:
            file.write(self._text)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._at)


def resume() -> Iterator[str]:
    """Let everything on the list go on, and yield a line for each; nothing is listed afterwards.

    What a living guard holds goes on, too: its period is then broken, which it notices. Empty
    cgroups of guards are removed. Raises OSError.
    """
    for group in groups():
        with suppress(OSError):
            for name in (*os.listdir(group), ""):
                if os.path.isdir(os.path.join(group, name)):
                    with suppress(OSError):
                        os.rmdir(os.path.join(group, name))
    try:
        at = os.open(DIRECTORY, _OPEN_DIRECTORY)
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
    label = f"{DIRECTORY}/{name}"  # until it is read: a guard that lives removes its own
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)) as file:
            entry = json.loads(file.read(1 << 16))
        label = str(entry.get("label"))
        stop = opened(entry)
    except (ValueError, AttributeError):
        return f"{DIRECTORY}/{name}: not read: it is not what was written there"
    except (FileNotFoundError, ProcessLookupError):
        return f"{label}: is gone"
    try:
        stop.end()
    finally:
        stop.close()
    return f"{label}: goes on"
