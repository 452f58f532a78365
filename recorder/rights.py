# SPDX-License-Identifier: Apache-2.0
"""Capabilities (capabilities(7)) of this process: which it has, what it cannot do, giving them up.

They belong to threads, and a thread can only change its own: giving up comes before other
threads are started, which inherit what is left.
"""

import ctypes
import os
import resource
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from ctypes import byref, c_int, c_uint32, c_ulong
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recorder.errors import TraceError
from recorder.priority import URGENT

NUMBERS = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""Bits, as in include/uapi/linux/capability.h, of those that recording has to do with."""

_VERSION_3 = 0x20080522
_SET_NO_NEW_PRIVS = 38
_STATS_SYSCTL = Path("/proc/sys/kernel/bpf_stats_enabled")
_FIRST_PROCESS = Path("/proc/1/stat")


class _Header(ctypes.Structure):
    """`struct __user_cap_header_struct`; pid 0: the calling thread."""

    _fields_ = (("version", c_uint32), ("pid", c_int))


class _Data(ctypes.Structure):
    """`struct __user_cap_data_struct`: 32 bits of each set."""

    _fields_ = (("effective", c_uint32), ("permitted", c_uint32), ("inheritable", c_uint32))


class Sets(NamedTuple):
    """A thread's capability sets, a bit each."""

    effective: int
    permitted: int
    inheritable: int


def _call(name: str, data: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(byref(_Header(_VERSION_3, 0)), data) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def current() -> Sets:
    """Those of the calling thread. Raises OSError."""
    data = (_Data * 2)()
    _call("capget", data)
    low, high = data
    return Sets(
        low.effective | high.effective << 32,
        low.permitted | high.permitted << 32,
        low.inheritable | high.inheritable << 32,
    )


def _become(sets: Sets) -> None:
    low, high = ([bits >> shift & 0xFFFFFFFF for bits in sets] for shift in (0, 32))
    _call("capset", (_Data * 2)(_Data(*low), _Data(*high)))


def mask(names: Iterable[str]) -> int:
    """Their bits."""
    return sum({1 << NUMBERS[name] for name in names})


def names(bits: int) -> list[str]:
    """Their names, in the order of their numbers; those not in NUMBERS as cap_N."""
    known = {number: name for name, number in NUMBERS.items()}
    return [known.get(n, f"cap_{n}") for n in range(bits.bit_length()) if bits >> n & 1]


def holds(name: str) -> bool:
    """Whether the calling thread can use it now."""
    return bool(current().effective & mask([name]))


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
    "priority of the recorder: not raised (a busy host may cost events)",
    "CAP_SYS_NICE",
    f"run as root, or permit nice {URGENT}: ulimit -e {20 - URGENT}, LimitNICE={URGENT}",
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
        _PROGRAM_TIMES: holds("CAP_SYS_ADMIN") or _always_counted(),
        _PRIORITY: holds("CAP_SYS_NICE") or _may_be_nice(URGENT),
        _PROCESSES: sees_all_processes(),
    }
    return [lack for lack in LACKS if not works[lack]]


def _always_counted() -> bool:
    try:
        return _STATS_SYSCTL.read_text().strip() == "1"
    except OSError:
        return False


def _may_be_nice(nice: int) -> bool:
    limit, _ = resource.getrlimit(resource.RLIMIT_NICE)
    return limit == resource.RLIM_INFINITY or limit >= 20 - nice


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
    before = current()
    kept = mask(keep) & before.effective
    # Ambient capabilities are always inheritable ones: the kernel clears them with these.
    _become(Sets(kept, before.permitted, 0))
    try:
        for trial in trials:
            if not _works(trial):
                kept |= mask(trial.needs) & before.effective
    finally:
        _become(Sets(kept, kept, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    one, zero = c_ulong(1), c_ulong(0)
    if libc.prctl(_SET_NO_NEW_PRIVS, one, zero, zero, zero) < 0:
        raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")
    return names(kept)


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
