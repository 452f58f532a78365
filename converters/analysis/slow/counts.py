# SPDX-License-Identifier: Apache-2.0
"""Numbers of I/Os that a search for the slowest ones met."""

from dataclasses import dataclass


@dataclass
class Counts:
    """Numbers of I/Os that a Slowest looked at."""

    ios: int = 0
    """Chosen I/Os without tries; of whole families only the topmost bios."""
    matching: int = 0
    """I/Os of these that are as slow as wanted (and failed, if only failed ones are wanted)."""
    under_way: int = 0
    """I/Os of these that were in flight when the log ended."""
    without_latency: int = 0
    """I/Os of these whose duration is not known, because Q or C is not in the log."""
    doubtful: int = 0
    """I/Os of these whose duration is in doubt (`Bios.doubtful`); none of them matches."""
    held: int = 0
    """I/Os of these that a cgroup's limit held before their Q, which is no part of a duration."""
    tries: int = 0
    """NOWAIT tries that failed at once (tries.py); not counted in the other numbers."""
