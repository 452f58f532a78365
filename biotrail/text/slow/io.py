# SPDX-License-Identifier: Apache-2.0
"""An I/O in a few words: what it was, whose, how long it took, what was unusual."""

from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.analysis.slow.limits import HeldBack
from biotrail.converters.events.titles import called
from biotrail.text import tallies, units
from biotrail.text.report.path import limit_text

_DOUBTS = ("interval", "ambiguous", "incomplete", "lost")


def took_text(io: IO) -> str:
    """Return an I/O's latency; without one its time in flight, or why it is not known."""
    if io.doubtful:
        return "time in doubt"
    if io.under_way:
        return f"{units.duration(io.waited_ns)}, still in flight"
    if io.latency_ns is None:
        return "unknown time"
    return units.duration(io.waited_ns)


def io_text(io: IO) -> str:
    """Return an I/O's device, operation, flags, size and sector."""
    where = f" at sector {io.sector}" if io.sector is not None and io.bytes else ""
    size = f" of {units.size(io.bytes)}" if io.bytes else ""
    flags = f" {io.flags}" if io.flags else ""
    return f"{io.partition or io.device} {io.operation}{flags}{size}{where}"


def thread_text(io: IO) -> str:
    """Return an I/O's thread, and for whom it queued the I/O, if for another."""
    if io.tid is None:
        return f"{io.comm} (thread id unknown)" if io.comm else "task unknown"
    text = f"{called(io.comm or '?', io.title)} ({io.tid})"
    return text if io.for_tid is None else f"{text} for {io.for_comm} ({io.for_tid})"


def unusual_text(io: IO) -> str:
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


def held_text(held: HeldBack) -> str:
    """Return which limit held an I/O before it was queued, for how long, and for whom."""
    rates = limit_text(held.bps, held.iops)
    limit = f"the limit of cgroup {held.cgroup or '(not known)'}"
    limit += f" ({rates})" if held.bps is not None or held.iops is not None else ""
    if held.limits > 1:
        limit += f" or of {units.plural(held.limits - 1, 'cgroup')} above it"
    if held.ns is None:
        return f"held by {limit} before it was queued, length not known"
    text = f"held by {limit} for {units.duration(held.ns)} before it was queued"
    return text if held.tid is None else f"{text}, for {held.comm or '?'} ({held.tid})"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"
