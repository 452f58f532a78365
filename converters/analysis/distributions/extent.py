# SPDX-License-Identifier: Apache-2.0
"""From when to when a trace has events; a log without events has the time that it began."""

from biotrail.converters.pipeline import Trace


def extent(trace: Trace) -> tuple[int, int]:
    """Return the first and the last event's time (ns), or the cut's bounds; the trace is read.

    Without any event both are when recording began, by the header; 0 where it does not say.
    """
    account = trace.account
    if account.first_ns < 0:
        return trace.start, trace.start
    return account.first_ns, account.last_ns


def begin_text(trace: Trace) -> str | None:
    """Return when `extent` begins, as ISO 8601 in UTC; None where the log does not tell."""
    begin, _ = extent(trace)
    return trace.context.wall_clock(begin) if begin > 0 else None
