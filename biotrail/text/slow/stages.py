# SPDX-License-Identifier: Apache-2.0
"""Stages of a slow I/O as lines: how long, and what it waited for."""

from collections.abc import Iterator

from biotrail.converters.analysis.slow.io_details import Span
from biotrail.converters.analysis.slow.slow import SlowIO
from biotrail.converters.events.context import Context
from biotrail.converters.lifecycles.meanings import meaning
from biotrail.recorder.schema.strings import shown
from biotrail.text import units
from biotrail.text.printing import Styled, styled
from biotrail.text.slow.io import percent

BAR = 40
"""Characters of a stage's bar for the whole latency."""


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
    """Return what the I/O waited for in a stage; empty for a stage without a meaning.

    Of D2C and bio-based, also whether more than half of that was before its lower I/O was queued,
    or with the lower device.
    """
    text = meaning(context, slow.io.dev, span.stage, slow.io.q2g_reason)
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
