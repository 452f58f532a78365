# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow`: the slowest I/Os of a log, each whole, with what was in its way."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from biotrail import slow_text, tallies, units
from biotrail.cut_options import choice_options, nanoseconds
from biotrail.cuts import Cut, read_lines
from biotrail.opening import associate_option, log_argument, open_again, readable_twice
from biotrail.printing import say, say_all, say_json
from biotrail.slow_text import Detail
from biotrail.terminating import terminated_as_interrupted
from converters.answers.choosing import Choice
from converters.answers.excerpt import around, excerpt
from converters.answers.slow import Slowest, SlowIO, Wanted
from converters.answers.surroundings import Neighbourhood
from converters.model.tables import Lifecycles
from converters.model.trace import Trace
from recorder import output

MOST = 1_000
FORMAT = 1
"""Of --json: a higher number means that something was renamed or taken away."""


@dataclass
class Findings:
    """What was found, and in what."""

    trace: Trace
    wanted: Wanted
    slowest: Slowest

    @property
    def ios(self) -> list[SlowIO]:
        """The slowest first."""
        return self.slowest.found


@click.command()
@log_argument
@click.option(
    "--over",
    "--slower-than",
    type=units.Duration(),
    metavar="TIME",
    help="Only I/Os at least that slow.",
)
@click.option("--top", type=click.IntRange(1, MOST), default=20, show_default=True, metavar="N")
@click.option("--failed", is_flag=True, help="Only I/Os that ended in an error.")
@choice_options
@associate_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/slow.md).")
@click.option("--brief", is_flag=True, help="Show a line for each.")
@click.option("-v", "--verbose", is_flag=True, help="Show all events, mates and lower I/Os.")
@click.option(
    "-o", "--output", "target", metavar="OUT", help="Write them as a Perfetto trace, too."
)
@click.option(
    "--margin",
    type=units.Duration(),
    default="10ms",
    show_default=True,
    metavar="TIME",
    help="With -o: what else was under way that long before and after each.",
)
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
def command(
    log: str,
    over: float | None,
    top: int,
    failed: bool,
    cut: Cut,
    associate: str,
    as_json: bool,
    brief: bool,
    verbose: bool,
    target: str | None,
    margin: float,
    force: bool,
) -> None:
    """Tell the slowest I/Os of LOG, and what made them slow.

    Each is shown whole: the stage that took the time, every event with its time since the I/O
    was queued, the other I/Os of its request, what the device had to do before it, and the I/Os
    above and below it on stacked devices. An I/O that only does another one's work is shown
    with that one, unless its device is asked for. One that has no completion by
    the log's end counts with the time that it had waited by then.

    LOG - reads standard input. With -o, every I/O that was under way within --around of one of
    them is in the trace, whole.

    \b
    biotrail slow disk.biotrail
    biotrail slow --brief --top 100 disk.biotrail
    biotrail slow --from 10s --to 12s disk.biotrail
    biotrail slow --over 5ms --op read -d nvme0n1 disk.biotrail
    biotrail slow --failed disk.biotrail
    biotrail slow --top 3 --margin 50ms -o slow.pftrace disk.biotrail && biotrail view slow.pftrace
    biotrail slow --json disk.biotrail | jq '.ios[] | [.io.latency_ns, .io.comm]'
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if target is not None:
        output.ensure_free(target, force)
    wanted = Wanted(top, nanoseconds(over or 0), failed)
    with readable_twice(log) as source, terminated_as_interrupted():
        trace = cut.limited(open_again(source, associate))
        found = find(trace, wanted, cut.choice(trace.context))
        second = cut.limited(open_again(source, associate))
        written = look_around(found, second, target, nanoseconds(margin), force)
    if as_json:
        say_json(as_dict(found), indent=2)
    else:
        detail = Detail.LINE if brief else Detail.ALL if verbose else Detail.USUAL
        say_all(slow_text.lines(found.trace, found.slowest, found.wanted, detail))
        say_all(read_lines(found.trace))
    if written is not None:
        size = units.size(written.stat().st_size)
        say(f"wrote {written} ({size}); open it: biotrail view {written}", err=as_json)


def find(trace: Trace, wanted: Wanted, choice: Choice) -> Findings:
    """The first pass: which I/Os, and all that belongs to them."""
    slowest = Slowest(trace, choice, wanted, whole_families=not choice.by_device)
    for _ in trace.lifecycles(on_window=slowest.watch):
        pass
    choice.check(slowest.devices)
    return Findings(trace, wanted, slowest)


def look_around(
    found: Findings, second: Trace, target: str | None, margin: int, force: bool
) -> Path | None:
    """The second pass: what else was there; the trace, where one is asked for."""
    near = Neighbourhood(second.context, [slow.io for slow in found.ios])
    windows = second.lifecycles()
    path = None
    if target is not None and found.ios:
        path = _write(found, second, near, target, margin, force)
    else:
        for window in windows:
            if near.add(window):
                break
    near.finish()
    for slow in found.ios:
        slow.surroundings = near.of(slow.io)
    return path


def _write(
    found: Findings, second: Trace, near: Neighbourhood, target: str, margin: int, force: bool
) -> Path:
    from converters import perfetto

    def passing() -> Iterator[Lifecycles]:
        for window in second.lifecycles():
            near.add(window)
            yield window

    spans = [(slow.begin_ns, slow.begin_ns + slow.io.waited_ns) for slow in found.ios]
    windows = passing()
    with output.replacing(target, force=force) as stream:
        perfetto.convert(excerpt(windows, around(spans, margin)), second.context, stream)
    for _ in windows:
        pass
    return Path(target)


def as_dict(found: Findings) -> dict[str, Any]:
    """All of it for JSON; docs/slow.md names every key."""
    trace, wanted = found.trace, found.wanted
    ios = []
    for slow in found.ios:
        row = asdict(slow)
        row["time"] = trace.context.wall_clock(slow.begin_ns)
        for io in [row["io"], *row["mates"], *row["parents"], *row["children"]]:
            del io["dev"], io["part"]
        ios.append(row)
    return {
        "format": FORMAT,
        "log_id": trace.context.log_id,
        "wanted": {"top": wanted.top, "over_ns": wanted.over, "failed": wanted.failed},
        "counts": asdict(found.slowest.counts),
        "ios": ios,
        **{k: v for k, v in tallies.as_dict(trace).items() if k in ("lost", "problems")},
    }
