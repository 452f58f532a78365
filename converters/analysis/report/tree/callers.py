# SPDX-License-Identifier: Apache-2.0
"""What calls waited for, and what others did meanwhile, as plain data. Units: ns and bytes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Party:
    """Whose I/O it is, on which device."""

    device: str
    operation: str
    process: str | None
    """None: not known, as of pages that were dirtied before the recording."""
    pid: int | None
    title: str | None


@dataclass
class Beside:
    """I/O of one party while calls of a process waited."""

    party: Party
    mean: float
    """How many were in flight on average, while one wait went on."""
    bytes: int
    """Of those that ended during these waits; of discards none."""


@dataclass
class Who:
    """A process, and for how long."""

    process: str
    pid: int
    title: str | None
    ns: int


@dataclass
class CallerWait:
    """Waits for one reason."""

    reason: str
    """As in calls.reason_rules.WAIT_REASON_NAMES."""
    ns: int
    own_io_ns: int
    """Of these, with a bio in flight that the call itself had queued."""
    limit: str | None
    """Path of the cgroup whose limit it was; None: no limit, or the path is not known."""
    waker: Who | None
    """Whose thread let go of what was waited for, mostly; None: not known, or it is no lock."""
