# SPDX-License-Identifier: Apache-2.0
"""`biotrail hist`: histograms and heat maps of latency, size and queue depth."""

import math
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from biotrail.cli.options.cuts import Cut, choice_options, cut_of, read_lines
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    InputRecording,
    as_one_object,
    headed,
    logs_argument,
    of_each,
    recordings,
)
from biotrail.converters.analysis.distributions.histograms import (
    Q2C,
    STAGES,
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


@dataclass(frozen=True)
class HistOptions:
    stage: str | None = option(
        "--stage",
        type=click.Choice(STAGES, case_sensitive=False),
        metavar="STAGE",
        help="Latency of this stage: Q2C (default), D2C, I2D, Q2G, … (docs/lifecycles.md).",
    )
    size: bool = option("--size", is_flag=True, help="Size of the I/Os instead of latency.")
    depth: bool = option(
        "--depth", is_flag=True, help="Number of I/Os in flight when each was queued, not latency."
    )
    pairs: bool = option(
        "--pairs",
        is_flag=True,
        help="Pairs of events (biotrail pairs) instead of I/O; the default for a log without I/O.",
    )
    linear: str | None = option(
        "--linear",
        type=values.text,
        metavar="STEP",
        help="Buckets of this width: 100us, 4K, 8 (default: log2).",
    )
    heatmap: bool = option(
        "--heatmap", is_flag=True, help="Draw the distribution over time, as a heat map."
    )
    unit: str | None = option(
        "--in",
        type=click.Choice(sorted(NAMES)),
        metavar="UNIT",
        help="Unit of the buckets: us (default), ns or ms; with --size kbytes (default) or bytes.",
    )
    order: Order | None = added(sort_option("device, then operation"))
    limit: int | None = added(limit_option("all"))
    cut: Cut = added(choice_options)
    reading: Reading = added(reading_options(labels=True))
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object (docs/hist.md).")


@click.command()
@logs_argument
@gathered(HistOptions, "asked")
def command(logs: tuple[str, ...], asked: HistOptions) -> None:
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
    given = {
        Measure.LATENCY: asked.stage is not None,
        Measure.SIZE: asked.size,
        Measure.DEPTH: asked.depth,
        Measure.PAIRS: asked.pairs,
    }
    if sum(given.values()) > 1:
        raise click.UsageError("--stage, --size, --depth and --pairs are questions: ask one")
    measure = next((one for one, is_given in given.items() if is_given), None)
    unit, cut = asked.unit, asked.cut

    def read(one: InputRecording) -> tuple[Trace, Histograms, str]:
        source = cut_of(one.again, cut)
        trace, context = source.trace, source.trace.context
        usual = Measure.PAIRS if pairs_alone(context.header) else Measure.LATENCY
        here = measure or usual
        known = UNITS[here]
        if unit is not None and unit not in known:
            raise click.UsageError(f"{here} has the units {', '.join(known)}, not {unit}")
        chosen = unit or next(iter(known))
        scale = Scale(_step(here, asked.linear, known[chosen]))
        question = Question(here, asked.stage or Q2C, known[chosen], scale, asked.heatmap)
        choice = cut.choice(context)
        found = Histograms(context, choice, question)
        for window in trace.lifecycles():
            found.add(window)
        choice.check(found.devices)
        return trace, found, NAMES[chosen]

    how = asked.order, asked.limit or 0
    with recordings(logs, asked.reading, twice=cut.needs_file()) as found:
        drawings = of_each(found, read)
    if asked.as_json:
        each = [(one, as_dict(*drawn, *how)) for one, drawn in drawings]
        say_json(as_one_object(each, format=FORMAT), indent=2)
        return
    for trace, drawn, name in headed(drawings):
        say_all([*hist_text.lines(trace, drawn, name, *how), *read_lines(trace)])


def _step(measure: Measure, linear: str | None, width: int) -> int:
    """Return the width of linear buckets in units of `width` (ns, bytes, I/Os); 0: log2 buckets."""
    if linear is None:
        return 0
    if measure in (Measure.LATENCY, Measure.PAIRS):
        step = units.seconds(linear) * 1e9 / width
    elif measure == Measure.SIZE:
        step = units.bytes_of(linear) / width
    else:
        step = units.whole(linear) or 0
    if step > LARGEST:
        raise click.UsageError(f"--linear {linear}: the step is larger than anything in a log")
    # 100us is 9.999999999999999e-05 s as a float.
    if round(step) < 1 or not math.isclose(step, round(step), rel_tol=1e-9):
        least = "at least one unit, and whole units (--in takes smaller ones)"
        raise click.UsageError(f"--linear {linear}: the step must be {least}")
    return round(step)


def as_dict(
    trace: Trace, found: Histograms, unit: str, order: Order | None = None, limit: int = 0
) -> dict[str, Any]:
    """Return the distribution for JSON; docs/hist.md describes every key. unit: its name."""
    shown, more = hist_text.ranked(trace.context, found, order, limit)
    question = found.question
    columns = found.columns if question.over_time else None
    rows = []
    for (code, text), group in shown:
        if question.measure == Measure.PAIRS:
            row: dict[str, Any] = {"pair": found.pair_names.name(code), "by": text}
        else:
            row = {"device": trace.context.device_name(code), "operation": text}
        row["count"] = group.values.count
        row["total"] = group.total
        row["max"] = group.maximum
        # Values in doubt, and count, mean and p99 with them in; none of sizes and depths is.
        if (every := with_doubtful(group.values, group.doubtful)) is not None:
            figures = summary(every)
            row["doubtful"] = group.doubtful.count
            row["with_doubtful"] = {key: figures[key] for key in DOUBTFUL}
        row["buckets"] = [
            _bucket(question.scale, slot, count)
            for slot, count in enumerate(group.counts.tolist())
            if count
        ]
        if columns is not None:
            counts = group.cells
            row["cells"] = [
                {"column": column, **_bucket(question.scale, slot, int(counts[slot, column]))}
                for column, slot in np.argwhere(counts.T).tolist()
            ]
        rows.append(row)
    made = {
        "format": FORMAT,
        "log_id": trace.context.log_id,
        "measure": str(question.measure),
        "stage": question.stage if question.measure == Measure.LATENCY else None,
        "unit": unit,
        "left_out": found.left_out,
        "without_stage": found.without,
        "tries": found.tries,
        "histograms": rows,
    }
    if more:
        made["histograms_left_out"] = more
    if columns is not None:
        made["columns"] = {"begin_ns": columns.origin, "width_ns": columns.width}
    return {**made, **tallies.losses_as_dict(trace)}


def _bucket(scale: Scale, slot: int, count: int) -> dict[str, int | None]:
    first, last = scale.bounds(slot)
    return {"from": first, "to": last, "count": count}
