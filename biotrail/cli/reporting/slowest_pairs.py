# SPDX-License-Identifier: Apache-2.0
"""The slowest pairs of events of recordings, and the JSON of them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from biotrail.cli.options.cuts import Opened
from biotrail.cli.reporting.slowest import FORMAT
from biotrail.converters.analysis.slow.pairs import SlowestPairs
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import pairs_in
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies

PairFindings = tuple[Trace, SlowestPairs]


def find_pairs(opened: Opened, top: int, over_ns: int) -> PairFindings:
    """Read a log to its end; return its slowest pairs. Raises ConversionError: it has no pairs."""
    trace = opened.trace
    if not pairs_in(trace.context.header):
        raise ConversionError(
            "the log has no pairs of events: record them with biotrail pairs NAME -o LOG"
        )
    slowest = SlowestPairs(trace.context, top, over_ns)
    for window in opened.chosen(trace.lifecycles()):
        slowest.add(window)
    return trace, slowest


def pairs_as_dict(found: Sequence[tuple[str, PairFindings]], top: int) -> dict[str, Any]:
    """Return the slowest pairs of all recordings for JSON, the slowest first.

    found: label ("": the only one) and findings of each.
    """
    rows = [
        {**({"recording": label} if label else {}), **asdict(one), "latency_ns": one.latency_ns}
        for label, (_, slow) in found
        for one in slow.found()
    ]
    rows.sort(key=lambda row: -int(row["latency_ns"]))
    lost = [tallies.as_dict(trace) for _, (trace, _) in found]
    return {
        "format": FORMAT,
        "pairs": sum(slow.count for _, (_, slow) in found),
        "slowest": rows[:top],
        "missing": [{k: v for k, v in one.items() if k in ("lost", "problems")} for one in lost],
    }
