# SPDX-License-Identifier: Apache-2.0
"""Say from when to when a log's system calls were timed, and what that cost."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.pipeline import Trace
from biotrail.text import units


def timing_text(trace: Trace) -> str:
    """Return `2024-05-01 12:00:00.1Z to …Z (1.2 s), 4,000 calls: about 1.1 ms of CPU (0.1 %)`.

    "" for a log without the part `time`. From the log's beginning to its end, or to the moment when
    the recorder ended timing (the note `call_timing`), which then stands in place of the cost. The
    cost is known of a whole recording alone: of an interrupted log, and of all but the last file of
    several, there is none; in the last file it is that of all files. trace: read to its end.
    """
    context = trace.context
    if "time" not in context.path_parts:
        return ""
    end = trace.reader.end or {}
    since = int(context.header.get("clocks", {}).get("monotonic", 0))
    until, note = _until(trace, end), context.call_timing
    if note and int(note["until"]) <= since:
        return f"not timed in this file: {_ended(trace, note)}"
    text = (
        f"timed from {context.wall_clock(since)} to {context.wall_clock(until)} "
        f"({units.duration(max(until - since, 0))})"
    )
    if note:
        return f"{text}, then no longer: {_why(note)}"
    return text + _cost_of(end)


def _until(trace: Trace, end: Mapping[str, Any]) -> int:
    """Return when timing ended, ns of CLOCK_MONOTONIC: at the latest with the log."""
    if trace.context.call_timing:
        return int(trace.context.call_timing["until"])
    return int(end.get("stopped", {}).get("monotonic", trace.account.last_ns))


def _ended(trace: Trace, note: Mapping[str, Any]) -> str:
    return f"timing ended at {trace.context.wall_clock(int(note['until']))}, as {_why(note)}"


def _why(note: Mapping[str, Any]) -> str:
    """Return why timing ended. note: the payload of `call_timing`, of which keys may be absent."""
    if "percent" not in note or "budget" not in note:
        return "it took more than --call-budget"
    percent, budget = note["percent"], note["budget"]
    return f"it took about {percent:.1f} % of a CPU, more than --call-budget {budget:g}"


def _cost_of(end: Mapping[str, Any]) -> str:
    """Return what timing cost, from ", 4,000 calls" on; "" where the log's end does not say."""
    whole = end.get("run", end)
    path = whole.get("path")
    if not path or "time" not in path.get("seconds", {}):
        return ""
    spent, seconds = float(path["seconds"]["time"]), float(whole.get("seconds", 0))
    share = f" ({100 * spent / seconds:.1f} %)" if seconds else ""
    calls = units.plural(int(path.get("calls", 0)), "call")
    return f", {calls}: about {units.duration(spent * 1e9)} of CPU{share}"
