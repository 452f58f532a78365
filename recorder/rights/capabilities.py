# SPDX-License-Identifier: Apache-2.0
"""capget(2) and capset(2): the calling thread's capabilities, as bits and by name.

Imports as little as possible, for biotrail's smallest process (probes/stats_child.py) uses it.
"""

import ctypes
import os
from collections.abc import Iterable
from ctypes import byref, c_int, c_uint32, c_ulong

NUMBERS = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
"""Bit numbers (include/uapi/linux/capability.h) of the capabilities that matter to recording."""

_FIRST_USER_NAMESPACE = 0xEFFFFFFD
"""PROC_USER_INIT_INO (include/linux/proc_ns.h)."""
_VERSION_3 = 0x20080522
_SET_NO_NEW_PRIVS = 38

Sets = tuple[int, int, int]
"""Effective, permitted and inheritable capabilities: a bit mask each."""


class _Header(ctypes.Structure):
    """`struct __user_cap_header_struct`; pid 0: the calling thread."""

    _fields_ = (("version", c_uint32), ("pid", c_int))


class _Data(ctypes.Structure):
    """`struct __user_cap_data_struct`: 32 bits of each set; capset(2) takes two of these."""

    _fields_ = (("effective", c_uint32), ("permitted", c_uint32), ("inheritable", c_uint32))


def _check(result: int, name: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def current() -> Sets:
    """Return the calling thread's effective, permitted and inheritable bits. Raises OSError."""
    data = (_Data * 2)()
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.capget(byref(_Header(_VERSION_3, 0)), data), "capget")
    low, high = data
    return (
        low.effective | high.effective << 32,
        low.permitted | high.permitted << 32,
        low.inheritable | high.inheritable << 32,
    )


def become(effective: int, permitted: int, inheritable: int) -> None:
    """Set the calling thread's capabilities: a bit mask for each set. Raises OSError.

    The kernel also clears ambient capabilities that are no longer inheritable or permitted.
    """
    sets = (effective, permitted, inheritable)
    low, high = ([bits >> shift & 0xFFFFFFFF for bits in sets] for shift in (0, 32))
    libc = ctypes.CDLL(None, use_errno=True)
    data = (_Data * 2)(_Data(*low), _Data(*high))
    _check(libc.capset(byref(_Header(_VERSION_3, 0)), data), "capset")


def gain_no_more() -> None:
    """Set no_new_privs: programs that this thread starts get no more capabilities than it has.

    Not even set-user-ID programs or root do. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    one, zero = c_ulong(1), c_ulong(0)
    _check(libc.prctl(_SET_NO_NEW_PRIVS, one, zero, zero, zero), "prctl")


def mask(names: Iterable[str]) -> int:
    return sum({1 << NUMBERS[name] for name in names})


def names(bits: int) -> list[str]:
    """Return the names of the capabilities in a bit mask; `cap_N` if not in NUMBERS."""
    name_of = {number: name for name, number in NUMBERS.items()}
    return [name_of.get(n, f"cap_{n}") for n in range(bits.bit_length()) if bits >> n & 1]


def holds(name: str) -> bool:
    """Return whether the calling thread has a capability in its effective set."""
    return bool(current()[0] & mask([name]))


def in_host_namespace() -> bool:
    """Return whether this is not in a user namespace below; True where /proc cannot tell."""
    try:
        return os.stat("/proc/self/ns/user").st_ino == _FIRST_USER_NAMESPACE
    except OSError:
        return True
