# SPDX-License-Identifier: Apache-2.0
"""Finds who is to be stopped by the name that was given, and refuses whoever must not be."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.host import cgroups, container_state
from biotrail.recorder.pausing import stops
from biotrail.recorder.pausing.stops import FrozenCgroup, Stop, StoppedProcess
from biotrail.recorder.schema.cgroup_names import CgroupNames, NamedCgroups
from biotrail.recorder.schema.cgroup_paths import identity
from biotrail.recorder.schema.errors import ProbeError

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
_SERVES = re.compile(
    r"/dev/(fuse|cuse|nbd\d+|ublk-control|ublkc\d+|drbd\d+|vduse/.+|loop-control|mapper/control)$"
)
"""Who has one of these open serves, or builds, a device or file system of this machine."""
_SHOWN = 20


@dataclass(frozen=True)
class Suspect:
    """Who is to be stopped."""

    label: str
    """For people: `fio (1234)`, `the cgroup /system.slice/backup.service`."""
    stop: Stop
    """Open; nothing is stopped."""
    processes: tuple[int, ...]
    cgroup: str = ""
    """Its path, where a cgroup is to be stopped."""

    def lines(self) -> list[str]:
        """Return its processes, for people."""
        shown = [f"{_name(pid)} ({pid})" for pid in self.processes[:_SHOWN]]
        more = len(self.processes) - len(shown)
        return [*shown, f"and {more} more"] if more else shown


def find(name: str, victims: Collection[int], outputs: Collection[int]) -> Suspect:
    """Return who is called `name`: opened, refused by none of the rules.

    A number is a process's; a path with `/` in front a cgroup's; else the name of the one process
    that is called so, or of a unit or container. victims: processes whose I/O is to be explained.
    outputs: descriptors that the recorder writes to. Raises ProbeError, which says why.
    """
    try:
        suspect = _find(name)
        protected = set()
        for one in (os.getpid(), *victims):
            above = one
            with suppress(OSError):
                while above > 1:
                    protected.add(above)
                    above = int(stops.stat_of(above)[1])
        written = set()
        for number in outputs:
            with suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{number}")
                if target.startswith(("pipe:", "/dev/pts/")):
                    written.add(target)
        for pid in suspect.processes:
            if why := _refused(pid, protected, written):
                suspect.stop.close()
                raise ProbeError(f"--pause {name}: {_name(pid)} ({pid}) is not stopped: {why}")
        return suspect
    except OSError as error:
        raise ProbeError(f"--pause {name}: {error.filename or name}: {error.strerror}") from error


def _find(name: str) -> Suspect:
    if name.startswith("/"):
        return _cgroup(name)
    called = [int(name)] if name.isdecimal() else []
    for number in () if called else os.listdir("/proc"):
        with suppress(OSError):
            if not number.isdecimal() or _name(int(number)) != name:
                continue
            if not int(stops.stat_of(int(number))[6]) & _KERNEL_THREAD:
                called.append(int(number))
    called.sort()
    if len(called) == 1:
        (pid,) = called
        stop = StoppedProcess(pid)
        return Suspect(f"{_name(pid)} ({pid})", stop, (pid,))
    if called:
        numbers = ", ".join(map(str, called[:_SHOWN]))
        raise ProbeError(
            f"--pause {name}: {len(called)} processes are called so: {numbers}; give one"
        )
    groups = list(dict.fromkeys(_called(name)))
    if len(groups) != 1:
        which = f"these cgroups are: {', '.join(groups)}" if groups else "nothing is"
        raise ProbeError(
            f"--pause {name}: {which} called so; give a process's number, the name of a process, "
            "a unit or a container, or a cgroup's path"
        )
    return _cgroup(groups[0])


def _cgroup(path: str) -> Suspect:
    """Return the processes of a cgroup, by v2's freezer or, with all conditions, v1's."""
    inside = path.strip("/")
    if not inside or ".." in inside.split("/"):
        raise ProbeError(f"--pause {path}: the whole machine, or no path of a cgroup")
    label = f"the cgroup /{inside}"
    places = [(mount.fstype, Path(mount.point) / inside) for mount in cgroups.mounted()]
    found = [(kind, place, pids) for kind, place in places if (pids := _members(place))]
    if not found:
        raise ProbeError(f"--pause {path}: no cgroup with processes has this path")
    for kind, place, pids in found:
        if kind == "cgroup2":
            return Suspect(label, FrozenCgroup(str(place), v2=True), pids, f"/{inside}")
    _, _, pids = found[0]
    root = next((one.point for one in cgroups.mounted() if "freezer" in one.options), None)
    if root is None:
        raise ProbeError(f"--pause {path}: it is in no cgroup v2, and no freezer of v1 is mounted")
    groups = set()
    for pid in pids:
        text = Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
        rows = [line.split(":", 2) for line in text.splitlines()]
        own = [group for _, controllers, group in rows if "freezer" in controllers.split(",")]
        groups.add(own[0] if own else None)
    if len(groups) != 1 or groups & {"/", None}:
        raise ProbeError(
            f"--pause {path}: its processes have no freezer cgroup (v1) of their own: give a "
            "process's number, or one of cgroup v2"
        )
    place = Path(root) / str(groups.pop()).strip("/")
    if {*_members(place)} != {*pids}:
        raise ProbeError(f"--pause {path}: its freezer cgroup {place} holds other processes, too")
    return Suspect(label, FrozenCgroup(str(place), v2=False), pids, f"/{inside}")


def _members(place: Path) -> tuple[int, ...]:
    found: list[int] = []
    for directory, _, _ in os.walk(place):
        with suppress(OSError):
            found += map(int, (Path(directory) / "cgroup.procs").read_text().split())
    return tuple(sorted(set(found)))


def _called(name: str) -> Iterator[str]:
    paths = dict.fromkeys(
        "/" + os.path.relpath(directory, mount.point)
        for mount in cgroups.mounted()
        for directory, _, _ in os.walk(mount.point)
        if directory != mount.point
    )
    found = [identity(path) for path in paths]
    names = CgroupNames({})
    containers = [what.container_id for what in found if what.container_id]
    names.add(container_state.resolve(containers, [what.pod_uid for what in found if what.pod_uid]))
    wanted = NamedCgroups((name,), (name,), (name,))
    for path in paths:
        above = os.path.dirname(path)
        if wanted.borne_by(names.of_path(path)) and not wanted.borne_by(names.of_path(above)):
            yield path


def _refused(pid: int, protected: set[int], written: set[str]) -> str:
    """Return why a process must not be stopped; "": it may be."""
    fields = stops.stat_of(pid)
    tracer = int(_facts(f"/proc/{pid}/status").get("TracerPid", "0"))
    if pid == 1:
        return "it is the first process"
    if int(fields[6]) & _KERNEL_THREAD:
        return "it is a kernel thread"
    if pid in protected:
        return "it is the recorder, the victim, or one of those that started them"
    if tracer:
        return f"it is traced, by {_name(tracer)} ({tracer})"
    if fields[0] in "Tt":
        return "it is stopped already"
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if _SERVES.match(target):
            return f"it has {target} open: others may wait for what it serves"
        if target in written or target.endswith("/ptmx"):
            facts: dict[str, str] = {}
            with suppress(OSError):
                facts = _facts(f"/proc/{pid}/fdinfo/{name}")
            writes = int(facts.get("flags", "0"), 8) & os.O_ACCMODE == os.O_WRONLY
            terminal = f"/dev/pts/{facts.get('tty-index')}"
            if (target in written and not writes) or terminal in written:
                return "it reads what the recorder writes"
    return ""


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    return "?"


def _facts(path: str) -> dict[str, str]:
    """Return the values of a file in /proc with a name, a colon and a tab before each."""
    text = Path(path).read_text(errors="replace")
    return dict(line.partition(":\t")[::2] for line in text.splitlines())
