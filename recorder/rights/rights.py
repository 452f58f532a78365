# SPDX-License-Identifier: Apache-2.0
"""Which capabilities(7) recording lacks and what that costs; gives up those it does not need.

Capabilities belong to threads, and a thread can only change its own. So they are given up before
other threads are started, which inherit what is left.
"""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.rights import capabilities, priority
from biotrail.recorder.rights.capabilities import become, mask
from biotrail.recorder.rights.priority import PRIORITY
from biotrail.recorder.schema.errors import TraceError

_STATS_SYSCTL = Path("/proc/sys/kernel/bpf_stats_enabled")
_FIRST_PROCESS = Path("/proc/1/stat")


@dataclass(frozen=True)
class MissingCapability:
    """A feature that does not work for lack of a capability, while recording itself does."""

    key: str
    works: str
    """Name of the feature."""
    what: str
    """What the log lacks, or what is different, without the capability."""
    needs: str
    """Name of the capability."""
    remedy: str
    """How the user can get the feature."""

    def __str__(self) -> str:
        return f"{self.what}, needs {self.needs}"


_PROGRAM_TIMES = MissingCapability(
    "program_times",
    "run statistics",
    "run time of programs: not known",
    "CAP_SYS_ADMIN",
    "run as root, or let the kernel count all programs always: sysctl kernel.bpf_stats_enabled=1",
)
_PRIORITY = MissingCapability(
    "priority",
    "raised priority",
    "priority of the recorder: not raised while rings fill (a busy host may cost events)",
    "CAP_SYS_NICE",
    f"run as root, or permit it: ulimit -r {PRIORITY}, LimitRTPRIO={PRIORITY}",
)
_PROCESSES = MissingCapability(
    "processes",
    "processes of others",
    "processes of other users: not visible (--children misses what runs already)",
    "CAP_SYS_PTRACE",
    "run as root, or as a member of the group that /proc's mount option gid= names",
)
MISSING_CAPABILITIES = (_PROGRAM_TIMES, _PRIORITY, _PROCESSES)


def lacking() -> list[MissingCapability]:
    """Return the MISSING_CAPABILITIES that apply to the calling thread. Raises OSError."""
    works = {
        _PROGRAM_TIMES: capabilities.holds("CAP_SYS_ADMIN") or _always_counted(),
        _PRIORITY: capabilities.holds("CAP_SYS_NICE") or priority.permitted(),
        _PROCESSES: sees_all_processes(),
    }
    return [one for one in MISSING_CAPABILITIES if not works[one]]


def _always_counted() -> bool:
    try:
        return _STATS_SYSCTL.read_text().strip() == "1"
    except OSError:
        return False


def sees_all_processes() -> bool:
    """Return whether /proc shows other users' processes: not with the mount option hidepid=."""
    return os.access(_FIRST_PROCESS, os.R_OK)


Trial = tuple[Callable[[], object], str]
"""An action that recording needs later, and the capability to keep if it fails without.

It raises OSError or TraceError where it does not work.
"""


def give_up(keep: Collection[str], trials: Sequence[Trial] = ()) -> list[str]:
    """Give up the calling thread's capabilities except `keep`; return the names of those left.

    Effective and permitted become equal, inheritable empty. Each trial is run with `keep` alone
    effective. Only capabilities that are effective now can be kept. Programs started later can get
    more still: see `capabilities.gain_no_more`. The bounding set is not changed: that would only
    take rights from commands that were started already. Raises OSError where a system call fails;
    what else a trial raises, once the capabilities are given up.
    """
    effective, permitted, _ = capabilities.current()
    kept = mask(keep) & effective
    become(kept, permitted, 0)
    try:
        for run, needs in trials:
            try:
                run()
            except (OSError, TraceError):
                kept |= mask([needs]) & effective
    finally:
        become(kept, kept, 0)
    return capabilities.names(kept)


def threads_with_more(kept: int, tasks: Path = Path("/proc/self/task")) -> list[str]:
    """Return the names of this process's threads with permitted capabilities not in `kept`."""
    found = []
    for task in sorted(tasks.iterdir()):
        with suppress(OSError):  # the thread has ended
            status = (task / "status").read_text(errors="replace")
            facts = dict(line.partition(":\t")[::2] for line in status.splitlines())
            if int(facts["CapPrm"], 16) & ~kept:
                found.append(facts["Name"])
    return found
