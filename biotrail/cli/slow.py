# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow`: the slowest I/Os or system calls of a log, and what they waited for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from biotrail.cli.options.cut_options import choice_options, nanoseconds
from biotrail.cli.options.cuts import Cut, limiting, read_lines
from biotrail.cli.options.gathering import gathered
from biotrail.cli.options.guests import GuestOf, NameSide, guest_options, sides_of
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import logs_argument
from biotrail.cli.options.several import Given, of_each, recordings
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.cli.reporting.slowest import (
    FORMAT,
    Findings,
    as_dict,
    find,
    keep_slowest,
    look_around,
    read_functions,
)
from biotrail.cli.reporting.slowest_calls import (
    CallFindings,
    calls_as_dict,
    find_calls,
    gather_calls,
    keep_slowest_calls,
)
from biotrail.cli.reporting.slowest_pairs import find_pairs, pairs_as_dict
from biotrail.converters.analysis.slow.calls import WantedCalls
from biotrail.converters.analysis.slow.io_details import slowest_first
from biotrail.converters.analysis.slow.slow import Wanted
from biotrail.converters.sites.pair_names import pairs_alone
from biotrail.recorder.output import output
from biotrail.text import units
from biotrail.text.columns import console
from biotrail.text.printing import say, say_json
from biotrail.text.rows import Order, limit_option, sort_option
from biotrail.text.slow import calls as slow_calls_text
from biotrail.text.slow import pairs as slow_pairs_text
from biotrail.text.slow import slow as slow_text
from biotrail.text.slow.slow import MOST, Detail

Found = TypeVar("Found", Findings, CallFindings)
USUAL = 20
"""Number of I/Os shown without --limit."""


@dataclass(frozen=True)
class Asked:
    """What the options say about which I/Os to find, and how to show them."""

    over: float | None
    """Seconds that an I/O took at least; None: any time."""
    order: Order | None
    """Order.BYTES: the I/Os found, the largest first; else the slowest first."""
    limit: int | None
    """Number of I/Os; 0: as many as can be shown; None: USUAL."""
    failed: bool
    calls: bool
    """Whether system calls are asked for, not I/Os."""
    all_calls: bool
    """Whether calls without I/O are asked for, too."""
    pairs: bool
    """Whether pairs of events are asked for, not I/Os."""
    functions: bool
    """Whether to show which functions the I/Os' requests, or bios, passed."""
    as_json: bool
    brief: bool
    verbose: bool
    target: str | None
    """Path of a Perfetto trace of the I/Os; None: no trace is written."""
    margin: float
    """Seconds before and after each I/O that the trace holds."""
    force: bool

    @property
    def most(self) -> int:
        """How many to find."""
        return (USUAL if self.limit is None else self.limit) or MOST

    @property
    def wanted(self) -> Wanted:
        """Which I/Os to find."""
        return Wanted(self.most, nanoseconds(self.over or 0), self.failed)

    @property
    def wanted_calls(self) -> WantedCalls:
        """Which calls to find."""
        return WantedCalls(self.most, nanoseconds(self.over or 0), self.failed, self.all_calls)

    @property
    def detail(self) -> Detail:
        """How much the text shows of each I/O."""
        return Detail.LINE if self.brief else Detail.ALL if self.verbose else Detail.USUAL


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
@click.option("--calls", is_flag=True, help="Show system calls instead of I/Os (of record --path).")
@click.option(
    "--all-calls",
    is_flag=True,
    help="With --calls: also those that neither queued I/O nor waited for it.",
)
@click.option(
    "--pairs",
    is_flag=True,
    help="Show pairs of events (biotrail pairs) instead of I/Os; the default without I/O.",
)
@click.option(
    "--functions",
    is_flag=True,
    help="Also show which functions each I/O's requests passed (of record --follow).",
)
@choice_options
@reading_options(labels=True)
@guest_options
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
@gathered(Asked, "asked")
def command(
    logs: tuple[str, ...], cut: Cut, reading: Reading, guest: GuestOf, asked: Asked
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

    --calls shows system calls in the same way: the parts of each one's time, its waits and who
    ended them, and the I/Os that it queued; of calls that queued I/O or waited for it, with
    --all-calls of all. Options then are about calls; those that choose I/Os
    choose the calls that queued one.

    \b
    biotrail slow disk.biotrail
    biotrail slow --brief -n 100 disk.biotrail
    biotrail slow --from 10s --to 12s --over 5ms --op read -d nvme0n1 disk.biotrail
    biotrail slow --failed disk.biotrail
    biotrail slow -n 3 --margin 50ms -o slow.pftrace disk.biotrail && biotrail view slow.pftrace
    biotrail slow --calls --over 10ms disk.biotrail
    biotrail slow softirq.biotrail                 # of biotrail pairs
    biotrail slow --functions -n 3 disk.biotrail   # of record --follow request
    biotrail slow -n 5 guest.biotrail host.biotrail --guest-of qemu-system-x86
    biotrail slow --json disk.biotrail | jq '.ios[] | [.io.latency_ns, .io.comm]'
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if asked.target is not None:
        output.ensure_free(asked.target, asked.force)
    guest.check(asked.calls or asked.pairs, "is about I/Os: leave out --calls and --pairs")
    if asked.all_calls and not asked.calls:
        raise click.UsageError("--all-calls is about system calls: give it with --calls")
    if asked.calls and asked.functions:
        raise click.UsageError("--functions shows what I/Os passed: give it without --calls")
    with recordings(logs, reading, twice=True) as given, terminated_as_interrupted():
        if len(given) > 1 and asked.target is not None:
            raise click.UsageError("-o writes the trace of one recording: give them one by one")
        name_side = sides_of(guest, given, reading)
        if asked.pairs or (not asked.calls and all(_has_pairs_alone(one, cut) for one in given)):
            show, written = _pairs(given, cut, asked)
        elif asked.calls:
            show, written = _calls(given, cut, asked)
        else:
            show, written = _ios(given, cut, asked, name_side)
    show()
    if written is not None:
        size = units.size(written.stat().st_size)
        say(f"wrote {written} ({size}); open it: biotrail view {written}", err=asked.as_json)


Shown = tuple[Callable[[], None], Path | None]
"""(function that prints what was found, path of the Perfetto trace that was written or None)"""


def _ios(given: Sequence[Given], cut: Cut, asked: Asked, name_side: NameSide | None) -> Shown:
    """Find the slowest I/Os of all recordings; return how to print them.

    name_side: sets the `side` of the guest's I/Os, which the first recording has; None: there is no
    guest.
    """
    findings, written = _find_all(given, cut, asked)
    if name_side is not None:
        name_side([slow for one, found in findings if one is given[0] for slow in found.ios])
    if asked.as_json:
        return partial(_print_json, findings, asked, several=len(given) > 1), written
    return partial(_print_text, findings, asked), written


def _calls(given: Sequence[Given], cut: Cut, asked: Asked) -> Shown:
    """Find the slowest calls of all recordings by reading each twice; return how to print them.

    Writes the Perfetto trace `asked.target`, if there is one.
    """
    wanted, margin = asked.wanted_calls, nanoseconds(asked.margin)
    findings = of_each(given, lambda one: find_calls(one.opened(cut), wanted))
    keep_slowest_calls([found for _, found in findings], wanted.top)
    written = None
    for one, found in findings:
        second = cut.limited(one.again())
        written = gather_calls(found, second, asked.target, margin, asked.force)
    if asked.as_json:
        return partial(_print_calls_json, findings, asked, several=len(given) > 1), written
    return partial(_print_calls_text, findings, asked), written


def _has_pairs_alone(one: Given, cut: Cut) -> bool:
    """Return whether a recording has pairs of events, and no block I/O."""
    return pairs_alone(cut.limited(one.again()).context.header)


def _pairs(given: Sequence[Given], cut: Cut, asked: Asked) -> Shown:
    """Find the slowest pairs of all recordings; return how to print them."""
    if asked.calls or asked.functions or asked.failed or asked.target is not None:
        raise click.UsageError("pairs of events have no --calls, --functions, --failed, or -o")
    over = nanoseconds(asked.over or 0)
    findings = of_each(given, lambda one: find_pairs(one.opened(cut), asked.most, over))
    found = [(one.label, of_one) for one, of_one in findings]
    if asked.as_json:
        return (lambda: say_json(pairs_as_dict(found, asked.most), indent=2)), None
    rows = [(label, *of_one) for label, of_one in found]
    return partial(_print_pairs_text, rows, asked.most), None


def _print_pairs_text(rows: Sequence[slow_pairs_text.Found], most: int) -> None:
    """Print the slowest pairs of all recordings as a table."""
    screen = console()
    for number, part in enumerate(slow_pairs_text.parts_of_all(rows, most, screen.width)):
        if number:
            screen.print()
        screen.print(part)


def _find_all(
    given: Sequence[Given], cut: Cut, asked: Asked
) -> tuple[list[tuple[Given, Findings]], Path | None]:
    """Find the slowest I/Os of all recordings, and what was around each, by reading each twice.

    A third time where functions are asked for.

    Writes the Perfetto trace `asked.target`, if there is one. Returns the recordings, each with
    its share of the I/Os, and the path of the trace; None: no trace was asked for, or nothing
    was found. Recordings that do not have the chosen device or time are left out (`of_each`).
    """
    wanted = asked.wanted
    findings = of_each(given, lambda one: _find(one, cut, wanted))
    keep_slowest([found for _, found in findings], wanted.top)
    written = None
    for one, found in findings:
        second = cut.limited(one.again())
        written = look_around(found, second, asked.target, nanoseconds(asked.margin), asked.force)
        if asked.functions:
            read_functions(found, cut.limited(one.again()))
    return findings, written


def _find(one: Given, cut: Cut, wanted: Wanted) -> Findings:
    trace = limiting(one.again, cut)()
    return find(trace, wanted, cut.choice(trace.context))


def _print_json(findings: Sequence[tuple[Given, Findings]], asked: Asked, *, several: bool) -> None:
    """Print the findings as one JSON object, in which `ios` is sorted as `asked.order` says.

    several: whether the command was given more than one recording, even if only one of them has
    findings: the object has `recordings` then.
    """
    made = _together(findings, as_dict, "ios") if several else as_dict(findings[0][1])
    if asked.order == Order.BYTES:
        made["ios"].sort(key=lambda row: -row["io"]["bytes"])
    else:
        ranked = ("under_way", "waited_ns")
        made["ios"].sort(key=lambda row: slowest_first(*(row["io"][one] for one in ranked)))
    say_json(made, indent=2)


def _print_text(findings: Sequence[tuple[Given, Findings]], asked: Asked) -> None:
    """Print the I/Os of all recordings, then how much of each log was read."""
    pairs = [(one.label, found.trace, found.slowest) for one, found in findings]
    by_size = asked.order == Order.BYTES
    for line in slow_text.lines_of_all(pairs, asked.wanted, asked.detail, by_size):
        say(line)
    for one, found in findings:
        for line in read_lines(found.trace):
            say(f"{one.label}: {line}" if one.label else line)


def _print_calls_json(
    findings: Sequence[tuple[Given, CallFindings]], asked: Asked, *, several: bool
) -> None:
    """Print the calls found as one JSON object, as `_print_json` does I/Os."""
    one = findings[0][1]
    made = _together(findings, calls_as_dict, "calls") if several else calls_as_dict(one)
    key = "bytes" if asked.order == Order.BYTES else "duration_ns"
    made["calls"].sort(key=lambda row: -row["call"][key])
    say_json(made, indent=2)


def _print_calls_text(findings: Sequence[tuple[Given, CallFindings]], asked: Asked) -> None:
    """Print the calls of all recordings, then how much of each log was read."""
    rows = [(one.label, found.trace, found.slowest) for one, found in findings]
    by_size = asked.order == Order.BYTES
    for line in slow_calls_text.lines_of_all(rows, asked.wanted_calls, asked.detail, by_size):
        say(line)
    for one, found in findings:
        for line in read_lines(found.trace):
            say(f"{one.label}: {line}" if one.label else line)


def _together(
    findings: Sequence[tuple[Given, Found]], facts: Callable[[Found], dict[str, Any]], key: str
) -> dict[str, Any]:
    """Return the findings for JSON as `facts` does, with those of all recordings in one list.

    key: of that list, "ios" or "calls". Each of its items has its recording's label as `recording`.
    """
    together: dict[str, Any] = {"format": FORMAT, "wanted": {}, "recordings": [], key: []}
    for one, found in findings:
        made = facts(found)
        together["wanted"] = made.pop("wanted")
        together[key] += [{"recording": one.label, **row} for row in made.pop(key)]
        del made["format"]
        together["recordings"].append(one.marked(made))
    return together
