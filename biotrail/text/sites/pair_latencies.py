# SPDX-License-Identifier: Apache-2.0
"""Latencies of pairs as text and JSON. Imports only what recording needs."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from biotrail.recorder.probes.sites.pairs import BOUNDS, Latencies, shown
from biotrail.recorder.sites.declarations import ResolvedPair
from biotrail.text import units
from biotrail.text.bars import Bucket, bucket_lines

_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_NOTES = {
    "open": ("begin", "without an end so far"),
    "no_begin": ("end", "without a begin"),
    "overwritten": ("begin", "replaced by another with the same key"),
    "full": ("begin", "LOST as too many were open: use a larger --max-open"),
    "bad_begin": ("begin", "with an unreadable field"),
    "bad_end": ("end", "with an unreadable field"),
    "left_begin": ("begin", "left out by filters or conditions"),
    "left_end": ("pair", "left out by a condition on {its} end"),
}


def histogram(found: Latencies) -> Iterator[str]:
    """Yield a histogram in ns by powers of two as bcc's print_log2_hist, then its figures."""
    counts = found.octaves().tolist()
    used = [octave for octave, count in enumerate(counts) if count]
    if not used:
        return
    buckets: list[Bucket | None] = [
        (1 << octave if octave else 0, (1 << octave + 1) - 1, counts[octave])
        for octave in range(used[0], used[-1] + 1)
    ]
    yield from bucket_lines("nsecs", (1 << used[-1] + 1) - 1, buckets)
    percentiles = zip(_SHARES, found.percentiles(list(_SHARES.values())), strict=True)
    values = [("mean", found.mean), *percentiles, ("max", float(found.max))]
    parts = [f"{name} {units.duration(value)}" for name, value in values]
    yield f"{units.plural(found.count, 'pair')}, {', '.join(parts)}"


def lines(
    pair: ResolvedPair, rest: Latencies, by: dict[int, Latencies], names: dict[int, str]
) -> Iterator[str]:
    """Yield a pair's histograms, that of the most pairs last; nothing where there are no pairs.

    rest: latencies without --by, or of values beyond those that have a histogram of their own.
    names: of functions by address.
    """
    parts = [("(all others)" if pair.by else "", rest)]
    parts += [
        (shown(pair.by_value, value, names), found)
        for value, found in sorted(by.items(), key=lambda item: item[1].count)
    ]
    for value, found in parts:
        if found.count:
            yield ""
            yield f"{pair.pair.name}, {pair.by} = {value}" if value else pair.pair.name
            yield from histogram(found)


def counts_line(
    pair: ResolvedPair, total: Latencies, counts: Mapping[str, int], *, filtered: bool
) -> str:
    """Return what became of a pair's events, without the counts that are 0.

    counts: as of PairReading. filtered: the user asked for conditions or filters. A declared pair's
    own conditions choose among a tracepoint's events: what they leave out is no loss.
    """
    parts = [units.plural(total.count, "pair")]
    for name, number in counts.items():
        if not number or (name.startswith("left_") and not filtered):
            continue
        noun, text = _NOTES[name]
        if name == "no_begin" and filtered and counts["left_begin"]:
            text = "whose begin was left out, or not seen"
        text = text.format(its="its" if number == 1 else "their")
        parts.append(f"{units.plural(number, noun)} {text}")
    return f"{pair.pair.name}: {'; '.join(parts)}"


def as_json(
    pair: ResolvedPair, rest: Latencies, by: dict[int, Latencies], names: dict[int, str]
) -> list[dict[str, Any]]:
    """Return an object for each value of --by, and for the rest."""
    found = [
        {"by": value, "by_text": shown(pair.by_value, value, names), **_figures_json(one)}
        for value, one in sorted(by.items())
        if one.count
    ]
    if rest.count or not pair.by:
        found.append({"by": None, "by_text": "others" if pair.by else "", **_figures_json(rest)})
    return found


def _figures_json(found: Latencies) -> dict[str, Any]:
    percentiles = zip(_SHARES, found.percentiles(list(_SHARES.values())), strict=True)
    return {
        "count": found.count,
        "sum_ns": found.sum,
        "mean_ns": round(found.mean, 1),
        **{f"{name}_ns": round(value) for name, value in percentiles},
        "max_ns": found.max,
        "histogram": [
            {
                "from_ns": int(BOUNDS[slot]),
                "below_ns": int(BOUNDS[slot + 1]),
                "count": int(found.slots[slot]),
            }
            for slot in np.flatnonzero(found.slots).tolist()
        ],
    }
