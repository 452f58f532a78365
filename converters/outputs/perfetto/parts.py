# SPDX-License-Identifier: Apache-2.0
"""A Perfetto trace in parts, each of which opens by itself.

A part ends where a window does. What is under way there is in both parts: drawn to the end of the
one, marked as at a log's end, and whole in the part in which its window comes: that can be the next
one for what ended in the last moments before the border. Numbers tell what is the same.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import BinaryIO

from biotrail.converters.events.context import Context
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import Lifecycles, LossWindows
from biotrail.converters.outputs.perfetto.convert import Converter, PerfettoSummary
from biotrail.converters.outputs.perfetto.metadata import Facts
from biotrail.converters.outputs.perfetto.names import Colour, Detail


def convert_parts(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    opened: Callable[[int], BinaryIO],
    limit: int,
    *,
    stacks: StackNames | None = None,
    facts: Facts | None = None,
    to_end: bool = False,
    detail: Detail = Detail.FULL,
    colour: Colour = Colour.AUTO,
) -> list[PerfettoSummary]:
    """Writes parts of at most `limit` bytes; `opened` gives the file of part number 1, 2, ….

    A part ends where one more window as large as the largest so far would not fit: where a
    larger one comes, or a single one fills it, it has more. Raises OutputError when one cannot
    be written.
    """
    summaries: list[PerfettoSummary] = []
    part: Converter | None = None
    losses = _Losses()
    largest = 0
    for window in map(losses.in_time, lifecycles):
        if part is None:
            if summaries and _empty(window):
                continue
            number = len(summaries) + 1
            told = {**(facts or {}), "part": number}
            part = Converter(context, opened(number), stacks, told, to_end, detail, colour)
            summaries.append(part.summary)
        before = part.summary.bytes
        part.window(window)
        largest = max(largest, part.summary.bytes - before)
        if part.summary.bytes + largest > limit:
            part.finish(window.end)
            part = None
    if not summaries:
        part = Converter(context, opened(1), stacks, facts, to_end, detail, colour)
        summaries.append(part.summary)
    if part is not None:
        part.finish()
    return summaries


def _empty(window: Lifecycles) -> bool:
    tables = window.bios, window.requests, window.open_bios, window.open_requests, window.loss
    return not any(len(table) for table in tables)


class _Losses:
    """Loss windows are known at once where the log has an index: each waits for its time."""

    def __init__(self) -> None:
        self._waiting: list[LossWindows] = []

    def in_time(self, window: Lifecycles) -> Lifecycles:
        """The window with the losses of its time; the last one takes all."""
        known = LossWindows.concatenate([*self._waiting, window.loss])
        final = window.begin == window.end
        now = (known.start < window.end) | final
        self._waiting = [known.take(~now)]
        return replace(window, loss=known.take(now))
