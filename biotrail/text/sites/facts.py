# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects for JSON; sentences on what a log followed; records of chosen sites."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.analysis.lives import Figures, Functions, Merged, MergedContext, in_order
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.tables import Following, follows
from biotrail.converters.sites.trees import KIND_NAMES, Life, Node, NodeKind, known
from biotrail.text import units

_WAYS = {
    "session": "kprobe sessions",
    "multi": "kprobe.multi",
    "fentry": "fentry and fexit",
    "kprobe": "kprobes",
    "typed": "typed tracepoints alone",
}
_MOST_NAMES = 6
_COUNTS = {
    "born": "begun",
    "ended": "ended",
    "reused": "ended as their address was a new object's",
    "idle": "given up as nothing was seen of them for long",
    "quick": "quicker than --slower, left out",
}
"""What became of lives, by the END frame's counts."""
_LACKING = {
    "full": "births while as many objects as --max allows were followed: not followed",
    "cut": "hits of long candidates had no room (--slower)",
    "unmatched": "calls whose return was not seen",
    "too_deep": "calls whose return could not be waited for",
    "bad_reads": "births whose device or process could not be read",
}


def following_lines(header: Mapping[str, Any], end: Mapping[str, Any] | None) -> list[str]:
    """Return what was followed, how, what became of it and was not seen; empty: nothing was."""
    if not follows(header):
        return []
    facts = header["sites"]["follow"]
    following = Following(header)
    kinds = [site.get("kind") for site in facts.get("sites", [])]
    sites = ", ".join(
        units.plural(kinds.count(kind), kind)
        for kind in ("function", "tracepoint")
        if kind in kinds
    )
    lines = [f"struct {following.type}: {sites or 'none'}, by {_WAYS.get(following.way, '?')}"]
    every, most = int(facts.get("every", 1)), int(facts.get("max", 0))
    slower = int(facts.get("slower_ns", 0))
    chosen = [f"each {units.count(every)}th"] if every > 1 else []
    chosen += [f"{units.count(most)} at one time at most"] if most else []
    chosen += [f"only lives over {units.duration(slower)}"] if slower else []
    lines += [", ".join(chosen)] if chosen else []
    for role, names in (("begins at", facts.get("births")), ("ends at", facts.get("deaths"))):
        if names:
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            lines.append(f"{role}: {', '.join(names[:_MOST_NAMES])}{more}")
    counts = ((end or {}).get("sites") or {}).get("follow") or {}
    told = [f"{units.count(counts[k])} {text}" for k, text in _COUNTS.items() if counts.get(k)]
    if told:
        lines.append(f"lives: {', '.join(told)}")
    lines += [f"{units.count(counts[k])} {text}" for k, text in _LACKING.items() if counts.get(k)]
    rows = sorted(facts.get("unseen", {}).items(), key=lambda row: (-int(row[1]), row[0]))
    lines += [
        f"{units.plural(int(count), 'function')} not seen: {why}" for why, count in rows if count
    ]
    return lines


Facts = dict[str, Any]
_CALLS = ("kind", "name", "module", "calls", "lives", "unfinished")


def life_facts(life: Life) -> Facts:
    """Return a life with its tree. Times in ns of CLOCK_MONOTONIC; null: not recorded.

    "nodes" of a context are its tree in one list, depth first: "depth" says how many are above.
    """
    return {
        "life": life.number,
        "object": f"{life.object:#x}",
        "detail": life.detail,
        "born_ns": known(life.born),
        "first_ns": life.first,
        "last_ns": life.last,
        "ended_ns": known(life.ended),
        "ending": life.ending,
        "took_ns": known(life.took),
        "hits": life.hits,
        "unfinished": life.unfinished,
        "returns_alone": life.alone,
        "left_out": life.left_out,
        "cut": life.cut,
        "lost": life.lost,
        "unknown_stacks": life.unknown_stacks,
        "contexts": [
            {
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
            for run in life.contexts
        ],
    }


def _node(node: Node) -> Facts:
    entered = node.kind == NodeKind.FUNCTION
    return {
        "depth": node.depth,
        "kind": node.kind,
        "name": node.name,
        "module": node.module,
        "begin_ns": node.begin,
        "end_ns": known(node.end),
        "self_ns": known(node.own) if entered else None,
        "seen_ns": node.seen,
        "finish": node.finish if entered else None,
        "value": node.value if entered and node.end != NEVER else None,
        "cpu": node.cpu,
        "cpu_end": node.cpu_end,
    }


def merged_facts(merged: Merged) -> Facts:
    """Return the merged trees; times are distributions of ns, starts from each life's begin."""

    def nodes(context: MergedContext) -> list[Facts]:
        found = []
        rest = [(node, 0) for node in reversed(in_order(context.roots.values()))]
        while rest:
            node, depth = rest.pop()
            found.append(
                {
                    "depth": depth,
                    **{name: getattr(node, name) for name in _CALLS},
                    "start": _figures(node.start),
                    "took": _figures(node.took),
                    "self": _figures(node.own),
                }
            )
            rest += [(one, depth + 1) for one in reversed(in_order(node.below.values()))]
        return found

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
                "nodes": nodes(one),
            }
            for one in merged.contexts()
        ],
    }


def functions_facts(functions: Functions, limit: int) -> list[Facts]:
    """limit: 0: all."""
    return [
        {
            **{name: getattr(row, name) for name in _CALLS},
            "took": _figures(row.took),
            "self": _figures(row.own),
        }
        for row in functions.rows()[: limit or None]
    ]


def _figures(figures: Figures) -> Facts | None:
    of = figures.of
    if not of.count:
        return None
    median, p90, p99 = of.percentiles([0.5, 0.9, 0.99])
    facts = {"count": of.count, "total_ns": figures.total, "min_ns": of.min}
    return {**facts, "median_ns": median, "p90_ns": p90, "p99_ns": p99, "max_ns": of.max}
