# SPDX-License-Identifier: Apache-2.0
"""Who submits I/O, and how a device behaves."""

from dataclasses import dataclass, field

from tests.simulation.model import SECTOR, Request


@dataclass
class Task:
    """A thread that submits I/O from one CPU; holds requests back while plugged."""

    tid: int
    cpu: int
    comm: str = "load"
    plugged: bool = False
    plug: list[Request] = field(default_factory=list)


@dataclass
class Traits:
    """How a device behaves. Shares are of requests or bios."""

    scheduler: str = "none"
    max_bytes: int = 64 * SECTOR
    depth: int = 4
    hw_fua: bool = False
    ranges: int = 1
    """Ranges that one discard may have."""
    fails_early: float = 0.0
    fails_before_issue: float = 0.0
    requeues: float = 0.0
    partial: float = 0.0
    errors: float = 0.0
    hw_queues: int = 1
    slow: int = 1
    """Factor on all service times."""
