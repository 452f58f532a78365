# SPDX-License-Identifier: Apache-2.0
"""Triggers that make a flight recorder write its log.

Those on single I/Os are evaluated in the kernel (bpf/trigger.h); pressure is watched by the kernel
itself, and a device that hangs by the poll loop (session/watches.py).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pressure:
    """A threshold of the kernel's pressure stall information of I/O (PSI)."""

    stall_us: int
    """Time that tasks waited for I/O within one window, in us."""
    window_us: int
    """Length of the window, in us: 500,000 to 10,000,000."""
    full: bool = False
    """All tasks that were not idle waited at once; False: at least one did (`some`)."""
    cgroup: str = ""
    """A cgroup v2, by its path in the hierarchy; "": the machine."""

    def __str__(self) -> str:
        """Return it as it is given to --trigger, such as `some-io:150ms/1s@/system.slice`."""
        of = f"@{self.cgroup}" if self.cgroup else ""
        kind = "full" if self.full else "some"
        return f"{kind}-io:{_time(self.stall_us)}/{_time(self.window_us)}{of}"


def _time(us: int) -> str:
    if us % 1_000_000 == 0:
        return f"{us // 1_000_000}s"
    return f"{us // 1000}ms" if us % 1000 == 0 else f"{us}us"


@dataclass(frozen=True)
class Triggers:
    """Conditions that fire; 0, () and False: not set."""

    slow_ns: int = 0
    """A request, or a bio that needs none, took at least this long, in ns."""
    failed: bool = False
    """An I/O ended with an error other than EAGAIN."""
    depth: int = 0
    """At least this many requests were in flight on one device."""
    stuck_ns: int = 0
    """A device had I/O in flight and completed none for this long, in ns."""
    pressure: tuple[Pressure, ...] = ()

    @property
    def in_kernel(self) -> bool:
        """Whether the recording's programs have any to evaluate."""
        return bool(self.slow_ns or self.failed or self.depth)

    def __bool__(self) -> bool:
        return bool(self.in_kernel or self.stuck_ns or self.pressure)


@dataclass(frozen=True)
class Hit:
    """A trigger that fired, and the I/O that fired it, if one did."""

    trigger: str
    """`slow`, `failed`, `depth`, `stuck` or `pressure`."""
    monotonic: int
    """When it fired: CLOCK_MONOTONIC, ns."""
    dev: int
    """Kernel dev_t of the disk; 0: `pressure`."""
    sector: int
    """First 512-byte sector of the I/O; -1: no single I/O fired it (`stuck`, `pressure`)."""
    value: int
    """`slow`: ns that the I/O took; `failed`: its blk_status_t; `depth`: requests in flight;
    `stuck`: ns for which the device had completed nothing; `pressure`: the threshold in ns."""
    op: int = -1
    """Kernel number of the I/O's operation (enum req_op); -1: not known."""
    what: str = ""
    """`pressure`: which, as `str(Pressure)` has it; `stuck`: how many I/Os were in flight."""
