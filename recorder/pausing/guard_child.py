# SPDX-License-Identifier: Apache-2.0
"""A program of its own that stops a suspect and lets it go on, whatever happens to the recorder.

It lives in a session and in cgroups of its own, so that neither a signal to the recorder's group
nor the end of its service ends it; it keeps no right but that to let the suspect go on. Its
standard input is the recorder: at its end, so at the latest with the recorder, the suspect goes
on. Each line of standard output is one JSON object: {"ready": true}, {"paused": ns}, {"resumed":
ns}, {"skipped": why}, {"done": number}, {"error": why}; times are CLOCK_MONOTONIC.
"""

import ctypes
import json
import os
import random
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

# python -I -S: site-packages, and so an installed biotrail, is not on sys.path.
_BELOW = "/biotrail/recorder/pausing/guard_child.py"
sys.path.append(os.path.abspath(__file__).removesuffix(_BELOW))

from biotrail.recorder.pausing import stops  # noqa: E402
from biotrail.recorder.rights import capabilities  # noqa: E402

_MCL_CURRENT = 1
_SPREAD = (0.5, 1.5)
"""Lengths are drawn between these times the given one: a strict grid would beat with timers."""


class _RecorderGoneError(Exception):
    """Standard input has ended."""


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(0, 1 << 16)):
            raise SystemExit(1)
        line += piece
    order = json.loads(line)
    groups = _leave_cgroups()
    # Be run, kept in memory and spared under pressure, as far as rights allow.
    with suppress(OSError):
        ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    try:
        try:
            stop = stops.opened(order["stop"])
            entry = stops.Entry(order["stop"], order["label"])
            right = capabilities.mask(["CAP_KILL"] if order["stop"]["kind"] == "process" else [])
            capabilities.become(right & capabilities.current()[1], right, 0)
            capabilities.gain_no_more()
        except (OSError, ValueError) as error:
            _tell(error=str(error))
            return
        _tell(ready=True)

        def length() -> float:
            return min(float(order["seconds"]) * random.uniform(*_SPREAD), stops.LONGEST)

        with suppress(_RecorderGoneError):
            if os.read(0, 1):  # go
                done = 0
                for _ in range(order["number"]):
                    _wait(length())
                    done += _one_period(stop, entry, length())
                _wait(length())
                _tell(done=done)
    finally:
        _remove(groups)


def _one_period(stop: stops.Stop, entry: stops.Entry, seconds: float) -> bool:
    try:
        if not stop.free():
            _tell(skipped="others have stopped it")
            return False
        entry.add()
        try:
            if not stop.hold():
                _tell(skipped="it did not stand within a second")
                return False
            began = time.monotonic_ns()
            _tell(paused=began)
            _wait(seconds)
            ended, whole = time.monotonic_ns(), stop.standing()
        finally:
            stop.end()
            entry.remove()
    except OSError as error:
        _tell(skipped=str(error))
        return False
    _tell(**({"resumed": ended} if whole else {"skipped": "others let it go on"}))
    return whole


def _wait(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0] and not os.read(0, 4096):
            raise _RecorderGoneError


def _tell(**what: Any) -> None:
    with suppress(OSError):  # the recorder is gone: the next _wait sees it
        os.write(1, json.dumps(what).encode() + b"\n")


def _leave_cgroups() -> list[str]:
    """Move into cgroups of our own, where processes are ended by cgroup: v2's and systemd's.

    They are in one called `biotrail`, which stays: only a root with all rights may remove it.
    """
    made: list[str] = []
    for group in stops.groups():
        own = os.path.join(group, str(os.getpid()))
        try:
            with suppress(FileExistsError):
                os.mkdir(group, 0o755)
            os.mkdir(own, 0o755)
            made.append(own)
            _enter(own)
        except OSError as error:
            _remove(made)
            _tell(error=f"its guard cannot have a cgroup of its own: {own}: {error.strerror}")
            raise SystemExit(1) from error
    return made


def _enter(group: str) -> None:
    with open(os.path.join(group, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))


def _remove(groups: list[str]) -> None:
    for own in groups:
        with suppress(OSError):
            _enter(os.path.dirname(os.path.dirname(own)))
            os.rmdir(own)


if __name__ == "__main__":
    _main()
