# SPDX-License-Identifier: Apache-2.0
"""Show slow pairs of events as a table."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.slow.slowest_pairs import SlowestPairs
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies, units
from biotrail.text.columns import block, columns_of, table

Found = tuple[str, Trace, SlowestPairs]
"""A recording's label, empty if it is the only one; its trace; its slow pairs."""


def parts_of_all(found: Sequence[Found], top: int, width: int) -> Iterator[RenderableType]:
    rows = [(label, trace, one) for label, trace, slow in found for one in slow.found()]
    rows.sort(key=lambda row: -row[2].latency_ns)
    rows = rows[:top]
    count = sum(slow.count for _, _, slow in found)
    slower = sum(slow.slower for _, _, slow in found)
    over = max((slow.over_ns for _, _, slow in found), default=0)
    which = f"; {units.count(slower)} took {units.duration(over)} or longer" if over else ""
    yield block([f"{units.plural(count, 'pair')} of events{which}"])
    several = any(label for label, _, _ in rows)
    columns = columns_of("recording < |" * several + "pair < | of < | took | from | cpu | thread <")
    lines = [
        [
            *([label] if several else []),
            one.pair,
            one.by,
            units.duration(one.latency_ns),
            units.duration(one.began_ns - trace.start),
            str(one.cpu),
            f"{one.comm} {one.tid}",
            one.key,
        ]
        for label, trace, one in rows
    ]
    if lines:
        yield table("The slowest pairs", [*columns, *columns_of("key <")], lines, width)
    yield from (
        block([f"missing: {line}"]) for _, trace, _ in found for line in tallies.loss_lines(trace)
    )
