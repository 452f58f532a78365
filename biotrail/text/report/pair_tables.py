# SPDX-License-Identifier: Apache-2.0
"""Tables of a report on pairs of events: their latencies, and the keys with the most time."""

from collections.abc import Iterator

from rich.console import RenderableType

from biotrail.converters.analysis.report.tree import PairReport, Report
from biotrail.converters.sites.pair_names import unpaired_text
from biotrail.text import units
from biotrail.text.columns import block, columns_of, table, with_more, without_repeats
from biotrail.text.report.cells import TIMES, times
from biotrail.text.rows import first

_ALL, _NONE = "all", "-"
MOST_KEYS = 5
MOST_LINES = 1000


def pair_parts(
    report: Report, width: int, limit: int | None, most: int
) -> Iterator[RenderableType]:
    """Yield the tables of pairs and keys. limit: rows, 0: all; None: each table's usual."""
    yield _latencies(report, width, most)
    keyed = [pair for pair in report.pairs if len(pair.slowest_keys) > 1]
    if keyed:
        yield _keys(keyed, report.span_ns, width, MOST_KEYS if limit is None else limit)
    if any(interval.pairs for interval in report.intervals):
        yield _intervals(report, width, MOST_LINES if limit is None else limit)
    said = []
    for pair in report.pairs:
        said += [
            f"{pair.name}: {units.count(n)} {unpaired_text(name)}"
            for name, n in pair.unpaired.items()
        ]
        if left := pair.groups_left_out:
            said.append(f"{pair.name}: {units.count(left)} pairs of further values of --by")
        if left := pair.keys_left_out:
            said.append(f"{pair.name}: {units.count(left)} pairs of further keys")
    if said:
        yield block(said)


def _latencies(report: Report, width: int, limit: int) -> RenderableType:
    seconds = max(report.span_ns, 1) / 1e9
    rows, left_out = [], 0
    for pair in report.pairs:
        whole = (_ALL if pair.by else "", pair.time)
        groups, more = first(pair.groups, limit)
        left_out += more
        for text, found in (whole, *((f"{pair.by} = {g.text}", g.time) for g in groups)):
            rate = f"{units.count(round(found.count / seconds))}/s"
            rows.append([pair.name, text, units.count(found.count), rate, *times(found)])
    columns = [*columns_of("pair < | of < | count | rate @1"), *TIMES]
    title = "Pairs of events, from the first to the second"
    return with_more(table(title, columns, without_repeats(rows, 1), width), left_out)


def _keys(pairs: list[PairReport], span_ns: int, width: int, limit: int) -> RenderableType:
    rows = []
    for pair in pairs:
        for key in first(pair.slowest_keys, limit)[0]:
            share = key.sum_ns / max(pair.time.sum, 1)
            rows.append(
                [
                    pair.name,
                    key.text,
                    units.count(key.count),
                    f"{share:.1%}",
                    units.duration(key.sum_ns / max(key.count, 1)),
                    units.duration(key.max_ns),
                ]
            )
    columns = columns_of("pair < | key < | count | share | mean | max")
    left_out = sum(pair.keys_known for pair in pairs) - len(rows)
    title = "Keys with the most time"
    return with_more(table(title, columns, without_repeats(rows, 1), width), left_out, "key")


def _intervals(report: Report, width: int, limit: int) -> RenderableType:
    rows = []
    for interval in report.intervals:
        at = units.since(interval.begin_ns - report.begin_ns)
        seconds = max(interval.end_ns - interval.begin_ns, 1) / 1e9
        if not interval.pairs:
            rows.append([at, _NONE, "", "", *([""] * len(TIMES))])
        for pair in interval.pairs:
            count = pair.time.count
            rate = f"{units.count(round(count / seconds))}/s"
            rows.append([at, pair.name, units.count(count), rate, *times(pair.time)])
    columns = [*columns_of("from | pair < | count | rate @1"), *TIMES]
    shown, more = first(rows, limit)
    title = f"Pairs over time, {units.duration(report.interval_ns)} each"
    return with_more(table(title, columns, without_repeats(shown, 1), width), more)
