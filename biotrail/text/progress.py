# SPDX-License-Identifier: Apache-2.0
"""Show on a terminal how far the reading of a log has come."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click

from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.lifecycles.result import Result as Associated
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.strings import shown
from biotrail.text import units

OnWindow = Callable[[Associated, Lifecycles], None]


@contextmanager
def working(size: int, label: str) -> Iterator[Callable[[int], None] | None]:
    if size <= 0 or not sys.stderr.isatty():
        yield None
        return
    began_at = time.monotonic()

    def rate(offset: int | None) -> str:
        seconds = time.monotonic() - began_at
        return f"{units.size((offset or 0) / seconds)}/s" if seconds > 0 else ""

    with click.progressbar(
        length=size, label=shown(label), file=sys.stderr, item_show_func=rate
    ) as bar:

        def reached(offset: int) -> None:
            bar.update(offset - bar.pos, offset)

        yield reached
        bar.update(size - bar.pos, size)


def size_of(trace: Trace) -> int:
    """Return the bytes that a bar can count; -1: not known, or only a part is read."""
    return -1 if trace.span is not None else trace.reader.size


@contextmanager
def progress(
    trace: Trace,
    label: str = "converting",
    on_window: OnWindow | None = None,
    window_events: int | None = None,
) -> Iterator[Iterator[Lifecycles]]:
    """Yield windows with a bar. window_events: of each, also where chunks hold more."""
    windows = trace.lifecycles
    if window_events is not None:
        windows = partial(windows, window_events, small=True)
    with working(size_of(trace), label) as reached:
        yield windows(on_progress=reached, on_window=on_window)
