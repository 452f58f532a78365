# SPDX-License-Identifier: Apache-2.0
"""Write a Perfetto trace in parts, each of which opens by itself.

A part ends where a window does. A bio or request in flight there is in both parts: in the first it
is drawn to the end and marked as open, and it is whole in the part that has its window. That can be
the next part also for a bio that completed shortly before the border. Numbers identify it across
parts.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import BinaryIO

from biotrail.converters.events.context import Context
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import Lifecycles, LossWindows
from biotrail.converters.outputs.perfetto.convert import Converter, PerfettoSummary
from biotrail.converters.outputs.perfetto.names import Colour, Detail
from biotrail.converters.outputs.perfetto.packets.metadata import Facts
from biotrail.converters.sites.building import LifeReader

_END = 24 << 10
"""Bytes that the slowest I/Os and calls and the summary take, which are written at a part's end."""


def convert_parts(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    opened: Callable[[int], BinaryIO],
    limit: int,
    *,
    stacks: StackNames | None = None,
    facts: Facts | None = None,
    to_end: bool = False,
    detail: Detail = Detail.STANDARD,
    colour: Colour = Colour.AUTO,
    every_arrow: bool = False,
    every_call: bool = False,
    ftrace: bool = False,
) -> list[PerfettoSummary]:
    """Write a trace in parts of about `limit` bytes at most, and return their summaries in order.

    lifecycles: windows, in order of time. opened: called with a part's number 1, 2, …, returns the
    file to write; closing it is the caller's. A part ends when one more window as large as the
    largest so far would not fit; it exceeds the limit if the next window is larger, if a single
    window does, or by slices still open at its end, which are not
    reckoned. A window without content begins no further part; without any
    window there is one part. The other parameters are those of `convert`. Raises OutputError when a
    part cannot be written.
    """
    summaries: list[PerfettoSummary] = []
    part: Converter | None = None
    losses, lives = _Losses(), LifeReader(context)
    largest = 0
    for window in map(losses.in_time, lifecycles):
        if part is None:
            if summaries and _empty(window):
                continue
            number = len(summaries) + 1
            part_facts = {**(facts or {}), "part": number}
            how = stacks, part_facts, to_end, detail, colour, None, lives, every_arrow, every_call
            part = Converter(context, opened(number), *how, ftrace=ftrace)
            summaries.append(part.summary)
        before = part.summary.bytes
        part.write_window(window)
        largest = max(largest, part.summary.bytes - before)
        if part.summary.bytes + part.held_bytes + largest + _END > limit:
            part.finish(window.end)
            part = None
    if not summaries:
        part = Converter(context, opened(1), stacks, facts, to_end, detail, colour)
        summaries.append(part.summary)
    if part is not None:
        part.finish()
    return summaries


def _empty(window: Lifecycles) -> bool:
    """Return whether a window has nothing to draw.

    That is, neither bios nor requests, losses, calls, waits, submissions, commits, hits or pairs.
    """
    tables = [window.bios, window.requests, window.open_bios, window.open_requests, window.loss]
    path = window.path
    beside = [] if path is None else [path.calls, path.waits, path.submissions, path.commits]
    sites = window.sites
    beside += [] if sites is None else [sites.hits, sites.pairs]
    return not any(len(table) for table in (*tables, *beside))


class _Losses:
    """Holds loss windows back until their time: a log with an index reports all of them at once."""

    def __init__(self) -> None:
        self._waiting: list[LossWindows] = []

    def in_time(self, window: Lifecycles) -> Lifecycles:
        """Return the window with the loss windows that began before its end.

        Among them are those that earlier windows brought, if they are not returned yet. The others
        wait for a later call. The final window, which is empty (begin == end), gets all the rest.
        """
        waiting = LossWindows.concatenate([*self._waiting, window.loss])
        final = window.begin == window.end
        due = (waiting.start < window.end) | final
        self._waiting = [waiting.take(~due)]
        return replace(window, loss=waiting.take(due))
