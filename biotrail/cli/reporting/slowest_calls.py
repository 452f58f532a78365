# SPDX-License-Identifier: Apache-2.0
"""The slowest system calls of a trace, found in two passes, and the JSON of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biotrail.cli.options.cuts import Opened
from biotrail.cli.reporting.slowest import FORMAT, write_around
from biotrail.converters.analysis.slow.call_details import SlowCall
from biotrail.converters.analysis.slow.calls import SlowestCalls, WantedCalls, check_timed
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies


@dataclass
class CallFindings:
    """The slowest calls of a trace."""

    trace: Trace
    slowest: SlowestCalls

    @property
    def calls(self) -> list[SlowCall]:
        """The calls found, the slowest first."""
        return self.slowest.found


def find_calls(opened: Opened, wanted: WantedCalls) -> CallFindings:
    """Read the chosen part of a trace to its end (first pass); return the slowest calls in it.

    Raises ConversionError if the log has neither timed calls nor waits, or not a chosen device.
    """
    check_timed(opened.trace.context)
    slowest = SlowestCalls(wanted)
    for window in opened.chosen(opened.trace.lifecycles()):
        slowest.add(window, opened.trace.context)
    return CallFindings(opened.trace, slowest)


def keep_slowest_calls(found: Sequence[CallFindings], top: int) -> None:
    """Remove from each recording's findings all but the slowest `top` calls of all recordings.

    Changes each one's `calls` in place; does nothing for a single recording.
    """
    if len(found) < 2:
        return
    every = sorted(
        (-slow.call.duration_ns, at) for at, one in enumerate(found) for slow in one.calls
    )
    kept = Counter(at for _, at in every[:top])
    for at, one in enumerate(found):
        del one.calls[kept[at] :]


def gather_calls(
    found: CallFindings, second: Trace, target: str | None, margin: int, force: bool
) -> Path | None:
    """Read the trace again (second pass), and add to each call its waits and bios.

    second: the trace, opened again. If `target` is given and calls were found, also write a
    Perfetto trace of the time within `margin` (ns) of each call, and return its path; else None.
    """

    def add(window: Lifecycles) -> None:
        found.slowest.gather(window, second)

    written = None
    if target is None or not found.calls:
        for window in second.lifecycles():
            add(window)
    else:
        calls = [slow.call for slow in found.calls]
        spans = [(call.entry_ns, call.entry_ns + call.duration_ns) for call in calls]
        written = write_around(second, add, spans, target, margin, force)
    found.slowest.finish()
    return written


def calls_as_dict(found: CallFindings) -> dict[str, Any]:
    """Return the findings for JSON; docs/slow.md describes every key."""
    trace, wanted = found.trace, found.slowest.wanted
    calls = []
    for slow in found.calls:
        row = asdict(slow)
        row["time"] = trace.context.wall_clock(slow.call.entry_ns)
        for io in (*row["bios"], *row["journal"]):
            del io["dev"], io["part"]
        calls.append(row)
    return {
        "format": FORMAT,
        "log_id": trace.context.log_id,
        "wanted": {
            "top": wanted.top,
            "over_ns": wanted.over,
            "failed": wanted.failed,
            "all_calls": wanted.every,
        },
        "counts": asdict(found.slowest.counts),
        "calls_until_ns": trace.context.calls_timed_until,
        "calls": calls,
        **{k: v for k, v in tallies.as_dict(trace).items() if k in ("lost", "problems")},
    }
