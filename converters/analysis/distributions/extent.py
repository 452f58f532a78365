# SPDX-License-Identifier: Apache-2.0
"""From when to when a trace was recorded: the time that rates, shares and depths are of."""

from biotrail.converters.pipeline import Trace


def extent(trace: Trace) -> tuple[int, int]:
    """Return (begin, end) of the time that a trace's figures are of, in ns (CLOCK_MONOTONIC).

    When recording began and ended, whatever its filters left out; of a trace that was limited to a
    part of the log (a cut) the bounds of that part as far as it was read; of a recording that does
    not say (`Trace.says_time`), the times of its first and last event, both 0 without any. trace:
    read to its end.
    """
    account = trace.account
    if not of_events(trace) and trace.covered is not None:
        return trace.covered
    if account.first_ns < 0:
        return trace.start, trace.start
    return account.first_ns, account.last_ns


def of_events(trace: Trace) -> bool:
    """Return whether `extent` is from the first to the last event, as the recording has no more."""
    return not trace.says_time and trace.span is None


def begin_text(trace: Trace) -> str | None:
    """Return where `extent` begins as UTC: `2024-05-01 12:00:00.123456Z`, or None.

    trace: read to its end. None if that time is 0, or if the log has no clock reading to convert
    with.
    """
    begin, _ = extent(trace)
    return trace.context.wall_clock(begin) if begin > 0 else None
