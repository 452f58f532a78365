# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects, single, merged and by function, for JSON; words that texts share."""

from typing import Any

from biotrail.converters.analysis.lives.functions import Functions
from biotrail.converters.analysis.lives.merged import Calls, Figures, Merged, MergedNode
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.lives import Tally
from biotrail.converters.sites.trees import (
    ENDING_NAMES,
    FINISH_NAMES,
    KIND_NAMES,
    ContextRun,
    Life,
    Node,
    NodeKind,
)
from biotrail.text.sites.tree import NODE_NAMES

Facts = dict[str, Any]


def life_facts(life: Life) -> Facts:
    """Return a life with its tree. Times in ns of CLOCK_MONOTONIC; null: not recorded.

    "nodes" of a context are its tree in one list, depth first: "depth" says how many are above.
    """
    return {
        "life": life.number,
        "object": f"{life.object:#x}",
        "detail": life.detail,
        "born_ns": _time(life.born),
        "first_ns": life.first,
        "last_ns": life.last,
        "ended_ns": _time(life.ended),
        "ending": ENDING_NAMES[life.ending],
        "took_ns": _time(life.took),
        "hits": life.hits,
        "unfinished": life.unfinished,
        "returns_alone": life.alone,
        "left_out": life.left_out,
        "cut": life.cut,
        "lost": life.lost,
        "unknown_stacks": life.unknown_stacks,
        "contexts": [_context(life, run) for run in life.contexts],
    }


def _context(life: Life, run: ContextRun) -> Facts:
    return {
        "number": run.number,
        "kind": KIND_NAMES[run.kind],
        "what": run.what,
        "tid": run.tid,
        "comm": run.comm,
        "cpus": run.cpus,
        "begin_ns": run.begin,
        "end_ns": run.end,
        "on_top_of": run.on_top if run.on_top >= 0 else None,
        "nodes": [_node(node) for node in life.walk(run.roots)],
    }


def _node(node: Node) -> Facts:
    """Return a node; those that are no functions with an entry have no time of their own."""
    entered = node.kind == NodeKind.FUNCTION
    return {
        "depth": node.depth,
        "kind": NODE_NAMES[node.kind],
        "name": node.name,
        "module": node.module,
        "begin_ns": node.begin,
        "end_ns": _time(node.end),
        "self_ns": _time(node.own) if entered else None,
        "seen_ns": node.seen,
        "finish": FINISH_NAMES[node.finish] if entered else None,
        "value": node.value if entered and node.end != NEVER else None,
        "cpu": node.cpu,
        "cpu_end": node.cpu_end,
    }


def _time(ns: int) -> int | None:
    return None if ns == NEVER else ns


def merged_facts(merged: Merged) -> Facts:
    """Return the merged trees; times are distributions of ns, starts from each life's begin."""
    return {
        "lives": merged.lives,
        "hits": merged.hits,
        "took": _figures(merged.took),
        "known": _figures(merged.spans),
        "unfinished": merged.unfinished,
        "returns_alone": merged.alone,
        "lost": merged.lost,
        "left_out": merged.left_out,
        "contexts": [
            {
                "kind": KIND_NAMES[one.kind],
                "name": one.name,
                "what": one.what,
                "which": one.which,
                "runs": one.runs,
                "lives": one.lives,
                "start": _figures(one.start),
                "waited": _figures(one.waited),
                "took": _figures(one.took),
                "nodes": _merged_nodes(one.ordered()),
            }
            for one in merged.contexts()
        ],
    }


def _merged_nodes(roots: list[MergedNode]) -> list[Facts]:
    """Return the nodes of one context as one list, depth first."""
    found = []
    rest = [(node, 0) for node in reversed(roots)]
    while rest:
        node, depth = rest.pop()
        found.append(
            {
                "depth": depth,
                "kind": NODE_NAMES[node.kind],
                "name": node.name,
                "module": node.module,
                "calls": node.calls,
                "lives": node.lives,
                "unfinished": node.unfinished,
                "start": _figures(node.start),
                "took": _figures(node.took),
                "self": _figures(node.own),
            }
        )
        rest += [(one, depth + 1) for one in reversed(node.ordered())]
    return found


def functions_facts(functions: Functions, limit: int) -> list[Facts]:
    """Return the functions with the most time; limit 0: all."""
    rows = functions.rows()
    return [_function(row) for row in rows[: limit or len(rows)]]


def _function(row: Calls) -> Facts:
    return {
        "kind": NODE_NAMES[row.kind],
        "name": row.name,
        "module": row.module,
        "calls": row.calls,
        "lives": row.lives,
        "unfinished": row.unfinished,
        "took": _figures(row.took),
        "self": _figures(row.own),
    }


def _figures(figures: Figures) -> Facts | None:
    """Return a distribution of ns; None: it has no values."""
    of = figures.of
    if not of.count:
        return None
    median, p90, p99 = of.percentiles([0.5, 0.9, 0.99])
    facts = {"count": of.count, "total_ns": figures.total, "min_ns": of.min}
    return {**facts, "median_ns": median, "p90_ns": p90, "p99_ns": p99, "max_ns": of.max}


def tally_facts(tally: Tally) -> Facts:
    """Return what was read and what was left out of the lives."""
    return {
        "hits": tally.hits,
        "lives": tally.lives,
        "after_end": tally.after_end,
        "left_out": tally.left_out,
        "closed_for_room": tally.no_room,
    }
