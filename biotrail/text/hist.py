# SPDX-License-Identifier: Apache-2.0
"""Histograms and heat maps as text, in the layout of bcc's tools."""

import os
import shutil
import sys
from collections.abc import Iterator

import click
import numpy as np

from biotrail.converters.analysis.distributions.histograms import (
    Columns,
    Histogram,
    Histograms,
    Measure,
    Scale,
)
from biotrail.converters.analysis.figures import with_doubtful
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import U32
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies, units
from biotrail.text.bars import Bucket, bucket_lines
from biotrail.text.printing import Styled
from biotrail.text.rows import Order, first, left_out

ASCII = " .:-=+*#%@"
BLOCKS = " ░▒▓█"
HEAT = (52, 88, 124, 160, 196, 202, 208, 214, 220, 226)
"""Colours of a 256-colour terminal, from dark red to yellow."""
WIDTH = 80
"""Characters of a line where the terminal's width is not known."""

Key = tuple[int, str]


def ranked(
    context: Context, found: Histograms, order: Order | None, limit: int
) -> tuple[list[tuple[Key, Histogram]], int]:
    """Return the histograms to show, and how many are left out. order: None: by their names."""

    def weight(group: Histogram, order: Order) -> float:
        values = group.values
        return {
            Order.COUNT: values.count,
            Order.BYTES: group.bytes,
            Order.MEAN: values.mean,
            Order.P99: values.percentiles([0.99])[0],
            Order.TOTAL: values.sum,
        }[order]

    groups = sorted(found.groups.items(), key=lambda g: _place(context, found, *g[0]))
    if order is not None:
        groups.sort(key=lambda item: -weight(item[1], order))
    return first(groups, limit)


def lines(
    trace: Trace, found: Histograms, unit: str, order: Order | None = None, limit: int = 0
) -> Iterator[str]:
    groups, more = ranked(trace.context, found, order, limit)
    what = "pair" if found.question.measure == Measure.PAIRS else "I/O"
    heats = [group for _, group in groups if len(group.cells)]
    labels = [label for heat in heats for label in _labels(heat.scale, heat.cells).values()]
    margin = max(map(len, labels), default=0)
    for number, (key, group) in enumerate(groups):
        yield from [""] if number else []
        yield _head(trace.context, found, *key)
        if not group.values.count:
            pass  # all of its values are in doubt
        elif found.question.over_time and found.columns is not None:
            yield from heat_map(group, found.columns, unit, margin, what)
        else:
            yield from histogram(group, unit)
        if (every := with_doubtful(group.values, group.doubtful)) is not None:
            figures = every.mean, every.p99
            yield tallies.doubtful_line(group.doubtful.count, every.count, every=figures)
    if more:
        yield ""
        yield left_out(more, "histogram")
    if not found.groups:
        if found.question.measure == Measure.PAIRS:
            yield "no pairs of events in the log"
        else:
            stage = f"a stage {found.question.stage}"
            what = stage if found.question.measure == Measure.LATENCY else "this"
            yield f"no I/O with {what} in the log"
    if found.left_out:
        left = units.plural(found.left_out, "I/O")
        yield f"{left} left out: their queueing or their completion is not in the log"
    if found.tries:
        yield f"{tallies.failed_nowait_text(found.tries)} left out"
    if found.without and found.groups:
        yield f"{units.plural(found.without, 'I/O')} without a stage {found.question.stage}"
    yield from (f"missing: {line}" for line in tallies.loss_lines(trace))


def _place(context: Context, found: Histograms, code: int, text: str) -> tuple[str, str]:
    """Return what groups are sorted by: the names of device and operation, or of pair and --by."""
    if found.question.measure == Measure.PAIRS:
        return found.pair_names.name(code), text
    return context.device_name(code), text


def _head(context: Context, found: Histograms, code: int, text: str) -> str:
    if found.question.measure == Measure.PAIRS:
        names = found.pair_names
        by = f", {names.fact(code, 'by')} = {text}" if text else ""
        return f"pair = {names.name(code)}{by}"
    return f"device = {context.device_label(code)}, operation = {text}"


def histogram(found: Histogram, unit: str) -> Iterator[str]:
    """Yield lines as bcc's print_log2_hist; linear ones without long runs of empty buckets."""
    counts = found.counts.tolist()
    used = [slot for slot, count in enumerate(counts) if count]
    first = used[0] if found.scale.step else 0
    buckets: list[Bucket | None] = []
    for slot in range(first, used[-1] + 1):
        if not found.scale.step or any(counts[max(slot - 1, 0) : slot + 2]):
            buckets.append((*found.scale.bounds(slot), counts[slot]))
        elif any(counts[max(slot - 2, 0) : slot]):
            buckets.append(None)
    yield from bucket_lines(unit, found.maximum, buckets)
    average = found.total // found.values.count
    yield f"avg = {average} {unit}, max = {found.maximum} {unit}, count: {found.values.count}"


# Heat maps


def heat_map(
    group: Histogram, columns: Columns, unit: str, margin: int, what: str
) -> Iterator[str]:
    """Yield time to the right, values upwards, shades by the logarithm of the count."""
    scale, counts = group.scale, group.cells
    labels = _labels(scale, counts)
    room = max(shutil.get_terminal_size((WIDTH, 24)).columns - margin - 3, 8)
    together = -(-columns.used // room)
    starts = np.arange(0, columns.used, together)
    cells: U32 = np.add.reduceat(counts[:, : columns.used], starts, axis=1)
    most = int(cells.max())
    marks = shades()
    yield f"{unit:>{margin}}"
    for slot in sorted(labels, reverse=True):
        yield Styled(f"{labels[slot]:>{margin}} |{shaded(marks, cells[slot].tolist(), most)}|")
    width = cells.shape[1]
    span = columns.used * columns.width
    end = f"{units.duration(span)}"
    yield f"{'':{margin}}  0{end:>{max(width - 1, len(end))}}"
    column = units.duration(columns.width * together)
    yield Styled(f"each column is {column}; {legend(marks, most, what)}")


def _labels(scale: Scale, counts: U32) -> dict[int, str]:
    used = np.flatnonzero(counts.any(axis=1)).tolist()
    found = {}
    for slot in range(used[0], used[-1] + 1):
        begin, end = scale.bounds(slot)
        found[slot] = f"{begin} -> {'and more' if end is None else end}"
    return found


def shades() -> list[str]:
    """Return what stands for counts, from 0 on: colours on a terminal, characters elsewhere."""
    if not sys.stdout.isatty():
        return list(ASCII)
    if not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return [" ", *(click.style(" ", bg=colour) for colour in HEAT)]
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return list(BLOCKS if encoding == "utf8" else ASCII)


def shaded(marks: list[str], counts: list[int], most: int) -> str:
    """Return a row of cells. most: the largest count of the whole map."""
    row = ""
    for count in counts:
        level = 0
        if count:
            share = 1.0 if most == 1 else np.log(count) / np.log(most)
            level = 1 + int(share * (len(marks) - 2) + 1e-9)
        row += marks[level]
    return row


def legend(marks: list[str], most: int, what: str) -> str:
    return f"{''.join(marks[1:])} is 1 to {units.plural(most, what)}"
