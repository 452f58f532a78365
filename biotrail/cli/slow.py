# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow`: the slowest I/Os or system calls of a log, and what they waited for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from biotrail.cli.options.cuts import Cut, choice_options, cut_of, limiting, read_lines
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.gathering import added, flag, gathered, option
from biotrail.cli.options.guests import GuestOf, guest_options
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    InputRecording,
    logs_argument,
    marked,
    of_each,
    recordings,
)
from biotrail.cli.reporting import slowest
from biotrail.converters.analysis.slow.calls import SlowestCalls
from biotrail.converters.analysis.slow.slow import Slowest, SlowestPairs, Wanted
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import pairs_alone, pairs_in
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units, values
from biotrail.text.columns import console
from biotrail.text.printing import say, say_all, say_json
from biotrail.text.rows import Order, limit_option, sort_option
from biotrail.text.slow import calls as slow_calls_text
from biotrail.text.slow import slow as slow_text
from biotrail.text.slow.slow import MOST, Detail

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.guest import Guest

USUAL = 20
_Found = tuple[InputRecording, Slowest | SlowestCalls]


@dataclass(frozen=True)
class SlowOptions:
    over: float | None = option(
        "--over",
        "--slower-than",
        type=units.duration_from(),
        metavar="TIME",
        help="Only I/Os that took at least this long.",
    )
    order: Order | None = added(sort_option("total", (Order.TOTAL, Order.BYTES)))
    limit: int | None = added(limit_option(f"{USUAL}", "--top", "--slowest", most=MOST))
    failed: bool = flag("--failed", "Only I/Os that ended in an error.")
    calls: bool = flag("--calls", "Show system calls instead of I/Os (of record --path).")
    all_calls: bool = flag(
        "--all-calls", "With --calls: also those that neither queued I/O nor waited for it."
    )
    pairs: bool = flag(
        "--pairs", "Show pairs of events (biotrail pairs) instead of I/Os; the default without I/O."
    )
    functions: bool = flag(
        "--functions", "Also show which functions each I/O's requests passed (of record --follow)."
    )
    cut: Cut = added(choice_options)
    reading: Reading = added(reading_options(labels=True))
    guest: GuestOf = added(guest_options)
    as_json: bool = flag("--json", "Print one JSON object (docs/slow.md).")
    brief: bool = flag("--brief", "Show one line for each I/O.")
    verbose: bool = flag(
        "-v",
        "--verbose",
        "Show all events, all other I/Os of the request and all I/Os on lower devices.",
    )
    target: str | None = option(
        "-o",
        "--output",
        metavar="OUT",
        type=values.FileName(),
        help="Also write the I/Os as a Perfetto trace.",
    )
    margin: float = option(
        "--margin",
        type=units.duration_from(),
        default="10ms",
        show_default=True,
        metavar="TIME",
        help="With -o: include all I/O that was under way this long before and after each.",
    )
    force: bool = flag("-f", "--force", "Replace OUT if it exists.")

    @property
    def most(self) -> int:
        return (USUAL if self.limit is None else self.limit) or MOST

    @property
    def over_ns(self) -> int:
        return round((self.over or 0) * 1e9)


@click.command()
@logs_argument
@gathered(SlowOptions, "asked")
def command(logs: tuple[str, ...], asked: SlowOptions) -> None:
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
    asked.guest.check(asked.calls or asked.pairs, "is about I/Os: leave out --calls and --pairs")
    if asked.all_calls and not asked.calls:
        raise click.UsageError("--all-calls is about system calls: give it with --calls")
    if asked.calls and asked.functions:
        raise click.UsageError("--functions shows what I/Os passed: give it without --calls")
    pairs, found, written = None, list[_Found](), None
    with recordings(logs, asked.reading, twice=True) as given, terminated_as_interrupted():
        if len(given) > 1 and asked.target is not None:
            raise click.UsageError("-o writes the trace of one recording: give them one by one")
        guest = asked.guest.joined(given, asked.reading)
        if asked.pairs or (
            not asked.calls
            and all(pairs_alone(asked.cut.limited(one.again()).context.header) for one in given)
        ):
            pairs = _pairs(given, asked)
        else:
            found, written = _ios_or_calls(given, asked, guest)
    if pairs is None:
        _print(found, asked, several=len(given) > 1)
    elif asked.as_json:
        say_json(slowest.pairs_as_dict(pairs, asked.most), indent=2)
    else:
        screen = console()
        for number, part in enumerate(slow_text.pair_parts(pairs, asked.most, screen.width)):
            if number:
                screen.print()
            screen.print(part)
    if written is not None:
        size = units.size(written.stat().st_size)
        say(f"wrote {written} ({size}); open it: biotrail view {written}", err=asked.as_json)


def _ios_or_calls(
    given: Sequence[InputRecording], asked: SlowOptions, guest: "Guest | None"
) -> tuple[list[_Found], Path | None]:
    """Read each recording twice; return what was found, and the path of a trace of it."""
    cut = asked.cut

    def find(one: InputRecording) -> Slowest | SlowestCalls:
        wanted = Wanted(asked.most, asked.over_ns, asked.failed, asked.all_calls)
        if asked.calls:
            opened = cut_of(one.again, cut)
            if not opened.trace.context.path_parts & {"time", "wait"}:
                raise ConversionError(
                    "this log does not say how long calls took: record again with biotrail record "
                    "--path"
                )
            calls = SlowestCalls(opened.trace, wanted)
            for window in opened.chosen(opened.trace.lifecycles()):
                calls.add(window)
            return calls
        trace = limiting(one.again, cut)()
        choice = cut.choice(trace.context)
        ios = Slowest(trace, choice, wanted, whole_families=not choice.by_device)
        for _ in trace.lifecycles(on_window=ios.watch):
            pass
        choice.check(ios.devices)
        return ios

    findings = of_each(given, find)
    if len(findings) > 1:  # of each recording those that are among the slowest of all
        ranked = sorted(
            (slow.rank(), at) for at, (_, one) in enumerate(findings) for slow in one.found
        )
        kept = Counter(at for _, at in ranked[: asked.most])
        for at, (_, found) in enumerate(findings):
            del found.found[kept[at] :]
    written = None
    for one, found in findings:
        second, margin = cut.limited(one.again()), round(asked.margin * 1e9)
        written = slowest.look_again(found, second, asked.target, margin, asked.force)
        if asked.functions and isinstance(found, Slowest):
            slowest.read_functions(found, cut.limited(one.again()))
    if guest is not None:
        from biotrail.converters.analysis.guests.figures import sides_of

        for one, found in findings:
            if one is given[0] and isinstance(found, Slowest):
                last = [max((r.number for r in slow.requests), default=-1) for slow in found.found]
                known = sides_of(guest, last)
                for slow, number in zip(found.found, last, strict=True):
                    slow.side = known.get(number)
    return findings, written


def _pairs(
    given: Sequence[InputRecording], asked: SlowOptions
) -> list[tuple[str, Trace, SlowestPairs]]:
    if asked.calls or asked.functions or asked.failed or asked.target is not None:
        raise click.UsageError("pairs of events have no --calls, --functions, --failed, or -o")

    def find(one: InputRecording) -> tuple[str, Trace, SlowestPairs]:
        opened = cut_of(one.again, asked.cut)
        trace = opened.trace
        if not pairs_in(trace.context.header):
            raise ConversionError(
                "the log has no pairs of events: record them with biotrail pairs NAME -o LOG"
            )
        found = SlowestPairs(trace.context, asked.most, asked.over_ns)
        for window in opened.chosen(trace.lifecycles()):
            found.add(window)
        return one.label, trace, found

    return [of_one for _, of_one in of_each(given, find)]


def _print(findings: Sequence[_Found], asked: SlowOptions, *, several: bool) -> None:
    by_size = asked.order == Order.BYTES
    if not asked.as_json:
        detail = Detail.LINE if asked.brief else Detail.ALL if asked.verbose else Detail.USUAL
        text = slow_calls_text if asked.calls else slow_text
        rows: list[Any] = [(one.label, found) for one, found in findings]
        say_all(text.lines_of_all(rows, detail, by_size))
        for one, found in findings:
            say_all(one.about(read_lines(found.trace)))
        return
    key = "calls" if asked.calls else "ios"
    made: dict[str, Any] = {"format": slowest.FORMAT, "wanted": {}, "recordings": [], key: []}
    ranked: list[tuple[Any, dict[str, Any]]] = []
    for one, found in findings:
        facts = slowest.as_dict(found)
        label = {"recording": one.label} if several else {}
        ranks = [slow.rank(by_size) for slow in found.found]
        ranked += zip(ranks, [{**label, **row} for row in facts[key]], strict=True)
        if several:
            made["wanted"] = facts.pop("wanted")
            del facts[key], facts["format"]
            made["recordings"].append(marked(one, facts))
        else:
            made = facts
    made[key] = [row for _, row in sorted(ranked, key=lambda pair: pair[0])]
    say_json(made, indent=2)
