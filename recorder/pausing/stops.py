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


class Stop(ABC):
    """One suspect that can be stopped."""

    @abstractmethod
    def facts(self) -> dict[str, str | int]:
        """Return what `opened` needs to make it again, in another process or later."""

    @abstractmethod
    def standing(self) -> bool:
        """Return whether all of it stands, whoever stopped it. Raises OSError: it is gone."""

    def free(self) -> bool:
        """Return whether nobody stops it now. Raises OSError: it is gone."""
        return not self.standing()

    @abstractmethod
    def begin(self) -> None:
        """Tell the kernel to stop it. Raises OSError."""

    @abstractmethod
    def end(self) -> None:
        """Let it go on; nothing if it is gone. Raises OSError."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; it can be stopped no more."""

    def hold(self) -> bool:
        """Stop it and wait until all stands; False, with all going on, where that takes too long.

        Raises OSError: it is gone, or may not be stopped.
        """
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


class _Files(Stop):
    """A cgroup that a file freezes."""

    def __init__(self, kind: str, directory: str, file: str, words: tuple[bytes, bytes]) -> None:
        self._kind, self.directory, self._words = kind, directory, words
        self._fd = os.open(os.path.join(directory, file), os.O_RDWR | os.O_CLOEXEC)

    def facts(self) -> dict[str, str | int]:
        return {"kind": self._kind, "directory": self.directory}

    def begin(self) -> None:
        os.pwrite(self._fd, self._words[0], 0)

    def end(self) -> None:
        try:
            os.pwrite(self._fd, self._words[1], 0)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.ENOENT):  # the cgroup was removed
                raise

    def _read(self) -> bytes:
        return os.pread(self._fd, 4096, 0)

    def close(self) -> None:
        os.close(self._fd)


class FrozenV2(_Files):
    """A cgroup of version 2: cgroup.freeze, and `frozen` in cgroup.events."""

    def __init__(self, directory: str) -> None:
        """Open. directory: the cgroup's. Raises OSError, e.g. before Linux 5.2."""
        super().__init__("cgroup2", directory, "cgroup.freeze", (b"1", b"0"))
        self._events = os.open(os.path.join(directory, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)

    def free(self) -> bool:
        """Return whether nobody stops it now."""
        return self._read().strip() == b"0" and not self.standing()

    def standing(self) -> bool:
        """Return whether all of it stands."""
        return b"frozen 1" in os.pread(self._events, 4096, 0)

    def close(self) -> None:
        """Close it."""
        super().close()
        os.close(self._events)


class FrozenV1(_Files):
    """A cgroup of the first version's controller `freezer`."""

    def __init__(self, directory: str) -> None:
        """Open. directory: the freezer cgroup's. Raises OSError."""
        super().__init__("freezer", directory, "freezer.state", (b"FROZEN", b"THAWED"))

    def free(self) -> bool:
        """Return whether nobody stops it now."""
        return self._read().strip() == b"THAWED"

    def standing(self) -> bool:
        """Return whether all of it stands."""
        return self._read().strip() == b"FROZEN"


class StoppedProcess(Stop):
    """One process with all its threads, by SIGSTOP and SIGCONT to its pidfd."""

    def __init__(self, pid: int, start: int | None = None) -> None:
        """Open. start: of its life, in clock ticks; another life of the number is not taken.

        Raises OSError: it does not exist (any more).
        """
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self.start = start_of(pid)
        if start not in (None, self.start):
            os.close(self._fd)
            raise ProcessLookupError(errno.ESRCH, "it has ended, and its number is another's")

    def facts(self) -> dict[str, str | int]:
        """Return its kind, and where it is."""
        return {"kind": "process", "pid": self.pid, "start": self.start}

    def standing(self) -> bool:
        """Return whether all of it stands."""
        states = [state for tid in os.listdir(f"/proc/{self.pid}/task") if (state := self._of(tid))]
        return bool(states) and all(state in "Tt" for state in states)

    def _of(self, tid: str) -> str:
        with suppress(OSError):
            state = stat_of(int(tid), self.pid)[0]
            return "" if state in "ZX" else state
        return ""

    def begin(self) -> None:
        """Stop it."""
        signal.pidfd_send_signal(self._fd, signal.SIGSTOP)

    def end(self) -> None:
        """Let it go on."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGCONT)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def stat_of(tid: int, pid: int | None = None) -> list[str]:
    """Return the fields of a task's stat behind its name: state, parent, … (proc_pid_stat(5))."""
    where = f"/proc/{tid}/stat" if pid is None else f"/proc/{pid}/task/{tid}/stat"
    with open(where, encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def start_of(pid: int) -> int:
    """Return when a process began, in clock ticks since boot. Raises OSError."""
    return int(stat_of(pid)[19])


def opened(facts: Mapping[str, str | int]) -> Stop:
    """Return what `Stop.facts` describes.

    Raises OSError: it is gone; ValueError: the facts are wrong.
    """
    match facts:
        case {"kind": "cgroup2", "directory": str(directory)}:
            return FrozenV2(directory)
        case {"kind": "freezer", "directory": str(directory)}:
            return FrozenV1(directory)
        case {"kind": "process", "pid": int(pid), "start": int(start)}:
            return StoppedProcess(pid, start)
    raise ValueError(f"{facts!r} names nothing that can be stopped")


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
        guard = {"guard": os.getpid(), "guard_start": start_of(os.getpid())}
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
