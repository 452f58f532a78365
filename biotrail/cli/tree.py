# SPDX-License-Identifier: Apache-2.0
"""`biotrail tree`: which functions followed objects passed, and where their time went."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from biotrail.cli.options.cuts import Cut, Opened, cut_of, time_options
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.recordings import (
    InputRecording,
    as_one_object,
    headed,
    logs_argument,
    of_each,
    recordings,
)
from biotrail.converters.analysis.choosing.choosing import matches
from biotrail.converters.analysis.lives import Functions, Merged
from biotrail.converters.analysis.stacks.flame import Side, flame_of, svg
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.sites.lives import LifeReader
from biotrail.converters.sites.tables import follows
from biotrail.converters.sites.trees import Life
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies, units, values
from biotrail.text.columns import console
from biotrail.text.printing import say, say_all, say_json
from biotrail.text.progress import progress
from biotrail.text.rows import left_out, limit_option
from biotrail.text.sites.facts import functions_facts, life_facts, merged_facts
from biotrail.text.sites.tree import functions_table, life_lines, merged_lines, tally_lines

_TOLD = {
    Weight.LATENCY: units.duration,
    Weight.COUNT: lambda calls: units.plural(int(calls), "call"),
}
MOST_TREES = 10
"""Lives printed one by one without --limit."""
MOST_FUNCTIONS = 40
"""Rows of --functions without --limit."""
_AFTER = "the log has tracepoints alone: times are those until the life's next tracepoint"


def _number(text: str) -> int:
    """Parse an address or sector: decimal, or hexadecimal after 0x. Raises click.UsageError."""
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise click.BadParameter(f"{text!r} is not a number: write 2048, or 0xffff9b6f83a40000")
    return number


@dataclass(frozen=True)
class TreeOptions:
    """What the options say about which lives, and how to show them."""

    lives: tuple[int, ...] = option(
        "--life",
        multiple=True,
        type=units.Count(),
        metavar="N",
        help="Only the life of this number. Can be repeated.",
    )
    objects: tuple[int, ...] = option(
        "--object",
        multiple=True,
        type=_number,
        metavar="ADDR",
        help="Only lives of the object at this address. Can be repeated.",
    )
    details: tuple[int, ...] = option(
        "--sector",
        "--detail",
        multiple=True,
        type=_number,
        metavar="N",
        help="Only lives with this sector, or what else the type's declaration shows. Can be "
        "repeated.",
    )
    comms: tuple[str, ...] = option(
        "--comm",
        multiple=True,
        type=values.name,
        metavar="NAME",
        help="Only lives that passed a thread of this name; NAME* matches a prefix. Can be "
        "repeated.",
    )
    slower: float | None = option(
        "--slower-than",
        type=units.duration_from(),
        metavar="TIME",
        help="Only lives that took at least this long.",
    )
    slowest: int | None = option(
        "--slowest",
        type=units.Count(1, 10_000),
        metavar="K",
        help="Only the K slowest of the lives that the other options choose.",
    )
    merge: bool = option("--merged", is_flag=True, help="Show the lives as one tree.")
    functions: bool = option(
        "--functions",
        is_flag=True,
        help="Show a table of functions, those with the most time first.",
    )
    as_folded: bool = option(
        "--folded",
        is_flag=True,
        help="Print a line per stack with its own time in ns, for flame graphs.",
    )
    flame: str | None = option(
        "--flame",
        metavar="OUT.svg",
        type=values.FileName(),
        help="Write a flame graph, an SVG picture.",
    )
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object.")
    force: bool = option(
        "-f", "--force", is_flag=True, help="With --flame: replace OUT if it exists."
    )
    limit: int | None = added(limit_option("10 lives, 40 functions; --json has all functions"))
    """Lives, or rows of functions; 0: all; None: as many as is usual."""
    cut: Cut = added(time_options)

    @property
    def trees(self) -> int:
        """How many lives are shown one by one; 0: all."""
        usual = len(self.lives) or self.slowest or MOST_TREES
        return usual if self.limit is None else self.limit

    def holds(self, life: Life) -> bool:
        """Return whether a life is asked for, as far as its tree says so, but for `slowest`."""
        if self.details and life.detail not in self.details:
            return False
        if life.span < round((self.slower or 0) * 1e9):
            return False
        comms = frozenset(map(values.as_read, self.comms))
        return not comms or any(matches(run.comm, comms) for run in life.contexts)

    def merges(self, found: "Found") -> bool:
        """Return whether the lives are shown as one tree: if asked for, or if none is chosen."""
        picked = bool(self.lives or self.objects or self.details or self.slowest)
        return self.merge or (found.count != 1 and not picked)

    def check(self) -> None:
        """Raise click.UsageError or, for a file that may not be replaced, OutputError."""
        if self.merge + self.functions + self.as_folded + (self.flame is not None) > 1:
            raise click.UsageError("--merged, --functions, --folded and --flame: give one of them")
        if self.as_json and (self.as_folded or self.flame is not None):
            raise click.UsageError("--json: the trees and --functions have it")
        if self.flame is not None:
            if not self.flame.lower().endswith(".svg"):
                raise click.UsageError(f"--flame {self.flame}: give a name that ends in .svg")
            output.ensure_free(self.flame, self.force)


@dataclass
class Found:
    """What one recording has of the lives that are asked for."""

    source: Opened
    reader: LifeReader
    merged: Merged
    functions: Functions
    kept: list[Life] = field(default_factory=list)
    """The slowest, or the first, of the lives."""
    count: int = 0
    """Number of all lives that are asked for."""


def find(source: Opened, asked: TreeOptions) -> Found:
    """Read a recording to its end. Raises ConversionError: the log followed no objects."""
    context = source.trace.context
    if not follows(context.header):
        raise ConversionError(
            "this log follows no objects: record with biotrail follow TYPE -o LOG"
        )
    reader = LifeReader(context, asked.lives, asked.objects)
    found = Found(source, reader, Merged(), Functions(reader.following.has_functions))

    def chosen(windows: Iterable[Lifecycles]) -> Iterator[Life]:
        for life in reader.read(windows):
            if asked.holds(life):
                found.count += 1
                yield life

    with progress(source.trace, "reading") as windows:
        lives = chosen(windows)
        if asked.slowest:
            slowest = heapq.nlargest(asked.slowest, lives, lambda one: (one.span, -one.number))
            lives = iter(slowest)
        for life in lives:
            found.merged.add(life)
            found.functions.add(life)
            if not asked.trees or len(found.kept) < asked.trees:
                found.kept.append(life)
    return found


@click.command()
@logs_argument
@gathered(TreeOptions, "asked")
def command(logs: tuple[str, ...], asked: TreeOptions) -> None:
    """Show which functions followed objects passed, and where their time went.

    LOG must have been made with biotrail follow. A life is shown as a tree: what each thread,
    softirq and interrupt did with the object, in order of time, with the time from its birth and
    the time that each function took. Where only tracepoints could be recorded, the functions come
    from the call stacks at them, and have no times of their own.

    Several lives are shown as one tree, with medians, unless lives are chosen by --life, --object,
    --sector or --slowest. The files of a rotated recording are one log; several recordings are
    shown one after the other.

    \b
    sudo biotrail follow request --max 1000 -o rq.biotrail
    biotrail tree rq.biotrail                       # all lives as one tree
    biotrail tree --slowest 3 rq.biotrail           # the slowest three, each as a tree
    biotrail tree --life 17 rq.biotrail
    biotrail tree --functions rq.biotrail
    biotrail tree --flame rq.svg rq.biotrail
    biotrail tree --folded rq.biotrail > rq.folded  # for flamegraph.pl or speedscope.app
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    asked.check()
    with terminated_as_interrupted(), recordings(logs, twice=asked.cut.needs_file()) as given:
        if len(given) > 1 and asked.flame is not None:
            raise click.UsageError("--flame draws one recording: give them one by one")
        found = of_each(given, lambda one: find(cut_of(one.again, asked.cut), asked))
    if asked.as_json:
        say_json(as_one_object([(one, _facts(each, asked)) for one, each in found]))
    elif asked.flame is not None:
        _write_flame(asked.flame, *found[0], asked)
    elif asked.as_folded:
        for one, each in found:
            # As flame graphs take stacks: a line for each that has time of its own.
            above = [*([one.label] if one.label else []), each.reader.following.type]
            for names, (_, time) in sorted(each.functions.stacks.items()):
                words = (n.replace(";", ":").replace("\n", " ") or "?" for n in (*above, *names))
                if time:
                    say(f"{';'.join(words)} {time}")
            say_all((f"biotrail: {line}" for line in one.about(_notes(each, asked))), err=True)
    else:
        for each in headed(found):
            screen = console()
            if asked.functions:
                limit = MOST_FUNCTIONS if asked.limit is None else asked.limit
                screen.print(functions_table(each.functions, limit, screen.width))
            elif asked.merges(each):
                say_all(merged_lines(each.merged, each.reader.following, screen.width))
            else:
                say_all(_trees(each, screen.width))
            say_all(_notes(each, asked))


def _trees(found: Found, width: int) -> Iterator[str]:
    trace = found.source.trace
    for life in found.kept:
        yield from life_lines(life, found.reader.following, trace.context, trace.start, width)
        yield ""
    if more := found.merged.lives - len(found.kept):
        yield left_out(more, "life" if more == 1 else "live")


def _notes(found: Found, asked: TreeOptions) -> list[str]:
    lines = [] if found.count else ["no life is of this kind: biotrail info shows what the log has"]
    timed = asked.functions or asked.as_folded or asked.flame is not None
    if timed and found.count and not found.functions.has_functions:
        lines.append(_AFTER)
    if found.functions.left_out:
        lines.append(f"{units.plural(found.functions.left_out, 'call')} whose stack had no room")
    lines += tally_lines(found.reader.tally)
    return [*lines, *found.source.lines(), *tallies.loss_lines(found.source.trace)]


def _facts(found: Found, asked: TreeOptions) -> dict[str, Any]:
    way = found.reader.following.way
    made: dict[str, Any] = {"type": found.reader.following.type, "way": way, "lives": found.count}
    if asked.functions:
        made["functions"] = functions_facts(found.functions, asked.limit or 0)
    elif asked.merges(found):
        made["merged"] = merged_facts(found.merged)
    else:
        made["trees"] = [life_facts(life) for life in found.kept]
        made["trees_left_out"] = found.merged.lives - len(found.kept)
    return {**made, "tally": asdict(found.reader.tally), "notes": _notes(found, asked)}


def _write_flame(target: str, one: InputRecording, found: Found, asked: TreeOptions) -> None:
    """Write the flame graph of a recording's lives as an SVG. Raises OutputError."""
    notes = _notes(found, asked)
    what = "time in each function itself"
    if not found.functions.has_functions:
        what = "time until the next tracepoint"
    lives = units.plural(found.merged.lives, "life", "lives")
    flame = flame_of(
        (
            [
                (found.reader.following.type, Side.RECORDING),
                (context, Side.COMMAND),
                *((name, Side.KERNEL) for name in names),
            ],
            (calls, 0, time),
        )
        for (context, *names), (calls, time) in sorted(found.functions.stacks.items())
    )
    title = f"{one.file_name}: where each {found.reader.following.type} was"
    made = svg(flame, Weight.LATENCY, title, [f"{lives}; width: {what}", *notes], _TOLD)
    with output.replacing(target, force=asked.force) as stream:
        stream.write(made.encode("utf-8", "replace"))
    size = Path(target).stat().st_size
    say(f"wrote {Path(target)} ({units.size(size)}): open it in a browser")
    say_all((f"biotrail: {line}" for line in notes), err=True)
