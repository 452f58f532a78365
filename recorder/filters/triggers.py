# SPDX-License-Identifier: Apache-2.0
"""Triggers that have a flight recorder write out what it keeps; the kernel decides them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Triggers:
    """What fires; 0 and False: never."""

    slow_ns: int = 0
    """A request, or a bio without one, that took at least so long."""
    failed: bool = False
    """An I/O that ended with an error."""
    depth: int = 0
    """So many requests in flight on one device."""

    def __bool__(self) -> bool:
        return bool(self.slow_ns or self.failed or self.depth)


@dataclass(frozen=True)
class Hit:
    """One trigger that fired."""

    trigger: str
    """`slow`, `failed` or `depth`."""
    monotonic: int
    """When, ns."""
    dev: int
    sector: int
    value: int
    """ns, blk_status_t or requests."""
