# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os of a trace, found in two passes, and the JSON of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.excerpt import around, excerpt
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO
from biotrail.converters.analysis.slow.slow import Wanted as WantedIOs
from biotrail.converters.analysis.slow.surroundings import Neighbourhood
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.building import LifeReader, read_lives
from biotrail.converters.sites.joining import JOINED_TYPES
from biotrail.converters.sites.lives import Wanted
from biotrail.converters.sites.tables import Following, follows
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies
from biotrail.text.sites.facts import life_facts

FORMAT = 1
"""Version of --json's format: raised when a key is renamed or removed."""


@dataclass
class Findings:
    """The slowest I/Os of a trace."""

    trace: Trace
    wanted: WantedIOs
    slowest: Slowest

    @property
    def ios(self) -> list[SlowIO]:
        """The I/Os found, the slowest first."""
        return self.slowest.found


def keep_slowest(found: Sequence[Findings], top: int) -> None:
    """Remove from each recording's findings all but the slowest `top` I/Os of all recordings.

    Changes each one's `ios` in place; does nothing for a single recording.
    """
    if len(found) < 2:
        return
    every = sorted((slow.io.rank, at) for at, one in enumerate(found) for slow in one.ios)
    kept = Counter(at for _, at in every[:top])
    for at, one in enumerate(found):
        del one.ios[kept[at] :]


def find(trace: Trace, wanted: WantedIOs, choice: Choice) -> Findings:
    """Read the trace to its end (first pass); return the slowest I/Os with their families.

    Raises ConversionError if the log does not have a chosen device.
    """
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

    second: the trace, opened again. given: its windows, where another reads them, too. If `target`
    is given and I/Os were found, also write a Perfetto trace of the time within `margin` (ns) of
    each I/O, and return its path; else None.
    """
    mates = {slow.io.number: frozenset(mate.number for mate in slow.mates) for slow in found.ios}
    near = Neighbourhood(second.context, [slow.io for slow in found.ios], mates)
    windows = second.lifecycles() if given is None else given
    path = None
    if target is not None and found.ios:
        spans = [(slow.begin_ns, slow.begin_ns + slow.io.waited_ns) for slow in found.ios]
        path = write_around(second, near.add, spans, target, margin, force)
    else:
        for window in windows:
            if near.add(window):
                break
    near.finish()
    for slow in found.ios:
        slow.surroundings = near.of(slow.io)
    return path


def read_functions(found: Findings, third: Trace) -> None:
    """Read the trace again (third pass), and set `slowest.lives` to the trees of the I/Os' lives.

    third: the trace, opened again. Raises ConversionError: the log follows no requests and no bios.
    """
    kind = Following(third.context.header).type if follows(third.context.header) else ""
    if kind not in JOINED_TYPES:
        what = f"follows {kind}, which is no I/O" if kind else "follows nothing"
        raise ConversionError(
            f"--functions: the log {what}; record with --follow request or --follow bio"
        )
    lives = frozenset(one.life for slow in found.ios for one in slow.followed)
    found.slowest.lives = {}
    if lives:
        reader = LifeReader(third.context, Wanted(lives))
        for one in read_lives(third.lifecycles(), reader):
            found.slowest.lives[one.life.number] = one.life


def write_around(
    second: Trace,
    add: Callable[[Lifecycles], object],
    spans: Sequence[tuple[int, int]],
    target: str,
    margin: int,
    force: bool,
) -> Path:
    """Write the Perfetto trace `target` of the time around some spans; return its path.

    second: the trace, opened again; read to its end, every window also passed to `add`. spans:
    (begin, end) in ns. margin: ns before and after each. force: replace the file. Raises
    TraceError.
    """
    from biotrail.converters.outputs.perfetto import convert as perfetto

    def passing() -> Iterator[Lifecycles]:
        for window in second.lifecycles():
            add(window)
            yield window

    windows = passing()
    with output.replacing(target, force=force) as stream:
        perfetto.convert(excerpt(windows, around(spans, margin)), second.context, stream)
    for _ in windows:
        pass
    return Path(target)


def as_dict(found: Findings) -> dict[str, Any]:
    """Return the findings for JSON; docs/slow.md describes every key."""
    trace, wanted, lives = found.trace, found.wanted, found.slowest.lives
    key = Following(trace.context.header).type
    ios = []
    for slow in found.ios:
        row = asdict(slow)
        row["time"] = trace.context.wall_clock(slow.begin_ns)
        if lives is not None:
            kept = [(one.number, lives.get(one.life)) for one in slow.followed]
            row["functions"] = [{key: n, **life_facts(life)} for n, life in kept if life]
        for io in [row["io"], *row["mates"], *row["parents"], *row["children"]]:
            del io["dev"], io["part"]
        ios.append(row)
    return {
        "format": FORMAT,
        "log_id": trace.context.log_id,
        "wanted": {"top": wanted.top, "over_ns": wanted.over, "failed": wanted.failed},
        "counts": asdict(found.slowest.counts),
        "ios": ios,
        **{k: v for k, v in tallies.as_dict(trace).items() if k in ("lost", "problems")},
    }
