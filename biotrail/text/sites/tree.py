# SPDX-License-Identifier: Apache-2.0
"""The tree of one life as text: contexts in order of time, functions as branches."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.lives import GRACE_NS, MOST_HITS, Tally
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import (
    ENDING_NAMES,
    FINISH_NAMES,
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

NODE_NAMES = {
    NodeKind.FRAME: "frame",
    NodeKind.FUNCTION: "function",
    NodeKind.EVENT: "tracepoint",
    NodeKind.RETURN: "return",
}


def tally_lines(tally: Tally) -> list[str]:
    """Return sentences on hits and lives that were left out; empty: none were."""
    found = []
    if tally.left_out:
        hits = units.plural(tally.left_out, "hit")
        found.append(f"{hits} left out: beyond the {units.count(MOST_HITS)} that a life may have")
    if tally.after_end:
        hits = units.plural(tally.after_end, "hit")
        found.append(f"{hits} left out: more than {units.duration(GRACE_NS)} after the life's end")
    if tally.no_room:
        lives = units.plural(tally.no_room, "life", "lives")
        found.append(f"{lives} closed before the end was read: too many went on at once")
    return found


WIDTH = 160
"""Characters of a line where the terminal's are not known."""
ARROW = " → "


def branch(last: Sequence[bool]) -> str:
    """Return what is drawn before a name: `│ ├ `.

    last: of each node from the outermost inwards, whether none follows it at its place; without
    any, nothing is drawn.
    """
    if not last:
        return ""
    return "".join("  " if one else "│ " for one in last[:-1]) + ("└ " if last[-1] else "├ ")


def below(last: Sequence[bool], more: bool) -> str:
    """Return what is drawn before a node's further lines. more: whether nodes are below it."""
    return "".join("  " if one else "│ " for one in last) + ("│ " if more else "  ")


def chain(names: Sequence[str], room: int) -> Iterator[str]:
    """Yield the names in lines of about `room` characters: `vfs_read → ext4_file_read_iter →`."""
    text = ARROW.join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names)
    for line in textwrap.wrap(text, max(room, 40), break_long_words=False, break_on_hyphens=False):
        yield line.replace("\N{NO-BREAK SPACE}", " ")


_TIMES = 26
"""Characters of the columns of times."""
_FEWEST_REPEATS = 4
"""Calls of one function after each other, with nothing below, that are one line."""


@dataclass(frozen=True)
class _Line:
    """A line of a tree: a node, a chain of frames, or a run of equal calls."""

    nodes: tuple[Node, ...]
    below: tuple[int, ...]
    """Indices of the nodes below."""
    chain: bool = False
    """Whether `nodes` are frames, each below the one before; else calls of one function."""


def life_lines(
    life: Life, following: Following, context: Context, start: int, width: int = WIDTH
) -> Iterator[str]:
    """Yield the lines of a life's tree.

    start: when the recording began (ns), from which the life's begin is told. width: characters of
    a line, which chains of frames keep to.
    """
    yield from head_lines(life, following, context, start)
    yield f"{'from birth' if life.born != NEVER else 'from first hit':>15}{'took':>10}"
    until = life.begin
    for run in life.contexts:
        if (gap := run.begin - until) > 0 and run.number:
            yield f"{'':15}{units.duration(gap):>10} … waited"
        until = max(until, run.end)
        yield f"{'':{_TIMES - 1}} {context_text(life, run)}"
        for line, last in _lines(life, run):
            yield from _text(life, line, last, width)


def head_lines(life: Life, following: Following, context: Context, start: int) -> Iterator[str]:
    """Yield what a life is: object, number, times, end, and what its tree lacks."""
    detail = following.detail_text(life.detail) if life.detail else ""
    what = [
        f"{following.type} {life.object:#x}",
        f"life {life.number}",
        *([detail] if detail else []),
    ]
    counts = f"{units.plural(life.hits, 'hit')} in {units.plural(len(life.contexts), 'context')}"
    yield f"{', '.join(what)}: {units.duration(max(life.span, 0))}, {counts}"
    when = context.wall_clock(life.begin)
    begun = "born" if life.born != NEVER else "birth not recorded; first hit"
    at = f"{(life.begin - start) / 1e9:.6f} s after the recording began"
    yield f"  {begun} {at}" + (f", {when}" if when else "") + f"; {ending_text(life)}"
    for text in lacking(life):
        yield f"  {text}"


def ending_text(life: Life) -> str:
    """Return how a life ended: `ended`, `no end by the log's end`, `end not recorded: …`."""
    if life.ending in (Ending.DIED, Ending.LOG_ENDED):
        return ENDING_NAMES[life.ending]
    return f"end not recorded: {ENDING_NAMES[life.ending]}"


def lacking(life: Life) -> list[str]:
    """Return sentences on what a life's tree lacks; empty: nothing that is known of."""
    found = []
    if life.lost:
        found.append("records were lost while it lived: hits may be missing")
    if life.cut:
        found.append("the recorder had no room for some of its hits")
    if life.left_out:
        found.append(f"{units.plural(life.left_out, 'hit')} more are left out of the tree")
    if life.unfinished:
        found.append(f"{units.plural(life.unfinished, 'function')} without a recorded return")
    if life.alone:
        found.append(f"{units.plural(life.alone, 'return')} without a recorded entry")
    if life.unknown_stacks:
        found.append(f"{units.plural(life.unknown_stacks, 'hit')} whose stack is not in the log")
    return found


def context_text(life: Life, run: ContextRun) -> str:
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


def _lines(life: Life, run: ContextRun) -> Iterator[tuple[_Line, tuple[bool, ...]]]:
    """Yield (line, of each node from the outermost inwards whether it is the last at its place)."""
    roots = run.roots
    while len(roots) == 1 and _is_told(life.nodes[roots[0]]):
        roots = life.nodes[roots[0]].below
    rest = _beside(life, roots, ())
    while rest:
        line, last = rest.pop()
        yield line, last
        rest += _beside(life, line.below, last)


def _is_told(node: Node) -> bool:
    return node.kind == NodeKind.FRAME and tells_context(node.name)


def _beside(
    life: Life, indices: Sequence[int], above: tuple[bool, ...]
) -> list[tuple[_Line, tuple[bool, ...]]]:
    lines = list(_joined(life, indices))
    count = len(lines)
    return [(line, (*above, at == count - 1)) for at, line in enumerate(lines)][::-1]


def _joined(life: Life, indices: Sequence[int]) -> Iterator[_Line]:
    """Yield the lines of nodes at one place: chains of frames, and runs of equal calls, as one."""
    at = 0
    while at < len(indices):
        node = life.nodes[indices[at]]
        if node.kind == NodeKind.FRAME:
            at += 1
            yield _chain(life, node)
            continue
        end = at
        while end < len(indices) and _repeats(node, life.nodes[indices[end]]):
            end += 1
        if end - at >= _FEWEST_REPEATS:
            yield _Line(tuple(life.nodes[i] for i in indices[at:end]), ())
            at = end
        else:
            at += 1
            yield _Line((node,), tuple(node.below))


def _repeats(first: Node, node: Node) -> bool:
    same = node.name == first.name and node.kind == first.kind and node.finish == first.finish
    return same and not node.below and not first.below


def _chain(life: Life, node: Node) -> _Line:
    """Return the line of a frame and those below it, as far as each has nothing beside it."""
    nodes = [node]
    while len(node.below) == 1 and life.nodes[node.below[0]].kind == NodeKind.FRAME:
        node = life.nodes[node.below[0]]
        nodes.append(node)
    return _Line(tuple(nodes), tuple(node.below), chain=True)


def _text(life: Life, line: _Line, last: tuple[bool, ...], width: int) -> Iterator[str]:
    first = line.nodes[0]
    if line.chain:
        lead, further = branch(last), below(last, bool(line.below))
        names = [node_name(node) for node in line.nodes]
        for at, text in enumerate(chain(names, width - _TIMES - len(lead))):
            yield f"{'':{_TIMES}}{further if at else lead}{text}"
        return
    start = f"{(first.begin - life.begin) / 1000:,.1f} µs"
    yield f"{start:>15}{_took(line):>10} {branch(last)}{_named(line)}"


def _took(line: _Line) -> str:
    node = line.nodes[0]
    if node.kind != NodeKind.FUNCTION:
        return ""
    if node.end == NEVER:
        return f"≥ {units.duration(node.seen - node.begin)}"
    return units.duration(sum(one.took for one in line.nodes))


def _named(line: _Line) -> str:
    node = line.nodes[0]
    text = node_name(node)
    if len(line.nodes) > 1:
        text += f", {units.count(len(line.nodes))} times"
    if node.kind == NodeKind.EVENT:
        text = f"· {text}"
    if node.kind == NodeKind.RETURN:
        text = f"{text} returned (its entry is not recorded)"
    if node.kind == NodeKind.FUNCTION and node.end == NEVER:
        text += f" ({FINISH_NAMES[node.finish]})"
    if node.cpu_end != node.cpu:
        text += f" (CPU {node.cpu} → {node.cpu_end})"
    return text


def node_name(node: Node) -> str:
    """Return a node's name, of a module's function with the module: `nvme_queue_rq [nvme]`."""
    return f"{node.name} [{node.module}]" if node.module else node.name
