# SPDX-License-Identifier: Apache-2.0
"""Show slow system calls as text: where the time of each went, its waits, and its bios."""

from collections import Counter
from collections.abc import Iterator, Sequence

from biotrail.converters.analysis.slow.calls import (
    CallFacts,
    SlowCall,
    SlowestCalls,
)
from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.calls.names import MOVES_BYTES, WAIT_ONLY
from biotrail.converters.events.context import Context, called
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies, units
from biotrail.text.printing import Styled, styled
from biotrail.text.report.path import PARTS
from biotrail.text.slow.slow import BAR, Detail, all_shown_by, missing_lines, other_lines, took_text

SHOWN_REASONS = 3
"""Most reasons of the waits of a part that the sentence names."""
SHOWN_WAITS = 8
"""Most waits of a call that are listed without -v: the longest."""
PART_WORDS = {
    "running": "running",
    "runnable": "waiting to run",
    "own_io": "waiting for its own I/O",
    "other_io": "waiting for other I/O",
    "otherwise": "waiting otherwise",
    "undivided": "not divided",
}
"""Part of a call's time → what the call did, as in a sentence."""
MEANINGS = {
    "runnable": "was ready to run, and had no CPU",
    "own_io": "was blocked, with a bio in flight that it had queued itself",
    "other_io": "was blocked for I/O that others do: a journal commit, a page, a lock",
    "otherwise": "was blocked by something else: a pipe, a timer, a futex",
    "undivided": "the log has no waits: record --path with its part wait",
}
"""What it means that a call spent most of its time in a part."""


def lines_of_all(
    found: Sequence[tuple[str, SlowestCalls]], detail: Detail, by_size: bool = False
) -> Iterator[str]:
    """Yield the slow calls of all recordings (by label), the slowest, or largest, first."""
    calls = [(label, one, slow) for label, one in found for slow in one.found]
    calls.sort(key=lambda row: row[2].rank(by_size))
    yield from _summary([one for _, one in found])
    for place, (label, one, slow) in enumerate(calls, 1):
        above = f"{label}: " if label else ""
        if detail == Detail.LINE:
            call = slow.call
            part = f"{PARTS[call.longest]} {units.percent(call.share(call.longest))}"
            line = f"#{place:<4} {units.duration(call.duration_ns):>9}  {part:<18} {above}"
            yield ", ".join(filter(None, (f"{line}{_who(call)}", _given(call), _result(call))))
            continue
        yield ""
        yield from _one(one.trace, place, slow, detail == Detail.ALL, above)
    yield from missing_lines(
        (label, (*_untimed(one.trace), *tallies.loss_lines(one.trace))) for label, one in found
    )


def _untimed(trace: Trace) -> Iterator[str]:
    until = trace.context.calls_timed_until
    if until is not None:
        timed = units.duration(max(until - trace.start, 0))
        yield (
            f"calls were timed in the first {timed} of the recording only (--call-budget): later "
            "ones are known by their waits alone"
        )
    elif "time" not in trace.context.path_parts:
        yield (
            "calls were not timed: each wait stands by itself, without its call's time on the CPU "
            "and other waits (record --path with its part time)"
        )


def _summary(each: Sequence[SlowestCalls]) -> Iterator[str]:
    wanted, found = each[0].wanted, [slow.call for one in each for slow in one.found]
    matching, shown = sum(one.counts.matching for one in each), len(found)
    kind = "failed call" if wanted.failed else "call"
    over = f" of {units.duration(wanted.over)} or more" if wanted.over else ""
    if not shown:
        yield f"no {kind}{over} among {_among(each)}"
    elif shown < matching:
        waits = f", among {_among(each)}" if any(one.counts.waits for one in each) else ""
        what = f"the slowest {shown} of {units.plural(matching, kind)}{over}{waits}"
        yield f"{what} ({all_shown_by(shown)})"
    else:
        yield f"{units.plural(shown, kind)}{over} among {_among(each)}"
    if without := sum(one.counts.without_entry for one in each):
        yield f"{units.plural(without, 'call')} left out: when they began is not known"
    longest = Counter(PART_WORDS[call.longest] for call in found)
    if without := sum(one.counts.without_io for one in each):
        yield (
            f"{units.plural(without, 'call')} left out: they neither queued nor waited for I/O "
            "(--all-calls shows them)"
        )
    if shown > 1:
        parts = ", ".join(f"{part} in {number}" for part, number in longest.most_common())
        yield f"most time went to: {parts}"


def _among(each: Sequence[SlowestCalls]) -> str:
    waits = sum(one.counts.waits for one in each)
    timed = units.plural(sum(one.counts.calls for one in each) - waits, "timed call")
    return f"{timed} and {units.plural(waits, 'wait')} outside of such calls" if waits else timed


def _one(trace: Trace, place: int, slow: SlowCall, verbose: bool, above: str) -> Iterator[str]:
    call = slow.call
    took = units.duration(call.duration_ns)
    yield styled(f"#{place}  {took}  {above}{_who(call)}", bold=True)
    moment = trace.context.wall_clock(call.entry_ns)
    seconds = (call.entry_ns - trace.account.first_ns) / 1e9
    since = f"{abs(seconds):.6f} s {'after' if seconds >= 0 else 'before'} the first event"
    began = "entered" if call.timed else "waited from"
    when = f"{began} {moment} ({since})" if moment else f"{began} {since}"
    yield f"    {when}; {_result(call)}"
    if given := _given(call):
        yield f"    {given}"
    yield from (f"    file {path}" for path in slow.files)
    yield f"    {sentence(slow)}"
    for part, ns in call.parts.items():
        if not ns:
            continue
        share = call.share(part)
        bar = "#" * round(BAR * share) or "."
        line = f"{PARTS[part]:<11} {units.duration(ns):>9} {units.percent(share):>7}  {bar}"
        if part == call.longest and part in MEANINGS:
            yield Styled(styled(f"  > {line}", fg="red") + f"  {MEANINGS[part]}")
        else:
            yield f"    {line}"
    yield from _wait_lines(slow, verbose)
    yield from _bio_lines(trace.context, slow, verbose)


def _who(call: CallFacts) -> str:
    return f"{call.call}, {called(call.comm or '?', call.title)} ({call.tid})"


def _given(call: CallFacts) -> str:
    words = [] if call.fd is None else [f"fd {call.fd}"]
    words += [] if call.offset is None else [f"offset {call.offset}"]
    words += [] if call.length is None else [f"length {call.length}"]
    return ", ".join(words)


def _result(call: CallFacts) -> str:
    if call.result is None:
        return "its call was not timed"
    if call.error is not None:
        return f"failed: {call.error}"
    size = f" ({units.size(call.bytes)})" if call.call in MOVES_BYTES and call.bytes >= 1024 else ""
    return f"returned {call.result}{size}"


def sentence(slow: SlowCall) -> str:
    """Return where a call's time went, and what of that its bios explain, as one sentence.

    `this fsync took 48 ms: 41 ms waiting for other I/O, 7 ms running; it queued 3 bios, the slowest
    of which took 40 ms, 39 ms of that D2C`.
    """
    call = slow.call
    parts = sorted(call.parts.items(), key=lambda part: -part[1])
    said = ", ".join(f"{units.duration(ns)} {_words(slow, part)}" for part, ns in parts if ns)
    what = call.call if call.timed else f"wait of {call.call.removesuffix(WAIT_ONLY)}"
    text = f"this {what} took {units.duration(call.duration_ns)}"
    text += f": {said}" if said else ""
    if call.bios:
        text += f"; it queued {units.plural(call.bios, 'bio')}, {_slowest(slow.bios, call.bios)}"
    if slow.journal:
        total = len(slow.journal) + slow.journal_left_out
        text += f"; the journal that it waited for had {units.plural(total, 'bio')} in flight, "
        text += _slowest(slow.journal, total)
    return text


def _words(slow: SlowCall, part: str) -> str:
    """Return what the call did in a part: `waiting for other I/O (journal commit)`."""
    reasons = list(slow.reasons(PARTS[part]).items())
    if len(reasons) < 2:
        return PART_WORDS[part] + (f" ({reasons[0][0]})" if reasons else "")
    some = ", ".join(f"{name} {units.duration(ns)}" for name, ns in reasons[:SHOWN_REASONS])
    return f"{PART_WORDS[part]} ({some}{', …' if len(reasons) > SHOWN_REASONS else ''})"


def _slowest(ios: Sequence[IO], count: int) -> str:
    """Return which stage the slowest of `count` bios spent most time in. ios: those in the log."""
    if not ios:
        return "of which the log has nothing"
    slowest = max(ios, key=lambda io: io.waited_ns)
    text = f"{'which' if count == 1 else 'the slowest of which'} took {took_text(slowest)}"
    longest = slowest.longest
    return f"{text}, {units.duration(longest.ns)} of that {longest.stage}" if longest else text


def _wait_lines(slow: SlowCall, verbose: bool) -> Iterator[str]:
    shown, total = slow.waits, len(slow.waits) + slow.waits_left_out
    if not verbose and len(shown) > SHOWN_WAITS:
        least = sorted((w.blocked_ns + w.runnable_ns for w in shown), reverse=True)[SHOWN_WAITS - 1]
        shown = [w for w in shown if w.blocked_ns + w.runnable_ns >= least][:SHOWN_WAITS]
    if shown:
        head = f"{'since entry':>14}  {'blocked':>9}  {'to run':>9}  for"
        yield f"  {head}"
    for wait in shown:
        cause = wait.cause if wait.reason is None else f"{wait.cause}: {wait.reason}"
        cause += "" if wait.commit is None else f" {wait.commit} of {wait.commit_device}"
        cause += "" if wait.limit is None else f" of {wait.limit}"
        who = f"{wait.waker_comm or '?'} ({wait.waker_tid})" if wait.waker_tid else "the idle task"
        article = "an" if wait.context == "interrupt" else "a"
        woken = f"woken in {article} {wait.context}, on the CPU of {who}"
        woken = f"woken by {who}" if wait.context == "task" else woken
        woken = "its wake-up was not seen" if wait.context == "unknown" else woken
        yield (
            f"  {wait.start_ns / 1000:>+11,.3f} µs  {units.duration(wait.blocked_ns):>9}  "
            f"{units.duration(wait.runnable_ns):>9}  {cause}, state {wait.state}; {woken}"
        )
        if verbose and wait.stack:
            yield f"{'':31}in {' < '.join(wait.stack)}"
    if total > len(shown):
        yield f"    and {units.plural(total - len(shown), 'shorter wait')}"
    if (unrecorded := slow.call.waits - total) > 0:
        yield f"    {units.plural(unrecorded, 'wait')} without a record: counted in the parts above"


def _bio_lines(context: Context, slow: SlowCall, verbose: bool) -> Iterator[str]:
    total = len(slow.bios) + slow.bios_left_out
    if total:
        size = f", {units.size(slow.bio_bytes)}" if slow.bio_bytes else ""
        yield f"  it queued {units.plural(total, 'bio')}{size}:"
        ranked = sorted(slow.bios, key=lambda io: -io.waited_ns)
        yield from other_lines(ranked, slow.bios_left_out, slow.call.entry_ns, verbose)
    elif slow.call.bios:
        wants = "" if "call" in context.path_parts else ": record --path with its part call"
        queued = units.plural(slow.call.bios, "bio")
        yield f"  it queued {queued}, of which the log has nothing{wants}"
    if slow.journal:
        count = units.plural(len(slow.journal) + slow.journal_left_out, "bio")
        yield f"  the journal that it waited for had {count} in flight:"
        ranked = sorted(slow.journal, key=lambda io: -io.waited_ns)
        yield from other_lines(ranked, slow.journal_left_out, slow.call.entry_ns, verbose)
