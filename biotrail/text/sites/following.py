# SPDX-License-Identifier: Apache-2.0
"""What a log followed, and what it could not see of it, in sentences."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.sites.tables import Following, follows
from biotrail.text import units

_WAYS = {
    "session": "kprobe sessions",
    "multi": "kprobe.multi",
    "fentry": "fentry and fexit",
    "kprobe": "kprobes",
    "typed": "typed tracepoints alone",
}
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
    """Return what was followed, how, what became of it, and what was not seen; empty: nothing was.

    header, end: the log's header and END frame; None: it has none.
    """
    if not follows(header):
        return []
    facts = header["sites"]["follow"]
    following = Following(header)
    lines = [f"struct {following.type}: {_sites(facts)}, by {_WAYS.get(following.way, '?')}"]
    chosen = _chosen(facts)
    if chosen:
        lines.append(chosen)
    lines += [f"{role}: {_names(facts.get(key, []))}" for role, key in _ROLES if facts.get(key)]
    counts = ((end or {}).get("sites") or {}).get("follow") or {}
    told = [f"{units.count(counts[k])} {text}" for k, text in _COUNTS.items() if counts.get(k)]
    if told:
        lines.append(f"lives: {', '.join(told)}")
    lines += [f"{units.count(counts[k])} {text}" for k, text in _LACKING.items() if counts.get(k)]
    return [*lines, *unseen_lines(facts.get("unseen", {}))]


_ROLES = (("begins at", "births"), ("ends at", "deaths"))
_MOST_NAMES = 6


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _sites(facts: Mapping[str, Any]) -> str:
    kinds = [site.get("kind") for site in facts.get("sites", [])]
    functions, events = kinds.count("function"), kinds.count("tracepoint")
    parts = [units.plural(functions, "function")] if functions else []
    return ", ".join([*parts, *([units.plural(events, "tracepoint")] if events else [])]) or "none"


def _chosen(facts: Mapping[str, Any]) -> str:
    every, most = int(facts.get("every", 1)), int(facts.get("max", 0))
    slower = int(facts.get("slower_ns", 0))
    parts = [f"each {units.count(every)}th"] if every > 1 else []
    parts += [f"{units.count(most)} at one time at most"] if most else []
    parts += [f"only lives over {units.duration(slower)}"] if slower else []
    return ", ".join(parts)


def unseen_lines(unseen: Mapping[str, int]) -> list[str]:
    """Return how many functions that take the type were not seen, by reason; empty: none."""
    rows = sorted(unseen.items(), key=lambda row: (-int(row[1]), row[0]))
    return [
        f"{units.plural(int(count), 'function')} not seen: {why}" for why, count in rows if count
    ]
