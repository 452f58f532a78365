# SPDX-License-Identifier: Apache-2.0
"""Requests of a slow I/O, other I/Os in them, and I/Os above and below it, as lines."""

from collections.abc import Iterator

from biotrail.converters.analysis.slow.io_details import IO, RequestFacts
from biotrail.converters.analysis.slow.slow import SlowIO
from biotrail.text import units
from biotrail.text.slow.events import request_names
from biotrail.text.slow.io import io_text, percent, thread_text, took_text, unusual_text

SHOWN_OTHERS = 4
"""Most requests, and most related I/Os, of an I/O that are listed without -v."""


def request_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield a line per request of the I/O, then the other I/Os in these requests.

    Without `verbose`, of more than SHOWN_OTHERS requests those that were longest with the device.
    """
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
        yield f"  below it, {units.plural(total, 'I/O')}{_below(slow)}:"
        ranked = sorted(slow.children, key=lambda io: -io.waited_ns)
        yield from other_lines(ranked, slow.children_left_out, slow.begin_ns, verbose)


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


def other_lines(ios: list[IO], left_out: int, begin: int, verbose: bool) -> Iterator[str]:
    """Yield a line per I/O, without `verbose` of SHOWN_OTHERS, and how many more there are.

    left_out: I/Os that are not in `ios`, counted as well. begin: ns of CLOCK_MONOTONIC from which
    times count.
    """
    shown = ios if verbose else ios[:SHOWN_OTHERS]
    for io in shown:
        yield f"    {_other(io, begin)}"
    more = len(ios) - len(shown) + left_out
    if more:
        yield f"    and {units.count(more)} more"


def _other(io: IO, begin: int) -> str:
    """Return a line on an I/O that is related to another I/O or a call, which began at `begin`."""
    since = ""
    if io.queue_ns is not None:
        since = f"{(io.queue_ns - begin) / 1000:+,.3f} µs  "
    stages = ", ".join(
        f"{s.stage} {units.duration(s.ns)} ({percent(s.share)})" for s in io.stages if s.ns
    )
    marks = unusual_text(io)
    return (
        f"{since}{took_text(io)}  {io_text(io)}, {thread_text(io)}"
        + (f": {stages}" if stages else "")
        + (f"; {marks}" if marks else "")
    )
