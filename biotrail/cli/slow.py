# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow`: the slowest I/Os of a log, with their events and what they waited for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from biotrail.cli.options.cut_options import choice_options, nanoseconds
from biotrail.cli.options.cuts import Cut, read_lines
from biotrail.cli.options.opening import associate_option
from biotrail.cli.options.recordings import logs_argument
from biotrail.cli.options.several import Given, of_each, recordings
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.excerpt import around, excerpt
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO, Wanted
from biotrail.converters.analysis.slow.surroundings import Neighbourhood
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.text import slow as slow_text
from biotrail.text import tallies, units
from biotrail.text.printing import say, say_json
from biotrail.text.rows import Order, limit_option, sort_option
from biotrail.text.slow import MOST, Detail

USUAL = 20
"""Number of I/Os shown without --limit."""
FORMAT = 1
"""Version of --json's format: raised when a key is renamed or removed."""


@dataclass
class Findings:
    """The slowest I/Os of a trace."""

    trace: Trace
    wanted: Wanted
    slowest: Slowest

    @property
    def ios(self) -> list[SlowIO]:
        """The I/Os found, the slowest first."""
        return self.slowest.found


@click.command()
@logs_argument
@click.option(
    "--over",
    "--slower-than",
    type=units.Duration(),
    metavar="TIME",
    help="Only I/Os that took at least this long.",
)
@sort_option("total", (Order.TOTAL, Order.BYTES))
@limit_option(f"{USUAL}", "--top", "--slowest", most=MOST)
@click.option("--failed", is_flag=True, help="Only I/Os that ended in an error.")
@choice_options
@associate_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/slow.md).")
@click.option("--brief", is_flag=True, help="Show one line for each I/O.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show all events, all other I/Os of the request and all I/Os on lower devices.",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="OUT",
    type=click.Path(),
    help="Also write the I/Os as a Perfetto trace.",
)
@click.option(
    "--margin",
    type=units.Duration(),
    default="10ms",
    show_default=True,
    metavar="TIME",
    help="With -o: include all I/O that was under way this long before and after each.",
)
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
def command(
    logs: tuple[str, ...],
    over: float | None,
    order: Order | None,
    limit: int | None,
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
    """Show the slowest I/Os of LOGs and why they were slow.

    For each: the stage that took the time, every event with its time since the I/O was queued,
    the other I/Os of its request, the requests that its device served before it, and the I/Os
    above and below it on stacked devices. An I/O on a lower device is shown below the I/O that
    it serves, unless --device asks for its device. An I/O without a completion counts with the
    time that it had waited by the end of the log.

    LOG - reads standard input. With -o, every I/O that was under way within --margin of one of
    them is in the trace, whole. The files of a rotated recording are one log; of several
    recordings the slowest I/Os of all are shown, each with its host.

    \b
    biotrail slow disk.biotrail
    biotrail slow --brief -n 100 disk.biotrail
    biotrail slow --from 10s --to 12s disk.biotrail
    biotrail slow --over 5ms --op read -d nvme0n1 disk.biotrail
    biotrail slow --failed disk.biotrail
    biotrail slow -n 3 --margin 50ms -o slow.pftrace disk.biotrail && biotrail view slow.pftrace
    biotrail slow --json disk.biotrail | jq '.ios[] | [.io.latency_ns, .io.comm]'
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if target is not None:
        output.ensure_free(target, force)
    wanted = Wanted((USUAL if limit is None else limit) or MOST, nanoseconds(over or 0), failed)
    with recordings(logs, associate, twice=True) as given, terminated_as_interrupted():
        if len(given) > 1 and target is not None:
            raise click.UsageError("-o writes the trace of one recording: give them one by one")
        told = of_each(given, lambda one: _find(one, cut, wanted))
        keep_slowest([found for _, found in told], wanted.top)
        for one, found in told:
            second = cut.limited(one.again())
            written = look_around(found, second, target, nanoseconds(margin), force)
    by_size = order == Order.BYTES
    if as_json:
        made = _several_as_dict(told) if len(given) > 1 else as_dict(told[0][1])
        made["ios"].sort(key=(lambda row: -row["io"]["bytes"]) if by_size else _by_time)
        say_json(made, indent=2)
    else:
        detail = Detail.LINE if brief else Detail.ALL if verbose else Detail.USUAL
        pairs = [(one.label, found.trace, found.slowest) for one, found in told]
        for line in slow_text.lines_of_all(pairs, wanted, detail, by_size):
            say(line)
        for one, found in told:
            for line in read_lines(found.trace):
                say(f"{one.label}: {line}" if one.label else line)
    if written is not None:
        size = units.size(written.stat().st_size)
        say(f"wrote {written} ({size}); open it: biotrail view {written}", err=as_json)


def _by_time(row: dict[str, Any]) -> int:
    return -int(row["io"]["waited_ns"])


def _find(one: Given, cut: Cut, wanted: Wanted) -> Findings:
    trace = cut.limited(one.again())
    return find(trace, wanted, cut.choice(trace.context))


def keep_slowest(found: Sequence[Findings], top: int) -> None:
    """Remove from each recording's findings all but the slowest `top` I/Os of all recordings."""
    if len(found) < 2:
        return
    every = sorted((-slow.io.waited_ns, at) for at, one in enumerate(found) for slow in one.ios)
    kept = Counter(at for _, at in every[:top])
    for at, one in enumerate(found):
        del one.ios[kept[at] :]


def _several_as_dict(told: Sequence[tuple[Given, Findings]]) -> dict[str, Any]:
    """Return the findings for JSON as `as_dict` does, with the I/Os of all recordings in one list.

    Each I/O has its recording's label as `recording`.
    """
    whole: dict[str, Any] = {"format": FORMAT, "wanted": {}, "recordings": [], "ios": []}
    for one, found in told:
        made = as_dict(found)
        whole["wanted"] = made.pop("wanted")
        whole["ios"] += [{"recording": one.label, **row} for row in made.pop("ios")]
        del made["format"]
        whole["recordings"].append(one.marked(made))
    return whole


def find(trace: Trace, wanted: Wanted, choice: Choice) -> Findings:
    """Read the trace to its end (first pass); return the slowest I/Os with their families.

    Raises ConversionError if the log does not have a chosen device.
    """
    slowest = Slowest(trace, choice, wanted, whole_families=not choice.by_device)
    for _ in trace.lifecycles(on_window=slowest.watch):
        pass
    choice.check(slowest.devices)
    return Findings(trace, wanted, slowest)


def look_around(
    found: Findings, second: Trace, target: str | None, margin: int, force: bool
) -> Path | None:
    """Read the trace again (second pass), and set each I/O's `surroundings`.

    second: the trace, opened again. If `target` is given and I/Os were found, also write a
    Perfetto trace of the time within `margin` (ns) of each I/O, and return its path; else None.
    """
    mates = {slow.io.number: frozenset(mate.number for mate in slow.mates) for slow in found.ios}
    near = Neighbourhood(second.context, [slow.io for slow in found.ios], mates)
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
    """Write the Perfetto trace of the I/Os and what was around them; pass each window to `near`."""
    from biotrail.converters.outputs.perfetto import convert as perfetto

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
    """Return the findings for JSON; docs/slow.md describes every key."""
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
