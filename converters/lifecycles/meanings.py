# SPDX-License-Identifier: Apache-2.0
"""What an I/O waited for in its stages, in words."""

from biotrail.converters.events.context import Context

MEANINGS = {
    "Q2G": "waited for a request: for a free tag; of a split one, after the pieces before it",
    "G2I": "had its request, which was held back (plugged) before the scheduler got it",
    "I2D": "waited in the scheduler",
    "G2D": "had its request, which was not issued yet (plugged, or no room in the driver)",
    "D2C": "was with the driver and the device",
    "Q2M": "was queued, and then joined a request",
    "M2I": "had joined a request that was held back (plugged) before the scheduler got it",
    "M2D": "had joined a request that was not issued yet (plugged, or in the scheduler)",
    "R2D": "was given back by the driver, and waited to be issued again",
    "pre-flush": "waited for the flush before its data",
    "post-flush": "waited for the flush after its data",
    "flush": "waited for a flush",
    "bio-based": "was with a driver that takes bios, not requests",
    "failed": "ended in an error before it was issued",
    "unknown": "its next event is not in the log",
    "Q2D": "joined a request without an event that says when, and waited for its issue",
}
"""What a bio waited for in each stage."""
REASONS_OF_Q2G = {
    "request tag": "for a free tag",
    "queue frozen": "the device's queue was being changed",
    "io.cost": "io.cost held its cgroup's I/O back",
    "io.latency": "io.latency held its cgroup's I/O back, for another cgroup's sake",
    "write-back throttling": "write-back throttling (wbt) held it back",
    "I/O limit": "a limit on I/O in flight held it back",
}
"""What its thread waited for between Q and G, by the name of the wait's reason."""


def meaning(context: Context, dev: int, stage: str, reason: str | None) -> str:
    """Return what an I/O waited for in a stage; empty for a stage without a meaning in MEANINGS.

    dev: its disk. reason: name of that of the wait between Q and G; None: not known.
    """
    if stage == "M2D" and context.devices.get(dev, {}).get("scheduler") == "none":
        return "had joined a request that was held back (plugged)"
    if stage == "Q2G" and reason is not None:
        return f"waited for a request: {REASONS_OF_Q2G[reason]}"
    return MEANINGS.get(stage, "")
