# SPDX-License-Identifier: Apache-2.0
"""Stages of a slow I/O as lines: how long, and what it waited for."""

from collections.abc import Iterator

from biotrail.converters.analysis.slow.io_details import Span
from biotrail.converters.analysis.slow.slow import SlowIO
from biotrail.converters.events.context import Context
from biotrail.recorder.schema.strings import shown
from biotrail.text import units
from biotrail.text.printing import Styled, styled
from biotrail.text.slow.io import percent

BAR = 40
"""Characters of a stage's bar for the whole latency."""
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


def stage_lines(context: Context, slow: SlowIO) -> Iterator[str]:
    """Yield a line per stage; the line of the longest stage also says what that means."""
    io = slow.io
    if not io.stages:
        yield "    stages unknown"
        return
    for span in io.stages:
        bar = "#" * round(BAR * span.share) or "." * bool(span.ns)
        line = f"{span.stage:<10} {units.duration(span.ns):>9} {percent(span.share):>7}  {bar}"
        if span is io.longest:
            meaning = shown(f"  {_meaning(context, span, slow)}")
            yield Styled(styled(f"  > {line}", fg="red") + meaning)
        else:
            yield f"    {line}"


def _meaning(context: Context, span: Span, slow: SlowIO) -> str:
    """Return what the I/O waited for in a stage; empty for a stage without a meaning in MEANINGS.

    Of D2C and bio-based, also whether more than half of that was before its lower I/O was queued,
    or with the lower device.
    """
    text = MEANINGS.get(span.stage, "")
    if span.stage == "M2D" and context.devices.get(slow.io.dev, {}).get("scheduler") == "none":
        text = "had joined a request that was held back (plugged)"
    if span.stage == "Q2G" and slow.io.q2g_reason is not None:
        text = f"waited for a request: {REASONS_OF_Q2G[slow.io.q2g_reason]}"
    if slow.io.under_way and span is slow.io.stages[-1]:
        return f"{text}, until the log's end, unless its completion was not seen"
    times = slow.below
    if span.stage in ("D2C", "bio-based") and times is not None:
        before, below = times
        if before > span.ns / 2:
            text += (
                ", and most of that before its lower I/O was queued: a worker was busy, or "
                "I/O was throttled"
            )
        elif below > span.ns / 2:
            text += ", and most of that was the lower device's: see below"
    return text
