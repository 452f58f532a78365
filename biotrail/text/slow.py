# SPDX-License-Identifier: Apache-2.0
"""Show slow I/Os as text for people. Styles are click's, which drops them without a terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

from biotrail.converters.analysis.slow.io_details import IO, RequestFacts, Span
from biotrail.converters.analysis.slow.slow import Counts, Slowest, SlowIO, Step, Wanted
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import SECTOR_BYTES
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.strings import shown
from biotrail.text import tallies, units
from biotrail.text.printing import Styled, styled
from biotrail.text.rows import left_out
from biotrail.text.slow_around import device_lines

MOST = 1_000
"""Most I/Os that are shown, as each one is kept with all its events."""
SHOWN_EVENTS = 24
"""Most events of an I/O that are listed without -v."""
SHOWN_OTHERS = 4
"""Most requests, and most related I/Os, of an I/O that are listed without -v."""
BAR = 40
"""Characters of a stage's bar for the whole latency."""
MEANINGS = {
    "Q2G": "waited for a request: for a free tag; of a split one, after the pieces before it",
    "G2I": "had its request, which was held back (plugged) before the scheduler got it",
    "I2D": "waited in the scheduler",
    "G2D": "had its request, which was not issued yet (plugged, or no room in the driver)",
    "D2C": "was with the driver and the device",
    "Q2M": "was queued, and then joined a request",
    "M2D": "had joined a request that was not issued yet (plugged, or in the scheduler)",
    "R2D": "was given back by the driver, and waited to be issued again",
    "pre-flush": "waited for the flush before its data",
    "post-flush": "waited for the flush after its data",
    "flush": "waited for a flush",
    "bio-based": "was with a driver that takes bios, not requests",
    "failed": "ended in an error before it was issued",
    "unknown": "its next event is not in the log",
    "Q2D": "joined a request without an event that says when, and waited for its issue",
}
"""What a bio waited for in each stage."""
_DOUBTS = ("interval", "ambiguous", "incomplete", "lost")


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
    slow_ios = [(label, trace, slow) for label, trace, one in found for slow in one.found]
    slow_ios.sort(key=lambda row: -(row[2].io.bytes if by_size else row[2].io.waited_ns))
    yield from _summary([one for _, _, one in found], wanted)
    for place, (label, trace, slow) in enumerate(slow_ios, 1):
        above = f"{label}: " if label else ""
        if detail == Detail.LINE:
            yield _brief(place, slow, above)
            continue
        yield ""
        yield from _one(trace, place, slow, detail == Detail.ALL, above)
    missing = [
        f"{label}: {line}" if label else line
        for label, trace, _ in found
        for line in tallies.loss_lines(trace)
    ]
    if missing:
        yield ""
        yield from (styled(f"missing: {line}", fg="yellow") for line in missing)


def _summary(each: Sequence[Slowest], wanted: Wanted) -> Iterator[str]:
    """Yield how many I/Os are shown and left out, and which stages most time went to."""
    found = [slow for one in each for slow in one.found]
    counts, shown = _added([one.counts for one in each]), len(found)
    kind = "failed I/O" if wanted.failed else "I/O"
    over = f" of {units.duration(wanted.over)} or more" if wanted.over else ""
    if not shown:
        yield f"no {kind}{over} among {units.plural(counts.ios, 'I/O')}"
    elif shown < counts.matching:
        yield (
            f"the slowest {shown} of {units.plural(counts.matching, kind)}{over}, "
            f"among {units.plural(counts.ios, 'I/O')}; {_left_out(counts.matching - shown, shown)}"
        )
    elif shown == counts.ios:
        yield f"all of {units.plural(shown, kind)}{over}, the slowest first"
    else:
        yield f"{units.plural(shown, kind)}{over} among {units.plural(counts.ios, 'I/O')}"
    if counts.under_way:
        unended = units.plural(counts.under_way, "I/O")
        yield f"{unended} without a completion: under way at the log's end, or not seen to complete"
    if counts.without_latency:
        yield (
            f"{units.plural(counts.without_latency, 'I/O')} left out: their queueing or their "
            "completion is not in the log"
        )
    if counts.tries:
        yield f"{tallies.tries_text(counts.tries)} left out"
    longest = Counter(slow.io.longest.stage for slow in found if slow.io.longest)
    if shown > 1 and longest:
        stages = ", ".join(f"{stage} in {number}" for stage, number in longest.most_common())
        yield f"most time went to: {stages}"


def _added(each: Sequence[Counts]) -> Counts:
    """Return the sums of all counts."""
    whole = Counts()
    for name in vars(whole):
        setattr(whole, name, sum(getattr(one, name) for one in each))
    return whole


def _left_out(more: int, shown: int) -> str:
    """Return that `more` I/Os are not shown, and how to see them."""
    if shown < MOST:
        return left_out(more, "I/O")
    return f"{units.plural(more, 'more I/O')}: {MOST:,} at most; choose a part (docs/cuts.md)"


def _brief(place: int, slow: SlowIO, above: str) -> str:
    """Return an I/O's line. place: in the list; above: the recording's label."""
    io = slow.io
    longest = io.longest
    stage = f"{longest.stage} {_percent(longest.share)}" if longest else "stages unknown"
    marks = _marks(io)
    line = f"#{place:<4} {_took(io):>9}  {stage:<18} {above}{_what(io)}, {_who(io)}"
    return f"{line}; {marks}" if marks else line


def _one(trace: Trace, place: int, slow: SlowIO, verbose: bool, above: str) -> Iterator[str]:
    """Yield the lines of an I/O. verbose: list all events, requests and other I/Os."""
    io = slow.io
    yield styled(f"#{place}  {_took(io)}  {above}{_what(io)}, {_who(io)}", bold=True)
    yield f"    {_when(trace, slow)}; bio {io.number}"
    if io.file is not None:
        yield f"    file {io.file}"
    marks = _marks(io)
    if marks:
        yield styled(f"    {marks}", fg="yellow")
    yield from _stage_lines(trace.context, slow)
    yield from _pause_lines(slow)
    yield from device_lines(trace.context, slow)
    yield from _event_lines(slow, verbose)
    yield from _request_lines(slow, verbose)
    yield from _family_lines(slow, verbose)


def _took(io: IO) -> str:
    """Return an I/O's latency; without one, its time in flight or `unknown time`."""
    if io.under_way:
        return f"{units.duration(io.waited_ns)} and no completion"
    if io.latency_ns is None:
        return "unknown time"
    return units.duration(io.waited_ns)


def _what(io: IO) -> str:
    """Return an I/O's device, operation, flags, size and sector."""
    where = f" at sector {io.sector}" if io.sector is not None and io.bytes else ""
    size = f" of {units.size(io.bytes)}" if io.bytes else ""
    flags = f" {io.flags}" if io.flags else ""
    return f"{io.partition or io.device} {io.operation}{flags}{size}{where}"


def _who(io: IO) -> str:
    """Return an I/O's thread."""
    if io.tid is None:
        return "task unknown"
    name = io.comm if io.comm is not None else "?"
    return f"{name} ({io.tid})"


def _when(trace: Trace, slow: SlowIO) -> str:
    """Return when an I/O was queued: wall clock, and time since the first event."""
    first = trace.account.first_ns
    moment = trace.context.wall_clock(slow.begin_ns)
    since = f"{(slow.begin_ns - first) / 1e9:.6f} s after the first event"
    queued = "queued" if slow.io.queue_ns is not None else "first seen"
    return f"{queued} {moment} ({since})" if moment else f"{queued} {since}"


def _marks(io: IO) -> str:
    """Return what is unusual about an I/O: errors, requeues, splits, doubtful certainty.

    Empty: nothing.
    """
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


def _percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"


def _stage_lines(context: Context, slow: SlowIO) -> Iterator[str]:
    """Yield a line per stage; the line of the longest stage also says what that means."""
    io = slow.io
    if not io.stages:
        yield "    stages unknown"
        return
    for span in io.stages:
        bar = "#" * round(BAR * span.share) or "." * bool(span.ns)
        line = f"{span.stage:<10} {units.duration(span.ns):>9} {_percent(span.share):>7}  {bar}"
        if span is io.longest:
            meaning = shown(f"  {_meaning(context, span, slow)}")
            yield Styled(styled(f"  > {line}", fg="red") + meaning)
        else:
            yield f"    {line}"


def _meaning(context: Context, span: Span, slow: SlowIO) -> str:
    """Return what the I/O waited for in a stage, and which part of that was a lower device's."""
    text = _joined(context, span, slow) if span.stage == "M2D" else MEANINGS.get(span.stage, "")
    if slow.io.under_way:
        return f"{text}, until the log's end, unless its completion was not seen"
    times = slow.below
    if span.stage in ("D2C", "bio-based") and times is not None:
        before, below = times
        if before > span.ns / 2:
            text += (
                ", and most of that before its lower I/O was queued: a worker was busy, or "
                "I/O was throttled"
            )
        elif below > span.ns / 2:
            text += ", and most of that was the lower device's: see below"
    return text


def _joined(context: Context, span: Span, slow: SlowIO) -> str:
    """Return the meaning of M2D: whether the joined request was plugged or in the scheduler."""
    inserted = max(map(_inserted, slow.requests), default=0)
    if inserted:
        plugged = inserted - span.start_ns > span.ns / 2
    elif context.devices.get(slow.io.dev, {}).get("scheduler") == "none":
        plugged = True
    else:
        return MEANINGS["M2D"]
    held = "was held back (plugged)" if plugged else "waited in the scheduler"
    return f"had joined a request that {held}"


def _inserted(request: RequestFacts) -> int:
    """Return when a request was inserted before its issue (ns); 0: it was not, or not known."""
    insert, issue = request.insert_ns, request.issue_ns
    # After a requeue, a request may be inserted behind its first issue: that is no I2D.
    return insert if insert is not None and issue is not None and insert <= issue else 0


def _pause_lines(slow: SlowIO) -> Iterator[str]:
    """Yield the longest pause between two events, for an I/O with several requests."""
    pause = slow.longest_pause
    if pause is None or len(slow.requests) < 2:
        return
    after, before = (_named(step, slow) for step in pause)
    length = units.duration(pause[1].offset_ns - pause[0].offset_ns)
    yield f"    longest pause {length}: from {after} to {before}"


def _named(step: Step, slow: SlowIO) -> str:
    """Return an event's letter, request and time since Q."""
    about = "" if step.request is None else f" of {_request_names(slow)[step.request]}"
    return f"{step.letter}{about} (+{units.duration(step.offset_ns)})"


# Events of an I/O


def _event_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield the I/O's events; without `verbose` the first and last SHOWN_EVENTS // 2."""
    if not slow.events:
        return
    yield f"  {'since Q':>15}  cpu  event          sector + sectors"
    half = SHOWN_EVENTS // 2
    events = slow.events
    cut = 0 if verbose else max(len(events) - SHOWN_EVENTS, 0)
    names = _request_names(slow)
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
    """Return an event's line. names: of requests, by number."""
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
    if step.tid is not None:
        words.append(f"by {step.comm or '?'} ({step.tid})")
    offset = f"{step.offset_ns / 1000:+,.3f} µs"
    line = f"  {offset:>15}  {step.cpu:>3}  {step.letter} {step.name:<13}{place:<18}"
    return f"{line}{', '.join(words)}".rstrip()


def _request_names(slow: SlowIO) -> dict[int, str]:
    """Return `request 1`, `request 2`, … by the request's number."""
    return {r.number: f"request {place}" for place, r in enumerate(slow.requests, 1)}


# Requests and related I/Os of an I/O


def _request_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield the I/O's requests and the other I/Os in them."""
    names = _request_names(slow)
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
    yield from _others(slow.mates, slow.mates_left_out, slow, verbose)


def _in_device(request: RequestFacts) -> int:
    """Return ns from D to C; 0 where one of them is not known."""
    if request.issue_ns is None or request.complete_ns is None:
        return 0
    return request.complete_ns - request.issue_ns


def _request(request: RequestFacts, names: dict[int, str]) -> str:
    """Return a request's operation, size, times and peculiarities."""
    place = "" if request.sector is None else f" at sector {request.sector}"
    words = [f"{request.operation} of {units.size(request.bytes)}{place}"]
    if took := _in_device(request):
        words.append(f"{units.duration(took)} from D to C")
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


def _family_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield the upper device's I/Os that it does the work of, and the lower devices' I/Os."""
    if slow.parents:
        yield "  does the work of:"
        yield from _others(slow.parents, 0, slow, verbose)
    total = len(slow.children) + slow.children_left_out
    if total:
        yield f"  below it, {units.plural(total, 'I/O')}{_below(slow)}:"
        ranked = sorted(slow.children, key=lambda io: -io.waited_ns)
        yield from _others(ranked, slow.children_left_out, slow, verbose)


def _below(slow: SlowIO) -> str:
    """Return when the lower devices' I/Os were queued and ended, relative to this I/O.

    Empty where that is not known.
    """
    times = slow.below
    if times is None:
        return ""
    before, below = times
    since = "its issue" if slow.io.issue_ns is not None else "it was queued"
    rest = slow.io.waited_ns - (slow.io.issue_ns or 0) - before - below
    over = f", all done {units.duration(rest)} before it ended" if rest >= 0 else ""
    return f", the first queued {units.duration(before)} after {since}{over}"


def _others(ios: list[IO], left_out: int, slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield other I/Os, without `verbose` SHOWN_OTHERS of them, and how many more there are."""
    shown = ios if verbose else ios[:SHOWN_OTHERS]
    for io in shown:
        yield f"    {_other(io, slow)}"
    more = len(ios) - len(shown) + left_out
    if more:
        yield f"    and {units.count(more)} more"


def _other(io: IO, slow: SlowIO) -> str:
    """Return a line on an I/O that is related to the slow one."""
    since = ""
    if io.queue_ns is not None:
        since = f"{(io.queue_ns - slow.begin_ns) / 1000:+,.3f} µs  "
    stages = ", ".join(
        f"{s.stage} {units.duration(s.ns)} ({_percent(s.share)})" for s in io.stages if s.ns
    )
    marks = _marks(io)
    return (
        f"{since}{_took(io)}  {_what(io)}, {_who(io)}"
        + (f": {stages}" if stages else "")
        + (f"; {marks}" if marks else "")
    )
