# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os and calls of traces, found in two passes; the slowest pairs; JSON of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from biotrail.cli.options.cuts import Opened
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.select import around, excerpt
from biotrail.converters.analysis.slow.calls import SlowestCalls, WantedCalls
from biotrail.converters.analysis.slow.slow import Slowest
from biotrail.converters.analysis.slow.slow import Wanted as WantedIOs
from biotrail.converters.analysis.slow.slowest_pairs import SlowestPairs
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


@dataclass
class Findings:
    """The slowest I/Os, or system calls, of a trace."""

    trace: Trace
    wanted: Any
    """WantedIOs, or WantedCalls."""
    slowest: Any
    """Slowest, or SlowestCalls."""

    @property
    def found(self) -> list[Any]:
        return cast(list[Any], self.slowest.found)


def find(trace: Trace, wanted: WantedIOs, choice: Choice) -> Findings:
    slowest = Slowest(trace, choice, wanted, whole_families=not choice.by_device)
    for _ in trace.lifecycles(on_window=slowest.watch):
        pass
    choice.check(slowest.devices)
    return Findings(trace, wanted, slowest)


def look_around(
    found: Findings,
    second: Trace,
    target: str | None,
    margin: int,
    force: bool,
    given: Iterator[Lifecycles] | None = None,
) -> Path | None:
    """Read the trace again (second pass), and set each I/O's `surroundings`.

    given: its windows, where another reads them, too. target: of a Perfetto trace of the time
    within `margin` (ns) of each I/O.
    """
    mates = {slow.io.number: frozenset(mate.number for mate in slow.mates) for slow in found.found}
    near = Neighbourhood(second.context, [slow.io for slow in found.found], mates)
    spans = [(slow.begin_ns, slow.begin_ns + slow.io.waited_ns) for slow in found.found]
    windows = second.lifecycles() if given is None else given
    path = _read_again(windows, second, near.add, spans, target, margin, force)
    near.finish()
    for slow in found.found:
        slow.surroundings = near.of(slow.io)
    return path


def read_functions(found: Findings, third: Trace) -> None:
    """Read the trace again (third pass), and set `slowest.lives`: trees of the I/Os' lives."""
    kind = Following(third.context.header).type if follows(third.context.header) else ""
    if kind not in JOINED_TYPES:
        what = f"follows {kind}, which is no I/O" if kind else "follows nothing"
        raise ConversionError(
            f"--functions: the log {what}; record with --follow request or --follow bio"
        )
    lives = frozenset(one.life for slow in found.found for one in slow.followed)
    found.slowest.lives = {}
    if lives:
        for life in LifeReader(third.context, lives).read(third.lifecycles()):
            found.slowest.lives[life.number] = life


def _read_again(
    windows: Iterator[Lifecycles],
    second: Trace,
    add: Callable[[Lifecycles], bool],
    spans: Sequence[tuple[int, int]],
    target: str | None,
    margin: int,
    force: bool,
) -> Path | None:
    """Pass windows to `add`, until it returns that no later one is needed.

    With `target` and spans, (begin, end) in ns, pass all, and write a Perfetto trace of the time
    within `margin` (ns) of the spans.
    """
    if target is None or not spans:
        any(map(add, windows))
        return None
    from biotrail.converters.outputs.perfetto import convert as perfetto

    def passing() -> Iterator[Lifecycles]:
        for window in windows:
            add(window)
            yield window

    passed = passing()
    with output.replacing(target, force=force) as stream:
        perfetto.convert(excerpt(passed, around(spans, margin)), second.context, stream)
    for _ in passed:
        pass
    return Path(target)


def as_dict(found: Findings) -> dict[str, Any]:
    trace, wanted, lives = found.trace, found.wanted, found.slowest.lives
    key = Following(trace.context.header).type
    ios = []
    for slow in found.found:
        row = asdict(slow)
        row["time"] = trace.context.wall_clock(slow.begin_ns)
        if lives is not None:
            kept = [(one.number, lives.get(one.life)) for one in slow.followed]
            row["functions"] = [{key: n, **life_facts(life)} for n, life in kept if life]
        for io in [row["io"], *row["mates"], *row["parents"], *row["children"]]:
            del io["dev"], io["part"]
        ios.append(row)
    chosen = {"top": wanted.top, "over_ns": wanted.over, "failed": wanted.failed}
    return _facts(found, chosen, {"ios": ios})


def _facts(found: Findings, wanted: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "log_id": found.trace.context.log_id,
        "wanted": wanted,
        "counts": asdict(found.slowest.counts),
        **rows,
        **tallies.losses_as_dict(found.trace),
    }


def find_calls(opened: Opened, wanted: WantedCalls) -> Findings:
    if not opened.trace.context.path_parts & {"time", "wait"}:
        raise ConversionError(
            "this log does not say how long calls took: record again with biotrail record --path"
        )
    slowest = SlowestCalls(wanted)
    for window in opened.chosen(opened.trace.lifecycles()):
        slowest.add(window, opened.trace.context)
    return Findings(opened.trace, wanted, slowest)


def gather_calls(
    found: Findings, second: Trace, target: str | None, margin: int, force: bool
) -> Path | None:
    """Read the trace again (second pass), and add to each call its waits and bios."""

    def add(window: Lifecycles) -> bool:
        found.slowest.gather(window, second)
        return False

    calls = [slow.call for slow in found.found]
    spans = [(call.entry_ns, call.entry_ns + call.duration_ns) for call in calls]
    written = _read_again(second.lifecycles(), second, add, spans, target, margin, force)
    found.slowest.finish()
    return written


def calls_as_dict(found: Findings) -> dict[str, Any]:
    trace, wanted = found.trace, found.wanted
    calls = []
    for slow in found.found:
        row = asdict(slow)
        row["time"] = trace.context.wall_clock(slow.call.entry_ns)
        for io in (*row["bios"], *row["journal"]):
            del io["dev"], io["part"]
        calls.append(row)
    chosen = {
        "top": wanted.top,
        "over_ns": wanted.over,
        "failed": wanted.failed,
        "all_calls": wanted.every,
    }
    until = trace.context.calls_timed_until
    return _facts(found, chosen, {"calls_until_ns": until, "calls": calls})


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
