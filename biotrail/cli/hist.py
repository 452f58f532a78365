# SPDX-License-Identifier: Apache-2.0
"""`biotrail hist`: histograms and heat maps of latency, size and queue depth."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from biotrail.cli.options.cuts import Cut, Opened, choice_options, cut_of, read_lines
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    InputRecording,
    as_one_object,
    headed,
    logs_argument,
    of_each,
    recordings,
)
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.distributions.histograms import (
    Q2C,
    STAGES,
    GroupHistogram,
    Histograms,
    Measure,
    Question,
    Scale,
)
from biotrail.converters.analysis.figures import DOUBTFUL, summary, with_doubtful
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import pairs_alone
from biotrail.text import hist as hist_text
from biotrail.text import tallies, units, values
from biotrail.text.printing import say_all, say_json
from biotrail.text.rows import Order, limit_option, sort_option

FORMAT = 1
LARGEST = 1 << 60
"""Largest step of --linear, in units."""
UNITS = {
    Measure.LATENCY: {"us": 1_000, "ns": 1, "ms": 1_000_000},
    Measure.SIZE: {"kbytes": 1024, "bytes": 1},
    Measure.DEPTH: {"ios": 1},
    Measure.PAIRS: {"ns": 1, "us": 1_000, "ms": 1_000_000},
}
"""Per measure: unit → its size in ns, bytes or I/Os. The first unit is the default."""
NAMES = {
    "ns": "nsecs",
    "us": "usecs",
    "ms": "msecs",
    "bytes": "bytes",
    "kbytes": "Kbytes",
    "ios": "I/Os",
}
"""Units as bcc's tools print them."""


@click.command()
@logs_argument
@click.option(
    "--stage",
    type=click.Choice(STAGES, case_sensitive=False),
    metavar="STAGE",
    help="Latency of this stage: Q2C (default), D2C, I2D, Q2G, … (docs/lifecycles.md).",
)
@click.option("--size", is_flag=True, help="Size of the I/Os instead of latency.")
@click.option(
    "--depth", is_flag=True, help="Number of I/Os in flight when each was queued, not latency."
)
@click.option(
    "--pairs",
    is_flag=True,
    help="Pairs of events (biotrail pairs) instead of I/O; the default for a log without I/O.",
)
@click.option(
    "--linear",
    type=values.Text(),
    metavar="STEP",
    help="Buckets of this width: 100us, 4K, 8 (default: log2).",
)
@click.option("--heatmap", is_flag=True, help="Draw the distribution over time, as a heat map.")
@click.option(
    "--in",
    "unit",
    type=click.Choice(sorted(NAMES)),
    metavar="UNIT",
    help="Unit of the buckets: us (default), ns or ms; with --size kbytes (default) or bytes.",
)
@sort_option("device, then operation")
@limit_option("all")
@choice_options
@reading_options(labels=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/hist.md).")
def command(
    logs: tuple[str, ...],
    stage: str | None,
    size: bool,
    depth: bool,
    pairs: bool,
    linear: str | None,
    heatmap: bool,
    unit: str | None,
    order: Order | None,
    limit: int | None,
    cut: Cut,
    reading: Reading,
    as_json: bool,
) -> None:
    """Draw histograms of the latency, size or queue depth of the I/Os in LOGs.

    One histogram for each device and operation, with buckets that are powers of two as bcc's
    biolatency prints them. Merged and split I/Os are counted as the bios that were queued.
    LOG - reads standard input. The files of a rotated recording are one log; several recordings
    are drawn one after the other.

    \b
    biotrail hist disk.biotrail
    biotrail hist --stage D2C -d nvme0n1 --op read disk.biotrail
    biotrail hist --linear 250us disk.biotrail
    biotrail hist --size disk.biotrail
    biotrail hist --depth --linear 1 disk.biotrail
    biotrail hist --heatmap disk.biotrail
    biotrail hist --sort p99 -n 3 disk.biotrail
    biotrail hist softirq.biotrail              # recorded by biotrail pairs
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    measure = _measure(size, depth, stage, pairs)

    asked = partial(_question, measure, stage or Q2C, unit, linear, heatmap)
    with recordings(logs, reading, twice=cut.needs_file()) as found:
        drawings = of_each(found, lambda one: _read(one, cut, asked))
    if as_json:
        each = [(one, as_dict(*drawn, order, limit or 0)) for one, drawn in drawings]
        say_json(as_one_object(each, format=FORMAT), indent=2)
        return
    for trace, drawn, name in headed(drawings):
        say_all([*hist_text.lines(trace, drawn, name, order, limit or 0), *read_lines(trace)])


def _question(
    measure: Measure | None,
    stage: str,
    unit: str | None,
    linear: str | None,
    over_time: bool,
    one: Opened,
) -> tuple[Question, str]:
    """Return the question to a log, and its unit's name. measure: None: what is usual for it."""
    usual = Measure.PAIRS if pairs_alone(one.trace.context.header) else Measure.LATENCY
    here = measure or usual
    chosen = _unit(here, unit)
    width = UNITS[here][chosen]
    scale = Scale(_step(here, linear, width))
    return Question(here, stage, width, scale, over_time), NAMES[chosen]


def _read(
    one: InputRecording, cut: Cut, asked: Callable[[Opened], tuple[Question, str]]
) -> tuple[Trace, Histograms, str]:
    source = cut_of(one.again, cut)
    question, name = asked(source)
    found = distribution(source.trace, question, cut.choice(source.trace.context))
    return source.trace, found, name


def _measure(size: bool, depth: bool, stage: str | None, pairs: bool) -> Measure | None:
    if sum((size, depth, stage is not None, pairs)) > 1:
        raise click.UsageError("--stage, --size, --depth and --pairs are questions: ask one")
    if pairs:
        return Measure.PAIRS
    if stage is not None:
        return Measure.LATENCY
    return Measure.SIZE if size else Measure.DEPTH if depth else None


def _unit(measure: Measure, unit: str | None) -> str:
    known = list(UNITS[measure])
    if unit is not None and unit not in known:
        raise click.UsageError(f"{measure} has the units {', '.join(known)}, not {unit}")
    return unit or known[0]


def _step(measure: Measure, linear: str | None, width: int) -> int:
    """Return the width of linear buckets in units of `width` (ns, bytes or I/Os); 0: log2 buckets.

    linear: the value of --linear; None: not given. Raises click.UsageError.
    """
    if linear is None:
        return 0
    if measure in (Measure.LATENCY, Measure.PAIRS):
        step = units.seconds(linear) * 1e9 / width
    elif measure == Measure.SIZE:
        step = units.Size().convert(linear, None, None) / width
    else:
        step = units.whole(linear) or 0
    if step > LARGEST:
        raise click.UsageError(f"--linear {linear}: the step is larger than anything in a log")
    # 100us is 9.999999999999999e-05 s as a float.
    if round(step) < 1 or not math.isclose(step, round(step), rel_tol=1e-9):
        least = "at least one unit, and whole units (--in takes smaller ones)"
        raise click.UsageError(f"--linear {linear}: the step must be {least}")
    return round(step)


def distribution(trace: Trace, question: Question, choice: Choice) -> Histograms:
    """Read the trace to its end and return the distribution of the chosen I/Os.

    Raises ConversionError if the log does not have a chosen device.
    """
    found = Histograms(trace.context, choice, question)
    for window in trace.lifecycles():
        found.add(window)
    choice.check(found.devices)
    return found


def as_dict(
    trace: Trace, found: Histograms, unit: str, order: Order | None = None, limit: int = 0
) -> dict[str, Any]:
    """Return the distribution for JSON; docs/hist.md describes every key. unit: its name."""
    shown, more = hist_text.ranked(trace.context, found, order, limit)
    question = found.question
    columns = found.columns
    over_time = question.over_time and columns is not None
    return {
        "format": FORMAT,
        "log_id": trace.context.log_id,
        "measure": str(question.measure),
        "stage": question.stage if question.measure == Measure.LATENCY else None,
        "unit": unit,
        "left_out": found.left_out,
        "without_stage": found.without,
        "tries": found.tries,
        "histograms": [
            {
                **_name(trace, found, dev, operation),
                "count": group.histogram.count,
                "total": group.histogram.total,
                "max": group.histogram.maximum,
                **_doubtful(group),
                "buckets": _buckets(question.scale, group.histogram.counts.tolist()),
                **({"cells": _cells(question.scale, group.heat.counts)} if over_time else {}),
            }
            for (dev, operation), group in shown
        ],
        **({"histograms_left_out": more} if more else {}),
        **(
            {"columns": {"begin_ns": columns.origin, "width_ns": columns.width}}
            if over_time and columns is not None
            else {}
        ),
        **tallies.losses_as_dict(trace),
    }


def _name(trace: Trace, found: Histograms, code: int, text: str) -> dict[str, str]:
    if found.question.measure == Measure.PAIRS:
        return {"pair": found.pair_names.name(code), "by": text}
    return {"device": trace.context.device_name(code), "operation": text}


def _doubtful(group: GroupHistogram) -> dict[str, Any]:
    """Return the count of a group's values in doubt, and count, mean and p99 with them in.

    Empty where none is in doubt, as of sizes and depths never is.
    """
    every = with_doubtful(group.values, group.doubtful)
    if every is None:
        return {}
    figures = summary(every)
    return {
        "doubtful": group.doubtful.count,
        "with_doubtful": {key: figures[key] for key in DOUBTFUL},
    }


def _buckets(scale: Scale, counts: list[int]) -> list[dict[str, int | None]]:
    found: list[dict[str, int | None]] = []
    for slot, count in enumerate(counts):
        if count:
            first, last = scale.bounds(slot)
            found.append({"from": first, "to": last, "count": count})
    return found


def _cells(scale: Scale, counts: Any) -> list[dict[str, int | None]]:
    """Return a heat map's cells that are not empty, by column, then by bucket.

    counts: (buckets, columns) uint32.
    """
    columns, slots = counts.T.nonzero()
    found: list[dict[str, int | None]] = []
    for column, slot in zip(columns.tolist(), slots.tolist(), strict=True):
        first, last = scale.bounds(slot)
        count = int(counts[slot, column])
        found.append({"column": column, "from": first, "to": last, "count": count})
    return found
