# SPDX-License-Identifier: Apache-2.0
"""Triggers that make a flight recorder write its log; evaluated in the kernel (bpf/trigger.h)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Triggers:
    """Conditions that fire; 0 and False: not set."""

    slow_ns: int = 0
    """A request, or a bio that needs none, took at least this long, in ns."""
    failed: bool = False
    """An I/O ended with an error other than EAGAIN."""
    depth: int = 0
    """At least this many requests were in flight on one device."""

    def __bool__(self) -> bool:
        return bool(self.slow_ns or self.failed or self.depth)


@dataclass(frozen=True)
class Hit:
    """A trigger that fired, and the I/O that fired it."""

    trigger: str
    """`slow`, `failed` or `depth`."""
    monotonic: int
    """When it fired: CLOCK_MONOTONIC, ns."""
    dev: int
    """Kernel dev_t of the disk."""
    sector: int
    """First 512-byte sector of the I/O."""
    value: int
    """`slow`: ns that the I/O took; `failed`: its blk_status_t; `depth`: requests in flight."""
    op: int = -1
    """Kernel number of the I/O's operation (enum req_op); -1: not known."""
