# SPDX-License-Identifier: Apache-2.0
"""Say before a Perfetto trace is written that it will be too large for a browser."""

from collections.abc import Iterator

from biotrail.cli.options.cuts import Opened
from biotrail.cli.options.drawing import Drawing
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.log import Indexed
from biotrail.converters.outputs.perfetto.names import Detail
from biotrail.converters.outputs.perfetto.sizes import expected
from biotrail.converters.outputs.perfetto.summary import LARGE
from biotrail.text.printing import say
from biotrail.text.progress import StatusLine


def announced(
    source: Opened, lifecycles: Iterator[Lifecycles], drawing: Drawing
) -> Iterator[Lifecycles]:
    """Return the windows; first say on standard error if their trace becomes large.

    Reads the first window with I/O. source: the trace that `lifecycles` are windows of. Of a pipe,
    whose length is not known, nothing is said.
    """
    seen: list[Lifecycles] = []
    for window in lifecycles:
        seen.append(window)
        if expected(window, Detail.FULL):
            part = share_read(source, window)
            lines = [] if part is None else large_lines(window, part, drawing)
            if lines:
                StatusLine().clear()
            for line in lines:
                say(line, err=True)
            break
    return _again(seen, lifecycles)


def _again(seen: list[Lifecycles], lifecycles: Iterator[Lifecycles]) -> Iterator[Lifecycles]:
    """Yield what is in `seen`, which is emptied, then the rest; keep none of it in memory."""
    while seen:
        yield seen.pop(0)
    yield from lifecycles


def share_read(source: Opened, window: Lifecycles) -> float | None:
    """Return which share of all that is to be converted was read when `window` came; None: unknown.

    window: the first with I/O. The share is that of the chunks, or in a cut of time that of the
    time.
    """
    trace, reader = source.trace, source.trace.reader
    if not isinstance(reader, Indexed):
        return None
    bounds = reader.bounds()
    if trace.span is None or bounds is None:
        return min(reader.parts_read / reader.parts_total, 1) if reader.parts_total > 0 else None
    begin, end = max(trace.span.begin, bounds[0]), min(trace.span.end, bounds[1] + 1)
    return min((window.end - begin) / (end - begin), 1) if window.end > begin < end else None


def large_lines(window: Lifecycles, share: float, drawing: Drawing) -> list[str]:
    """Return lines that say how large a trace becomes, and what makes it smaller.

    Empty where a browser opens it comfortably. window: the first; share: its share (0 to 1, above
    0) of all windows.
    """

    def reckoned(detail: Detail) -> float:
        """Return the bytes of the whole trace with this detail, and all else as it was asked."""
        choices = {**drawing.choices, "detail": detail}
        del choices["colour"]  # takes no bytes
        return expected(window, **choices) / share

    detail, total = drawing.detail, reckoned(drawing.detail)
    if total < LARGE:
        return []
    less = list(Detail)[list(Detail).index(detail) + 1 :]
    sizes = [f"--detail {one} about {_size(reckoned(one))}" for one in less]
    parts = -(-int(total) // LARGE)
    return [
        f"This trace will have about {_size(total)}; a browser opens {_size(LARGE)} comfortably.",
        *([f"  smaller: {', '.join(sizes)}"] if sizes else []),
        f"  or a cut: 1/{parts} of the time (--from, --to, --around), a device (-d), what was slow",
        "  (--slower-than, --slowest); or --max-size 500M: in parts that open one by one",
    ]


def _size(count: float) -> str:
    """Return bytes as `1.2 GB`, `340 MB` or `50 kB`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
