# SPDX-License-Identifier: Apache-2.0
"""Events of a slow I/O as lines, and the longest pause between two of them."""

from collections.abc import Iterator

from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.analysis.slow.slow import SlowIO, Step
from biotrail.converters.events.tables import SECTOR_BYTES
from biotrail.text import units

SHOWN_EVENTS = 24
"""Most events of an I/O that are listed without -v."""


def request_names(slow: SlowIO) -> dict[int, str]:
    """Return `request 1`, `request 2`, … by the request's number."""
    return {r.number: f"request {place}" for place, r in enumerate(slow.requests, 1)}


def pause_lines(slow: SlowIO) -> Iterator[str]:
    """Yield the longest pause between two events, for an I/O with several requests."""
    pause = slow.longest_pause
    if pause is None or len(slow.requests) < 2:
        return
    after, before = (_named(step, slow) for step in pause)
    length = units.duration(pause[1].offset_ns - pause[0].offset_ns)
    yield f"    longest pause {length}: from {after} to {before}"


def _named(step: Step, slow: SlowIO) -> str:
    """Return an event's letter, request and time since Q."""
    about = "" if step.request is None else f" of {request_names(slow)[step.request]}"
    return f"{step.letter}{about} (+{units.duration(step.offset_ns)})"


def event_lines(slow: SlowIO, verbose: bool) -> Iterator[str]:
    """Yield a heading and a line per event of the I/O, in time order; nothing without events.

    Without `verbose`, of more than SHOWN_EVENTS the first and last half that many, and between
    them how many are left out.
    """
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
    if step.tid is not None or step.comm:
        words.append(f"by {step.comm or '?'} ({step.tid or 'id unknown'})")
    offset = f"{step.offset_ns / 1000:+,.3f} µs"
    cpu = "?" if step.cpu is None else step.cpu
    line = f"  {offset:>15}  {cpu:>3}  {step.letter} {step.name:<13}{place:<18}"
    return f"{line}{', '.join(words)}".rstrip()
