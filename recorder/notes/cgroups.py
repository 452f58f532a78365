# SPDX-License-Identifier: Apache-2.0
"""A thread that learns what cgroups are as they appear, and admits those chosen by their names.

It is woken by the programs, which tell of a cgroup when it is made, so that its container's files
are read while they are there, and what is charged to it is recorded nearly from the beginning.
Files with names need rights that the recorder gives up, so a child process (containers_child.py)
that keeps these alone reads them.
"""

import json
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.filters.filters import refuse_uncharged
from biotrail.recorder.host import cgroups, container_state
from biotrail.recorder.host.device_mounts import Mount
from biotrail.recorder.notes.hotplug import Watch
from biotrail.recorder.output.series import keep_newest
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.probes.maps.cgroup_maps import MAX_NAMED, CgroupPath
from biotrail.recorder.rights import helpers
from biotrail.recorder.schema.cgroup_names import CgroupNames, NamedCgroups
from biotrail.recorder.schema.cgroup_paths import and_above, identity
from biotrail.recorder.schema.errors import ProbeError, TraceError
from biotrail.recorder.schema.payloads import CgroupsNote, ContainersNote

_CHILD = Path(__file__).with_name("containers_child.py")
_PATIENCE = 1.0
"""Seconds that an answer may take."""
_AGAIN_NS = (200_000_000, 1_000_000_000, 5_000_000_000, 20_000_000_000)
"""After how long a name is looked for again before it is given up: files may be written late."""
_MAX_SEARCHES = 1 << 16
"""Containers and pods that are remembered, the newest."""


class NamesChild:
    """The process that reads names; it is started by this object's making."""

    def __init__(self, program: Path = _CHILD) -> None:
        """Start the process, with the rights that this one has now. Raises OSError."""
        self._process = helpers.begin(program, answers=True)

    def ask(self, containers: Iterable[str], pods: Iterable[str]) -> ContainersNote:
        """Return what `resolve` finds. Raises OSError: it has ended, or does not answer."""
        asked, answer = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answer is not None
        question = {"containers": sorted(containers), "pods": sorted(pods)}
        asked.write(json.dumps(question).encode() + b"\n")
        until, data = time.monotonic() + _PATIENCE, b""
        while not data.endswith(b"\n"):
            left = max(until - time.monotonic(), 0)
            if not select.select([answer], [], [], left)[0]:
                raise OSError("it does not answer")
            if not (piece := answer.read(1 << 20)):
                raise OSError("it has ended")
            data += piece
        found: ContainersNote = json.loads(data)
        return found

    def close(self) -> None:
        """End the process, by the end of its input, after a second by SIGKILL; wait for its end."""
        if self._process.stdout is not None:
            self._process.stdout.close()
        helpers.end(self._process)


@dataclass
class _Search:
    """The search for a name."""

    is_pod: bool
    next_ns: int = 0
    """CLOCK_MONOTONIC of the next look."""
    looks: int = 0


class ContainerWatch(Watch):
    """Finds names of containers and pods as cgroups become known. Any thread may call."""

    def __init__(
        self,
        child: NamesChild | None,
        tell: Callable[[str], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """child: reads names; None: there are none. tell: called with a message if it fails."""
        super().__init__(0)
        self._child = child
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._searches: dict[str, _Search] = {}
        """By id or uid; one that is over stays, so that it does not begin anew."""
        self._open: set[str] = set()
        self._unwritten = _nothing()

    def look(self, paths: Iterable[str] = (), *, last: bool = False) -> ContainersNote:
        """Look for the names of new cgroups' containers and pods, and for others that are due.

        last: there will be no later look, so all are due. Returns what was found.
        """
        with self._lock:
            now = self._clock()
            for path in paths if self._child is not None else ():
                what = identity(path)
                wanted = {what.container_id: False} if what.has_id else {}
                wanted |= {what.pod_uid: True} if what.qos is not None else {}
                for one, is_pod in wanted.items():
                    if one is not None and one not in self._searches:
                        self._searches[one] = _Search(is_pod, now)
                        self._open.add(one)
                keep_newest(self._searches, _MAX_SEARCHES)
            self._open &= self._searches.keys()
            due = {one for one in self._open if last or self._searches[one].next_ns <= now}
            if self._child is None or not due:
                return _nothing()
            pods = {one for one in due if self._searches[one].is_pod}
            try:
                found = self._child.ask(due - pods, pods)
            except (OSError, ValueError) as error:
                self._child = None
                self._open.clear()
                self._tell(f"names of containers: ids stand for those to come, no process: {error}")
                return _nothing()
            self._unwritten["containers"].update(found["containers"])
            self._unwritten["pods"].update(found["pods"])
            self._open -= {*found["containers"], *found["pods"]}
            for one in due & self._open:
                search = self._searches[one]
                if search.looks == len(_AGAIN_NS):
                    self._open.discard(one)
                else:
                    search.next_ns = now + _AGAIN_NS[search.looks]
                    search.looks += 1
            return found

    def due_ns(self) -> int | None:
        """Return the time (CLOCK_MONOTONIC) of the next look; None: nothing is looked for."""
        with self._lock:
            return min((self._searches[one].next_ns for one in self._open), default=None)

    def due(self, _now_ns: int, /) -> bool:
        """Return whether there is a note to write."""
        return bool(self._unwritten["containers"] or self._unwritten["pods"])

    def changes(self) -> ContainersNote | None:
        """Return a `containers` note with names found since the last one; None: there are none."""
        with self._lock:
            found, self._unwritten = self._unwritten, _nothing()
        return found if found["containers"] or found["pods"] else None


def _nothing() -> ContainersNote:
    return {"containers": {}, "pods": {}}


CGROUP_PERIOD_NS = 10_000_000_000
MAX_TOLD = 1 << 16
"""Cgroups that the programs told of which are remembered, the newest."""


class CgroupWatch(Watch):
    """Cgroups that are new or renamed since the last look. Any thread may call its methods."""

    def __init__(self, told: Callable[[], list[CgroupPath]] = list) -> None:
        """told: returns what the programs told of since its last call."""
        super().__init__(CGROUP_PERIOD_NS, at_once=True)
        self.where = cgroups.hierarchy()
        self._ask = told
        self._lock = threading.Lock()
        self._walked: dict[int, str] = {}
        self._told: dict[int, str] = {}
        """What is known from the programs: whole paths, also where a part is mounted here."""
        self._unwritten: dict[int, str] = {}
        self._unseen: dict[int, str] = {}

    def take(self) -> None:
        """Take what the programs have told of."""
        with self._lock:
            for number, path in self._ask():
                if path is not None and self._told.get(number) != path:
                    if self._walked.get(number) != path:
                        self._unwritten[number] = self._unseen[number] = path
                    self._told[number] = path
            keep_newest(self._told, MAX_TOLD)

    def walk(self) -> None:
        """Walk the directories, and plan the next time."""
        began = time.monotonic_ns()
        now = cgroups.paths(self.where)
        with self._lock:
            for number, path in now.items():
                if number not in self._told and self._walked.get(number) != path:
                    self._unwritten[number] = self._unseen[number] = path
            self._walked = now  # without removed cgroups, whose ids are not reused
            self.schedule_next(began)

    def unseen(self) -> dict[int, str]:
        """Return {id: path} of cgroups found since the last call of this method."""
        with self._lock:
            found, self._unseen = self._unseen, {}
        return found

    def due(self, now_ns: int, /) -> bool:
        """Return whether there is a note to write, or a walk is due at `now_ns`."""
        return bool(self._unwritten) or super().due(now_ns)

    def changes(self) -> CgroupsNote | None:
        """Take what the programs have told of, walk if that is due, and return what is new."""
        self.take()
        if super().due(time.monotonic_ns()):
            self.walk()
        with self._lock:
            found, self._unwritten = self._unwritten, {}
        return {str(number): path for number, path in found.items()} or None


_IDLE_SECONDS = 1.0
"""Longest sleep: walks of directories, which do not wake the thread, find cgroups too."""
_PAUSE_SECONDS = 0.005
"""Least time between two rounds, which bounds what many short-lived cgroups cost."""
_MAX_OPEN = 1 << 16
"""Cgroups without a wanted name that are looked at again when names become known, the newest."""


class Admission:
    """Which cgroups bear a name that was asked for."""

    def __init__(
        self,
        named: NamedCgroups,
        where: Mount | None,
        set_listed: Callable[[int, bool], None],
        tell: Callable[[str], None],
    ) -> None:
        """set_listed: has a cgroup (id) and those below it recorded, or no longer."""
        self._named, self._where = named, where
        self._set_listed, self._tell = set_listed, tell
        self._paths: dict[int, str] = {}
        """Cgroups that bear no such name as far as is known."""
        self._names = CgroupNames(self._paths)
        self._admitted: dict[int, str] = {}
        self._borne: set[str] = set()
        """Options whose name was borne by a cgroup by now."""
        self._full = False

    def begin(self, fresh: Mapping[int, str], names: ContainersNote) -> None:
        """Admit what is there already; say which names nothing bears yet. Raises TraceError."""
        self.look(fresh, names, begun=False)
        for option in self._named.options():
            if option not in self._borne:
                self._tell(f"{option}: there is none now; it is recorded when it appears")

    def look(self, fresh: Mapping[int, str], names: ContainersNote, *, begun: bool = True) -> None:
        """Admit those of the new cgroups, and with new names of the earlier ones, that bear a name.

        begun: recording has; what is admitted is said then. Raises TraceError.
        """
        self._paths.update(fresh)
        anew = bool(names["containers"] or names["pods"])
        if anew:
            self._names.add(names)
        looked_at = self._paths if anew else fresh
        # A cgroup before those below it, which are recorded with it.
        for number in sorted(looked_at, key=lambda one: self._paths[one].count("/")):
            path = self._paths[number]
            borne = self._named.borne_by(self._names.of_path(path))
            above = and_above(path)[1:]
            if borne and set(self._admitted.values()).isdisjoint(above) and self._has_room():
                self._check(path, borne, begun=begun)
                self._set_listed(number, True)
                self._admitted[number] = path
                for option in borne:
                    if begun and option not in self._borne:
                        self._tell(f"{option} has appeared, and is recorded from now on: {path}")
                self._borne.update(borne)
        for number in self._admitted:
            self._paths.pop(number, None)
        keep_newest(self._paths, _MAX_OPEN)

    def _has_room(self) -> bool:
        """Return whether a cgroup can be admitted; one that is gone makes room."""
        if len(self._admitted) < MAX_NAMED:
            return True
        directories = ((n, self._directory(path)) for n, path in self._admitted.items())
        gone = next((n for n, place in directories if place and not place.is_dir()), None)
        if gone is not None:
            self._set_listed(gone, False)
            del self._admitted[gone]
            return True
        if not self._full:
            self._full = True
            self._tell(
                f"{' '.join(self._named.options())}: {MAX_NAMED} such cgroups are recorded, and "
                "further ones are left out until one of them ends"
            )
        return False

    def _directory(self, path: str) -> Path | None:
        """Return the directory of the cgroup at a path; None: it is not mounted here."""
        where = self._where
        above = "" if where is None else where.root.rstrip("/")
        if where is None or not f"{path}/".startswith(f"{above}/"):
            return None
        return Path(where.point + path[len(above) :])

    def _check(self, path: str, borne: tuple[str, ...], *, begun: bool) -> None:
        """See whether I/O is charged to the cgroup: raise ProbeError, once begun say it."""
        directory = self._directory(path)
        if directory is None or self._where is None:
            return
        try:
            refuse_uncharged(borne[0], directory, self._where)
        except OSError:  # it is gone already
            return
        except ProbeError as error:
            if not begun:
                raise
            if not self._borne.issuperset(borne):
                self._tell(str(error))


class CgroupLook:
    """What is known of cgroups, kept up to date by a thread between `start` and `stop`."""

    def __init__(
        self, probes: Probes, named: NamedCgroups, stack: ExitStack, tell: Callable[[str], None]
    ) -> None:
        """Start a process that reads names, where there are any; `stack` ends that.

        named: which cgroups are recorded; empty: that is not decided by names.
        """
        child = None
        if container_state.present():
            try:
                child = NamesChild()
            except OSError as error:
                tell(f"names of containers: ids stand for them, no process to read them: {error}")
            else:
                stack.callback(child.close)
        self.watch = CgroupWatch(probes.new_cgroups)
        self.containers = ContainerWatch(child, tell)
        self._probes, self._tell = probes, tell
        self._admission = None
        if named:
            self._admission = Admission(named, self.watch.where, probes.list_cgroup, tell)
        self._thread: threading.Thread | None = None
        self._wake = -1
        self._ended = threading.Event()

    def begin(self) -> None:
        """Find what is there, before anything is attached. Raises TraceError: see Admission."""
        if self._admission is None:
            return
        self.watch.walk()
        fresh = self.watch.unseen()
        self._admission.begin(fresh, self.containers.look(fresh.values()))

    def start(self) -> None:
        """Start the thread; it looks once for what was made since `begin`."""
        self._wake, waiting = os.pipe2(os.O_CLOEXEC)[::-1]
        self._thread = threading.Thread(target=self._run, args=(waiting,), name="cgroups")
        self._thread.start()

    def stop(self) -> None:
        """End the thread, if it runs."""
        if self._thread is not None:
            self._ended.set()
            os.close(self._wake)
            self._thread.join()
            self._thread = None

    def last(self) -> None:
        """End the thread, and look once more for everything."""
        self.stop()
        self.watch.take()
        self.watch.walk()
        self._round(last=True)

    def _run(self, waiting: int) -> None:
        poller = select.poll()
        poller.register(waiting, select.POLLIN)
        told = self._probes.cgroup_descriptor()
        if told is not None:
            poller.register(told, select.POLLIN)
        try:
            self.watch.walk()
            while not self._ended.is_set():
                self.watch.take()
                self._round()
                again = time.monotonic() + _PAUSE_SECONDS
                # Until something is due, unless the programs tell of something.
                due = self.containers.due_ns()
                idle = _IDLE_SECONDS if due is None else (due - time.monotonic_ns()) / 1e9
                poller.poll(min(max(idle, _PAUSE_SECONDS), _IDLE_SECONDS) * 1000)
                if (left := again - time.monotonic()) > 0:
                    self._ended.wait(left)
        except TraceError as error:
            self._tell(f"names of cgroups are not looked for any more: {error}")
        finally:
            os.close(waiting)

    def _round(self, *, last: bool = False) -> None:
        fresh = self.watch.unseen()
        names = self.containers.look(fresh.values(), last=last)
        if self._admission is not None and not last:
            self._admission.look(fresh, names)
