# SPDX-License-Identifier: Apache-2.0
"""What recording does without for want of capabilities(7), and giving up those it has.

They belong to threads, and a thread can only change its own: giving up comes before other
threads are started, which inherit what is left.
"""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.rights import capabilities, priority
from biotrail.recorder.rights.capabilities import become, mask
from biotrail.recorder.rights.priority import PRIORITY
from biotrail.recorder.schema.errors import TraceError

_STATS_SYSCTL = Path("/proc/sys/kernel/bpf_stats_enabled")
_FIRST_PROCESS = Path("/proc/1/stat")


@dataclass(frozen=True)
class Lack:
    """Something that does not work with the rights at hand, though recording does."""

    key: str
    works: str
    """What it is about."""
    what: str
    """What then is missing from the log, or different."""
    needs: str
    """The capability."""
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}, needs {self.needs}"


_PROGRAM_TIMES = Lack(
    "program_times",
    "run statistics",
    "run time of programs: not known",
    "CAP_SYS_ADMIN",
    "run as root, or let the kernel count all programs always: sysctl kernel.bpf_stats_enabled=1",
)
_PRIORITY = Lack(
    "priority",
    "raised priority",
    "priority of the recorder: not raised while rings fill (a busy host may cost events)",
    "CAP_SYS_NICE",
    f"run as root, or permit it: ulimit -r {PRIORITY}, LimitRTPRIO={PRIORITY}",
)
_PROCESSES = Lack(
    "processes",
    "processes of others",
    "processes of other users: not visible (--children misses what runs already)",
    "CAP_SYS_PTRACE",
    "run as root, or as a member of the group that /proc's mount option gid= names",
)
LACKS = (_PROGRAM_TIMES, _PRIORITY, _PROCESSES)


def lacking() -> list[Lack]:
    """What does not work with this thread's rights, in the order of LACKS."""
    works = {
        _PROGRAM_TIMES: capabilities.holds("CAP_SYS_ADMIN") or _always_counted(),
        _PRIORITY: capabilities.holds("CAP_SYS_NICE") or priority.permitted(),
        _PROCESSES: sees_all_processes(),
    }
    return [lack for lack in LACKS if not works[lack]]


def _always_counted() -> bool:
    try:
        return _STATS_SYSCTL.read_text().strip() == "1"
    except OSError:
        return False


def sees_all_processes() -> bool:
    """Whether /proc shows other users' processes; the mount option hidepid= forbids it."""
    return os.access(_FIRST_PROCESS, os.R_OK)


class Trial(NamedTuple):
    """Something that recording will go on doing, and the capabilities it keeps if it must."""

    run: Callable[[], object]
    """Raises OSError or TraceError where it does not work."""
    needs: Collection[str]


def give_up(keep: Collection[str], trials: Sequence[Trial] = ()) -> list[str]:
    """Keep these alone of the calling thread's capabilities; returns those that are left.

    What a trial needs is kept too where the trial fails without. A program that is started
    later gets no more than that, not even as root. The bounding set stays: it
    would only take rights from commands that have been started. Raises OSError.
    """
    effective, permitted, _ = capabilities.current()
    kept = mask(keep) & effective
    become(kept, permitted, 0)
    try:
        for trial in trials:
            if not _works(trial):
                kept |= mask(trial.needs) & effective
    finally:
        become(kept, kept, 0)
    capabilities.gain_no_more()
    return capabilities.names(kept)


def _works(trial: Trial) -> bool:
    try:
        trial.run()
    except (OSError, TraceError):
        return False
    return True


def threads_with_more(kept: int, tasks: Path = Path("/proc/self/task")) -> list[str]:
    """Names of this process's threads that hold capabilities other than `kept`."""
    found = []
    for task in sorted(tasks.iterdir()):
        with suppress(OSError):  # it has ended
            status = (task / "status").read_text(errors="replace")
            facts = dict(line.partition(":\t")[::2] for line in status.splitlines())
            if int(facts["CapPrm"], 16) & ~kept:
                found.append(facts["Name"])
    return found
