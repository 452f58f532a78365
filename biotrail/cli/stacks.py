# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks`: which call stacks and tasks queued the I/O of a log."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from biotrail.cli.options.cuts import Cut, Opened, cut_of, cut_options
from biotrail.cli.options.ending import terminated_as_interrupted
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
from biotrail.converters.analysis.stacks.stacks import StackTable, Weight, folded, grouped
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import values
from biotrail.text.printing import say_all, say_json
from biotrail.text.rows import Order, first, limit_option, sort_option
from biotrail.text.stacks import as_dict, notes, ranked, text_lines

Chosen = Callable[[Iterable[Lifecycles]], Iterator[Lifecycles]]
MOST_STACKS = 10


@dataclass(frozen=True)
class StacksOptions:
    cut: Cut = added(cut_options)
    as_folded: bool = option(
        "--folded",
        is_flag=True,
        help="Print a line per stack in the folded format, for flame graphs.",
    )
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object.")
    by_bytes: bool = option("--bytes", is_flag=True, help="Weight stacks by bytes, not by bios.")
    by_latency: bool = option(
        "--latency",
        is_flag=True,
        help="Weight stacks by their bios' total time from queue to completion.",
    )
    flame: str | None = option(
        "--flame",
        metavar="OUT",
        type=values.FileName(),
        help="Write a flame graph: OUT.svg, or OUT.html, which can be searched and zoomed.",
    )
    force: bool = option(
        "-f", "--force", is_flag=True, help="With --flame: replace OUT if it exists."
    )
    offsets: bool = option(
        "--offsets",
        is_flag=True,
        help="Keep stacks apart that differ only in the offsets within functions.",
    )
    reading: Reading = added(reading_options())
    order: Order | None = added(sort_option("the weight"))
    limit: int | None = added(limit_option("10; --json and --folded have all", "--top"))

    @property
    def weight(self) -> Weight:
        return (
            Weight.BYTES if self.by_bytes else Weight.LATENCY if self.by_latency else Weight.COUNT
        )

    def check(self) -> None:
        if self.by_bytes and self.by_latency:
            raise click.UsageError("--bytes and --latency: give one of them")
        if self.as_folded + self.as_json + (self.flame is not None) > 1:
            raise click.UsageError("--folded, --json and --flame: give one of them")
        if self.offsets and (self.as_folded or self.flame is not None):
            raise click.UsageError("--offsets: only the text and --json have offsets")
        if self.flame is not None:
            if self.order is not None or self.limit is not None:
                raise click.UsageError("--flame shows all stacks: leave out --sort and --limit")
            if Path(self.flame).suffix.lower() not in (".svg", ".html"):
                raise click.UsageError(
                    f"--flame {self.flame}: give a name that ends in .svg or .html"
                )
            output.ensure_free(self.flame, self.force)


@click.command()
@logs_argument
@gathered(StacksOptions, "asked")
def command(logs: tuple[str, ...], asked: StacksOptions) -> None:
    """Show which call stacks and tasks queued the I/O in LOGs, the heaviest first.

    LOG must have been made with record --stacks. Every bio counts, including those merged into
    another bio's request, with its bytes and its time from queue to completion. Stacks of the
    same functions are added up, unless --offsets is given. The files of a rotated recording are
    one log; several recordings are shown one after the other.

    \b
    sudo biotrail record --stacks --duration 10s -o disk.biotrail
    biotrail stacks disk.biotrail
    biotrail stacks disk.biotrail --latency -n 3          # the largest total latency
    biotrail stacks --slower-than 5ms disk.biotrail
    biotrail stacks disk.biotrail --flame disk.html       # a flame graph; disk.svg: a picture
    biotrail stacks disk.biotrail --flame disk.svg --latency
    biotrail stacks disk.biotrail --folded > disk.folded  # for flamegraph.pl or speedscope.app
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    asked.check()
    twice = asked.cut.needs_file()
    with terminated_as_interrupted(), recordings(logs, asked.reading, twice=twice) as given:
        percentiles = asked.order == Order.P99
        tables = of_each(given, lambda one: _read(one, asked.cut, percentiles=percentiles))
    if asked.as_json:
        how = asked.weight, asked.limit or 0, asked.order
        each = [
            (one, as_dict(source.trace, table, *how, offsets=asked.offsets))
            for one, (source, table) in tables
        ]
        say_json(as_one_object(each))
    elif asked.flame is not None:
        traces = [(one, source.trace, table) for one, (source, table) in tables]
        from biotrail.cli.reporting import flame_graph

        flame_graph.write(asked.flame, traces, asked.weight, asked.force)
    elif asked.as_folded:
        for one, (source, table) in tables:
            stacks, by = source.trace.stacks.all(), asked.weight
            groups = ranked(grouped(table.callers(), stacks, by), asked.order)
            groups, _ = first(groups, asked.limit or 0)
            above = f"{one.label.replace(';', ':')};" if one.label else ""
            say_all(above + line for line in folded([group.sums for group in groups], stacks, by))
            lacks = one.about(notes(source.trace, table, stacks))
            say_all((f"biotrail: {line}" for line in lacks), err=True)
    else:
        most = MOST_STACKS if asked.limit is None else asked.limit
        offsets = asked.offsets
        for source, table in headed(tables):
            say_all(
                text_lines(source.trace, table, asked.weight, most, asked.order, offsets=offsets)
            )
            say_all(source.lines())


def _read(one: InputRecording, cut: Cut, percentiles: bool) -> tuple[Opened, StackTable]:
    source = cut_of(one.again, cut)
    return source, gather(source.trace, source.chosen, percentiles)


def gather(trace: Trace, chosen: Chosen = iter, percentiles: bool = False) -> StackTable:
    """Return the table of a trace's call stacks. percentiles: keep each caller's `times`."""
    if "stacks" not in trace.reader.header:
        raise ConversionError(
            "this log has no call stacks: record again with biotrail record --stacks"
        )
    table = StackTable(trace.context, percentiles)
    for window in chosen(trace.lifecycles()):
        table.add(window)
    return table
