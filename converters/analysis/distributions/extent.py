# SPDX-License-Identifier: Apache-2.0
"""First and last time of a trace's events."""

from biotrail.converters.pipeline import Trace


def extent(trace: Trace) -> tuple[int, int]:
    """Return (first, last): the times of a trace's first and last event in ns (CLOCK_MONOTONIC).

    Of a trace that was limited to a part of the log (a cut): the bounds of that part as far as it
    was read. trace: read to its end. Without any event both are the time at which recording began,
    by the log's header, or 0 if the header does not have that time.
    """
    account = trace.account
    if account.first_ns < 0:
        return trace.start, trace.start
    return account.first_ns, account.last_ns


def begin_text(trace: Trace) -> str | None:
    """Return the time of a trace's first event as UTC: `2024-05-01 12:00:00.123456Z`, or None.

    As `extent` has it: of a cut its begin, without events that of the recording. trace: read to its
    end. None if that time is 0, or if the log has no clock reading to convert with.
    """
    begin, _ = extent(trace)
    return trace.context.wall_clock(begin) if begin > 0 else None
