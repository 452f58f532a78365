# SPDX-License-Identifier: Apache-2.0
"""The trees of many lives as one, as text: counts, medians, percentiles and shares."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.lives.functions import Functions
from biotrail.converters.analysis.lives.merged import (
    Calls,
    Figures,
    Merged,
    MergedContext,
    MergedNode,
    in_order,
)
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import KIND_NAMES, ContextKind, NodeKind, tells_context
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more
from biotrail.text.rows import first
from biotrail.text.sites.tree import WIDTH, below, branch, chain

_TIMES = 48
"""Characters of the columns of figures."""
_ORDINALS = {1: "", 2: ", the second in a life", 3: ", the third and later in a life"}
_COLUMNS: tuple[Column, ...] = (
    Column("function", left=True),
    Column("calls"),
    Column("lives"),
    Column("total"),
    Column("share", rank=1),
    Column("median"),
    Column("p99"),
    Column("max", rank=2),
    Column("self", rank=1),
    Column("no return", rank=3),
)
_OF_TRACEPOINTS = 8
"""Columns that tracepoints have; where a log has these alone, the others are left out."""


def merged_lines(merged: Merged, following: Following, width: int = WIDTH) -> Iterator[str]:
    """Yield the lines of a merged tree. width: characters of a line, which chains keep to."""
    yield from head_lines(merged, following)
    columns = ("from birth", "median", "p90", "share", "lives")
    yield "".join(f"{name:>{size}}" for name, size in zip(columns, (11, 10, 10, 8, 8), strict=True))
    for context in merged.contexts():
        if context.waited.of.count:
            waited = context.waited
            share = _share(waited, merged)
            figures = f"{_median(waited):>10}{_p90(waited):>10}{share:>8}"
            yield f"{'':11}{figures}{waited.of.count:>8,}  … waited"
        start = _median(context.start)
        heading = f"{start:>11}{'':28}{context.lives:>8,}  {context_text(context)}"
        yield heading
        for nodes, last in _lines(_without_told(context)):
            yield from _text(merged, nodes, last, width)


def head_lines(merged: Merged, following: Following) -> Iterator[str]:
    """Yield how many lives were merged, how long they took, and what is missing."""
    lives = units.plural(merged.lives, "life", "lives")
    yield f"{lives} of {following.type}, {units.plural(merged.hits, 'hit')}"
    if count := merged.took.of.count:
        parts = zip(("median", "p90", "p99"), (0.5, 0.9, 0.99), strict=True)
        times = [f"{name} {units.duration(merged.took.percentile(p))}" for name, p in parts]
        times.append(f"max {units.duration(merged.took.of.max)}")
        yield f"  from birth to death: {', '.join(times)} (of {units.count(count)})"
    if open_ended := merged.lives - merged.took.of.count:
        yield f"  {units.plural(open_ended, 'life', 'lives')} without a recorded birth or end"
    if merged.lost:
        yield f"  {units.plural(merged.lost, 'life', 'lives')} of which hits may be missing"
    if merged.unfinished:
        yield f"  {units.plural(merged.unfinished, 'function')} without a recorded return"
    if merged.alone:
        yield f"  {units.plural(merged.alone, 'return')} without a recorded entry"
    if merged.left_out:
        yield f"  {units.plural(merged.left_out, 'node')} of the lives' trees had no room"


def context_text(context: MergedContext) -> str:
    """Return a context's heading: `task fio: system call pread64`."""
    which = _ORDINALS.get(context.which, "")
    if context.kind == ContextKind.TASK:
        what = f": {context.what}" if context.what else ""
        return f"task {context.name}{what}{which}"
    colon = ":" if context.kind < ContextKind.SOFTIRQ else ""
    what = f"{colon} {context.what}" if context.what else ""
    return f"{KIND_NAMES[context.kind]}{what}{which}"


def _without_told(context: MergedContext) -> list[MergedNode]:
    nodes = in_order(context.roots.values())
    while len(nodes) == 1 and nodes[0].kind == NodeKind.FRAME and tells_context(nodes[0].name):
        nodes = in_order(nodes[0].below.values())
    return nodes


def _lines(nodes: Sequence[MergedNode]) -> Iterator[tuple[list[MergedNode], tuple[bool, ...]]]:
    """Yield (node, or chain of frames; of each above whether it is the last at its place)."""
    rest = _beside(nodes, ())
    while rest:
        found, last = rest.pop()
        yield found, last
        rest += _beside(in_order(found[-1].below.values()), last)


def _beside(
    nodes: Sequence[MergedNode], above: tuple[bool, ...]
) -> list[tuple[list[MergedNode], tuple[bool, ...]]]:
    count = len(nodes)
    return [(_chain(node), (*above, at == count - 1)) for at, node in enumerate(nodes)][::-1]


def _chain(node: MergedNode) -> list[MergedNode]:
    """Return a node, and of a frame those below while each has one frame of as many lives below."""
    found = [node]
    while node.kind == NodeKind.FRAME and len(node.below) == 1:
        (node,) = node.below.values()
        if node.kind != NodeKind.FRAME or node.lives != found[0].lives:
            break
        found.append(node)
    return found


def _text(
    merged: Merged, nodes: list[MergedNode], last: tuple[bool, ...], width: int
) -> Iterator[str]:
    node = nodes[0]
    lead = branch(last)
    names = [f"{one.name} [{one.module}]" if one.module else one.name for one in nodes]
    if node.kind == NodeKind.FRAME:
        further = below(last, bool(nodes[-1].below))
        for at, text in enumerate(chain(names, width - _TIMES - len(lead))):
            figures = f"{'':{_TIMES - 9}}{node.lives:>8,} " if not at else f"{'':{_TIMES}}"
            yield f"{figures}{further if at else lead}{text}"
        return
    figures = f"{_median(node.start):>11}"
    if node.took.of.count:
        figures += f"{_median(node.took):>10}{_p90(node.took):>10}{_share(node.took, merged):>8}"
    yield f"{figures:<39}{node.lives:>8,} {lead}{_named(node, names[0])}"


def _named(node: MergedNode, name: str) -> str:
    text = f"· {name}" if node.kind == NodeKind.EVENT else name
    if node.kind == NodeKind.RETURN:
        text += " returned (its entry is not recorded)"
    if node.calls != node.lives:
        text += f", {node.calls / node.lives:.3g} times each"
    if node.unfinished:
        text += f" ({units.count(node.unfinished)} without a return)"
    return text


def _median(figures: Figures) -> str:
    return units.duration(figures.percentile(0.5))


def _p90(figures: Figures) -> str:
    return units.duration(figures.percentile(0.9))


def _share(figures: Figures, merged: Merged) -> str:
    return f"{100 * figures.total / merged.spans.total:.1f} %" if merged.spans.total else ""


def functions_table(functions: Functions, limit: int, width: int) -> RenderableType:
    """Return the functions with the most time as a table. limit: number of rows, 0: all."""
    rows, more = first(functions.rows(), limit)
    if functions.has_functions:
        title, columns = "Functions by time", _COLUMNS
    else:
        title, columns = "Tracepoints by the time after them", _COLUMNS[:_OF_TRACEPOINTS]
    cells = [_cells(row, functions)[: len(columns)] for row in rows]
    return with_more(table(title, columns, cells, width), more)


def _cells(row: Calls, functions: Functions) -> Sequence[str]:
    """Return the cells of a function or tracepoint, without times where it has none."""
    name = f"{row.name} [{row.module}]" if row.module else row.name
    if row.kind != NodeKind.FUNCTION:
        name = f"· {name}" if row.kind == NodeKind.EVENT else f"{name} returned, no entry"
    cells = [name, units.count(row.calls), units.count(row.lives)]
    if not row.took.of.count:
        return [*cells, *("" for _ in range(6)), _count(row.unfinished)]
    share = f"{100 * row.took.total / functions.time:.1f} %" if functions.time else ""
    own = units.duration(row.own.total) if row.own.of.count else ""
    shown = (row.took.percentile(0.5), row.took.percentile(0.99), row.took.of.max)
    times = [units.duration(row.took.total), share, *map(units.duration, shown)]
    return [*cells, *times, own, _count(row.unfinished)]


def _count(number: int) -> str:
    return units.count(number) if number else ""
