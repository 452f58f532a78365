# SPDX-License-Identifier: Apache-2.0
"""The recorder's side of the guard: starts it, hears from it, and takes its place if it is gone."""

import json
import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.pausing.stops import LONGEST, PATIENCE, Stop
from biotrail.recorder.pausing.suspects import Suspect
from biotrail.recorder.rights import helpers
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import PausedNote

_CHILD = Path(__file__).with_name("guard_child.py")
LEAST_TIMES, MOST_TIMES = 8, 1000
SHORTEST = 0.5
"""Seconds that a suspect stands at once at least; LONGEST at most."""
MOST_PIDS = 1000
"""Processes that a note lists."""
_LATE = 2 * PATIENCE


@dataclass(frozen=True)
class Pausing:
    """The experiment as it was asked for."""

    name: str
    """A process's number or name, a cgroup's path, or the name of a unit or container."""
    times: int
    seconds: float
    """About how long the suspect stands each time, and runs in between."""

    def __str__(self) -> str:
        return f"{self.name}={self.times}x{self.seconds:g}s"


class Guard:
    """The guard's process, and what it told."""

    def __init__(
        self, suspect: Suspect, pausing: Pausing, tell: Callable[[str], None], child: Path = _CHILD
    ) -> None:
        """Start the process; nothing is stopped before `go`. Raises ProbeError."""
        self._suspect, self._name, self._tell = suspect, pausing.name, tell
        self._times = pausing.times
        self._stop: Stop = suspect.stop
        self._pending = b""
        self._since: int | None = None  # when the period began in which it stands now
        self._periods: list[PausedNote] = []  # those that are over
        self.over = False
        """The guard has done all periods, or is gone."""
        try:
            self._process = helpers.begin(child, answers=True)
        except OSError as error:
            raise ProbeError(f"--pause {pausing}: its guard cannot be started: {error}") from error
        order = {
            "stop": suspect.stop.facts,
            "label": suspect.label,
            "number": pausing.times,
            "seconds": pausing.seconds,
        }
        self._write(json.dumps(order).encode() + b"\n")
        data = b""
        assert self._process.stdout is not None
        while not data.endswith(b"\n") and (piece := self._process.stdout.read(1 << 16)):
            data += piece
        answer = json.loads(data.splitlines()[0]) if data.endswith(b"\n") else {}
        if "ready" not in answer:
            self.close()
            raise ProbeError(f"--pause {pausing}: {answer.get('error', 'its guard has ended')}")

    def go(self) -> None:
        self._write(b"\n")

    def take_periods(self) -> list[PausedNote]:
        """Return notes of the periods that ended since the last call."""
        notes, self._periods = self._periods, []
        return notes

    def read_messages(self) -> None:
        """Take in what it told since the last call; take its place where it is late or gone."""
        output = self._process.stdout
        while not self.over and output is not None and select.select([output], [], [], 0)[0]:
            data = output.read(1 << 16) or b""
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                match json.loads(line):
                    case {"paused": int(began)}:
                        self._since = began
                    case {"resumed": int(ended)} if self._since is not None:
                        pids = list(self._suspect.processes[:MOST_PIDS])
                        self._periods.append(
                            {
                                "from": self._since,
                                "to": ended,
                                "name": self._name,
                                "label": self._suspect.label,
                                "cgroup": self._suspect.cgroup,
                                "pids": pids,
                                "times": self._times,
                            }
                        )
                        self._since = None
                    case {"skipped": str(why)}:
                        self._since = None
                        self._tell(f"--pause: a period less: {self._suspect.label}: {why}")
                    case {"done": _}:
                        self.over = True
            if not data:
                if self._process.stdin is not None and not self._process.stdin.closed:
                    self._end("the guard has ended")
                self.over = True
        if self._since is not None and time.monotonic_ns() - self._since > (LONGEST + _LATE) * 1e9:
            self._end("the guard does not let it go on")

    def _end(self, why: str) -> None:
        """Let the suspect go on in the guard's place; no more is stopped."""
        self.over, self._since = True, None
        with suppress(OSError):
            self._process.kill()
        try:
            self._stop.end()
            self._tell(f"--pause: {why}: {self._suspect.label} goes on, and is stopped no more")
        except OSError as error:
            self._tell(f"--pause: {why}: {self._suspect.label}: {error}; biotrail record --resume")

    def close(self) -> None:
        """End it: the suspect goes on; a period that is not over is none. Waits for its end."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        if not helpers.end(self._process, _LATE):
            with suppress(OSError):
                self._stop.end()
        self.read_messages()

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # it has ended: the next reading says so
            if self._process.stdin is not None:
                self._process.stdin.write(data)
