# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os and calls of traces, found in two passes; the slowest pairs; JSON of them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from biotrail.converters.analysis.choosing.select import around, excerpt
from biotrail.converters.analysis.slow.calls import SlowestCalls
from biotrail.converters.analysis.slow.slow import Slowest, SlowestPairs
from biotrail.converters.analysis.slow.surroundings import Neighbourhood
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.joining import JOINED_TYPES
from biotrail.converters.sites.lives import LifeReader
from biotrail.converters.sites.tables import Following, follows
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies
from biotrail.text.sites.facts import life_facts

FORMAT = 1
"""Version of --json's format: raised when a key is renamed or removed."""


def look_again(
    slowest: Slowest | SlowestCalls,
    second: Trace,
    target: str | None = None,
    margin: int = 0,
    force: bool = False,
    given: Iterator[Lifecycles] | None = None,
) -> Path | None:
    """Read the trace again: set each I/O's `surroundings`, or add to each call its waits and bios.

    given: its windows, where another reads them, too. target: of a Perfetto trace of the time
    within `margin` (ns) of each I/O or call. Windows are read until no later one is needed; with
    `target` and anything found, all are.
    """
    near = None
    if isinstance(slowest, Slowest):
        mates = {
            slow.io.number: frozenset(mate.number for mate in slow.mates) for slow in slowest.found
        }
        near = Neighbourhood(second.context, [slow.io for slow in slowest.found], mates)
        spans = [(slow.begin_ns, slow.begin_ns + slow.io.waited_ns) for slow in slowest.found]
    else:
        calls = [slow.call for slow in slowest.found]
        spans = [(call.entry_ns, call.entry_ns + call.duration_ns) for call in calls]

    def passing() -> Iterator[Lifecycles]:
        for window in second.lifecycles() if given is None else given:
            if isinstance(slowest, SlowestCalls):
                slowest.gather(window, second)
            elif near is not None and near.add(window) and not writes:
                return
            yield window

    writes, passed = target is not None and bool(spans), passing()
    if target is not None and writes:
        from biotrail.converters.outputs.perfetto import convert as perfetto

        with output.replacing(target, force=force) as stream:
            perfetto.convert(excerpt(passed, around(spans, margin)), second.context, stream)
    for _ in passed:
        pass
    if isinstance(slowest, SlowestCalls):
        slowest.finish()
    elif near is not None:
        surroundings = near.finish()
        for slow in slowest.found:
            slow.surroundings = surroundings.get(slow.io.number)
    return Path(target) if target is not None and writes else None


def read_functions(slowest: Slowest, third: Trace) -> None:
    """Read the trace again (third pass), and set `slowest.lives`: trees of the I/Os' lives."""
    kind = Following(third.context.header).type if follows(third.context.header) else ""
    if kind not in JOINED_TYPES:
        what = f"follows {kind}, which is no I/O" if kind else "follows nothing"
        raise ConversionError(
            f"--functions: the log {what}; record with --follow request or --follow bio"
        )
    lives = frozenset(one.life for slow in slowest.found for one in slow.followed)
    slowest.lives = {}
    if lives:
        for life in LifeReader(third.context, lives).read(third.lifecycles()):
            slowest.lives[life.number] = life


def as_dict(slowest: Slowest | SlowestCalls) -> dict[str, Any]:
    trace, wanted = slowest.trace, slowest.wanted
    chosen = {"top": wanted.top, "over_ns": wanted.over, "failed": wanted.failed}
    rows, made = [asdict(slow) for slow in slowest.found], dict[str, Any]()
    if isinstance(slowest, Slowest):
        key = Following(trace.context.header).type
        for slow, row in zip(slowest.found, rows, strict=True):
            row["time"] = trace.context.wall_clock(slow.begin_ns)
            if (lives := slowest.lives) is not None:
                kept = [(one.number, lives.get(one.life)) for one in slow.followed]
                row["functions"] = [{key: n, **life_facts(life)} for n, life in kept if life]
            for io in [row["io"], *row["mates"], *row["parents"], *row["children"]]:
                del io["dev"], io["part"]
        made["ios"] = rows
    else:
        for row in rows:
            row["time"] = trace.context.wall_clock(row["call"]["entry_ns"])
            for io in (*row["bios"], *row["journal"]):
                del io["dev"], io["part"]
        chosen["all_calls"] = wanted.every_call
        made |= {"calls_until_ns": trace.context.calls_timed_until, "calls": rows}
    return {
        "format": FORMAT,
        "log_id": trace.context.log_id,
        "wanted": chosen,
        "counts": asdict(slowest.counts),
        **made,
        **tallies.losses_as_dict(trace),
    }


def pairs_as_dict(found: Sequence[tuple[str, Trace, SlowestPairs]], top: int) -> dict[str, Any]:
    rows = [
        {**({"recording": label} if label else {}), **asdict(one), "latency_ns": one.latency_ns}
        for label, _, slow in found
        for one in slow.found()
    ]
    rows.sort(key=lambda row: -int(row["latency_ns"]))
    return {
        "format": FORMAT,
        "pairs": sum(slow.count for _, _, slow in found),
        "slowest": rows[:top],
        "missing": [tallies.losses_as_dict(trace) for _, trace, _ in found],
    }
