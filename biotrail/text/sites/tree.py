# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects as text: the tree of one life, of many as one, a functions table."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import RenderableType

from biotrail.converters.analysis.lives import (
    Calls,
    Figures,
    Functions,
    Merged,
    MergedNode,
    in_order,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.lives import GRACE_NS, MOST_HITS, Tally
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import (
    KIND_NAMES,
    ContextKind,
    ContextRun,
    Ending,
    Life,
    Node,
    NodeKind,
    tells_context,
)
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more
from biotrail.text.rows import first

_TIMES = 26
"""Characters of the columns of times of one life."""
_FIGURES = 48
"""Characters of the columns of figures of many."""
_FEWEST_REPEATS = 4
"""Calls of one function after each other, with nothing below, that are one line."""
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

Line = TypeVar("Line")
Last = tuple[bool, ...]
"""Of each node from the outermost inwards, whether none follows it at its place."""


def tally_lines(tally: Tally) -> list[str]:
    found = []
    if tally.left_out:
        hits = units.plural(tally.left_out, "hit")
        found.append(f"{hits} left out: beyond the {units.count(MOST_HITS)} that a life may have")
    if tally.after_end:
        hits = units.plural(tally.after_end, "hit")
        found.append(f"{hits} left out: more than {units.duration(GRACE_NS)} after the life's end")
    if tally.closed_for_room:
        lives = units.plural(tally.closed_for_room, "life", "lives")
        found.append(f"{lives} closed before the end was read: too many went on at once")
    return found


def _drawn(
    lines: Sequence[Line], below: Callable[[Line], Sequence[Line]]
) -> Iterator[tuple[Line, Last]]:
    """Yield the lines of a tree, each with the lines below it behind it."""

    def beside(lines: Sequence[Line], above: Last) -> list[tuple[Line, Last]]:
        count = len(lines)
        return [(line, (*above, at == count - 1)) for at, line in enumerate(lines)][::-1]

    rest = beside(lines, ())
    while rest:
        line, last = rest.pop()
        yield line, last
        rest += beside(below(line), last)


def _branch(last: Last) -> str:
    """Return what is drawn before a name: `│ ├ `."""
    return "".join("  " if one else "│ " for one in last[:-1]) + ("└ " if last[-1] else "├ ")


def _chain(names: Sequence[str], last: Last, width: int, *, more: bool) -> Iterator[str]:
    """Yield names in lines of about `width` characters: `├ vfs_read → ext4_file_read_iter →`."""
    lead = _branch(last)
    text = " → ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names)
    room = max(width - len(lead), 40)
    for line in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False):
        yield lead + line.replace("\N{NO-BREAK SPACE}", " ")
        lead = "".join("  " if one else "│ " for one in last) + ("│ " if more else "  ")


def _name(node: Node | Calls) -> str:
    """Return a node's name, of a module's function with the module: `nvme_queue_rq [nvme]`."""
    return f"{node.name} [{node.module}]" if node.module else node.name


# One life


@dataclass(frozen=True)
class _Line:
    """A node, a chain of frames each below the one before, or a run of equal calls."""

    nodes: tuple[Node, ...]
    below: tuple[int, ...]
    chain: bool = False


def life_lines(
    life: Life, following: Following, context: Context, start: int, width: int
) -> Iterator[str]:
    """start: when the recording began (ns). width: characters of a line, which chains keep to."""
    what = [f"{following.type} {life.object:#x}", f"life {life.number}"]
    if life.detail and (detail := following.detail_text(life.detail)):
        what.append(detail)
    counts = f"{units.plural(life.hits, 'hit')} in {units.plural(len(life.contexts), 'context')}"
    yield f"{', '.join(what)}: {units.duration(max(life.span, 0))}, {counts}"
    when = context.wall_clock(life.begin)
    begun = "born" if life.born != NEVER else "birth not recorded; first hit"
    at = f"{(life.begin - start) / 1e9:.6f} s after the recording began"
    known = life.ending in (Ending.DIED, Ending.LOG_ENDED)
    ending = life.ending if known else f"end not recorded: {life.ending}"
    yield f"  {begun} {at}" + (f", {when}" if when else "") + f"; {ending}"
    if life.lost:
        yield "  records were lost while it lived: hits may be missing"
    if life.cut:
        yield "  the recorder had no room for some of its hits"
    if life.left_out:
        yield f"  {units.plural(life.left_out, 'hit')} more are left out of the tree"
    yield from _unmatched(life)
    if life.unknown_stacks:
        yield f"  {units.plural(life.unknown_stacks, 'hit')} whose stack is not in the log"
    yield f"{'from birth' if life.born != NEVER else 'from first hit':>15}{'took':>10}"
    until = life.begin
    for run in life.contexts:
        if (gap := run.begin - until) > 0 and run.number:
            yield f"{'':15}{units.duration(gap):>10} … waited"
        until = max(until, run.end)
        yield f"{'':{_TIMES - 1}} {_context_text(run)}"
        roots = run.roots
        while len(roots) == 1 and _is_told(life.nodes[roots[0]]):
            roots = life.nodes[roots[0]].below
        lines = _drawn(_joined(life, roots), lambda line: _joined(life, line.below))
        for line, last in lines:
            if line.chain:
                names = [_name(node) for node in line.nodes]
                for text in _chain(names, last, width - _TIMES, more=bool(line.below)):
                    yield f"{'':{_TIMES}}{text}"
            else:
                yield _line(life, line, last)


def _unmatched(of: Life | Merged) -> Iterator[str]:
    if of.unfinished:
        yield f"  {units.plural(of.unfinished, 'function')} without a recorded return"
    if of.alone:
        yield f"  {units.plural(of.alone, 'return')} without a recorded entry"


def _context_text(run: ContextRun) -> str:
    """Return a context's heading: `task fio 4242 on CPU 1: system call pread64`."""
    cpus = ", ".join(map(str, run.cpus))
    where = f"on CPU {cpus}" if len(run.cpus) == 1 else f"on CPUs {cpus}"
    who = f"{run.comm or 'thread'} {run.tid}" if run.tid else (run.comm or "idle")
    if run.kind < ContextKind.SOFTIRQ:
        what = f": {run.what}" if run.what else ""
        kind = "" if run.kind == ContextKind.IDLE else f"{KIND_NAMES[run.kind]} "
        return f"{kind}{who} {where}{what}"
    over = f", on top of {who}" + (" above" if run.on_top >= 0 else "")
    what = f" {run.what}" if run.what else ""
    return f"{KIND_NAMES[run.kind]}{what} {where}{over}"


def _is_told(node: Node | MergedNode) -> bool:
    return node.kind == NodeKind.FRAME and tells_context(node.name)


def _joined(life: Life, indices: Sequence[int]) -> list[_Line]:
    """Return the lines of nodes at one place: chains of frames, and runs of equal calls, as one."""
    lines, at = [], 0
    while at < len(indices):
        node = life.nodes[indices[at]]
        if node.kind == NodeKind.FRAME:
            at += 1
            frames = [node]
            while len(node.below) == 1 and life.nodes[node.below[0]].kind == NodeKind.FRAME:
                node = life.nodes[node.below[0]]
                frames.append(node)
            lines.append(_Line(tuple(frames), tuple(node.below), chain=True))
            continue
        like, end = (node.name, node.kind, node.finish), at
        while end < len(indices):
            one = life.nodes[indices[end]]
            if (one.name, one.kind, one.finish) != like or one.below:
                break
            end += 1
        if end - at >= _FEWEST_REPEATS:
            lines.append(_Line(tuple(life.nodes[i] for i in indices[at:end]), ()))
            at = end
        else:
            at += 1
            lines.append(_Line((node,), tuple(node.below)))
    return lines


def _line(life: Life, line: _Line, last: Last) -> str:
    node = line.nodes[0]
    text, took = _name(node), ""
    if len(line.nodes) > 1:
        text += f", {units.count(len(line.nodes))} times"
    if node.kind == NodeKind.EVENT:
        text = f"· {text}"
    if node.kind == NodeKind.RETURN:
        text = f"{text} returned (its entry is not recorded)"
    if node.kind == NodeKind.FUNCTION and node.end == NEVER:
        took = f"≥ {units.duration(node.seen - node.begin)}"
        text += f" ({node.finish})"
    elif node.kind == NodeKind.FUNCTION:
        took = units.duration(sum(one.took for one in line.nodes))
    if node.cpu_end != node.cpu:
        text += f" (CPU {node.cpu} → {node.cpu_end})"
    at = f"{(node.begin - life.begin) / 1000:,.1f} µs"
    return f"{at:>15}{took:>10} {_branch(last)}{text}"


# Many lives


def merged_lines(merged: Merged, following: Following, width: int) -> Iterator[str]:
    lives = units.plural(merged.lives, "life", "lives")
    yield f"{lives} of {following.type}, {units.plural(merged.hits, 'hit')}"
    if count := merged.took.of.count:
        shares = {"median": 0.5, "p90": 0.9, "p99": 0.99}
        times = [f"{name} {_duration(merged.took, share)}" for name, share in shares.items()]
        times.append(f"max {units.duration(merged.took.of.max)}")
        yield f"  from birth to death: {', '.join(times)} (of {units.count(count)})"
    if open_ended := merged.lives - merged.took.of.count:
        yield f"  {units.plural(open_ended, 'life', 'lives')} without a recorded birth or end"
    if merged.lost:
        yield f"  {units.plural(merged.lost, 'life', 'lives')} of which hits may be missing"
    yield from _unmatched(merged)
    if merged.left_out:
        yield f"  {units.plural(merged.left_out, 'node')} of the lives' trees had no room"
    columns = ("from birth", "median", "p90", "share", "lives")
    yield "".join(f"{name:>{size}}" for name, size in zip(columns, (11, 10, 10, 8, 8), strict=True))
    for context in merged.contexts():
        if count := context.waited.of.count:
            yield f"{'':11}{_figures(context.waited, merged)}{count:>8,}  … waited"
        # `task fio: system call pread64`
        is_task = context.kind == ContextKind.TASK
        name = f"task {context.name}" if is_task else KIND_NAMES[context.kind]
        colon = ":" if context.kind < ContextKind.SOFTIRQ else ""
        what = f"{colon} {context.what}" if context.what else ""
        start = f"{_duration(context.start, 0.5):>11}{'':28}"
        which = _ORDINALS.get(context.which, "")
        yield f"{start}{context.lives:>8,}  {name}{what}{which}"
        nodes = in_order(context.roots.values())
        while len(nodes) == 1 and _is_told(nodes[0]):
            nodes = in_order(nodes[0].below.values())
        chains = [_merged_chain(node) for node in nodes]
        below = lambda chain: [_merged_chain(node) for node in in_order(chain[-1].below.values())]  # noqa: E731
        for chain, last in _drawn(chains, below):
            yield from _merged_text(merged, chain, last, width)


def _merged_chain(node: MergedNode) -> list[MergedNode]:
    """Return a node, and of a frame those below while each has one frame of as many lives below."""
    found = [node]
    while node.kind == NodeKind.FRAME and len(node.below) == 1:
        (node,) = node.below.values()
        if node.kind != NodeKind.FRAME or node.lives != found[0].lives:
            break
        found.append(node)
    return found


def _merged_text(merged: Merged, nodes: list[MergedNode], last: Last, width: int) -> Iterator[str]:
    node = nodes[0]
    names = [_name(one) for one in nodes]
    if node.kind == NodeKind.FRAME:
        figures = f"{'':{_FIGURES - 9}}{node.lives:>8,} "
        for text in _chain(names, last, width - _FIGURES, more=bool(nodes[-1].below)):
            yield figures + text
            figures = f"{'':{_FIGURES}}"
        return
    text = f"· {names[0]}" if node.kind == NodeKind.EVENT else names[0]
    if node.kind == NodeKind.RETURN:
        text += " returned (its entry is not recorded)"
    if node.calls != node.lives:
        text += f", {node.calls / node.lives:.3g} times each"
    if node.unfinished:
        text += f" ({units.count(node.unfinished)} without a return)"
    figures = f"{_duration(node.start, 0.5):>11}"
    if node.took.of.count:
        figures += _figures(node.took, merged)
    yield f"{figures:<39}{node.lives:>8,} {_branch(last)}{text}"


def _duration(figures: Figures, share: float) -> str:
    return units.duration(figures.percentile(share))


def _figures(of: Figures, merged: Merged) -> str:
    """Return median, 90th percentile and share of all time."""
    share = _per_cent(of.total, merged.spans.total)
    return f"{_duration(of, 0.5):>10}{_duration(of, 0.9):>10}{share:>8}"


def _per_cent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def functions_table(functions: Functions, limit: int, width: int) -> RenderableType:
    """limit: number of rows, 0: all."""
    rows, more = first(functions.rows(), limit)
    if functions.has_functions:
        title, columns = "Functions by time", _COLUMNS
    else:
        title, columns = "Tracepoints by the time after them", _COLUMNS[:_OF_TRACEPOINTS]
    cells = []
    for row in rows:
        name, times = _name(row), [""] * 6
        if row.kind != NodeKind.FUNCTION:
            name = f"· {name}" if row.kind == NodeKind.EVENT else f"{name} returned, no entry"
        if row.took.of.count:
            shown = (row.took.percentile(0.5), row.took.percentile(0.99), row.took.of.max)
            own = units.duration(row.own.total) if row.own.of.count else ""
            share = _per_cent(row.took.total, functions.time)
            times = [units.duration(row.took.total), share, *map(units.duration, shown), own]
        without_return = units.count(row.unfinished) if row.unfinished else ""
        found = [name, units.count(row.calls), units.count(row.lives), *times, without_return]
        cells.append(found[: len(columns)])
    return with_more(table(title, columns, cells, width), more)
