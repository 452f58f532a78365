# SPDX-License-Identifier: Apache-2.0
"""Names of containers and pods that cgroups belong to, looked up while recording for the log.

Files with names need rights that the recorder gives up, so a child process (containers_child.py)
that keeps these alone reads them.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from biotrail.recorder.host import container_state
from biotrail.recorder.schema.cgroup_paths import identity
from biotrail.recorder.schema.payloads import ContainersNote

_CHILD = Path(__file__).with_name("containers_child.py")
_PATIENCE = 1.0
"""Seconds that an answer may take: the writer thread waits for it, while its queue fills."""
_TRIES = 3
"""Looks for a name before it is given up: a runtime may write its files late."""


class NamesChild:
    """The process that reads names; it is started by this object's making."""

    def __init__(self, program: Path = _CHILD) -> None:
        """Start the process, with the rights that this one has now. Raises OSError."""
        self._process = subprocess.Popen(
            # -I, -S: nothing of the environment, the current directory or site-packages.
            [sys.executable, "-I", "-S", "-B", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the recorder
        )

    def ask(self, containers: Iterable[str], pods: Iterable[str]) -> ContainersNote:
        """Return what is known of containers and pods (container_state.resolve).

        Raises OSError: the process has ended, or has not answered within _PATIENCE.
        """
        asked, answer = self._process.stdin, self._process.stdout
        if asked is None or answer is None:
            raise OSError("it was not started")
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
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start(tell: Callable[[str], None]) -> NamesChild | None:
    """Start the process that reads names; None: there is nothing to read here, or it cannot start.

    tell: called with a message where it cannot be started.
    """
    if not container_state.present():
        return None
    try:
        return NamesChild()
    except OSError as error:
        tell(f"names of containers: ids stand for them, no process to read them: {error}")
        return None


class ContainerWatch:
    """Finds names of the containers and pods of cgroups that are new since the last look."""

    def __init__(self, child: NamesChild | None, tell: Callable[[str], None]) -> None:
        """child: reads names; None: there are none. tell: called with a message if it fails."""
        self._child = child
        self._tell = tell
        self._tries: dict[str, int] = {}
        """Id or uid → how often its name was looked for; _TRIES also if it was found."""

    def changes(self, paths: Iterable[str]) -> ContainersNote | None:
        """Return a `containers` note with names that were found; None: none are new.

        paths: of all cgroups. Runs in the writer thread.
        """
        if self._child is None:
            return None
        whats = [identity(path) for path in paths]
        containers = {one.container for one in whats if one.container and one.has_id}
        pods = {one.pod for one in whats if one.pod is not None and one.qos is not None}
        tries = self._tries = {one: self._tries.get(one, 0) for one in containers | pods}
        containers = {one for one in containers if tries[one] < _TRIES}
        pods = {one for one in pods if tries[one] < _TRIES}
        if not containers and not pods:
            return None
        try:
            found = self._child.ask(containers, pods)
        except (OSError, ValueError) as error:
            self._child = None
            self._tell(f"names of containers: ids stand for those to come, no process: {error}")
            return None
        named = {*found["containers"], *found["pods"]}
        for one in containers | pods:
            tries[one] += 1
        tries.update(dict.fromkeys(named, _TRIES))
        return found if named else None
