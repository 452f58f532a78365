# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow`: the slowest I/Os or system calls of a log, and what they waited for."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from biotrail.cli.options.cuts import Cut, choice_options, cut_of, limiting, read_lines
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.guests import GuestOf, guest_options
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    InputRecording,
    logs_argument,
    marked,
    of_each,
    recordings,
)
from biotrail.cli.reporting.slowest import (
    FORMAT,
    Findings,
    as_dict,
    calls_as_dict,
    find,
    find_calls,
    gather_calls,
    look_around,
    pairs_as_dict,
    read_functions,
)
from biotrail.converters.analysis.slow.calls import WantedCalls
from biotrail.converters.analysis.slow.io_details import slowest_first
from biotrail.converters.analysis.slow.slow import Wanted
from biotrail.converters.analysis.slow.slowest_pairs import SlowestPairs
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


@dataclass(frozen=True)
class SlowOptions:
    over: float | None = option(
        "--over",
        "--slower-than",
        type=units.Duration(),
        metavar="TIME",
        help="Only I/Os that took at least this long.",
    )
    order: Order | None = added(sort_option("total", (Order.TOTAL, Order.BYTES)))
    limit: int | None = added(limit_option(f"{USUAL}", "--top", "--slowest", most=MOST))
    failed: bool = option("--failed", is_flag=True, help="Only I/Os that ended in an error.")
    calls: bool = option(
        "--calls", is_flag=True, help="Show system calls instead of I/Os (of record --path)."
    )
    all_calls: bool = option(
        "--all-calls",
        is_flag=True,
        help="With --calls: also those that neither queued I/O nor waited for it.",
    )
    pairs: bool = option(
        "--pairs",
        is_flag=True,
        help="Show pairs of events (biotrail pairs) instead of I/Os; the default without I/O.",
    )
    functions: bool = option(
        "--functions",
        is_flag=True,
        help="Also show which functions each I/O's requests passed (of record --follow).",
    )
    cut: Cut = added(choice_options)
    reading: Reading = added(reading_options(labels=True))
    guest: GuestOf = added(guest_options)
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object (docs/slow.md).")
    brief: bool = option("--brief", is_flag=True, help="Show one line for each I/O.")
    verbose: bool = option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Show all events, all other I/Os of the request and all I/Os on lower devices.",
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
        type=units.Duration(),
        default="10ms",
        show_default=True,
        metavar="TIME",
        help="With -o: include all I/O that was under way this long before and after each.",
    )
    force: bool = option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")

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
    with recordings(logs, asked.reading, twice=True) as given, terminated_as_interrupted():
        if len(given) > 1 and asked.target is not None:
            raise click.UsageError("-o writes the trace of one recording: give them one by one")
        guest = asked.guest.joined(given, asked.reading)
        if asked.pairs or (
            not asked.calls
            and all(pairs_alone(asked.cut.limited(one.again()).context.header) for one in given)
        ):
            show, written = _pairs(given, asked), None
        else:
            show, written = _ios_or_calls(given, asked, guest)
    show()
    if written is not None:
        size = units.size(written.stat().st_size)
        say(f"wrote {written} ({size}); open it: biotrail view {written}", err=asked.as_json)


@dataclass(frozen=True)
class _Kind:
    """How slow I/Os, or slow calls, are found, ranked and shown."""

    key: str
    """Of their list in JSON; without its s that of one's own figures."""
    find: Callable[[InputRecording, SlowOptions], Findings]
    rank: Callable[[Any], Any]
    """Of one that was found: the slowest has the least."""
    look_again: Callable[[Findings, Trace, str | None, int, bool], Path | None]
    """Reads the trace for the second time, for what was around each."""
    as_dict: Callable[[Findings], dict[str, Any]]
    json_rank: Callable[[dict[str, Any]], Any]
    """As `rank`, of one's own figures in JSON."""
    lines: Callable[..., Iterator[str]]


def _find_ios(one: InputRecording, asked: SlowOptions) -> Findings:
    trace = limiting(one.again, asked.cut)()
    wanted = Wanted(asked.most, asked.over_ns, asked.failed)
    return find(trace, wanted, asked.cut.choice(trace.context))


def _find_calls(one: InputRecording, asked: SlowOptions) -> Findings:
    wanted = WantedCalls(asked.most, asked.over_ns, asked.failed, asked.all_calls)
    return find_calls(cut_of(one.again, asked.cut), wanted)


_IOS = _Kind(
    "ios",
    _find_ios,
    lambda slow: slow.io.rank,
    look_around,
    as_dict,
    lambda io: slowest_first(io["under_way"], io["waited_ns"]),
    slow_text.lines_of_all,
)
_CALLS = _Kind(
    "calls",
    _find_calls,
    lambda slow: -slow.call.duration_ns,
    gather_calls,
    calls_as_dict,
    lambda call: -call["duration_ns"],
    slow_calls_text.lines_of_all,
)


def _ios_or_calls(
    given: Sequence[InputRecording], asked: SlowOptions, guest: "Guest | None"
) -> tuple[Callable[[], None], Path | None]:
    """Find the slowest of all recordings, and what was around each, by reading each twice.

    Returns a function that prints what was found, and the path of the trace that was written.
    """
    kind = _CALLS if asked.calls else _IOS
    findings = of_each(given, lambda one: kind.find(one, asked))
    if len(findings) > 1:  # of each recording those that are among the slowest of all
        ranked = sorted(
            (kind.rank(slow), at) for at, (_, found) in enumerate(findings) for slow in found.found
        )
        kept = Counter(at for _, at in ranked[: asked.most])
        for at, (_, found) in enumerate(findings):
            del found.found[kept[at] :]
    written = None
    margin = round(asked.margin * 1e9)
    for one, found in findings:
        second = asked.cut.limited(one.again())
        written = kind.look_again(found, second, asked.target, margin, asked.force)
        if asked.functions:
            read_functions(found, asked.cut.limited(one.again()))
    if guest is not None:
        from biotrail.converters.analysis.guests.figures import side_of, sides

        known = sides(guest)
        for slow in [slow for one, found in findings if one is given[0] for slow in found.found]:
            last = max(slow.requests, key=lambda request: request.number, default=None)
            if last is not None and last.number in known:
                slow.side = side_of(guest, *known[last.number])
    if asked.as_json:
        return partial(_print_json, findings, kind, asked, several=len(given) > 1), written
    return partial(_print_text, findings, kind, asked), written


def _pairs(given: Sequence[InputRecording], asked: SlowOptions) -> Callable[[], None]:
    if asked.calls or asked.functions or asked.failed or asked.target is not None:
        raise click.UsageError("pairs of events have no --calls, --functions, --failed, or -o")

    def find_pairs(one: InputRecording) -> tuple[str, Trace, SlowestPairs]:
        opened = cut_of(one.again, asked.cut)
        trace = opened.trace
        if not pairs_in(trace.context.header):
            raise ConversionError(
                "the log has no pairs of events: record them with biotrail pairs NAME -o LOG"
            )
        slowest = SlowestPairs(trace.context, asked.most, asked.over_ns)
        for window in opened.chosen(trace.lifecycles()):
            slowest.add(window)
        return one.label, trace, slowest

    found = [of_one for _, of_one in of_each(given, find_pairs)]

    def show() -> None:
        if asked.as_json:
            say_json(pairs_as_dict(found, asked.most), indent=2)
            return
        screen = console()
        for number, part in enumerate(slow_text.pair_parts(found, asked.most, screen.width)):
            if number:
                screen.print()
            screen.print(part)

    return show


def _print_json(
    findings: Sequence[tuple[InputRecording, Findings]],
    kind: _Kind,
    asked: SlowOptions,
    *,
    several: bool,
) -> None:
    if several:
        made: dict[str, Any] = {"format": FORMAT, "wanted": {}, "recordings": [], kind.key: []}
        for one, found in findings:
            facts = kind.as_dict(found)
            made["wanted"] = facts.pop("wanted")
            made[kind.key] += [{"recording": one.label, **row} for row in facts.pop(kind.key)]
            del facts["format"]
            made["recordings"].append(marked(one, facts))
    else:
        made = kind.as_dict(findings[0][1])
    own = kind.key.removesuffix("s")
    if asked.order == Order.BYTES:
        made[kind.key].sort(key=lambda row: -row[own]["bytes"])
    else:
        made[kind.key].sort(key=lambda row: kind.json_rank(row[own]))
    say_json(made, indent=2)


def _print_text(
    findings: Sequence[tuple[InputRecording, Findings]], kind: _Kind, asked: SlowOptions
) -> None:
    rows = [(one.label, found.trace, found.slowest) for one, found in findings]
    by_size = asked.order == Order.BYTES
    detail = Detail.LINE if asked.brief else Detail.ALL if asked.verbose else Detail.USUAL
    say_all(kind.lines(rows, findings[0][1].wanted, detail, by_size))
    for one, found in findings:
        say_all(one.about(read_lines(found.trace)))
