# SPDX-License-Identifier: Apache-2.0
"""The side, guest or host, on which the time of a guest's request went."""

from dataclasses import dataclass

HOST, GUEST = "host", "guest and hypervisor"
"""Sides of a request's time: the stages on the host's device, and those to and from there."""


@dataclass(frozen=True)
class Side:
    """Where the time of one of the guest's requests went."""

    request: int
    """Its number in the guest's log."""
    disk: str
    behind: str
    stages_ns: dict[str, int]
    """Stage → ns; empty if the host's times are not known."""
    side: str
    """HOST or GUEST, whichever had more of the time; "" without stages."""
    certainty: str
    """Of the link; "" without one."""
    host_bios: list[int]
    """Numbers of the bios in the host's log, in the order of their queue."""
    reason: str
    """Why it has no bio on the host; "" if it has."""
    within_ns: int
    """Bound of the clocks' error."""
