# SPDX-License-Identifier: Apache-2.0
"""Show slow I/Os as text for people. Styles are click's, which drops them without a terminal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from biotrail.converters.analysis.guests.side import Side
from biotrail.converters.analysis.slow.counts import Counts
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO, Wanted
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import Life
from biotrail.text import tallies, units
from biotrail.text.columns import console
from biotrail.text.printing import styled
from biotrail.text.sites.tree import life_lines
from biotrail.text.slow.around import device_lines
from biotrail.text.slow.events import event_lines, pause_lines, request_names
from biotrail.text.slow.io import held_text, io_text, percent, thread_text, took_text, unusual_text
from biotrail.text.slow.related import family_lines, request_lines
from biotrail.text.slow.stages import stage_lines

MOST = 1_000
"""Most I/Os that are shown, as each one is kept with all its events."""
SHOWN_LIVES = 2
"""Most trees of an I/O that are shown without -v."""
_INDENT = 4


class Detail(StrEnum):
    """How much is shown of each I/O."""

    LINE = "line"
    USUAL = "usual"
    ALL = "all"


def lines(trace: Trace, slowest: Slowest, wanted: Wanted, detail: Detail) -> Iterator[str]:
    """Yield what is shown of one recording's slow I/Os."""
    return lines_of_all([("", trace, slowest)], wanted, detail)


Found = tuple[str, Trace, Slowest]
"""A recording's label, empty if it is the only one; its trace; its slow I/Os."""


def lines_of_all(
    found: Sequence[Found], wanted: Wanted, detail: Detail, by_size: bool = False
) -> Iterator[str]:
    """Yield the slow I/Os of all recordings in one list, the slowest first.

    by_size: the largest first.
    """
    lives = {label: one.lives for label, _, one in found}
    slow_ios = [(label, trace, slow) for label, trace, one in found for slow in one.found]
    slow_ios.sort(key=lambda row: (-row[2].io.bytes,) if by_size else row[2].io.rank)
    yield from _summary([one for _, _, one in found], wanted)
    for label, trace, one in found:
        if line := followed_line(trace, one):
            yield f"{label}: {line}" if label else line
    for place, (label, trace, slow) in enumerate(slow_ios, 1):
        above = f"{label}: " if label else ""
        if detail == Detail.LINE:
            yield _brief(place, slow, above)
            continue
        yield ""
        yield from _one(trace, place, slow, detail == Detail.ALL, above)
        if (trees := lives[label]) is not None:
            yield from function_lines(trace, trees, slow, detail == Detail.ALL)
    missing = [
        f"{label}: {line}" if label else line
        for label, trace, _ in found
        for line in tallies.loss_lines(trace)
    ]
    if missing:
        yield ""
        yield from (styled(f"missing: {line}", fg="yellow") for line in missing)


def _summary(each: Sequence[Slowest], wanted: Wanted) -> Iterator[str]:
    """Yield how many I/Os are shown and left out, and which stages most time went to.

    each: of every recording, cut to the I/Os that are shown.
    """
    found = [slow for one in each for slow in one.found]
    counts, shown = _added([one.counts for one in each]), len(found)
    kind = "failed I/O" if wanted.failed else "I/O"
    over = f" of {units.duration(wanted.over)} or more" if wanted.over else ""
    if not shown:
        yield f"no {kind}{over} among {units.plural(counts.ios, 'I/O')}"
    elif shown < counts.matching:
        chosen = wanted.failed or wanted.over
        among = f", among {units.plural(counts.ios, 'I/O')}" if chosen else ""
        of = units.plural(counts.matching, kind)
        yield f"the slowest {shown} of {of}{over}{among} ({_all_shown_by(shown)})"
    elif shown == counts.ios:
        yield f"all of {units.plural(shown, kind)}{over}, the slowest first"
    else:
        yield f"{units.plural(shown, kind)}{over} among {units.plural(counts.ios, 'I/O')}"
    if counts.under_way:
        unended = units.plural(counts.under_way, "I/O")
        yield f"{unended} still in flight at the log's end, or not seen to complete"
    if counts.without_latency:
        yield (
            f"{units.plural(counts.without_latency, 'I/O')} left out: their queueing or their "
            "completion is not in the log"
        )
    if counts.doubtful:
        ended = counts.ios - counts.under_way - counts.without_latency
        yield tallies.doubtful_line(counts.doubtful, ended)
    if counts.held:
        held = units.plural(counts.held, "I/O was", "I/Os were")
        yield f"{held} held by a cgroup's limit before being queued: that is no part of these times"
    if counts.tries:
        yield f"{tallies.tries_text(counts.tries)} left out"
    longest = Counter(slow.io.longest.stage for slow in found if slow.io.longest)
    if shown > 1 and longest:
        stages = ", ".join(f"{stage} in {number}" for stage, number in longest.most_common())
        yield f"most time went to: {stages}"


def _added(each: Sequence[Counts]) -> Counts:
    """Return the sums of all counts."""
    sums = Counts()
    for name in vars(sums):
        setattr(sums, name, sum(getattr(one, name) for one in each))
    return sums


def _all_shown_by(shown: int) -> str:
    """Return how to see the I/Os that are not shown. shown: number of those that are."""
    if shown < MOST:
        return "--limit 0 shows all"
    return f"{MOST:,} at most: choose a part, docs/cuts.md"


def _brief(place: int, slow: SlowIO, above: str) -> str:
    """Return an I/O's line. place: in the list; above: the recording's label."""
    io = slow.io
    longest = io.longest
    stage = f"{longest.stage} {percent(longest.share)}" if longest else "stages unknown"
    marks = unusual_text(io)
    line = f"#{place:<4} {took_text(io):>9}  {stage:<18} {above}{io_text(io)}, {thread_text(io)}"
    return f"{line}; {marks}" if marks else line


def _one(trace: Trace, place: int, slow: SlowIO, verbose: bool, above: str) -> Iterator[str]:
    """Yield the lines of an I/O. verbose: list all events, requests and other I/Os."""
    io = slow.io
    yield styled(f"#{place}  {took_text(io)}  {above}{io_text(io)}, {thread_text(io)}", bold=True)
    yield f"    {_when(trace, slow)}; bio {io.number}"
    if io.file is not None:
        was = f" (was {io.file_was})" if io.file_was is not None else ""
        yield f"    file {io.file}{was}"
    if io.held is not None:
        yield styled(f"    {held_text(io.held)}", fg="yellow")
    marks = unusual_text(io)
    if marks:
        yield styled(f"    {marks}", fg="yellow")
    yield from stage_lines(trace.context, slow)
    yield from side_lines(slow.side)
    yield from pause_lines(slow)
    yield from device_lines(trace.context, slow)
    yield from event_lines(slow, verbose)
    yield from request_lines(slow, verbose)
    yield from family_lines(slow, verbose)


def _when(trace: Trace, slow: SlowIO) -> str:
    """Return when an I/O was queued: wall clock, and time since the first event."""
    first = trace.account.first_ns
    moment = trace.context.wall_clock(slow.begin_ns)
    since = f"{(slow.begin_ns - first) / 1e9:.6f} s after the first event"
    queued = "queued" if slow.io.queue_ns is not None else "first seen"
    return f"{queued} {moment} ({since})" if moment else f"{queued} {since}"


def side_lines(side: Side | None) -> Iterator[str]:
    """Yield where the time of a guest's request went; nothing for None."""
    if side is None:
        return
    if side.reason:
        yield f"    host: no I/O: {side.reason}"
        return
    if not side.stages_ns:
        yield "    host: the times of its I/O are not all recorded"
        return
    parts = ", ".join(f"{name} {units.duration(ns)}" for name, ns in side.stages_ns.items())
    number = units.plural(len(side.host_bios), "bio")
    yield (
        f"    most of D2C on the side of the {side.side}: {parts} (clocks within "
        f"{units.duration(side.within_ns)}; {number} on {side.behind}, {side.certainty})"
    )


def function_lines(
    trace: Trace, lives: Mapping[int, Life], slow: SlowIO, verbose: bool
) -> Iterator[str]:
    """Yield the trees of an I/O's followed lives; without `verbose` the longest SHOWN_LIVES."""
    following = Following(trace.context.header)
    found = [(one.number, lives[one.life]) for one in slow.followed if one.life in lives]
    if not found:
        yield f"  functions: no {following.type} of it was followed"
        return
    shown = found
    if len(found) > SHOWN_LIVES and not verbose:
        yield f"  the longest of {len(found)} followed lives (-v shows all):"
        shown = sorted(found, key=lambda pair: -pair[1].span)[:SHOWN_LIVES]
    names = request_names(slow) if following.type == "request" else {slow.io.number: "the bio"}
    for number, life in shown:
        what = names.get(number, f"{following.type} {number}")
        after = units.duration(max(life.begin - slow.begin_ns, 0))
        yield f"  functions that {what} passed, from {after} after the I/O was queued:"
        width = console().width - _INDENT
        for line in life_lines(life, following, trace.context, trace.start, width):
            yield f"{'':{_INDENT}}{line}"


def followed_line(trace: Trace, slowest: Slowest) -> str:
    """Return a sentence on how many of the shown I/Os were followed; "" where none is to be said.

    That fewer are followed than are recorded is usual: `--follow` takes a choice of them.
    """
    shown = slowest.found
    if slowest.lives is None or not shown:
        return ""
    with_lives = sum(any(one.life in slowest.lives for one in slow.followed) for slow in shown)
    counts = trace.account.followed
    kind = Following(trace.context.header).type
    lives = units.plural(counts.lives, "followed life", "followed lives")
    known = f"{units.count(counts.joined)} of {lives}"
    further = f", {units.count(counts.several)} go on with a later one" if counts.several else ""
    return (
        f"functions: of {with_lives} of these {units.plural(len(shown), 'I/O')}; "
        f"{known} are a recorded {kind}'s{further}"
    )
