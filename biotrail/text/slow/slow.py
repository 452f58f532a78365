# SPDX-License-Identifier: Apache-2.0
"""Show slow I/Os as text for people. Styles are click's, which drops them without a terminal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import RenderableType

from biotrail.converters.analysis.slow.io_details import IO, HeldBack, RequestFacts
from biotrail.converters.analysis.slow.slow import Counts, Slowest, SlowestPairs, SlowIO, Step
from biotrail.converters.analysis.slow.surroundings import BioCounts, QueueState
from biotrail.converters.events.context import Context, called
from biotrail.converters.events.tables import SECTOR_BYTES
from biotrail.converters.lifecycles.meanings import meaning
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import Life
from biotrail.recorder.schema.strings import shown
from biotrail.text import tallies, units
from biotrail.text.columns import block, columns_of, console, table
from biotrail.text.printing import Styled, styled
from biotrail.text.report.path import limit_text
from biotrail.text.sites.tree import life_lines

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.figures import Side

# Show as text what a device did while one of its I/Os waited.


def device_lines(context: Context, slow: SlowIO) -> Iterator[str]:
    """Yield what was in flight when the I/O was queued and issued, and what overtook it."""
    around = slow.surroundings
    if around is None:
        return
    entry = context.devices.get(slow.io.dev, {})
    most = int(entry.get("queue", {}).get("nr_requests") or 0)
    facts = {
        "scheduler": entry.get("scheduler"),
        "nr_requests": most,
        "write cache": entry.get("write_cache"),
    }
    known = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    yield f"  {context.device_label(slow.io.dev)}" + (f": {known}" if known else "")
    yield f"    when queued     {_moment(around.when_queued, most)}"
    if around.when_issued is not None:
        yield f"    when issued     {_moment(around.when_issued, most)}"
        for name, group in (
            ("ahead of it", around.ahead),
            ("overtook it", around.overtook_it),
            ("it overtook", around.it_overtook),
        ):
            if group.ios:
                yield f"    {name:<15} {_group(group)}"
        done = "while in device "
    else:
        done = "while under way "
    later = around.of_these_issued_later
    note = f", {later.ios} of them began later" if later.ios else ""
    yield f"    {done}{_group(around.completed_meanwhile, 'completed')}{note}"
    if around.flushes:
        number = len(around.flushes) + around.flushes_left_out
        text = f"    cache flushes   {units.count(number)} meanwhile"
        if ended := [f for f in around.flushes if f.complete_ns is not None]:
            longest = max(ended, key=lambda f: (f.complete_ns or 0) - f.issue_ns)
            took = units.duration((longest.complete_ns or 0) - longest.issue_ns)
            since = f"{longest.issue_ns / 1000:+,.3f} µs"
            text += f", {'the longest' if number > 1 else 'of'} {took} from {since} on"
        yield text


def _moment(moment: QueueState, most: int) -> str:
    """Return what waited and was in the device at one moment. most: nr_requests; 0: not known."""
    if not (moment.waiting.ios or moment.in_device.ios or moment.requests_allocated):
        return "idle"
    parts = [_group(moment.waiting, "waiting"), _group(moment.in_device, "in the device")]
    requests = units.plural(moment.requests_allocated, "request")
    full = " (all that nr_requests allows)" if 0 < most <= moment.requests_allocated else ""
    in_device = f"{moment.requests_in_device} in the device"
    return "; ".join([*parts, f"{requests} in use{full}, {in_device}"])


def _group(group: BioCounts, what: str = "") -> str:
    space = f" {what}" if what else ""
    if not group.ios:
        return f"none{space}"
    kinds = sorted(group.operations.items(), key=lambda item: -item[1].ios)
    operations = ", ".join(
        f"{units.count(share.ios)} {name} {units.size(share.bytes)}" for name, share in kinds
    )
    ranked = sorted(group.tasks.items(), key=lambda item: -item[1])
    rest = sum(number for _, number in ranked[3:])
    most = ranked[:3] + ([("others", rest)] if rest else [])
    tasks = ", ".join(f"{name} {units.count(number)}" for name, number in most)
    return f"{units.count(group.ios)}{space} ({operations}; by {tasks})"


# Events of a slow I/O as lines, and the longest pause between two of them.

SHOWN_EVENTS = 24
"""Most events of an I/O that are listed without -v."""


def request_names(slow: SlowIO) -> dict[int, str]:
    return {r.number: f"request {place}" for place, r in enumerate(slow.requests, 1)}


def event_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield a heading and a line per event of the I/O; without `verbose` SHOWN_EVENTS at most."""
    if not slow.events:
        return
    yield f"  {'since Q':>15}  cpu  event          sector + sectors"
    half = SHOWN_EVENTS // 2
    events = slow.events
    cut = 0 if verbose else max(len(events) - SHOWN_EVENTS, 0)
    names = request_names(slow)
    for place, step in enumerate(events):
        if cut and place == half:
            left = units.plural(cut + slow.events_left_out, "more event")
            yield f"  {'…':>15}       {left}; -v shows all"
        if not cut or place < half or place >= half + cut:
            yield _event(step, slow.io, names)
    if slow.events_left_out and not cut:
        left = units.plural(slow.events_left_out, "event")
        yield f"  {'…':>15}       {left} in the midst left out"


def _event(step: Step, io: IO, names: dict[int, str]) -> str:
    place = ""
    if step.bytes or step.letter in "CEc":
        place = f"{step.bytes} bytes"
        if step.sector is not None:
            place = f"{step.sector} + {step.bytes // SECTOR_BYTES}"
    words = [] if step.device == io.device else [step.device]
    if step.request is not None:
        words.append(names.get(step.request, f"request {step.request}"))
    words += [f"tag {step.tag}"] if step.tag is not None and step.letter in "DR" else []
    words += [f"of {step.bios} bios"] if (step.bios or 0) > 1 else []
    words += [step.status] if step.status not in (None, "OK") else []
    if step.tid is not None or step.comm:
        words.append(f"by {step.comm or '?'} ({step.tid or 'id unknown'})")
    offset = f"{step.offset_ns / 1000:+,.3f} µs"
    cpu = "?" if step.cpu is None else step.cpu
    line = f"  {offset:>15}  {cpu:>3}  {step.letter} {step.name:<13}{place:<18}"
    return f"{line}{', '.join(words)}".rstrip()


# Requests of a slow I/O, other I/Os in them, and I/Os above and below it, as lines.

SHOWN_OTHERS = 4
"""Most requests, and most related I/Os, of an I/O that are listed without -v."""


def request_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield the requests, the longest with the device first, then other I/Os in them."""
    names = request_names(slow)
    shown = slow.requests
    more = len(shown) - SHOWN_OTHERS
    if more > 0 and not verbose:
        yield f"  the slowest of its {len(shown)} requests (-v shows all):"
        shown = sorted(shown, key=lambda r: -_in_device(r))[:SHOWN_OTHERS]
    for request in shown:
        yield f"  {names[request.number]}: {_request(request, names)}"
    total = len(slow.mates) + slow.mates_left_out
    if not total:
        return
    yield f"  {units.plural(total, 'other I/O', 'other I/Os')} in the same request:"
    yield from other_lines(slow.mates, slow.mates_left_out, slow.begin_ns, verbose)


def _in_device(request: RequestFacts) -> int:
    if request.issue_ns is None or request.complete_ns is None:
        return 0
    return request.complete_ns - request.issue_ns


def _request(request: RequestFacts, names: dict[int, str]) -> str:
    place = "" if request.sector is None else f" at sector {request.sector}"
    words = [f"{request.operation} of {units.size(request.bytes)}{place}"]
    if took := _in_device(request):
        words.append(f"{units.duration(took)} from D to C")
    elif request.doubtful:
        words.append("time from D to C in doubt")
    words.append(units.plural(request.bios, "bio"))
    if request.others:
        words.append(f"{request.others} more that the filters left out")
    if request.kind != "normal":
        words.append(request.kind)
    if request.absorbed_by is not None:
        words.append(f"absorbed by {names.get(request.absorbed_by, 'another request')}")
    for name, value in (("tag", request.tag), ("hardware queue", request.hctx)):
        words += [] if value is None else [f"{name} {value}"]
    words += [units.plural(request.requeues, "requeue")] if request.requeues else []
    words += [request.status] if request.status != "OK" else []
    words += [request.certainty] if request.certainty != "exact" else []
    return ", ".join(words)


def family_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield the upper device's I/Os that it does the work of, and the lower devices' I/Os."""
    if slow.parents:
        yield "  does the work of:"
        yield from other_lines(slow.parents, 0, slow.begin_ns, verbose)
    total = len(slow.children) + slow.children_left_out
    if total:
        when = ""
        if (times := slow.below) is not None:
            before, below = times
            since = "its issue" if slow.io.issue_ns is not None else "it was queued"
            rest = slow.io.waited_ns - (slow.io.issue_ns or 0) - before - below
            over = f", all done {units.duration(rest)} before it ended" if rest >= 0 else ""
            when = f", the first queued {units.duration(before)} after {since}{over}"
        yield f"  below it, {units.plural(total, 'I/O')}{when}:"
        ranked = sorted(slow.children, key=lambda io: -io.waited_ns)
        yield from other_lines(ranked, slow.children_left_out, slow.begin_ns, verbose)


def other_lines(ios: list[IO], left_out: int, begin: int, verbose: bool) -> Iterator[str]:
    """Yield lines on I/Os, `left_out` more counted. begin: ns that times are counted from."""
    shown = ios if verbose else ios[:SHOWN_OTHERS]
    for io in shown:
        since = ""
        if io.queue_ns is not None:
            since = f"{(io.queue_ns - begin) / 1000:+,.3f} µs  "
        stages = ", ".join(
            f"{s.stage} {units.duration(s.ns)} ({units.percent(s.share)})"
            for s in io.stages
            if s.ns
        )
        marks = unusual_text(io)
        yield (
            f"    {since}{took_text(io)}  {io_text(io)}, {thread_text(io)}"
            + (f": {stages}" if stages else "")
            + (f"; {marks}" if marks else "")
        )
    more = len(ios) - len(shown) + left_out
    if more:
        yield f"    and {units.count(more)} more"


# Stages of a slow I/O as lines: how long, and what it waited for.

BAR = 40


def stage_lines(context: Context, slow: SlowIO) -> Iterator[str]:
    """Yield a line per stage; the line of the longest stage also says what that means."""
    io = slow.io
    if not io.stages:
        yield "    stages unknown"
        return
    for span in io.stages:
        bar = "#" * round(BAR * span.share) or "." * bool(span.ns)
        line = (
            f"{span.stage:<10} {units.duration(span.ns):>9} {units.percent(span.share):>7}  {bar}"
        )
        if span is not io.longest:
            yield f"    {line}"
            continue
        text = meaning(context, io.dev, span.stage, io.q2g_reason)
        before, below = slow.below or (0, 0)
        if io.under_way and span is io.stages[-1]:
            text += ", until the log's end, unless its completion was not seen"
        elif span.stage in ("D2C", "bio-based") and before > span.ns / 2:
            text += (
                ", and most of that before its lower I/O was queued: a worker was busy, or "
                "I/O was throttled"
            )
        elif span.stage in ("D2C", "bio-based") and below > span.ns / 2:
            text += ", and most of that was the lower device's: see below"
        yield Styled(styled(f"  > {line}", fg="red") + shown(f"  {text}"))


# An I/O in a few words: what it was, whose, how long it took, what was unusual.

_DOUBTS = ("interval", "ambiguous", "incomplete", "lost")


def took_text(io: IO) -> str:
    if io.doubtful:
        return "time in doubt"
    if io.under_way:
        return f"{units.duration(io.waited_ns)}, still in flight"
    if io.latency_ns is None:
        return "unknown time"
    return units.duration(io.waited_ns)


def io_text(io: IO) -> str:
    where = f" at sector {io.sector}" if io.sector is not None and io.bytes else ""
    size = f" of {units.size(io.bytes)}" if io.bytes else ""
    flags = f" {io.flags}" if io.flags else ""
    return f"{io.partition or io.device} {io.operation}{flags}{size}{where}"


def thread_text(io: IO) -> str:
    if io.tid is None:
        return f"{io.comm} (thread id unknown)" if io.comm else "task unknown"
    text = f"{called(io.comm or '?', io.title)} ({io.tid})"
    return text if io.for_tid is None else f"{text} for {io.for_comm} ({io.for_tid})"


def unusual_text(io: IO) -> str:
    found = []
    if io.status != "OK":
        found.append(f"ended with {io.status}, {units.size(io.done_bytes)} done")
    if io.requeues:
        found.append(units.plural(io.requeues, "requeue"))
    if io.fragments > 1:
        found.append(f"split into {io.fragments} pieces: stages are of the one that ended last")
    if io.certainty in _DOUBTS and not io.under_way:
        found.append(f"{io.certainty}: {tallies.CERTAINTY_MEANINGS[io.certainty]}")
    return "; ".join(found)


def _held(held: HeldBack) -> str:
    rates = limit_text(held.bps, held.iops)
    limit = f"the limit of cgroup {held.cgroup or '(not known)'}"
    limit += f" ({rates})" if held.bps is not None or held.iops is not None else ""
    if held.limits > 1:
        limit += f" or of {units.plural(held.limits - 1, 'cgroup')} above it"
    if held.ns is None:
        return f"held by {limit} before it was queued, length not known"
    text = f"held by {limit} for {units.duration(held.ns)} before it was queued"
    return text if held.tid is None else f"{text}, for {held.comm or '?'} ({held.tid})"


MOST = 1_000
"""Most I/Os that are shown, as each one is kept with all its events."""
SHOWN_LIVES = 2
"""Most trees of an I/O that are shown without -v."""
_INDENT = 4


class Detail(StrEnum):
    LINE = "line"
    USUAL = "usual"
    ALL = "all"


def lines_of_all(
    found: Sequence[tuple[str, Slowest]], detail: Detail, by_size: bool = False
) -> Iterator[str]:
    """Yield the slow I/Os of all recordings (by label), the slowest, or largest, first."""
    slow_ios = [(label, one, slow) for label, one in found for slow in one.found]
    slow_ios.sort(key=lambda row: row[2].rank(by_size))
    yield from _summary([one for _, one in found])
    for label, one in found:
        if one.lives is None or not one.found:
            continue
        with_lives = sum(any(life.life in one.lives for life in s.followed) for s in one.found)
        counts, kind = one.trace.account.followed, Following(one.trace.context.header).type
        shown_ios = units.plural(len(one.found), "I/O")
        lives = units.plural(counts.lives, "followed life", "followed lives")
        several = counts.several
        further = f", {units.count(several)} go on with a later one" if several else ""
        yield (
            (f"{label}: " if label else "")
            + f"functions: of {with_lives} of these {shown_ios}; {units.count(counts.joined)} of "
            f"{lives} are a recorded {kind}'s{further}"
        )
    for place, (label, one, slow) in enumerate(slow_ios, 1):
        above = f"{label}: " if label else ""
        if detail == Detail.LINE:
            io = slow.io
            longest = io.longest
            stage = (
                f"{longest.stage} {units.percent(longest.share)}" if longest else "stages unknown"
            )
            marks = unusual_text(io)
            line = f"#{place:<4} {took_text(io):>9}  {stage:<18} {above}"
            line += f"{io_text(io)}, {thread_text(io)}"
            yield f"{line}; {marks}" if marks else line
            continue
        yield ""
        yield from _one(one.trace, place, slow, detail == Detail.ALL, above)
        if one.lives is not None:
            yield from function_lines(one.trace, one.lives, slow, detail == Detail.ALL)
    yield from missing_lines((label, tallies.loss_lines(one.trace)) for label, one in found)


def missing_lines(each: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    lines = [f"{label}: {line}" if label else line for label, own in each for line in own]
    if lines:
        yield ""
        yield from (styled(f"missing: {line}", fg="yellow") for line in lines)


def _summary(each: Sequence[Slowest]) -> Iterator[str]:
    """Yield how many I/Os are shown and left out, and which stages most time went to."""
    wanted, found = each[0].wanted, [slow for one in each for slow in one.found]
    counts, shown = Counts(), len(found)
    for name in vars(counts):
        setattr(counts, name, sum(getattr(one.counts, name) for one in each))
    kind = "failed I/O" if wanted.failed else "I/O"
    over = f" of {units.duration(wanted.over)} or more" if wanted.over else ""
    if not shown:
        yield f"no {kind}{over} among {units.plural(counts.ios, 'I/O')}"
    elif shown < counts.matching:
        chosen = wanted.failed or wanted.over
        among = f", among {units.plural(counts.ios, 'I/O')}" if chosen else ""
        of = units.plural(counts.matching, kind)
        yield f"the slowest {shown} of {of}{over}{among} ({all_shown_by(shown)})"
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
        yield f"{tallies.failed_nowait_text(counts.tries)} left out"
    longest = Counter(slow.io.longest.stage for slow in found if slow.io.longest)
    if shown > 1 and longest:
        stages = ", ".join(f"{stage} in {number}" for stage, number in longest.most_common())
        yield f"most time went to: {stages}"


def all_shown_by(shown: int) -> str:
    if shown < MOST:
        return "--limit 0 shows all"
    return f"{MOST:,} at most: choose a part, docs/cuts.md"


def _one(trace: Trace, place: int, slow: SlowIO, verbose: bool, above: str) -> Iterator[str]:
    io = slow.io
    yield styled(f"#{place}  {took_text(io)}  {above}{io_text(io)}, {thread_text(io)}", bold=True)
    moment = trace.context.wall_clock(slow.begin_ns)
    since = f"{(slow.begin_ns - trace.account.first_ns) / 1e9:.6f} s after the first event"
    queued = "queued" if io.queue_ns is not None else "first seen"
    when = f"{queued} {moment} ({since})" if moment else f"{queued} {since}"
    yield f"    {when}; bio {io.number}"
    if io.file is not None:
        was = f" (was {io.file_was})" if io.file_was is not None else ""
        yield f"    file {io.file}{was}"
    if io.held is not None:
        yield styled(f"    {_held(io.held)}", fg="yellow")
    marks = unusual_text(io)
    if marks:
        yield styled(f"    {marks}", fg="yellow")
    yield from stage_lines(trace.context, slow)
    if slow.side is not None:
        yield _side(slow.side)
    if len(slow.events) > 1 and not slow.events_left_out and len(slow.requests) > 1:
        pairs = zip(slow.events, slow.events[1:], strict=False)
        pause = max(pairs, key=lambda pair: pair[1].offset_ns - pair[0].offset_ns)
        names = request_names(slow)
        after, before = (
            step.letter
            + ("" if step.request is None else f" of {names[step.request]}")
            + f" (+{units.duration(step.offset_ns)})"
            for step in pause
        )
        length = units.duration(pause[1].offset_ns - pause[0].offset_ns)
        yield f"    longest pause {length}: from {after} to {before}"
    yield from device_lines(trace.context, slow)
    yield from event_lines(slow, verbose)
    yield from request_lines(slow, verbose)
    yield from family_lines(slow, verbose)


def _side(side: "Side") -> str:
    if side.reason:
        return f"    host: no I/O: {side.reason}"
    if not side.stages_ns:
        return "    host: the times of its I/O are not all recorded"
    parts = ", ".join(f"{name} {units.duration(ns)}" for name, ns in side.stages_ns.items())
    number = units.plural(len(side.host_bios), "bio")
    return (
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


def pair_parts(
    found: Sequence[tuple[str, Trace, SlowestPairs]], top: int, width: int
) -> Iterator[RenderableType]:
    rows = [(label, trace, one) for label, trace, slow in found for one in slow.found()]
    rows.sort(key=lambda row: -row[2].latency_ns)
    rows = rows[:top]
    count = sum(slow.count for _, _, slow in found)
    slower = sum(slow.slower for _, _, slow in found)
    over = max((slow.over_ns for _, _, slow in found), default=0)
    which = f"; {units.count(slower)} took {units.duration(over)} or longer" if over else ""
    yield block([f"{units.plural(count, 'pair')} of events{which}"])
    several = any(label for label, _, _ in rows)
    columns = columns_of("recording < |" * several + "pair < | of < | took | from | cpu | thread <")
    lines = [
        [
            *([label] if several else []),
            one.pair,
            one.by,
            units.duration(one.latency_ns),
            units.duration(one.began_ns - trace.start),
            str(one.cpu),
            f"{one.comm} {one.tid}",
            one.key,
        ]
        for label, trace, one in rows
    ]
    if lines:
        yield table("The slowest pairs", [*columns, *columns_of("key <")], lines, width)
    yield from (
        block([f"missing: {line}"]) for _, trace, _ in found for line in tallies.loss_lines(trace)
    )
