# SPDX-License-Identifier: Apache-2.0
"""`biotrail tree`: the lives that are asked for, read in one pass; their flame graph."""

import heapq
from dataclasses import dataclass, field
from pathlib import Path

from biotrail.cli.options.cuts import Opened
from biotrail.converters.analysis.lives.functions import Functions
from biotrail.converters.analysis.lives.merged import Merged
from biotrail.converters.analysis.stacks.flame import Flame, Side, flame_of
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.converters.analysis.stacks.svg import svg
from biotrail.converters.sites.building import LifeReader, read_lives
from biotrail.converters.sites.lives import Wanted
from biotrail.converters.sites.tables import Following, follows
from biotrail.converters.sites.trees import Life
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units
from biotrail.text.progress import progress

_TOLD = {
    Weight.LATENCY: units.duration,
    Weight.COUNT: lambda calls: units.plural(int(calls), "call"),
}


@dataclass(frozen=True)
class Chosen:
    """Which lives are asked for."""

    lives: frozenset[int] = frozenset()
    """Their numbers; empty: any. Likewise `objects` (addresses), `details`, `comms`."""
    objects: frozenset[int] = frozenset()
    details: frozenset[int] = frozenset()
    comms: frozenset[str] = frozenset()
    """Names of threads; `NAME*` matches a beginning."""
    slower: int = 0
    """ns that a life took at least, as far as is known."""
    slowest: int = 0
    """How many of the slowest; 0: all."""

    def holds(self, life: Life) -> bool:
        """Return whether a life is asked for, but for `slowest`."""
        if self.details and life.detail not in self.details:
            return False
        if life.span < self.slower:
            return False
        return not self.comms or any(self._named(run.comm) for run in life.contexts)

    def _named(self, comm: str) -> bool:
        return any(
            comm.startswith(name[:-1]) if name.endswith("*") else comm == name
            for name in self.comms
        )


@dataclass
class Found:
    """What one recording has of the lives that are asked for."""

    source: Opened
    reader: LifeReader
    merged: Merged
    functions: Functions
    kept: list[Life] = field(default_factory=list)
    """The slowest, or the first, of the lives."""
    count: int = 0
    """Number of all lives that are asked for."""

    @property
    def following(self) -> Following:
        """What the log followed."""
        return self.reader.following


def find(source: Opened, chosen: Chosen, most: int) -> Found:
    """Read a recording to its end and return its lives.

    most: how many lives are kept whole, 0: all. Raises ConversionError: the log followed no
    objects.
    """
    context = source.trace.context
    if not follows(context.header):
        raise ConversionError(
            "this log follows no objects: record with biotrail follow TYPE -o LOG"
        )
    reader = LifeReader(context, Wanted(chosen.lives, chosen.objects))
    found = Found(source, reader, Merged(), Functions(reader.following.has_functions))
    heap: list[tuple[int, int, Life]] = []
    with progress(source.trace, "reading") as windows:
        for one in read_lives(windows, reader):
            life = one.life
            if not chosen.holds(life):
                continue
            found.count += 1
            if chosen.slowest:
                heapq.heappush(heap, (life.span, -life.number, life))
                if len(heap) > chosen.slowest:
                    heapq.heappop(heap)
                continue
            _add(found, life, most)
    for _, _, life in sorted(heap, key=lambda row: (-row[0], -row[1])):
        _add(found, life, most)
    return found


def _add(found: Found, life: Life, most: int) -> None:
    """Add a life's figures, and the life itself while there are fewer than `most`."""
    found.merged.add(life)
    found.functions.add(life)
    if not most or len(found.kept) < most:
        found.kept.append(life)


def folded(functions: Functions, type_name: str, label: str = "") -> list[str]:
    """Return lines `TYPE;context;outermost;…;innermost NS`, one per stack, as flame graphs take.

    label: of the recording, the outermost frame; "": there is only one. Stacks without time of
    their own are left out.
    """
    above = [*([label] if label else []), type_name]
    return [
        ";".join(name.replace(";", ":").replace("\n", " ") or "?" for name in (*above, *names))
        + f" {time}"
        for names, _, time in functions.stacks()
        if time
    ]


def flame(functions: Functions, type_name: str) -> Flame:
    """Return the functions of lives as a flame graph."""
    return flame_of(
        ([(type_name, Side.RECORDING), (names[0], Side.COMMAND), *_frames(names[1:])], calls, time)
        for names, calls, time in functions.stacks()
    )


def _frames(names: tuple[str, ...]) -> list[tuple[str, Side]]:
    return [(name, Side.KERNEL) for name in names]


def write_flame(target: str, found: Found, name: str, notes: list[str], force: bool) -> Path:
    """Write the flame graph of a recording's lives as an SVG, and return its path.

    name: of the log, for the title. Raises OutputError.
    """
    type_name = found.following.type
    what = "time in each function itself"
    if not found.functions.has_functions:
        what = "time until the next tracepoint"
    lives = units.plural(found.merged.lives, "life", "lives")
    lines = [f"{lives}; width: {what}", *notes]
    title = f"{name}: where each {type_name} was"
    made = svg(flame(found.functions, type_name), Weight.LATENCY, title, lines, _TOLD)
    with output.replacing(target, force=force) as stream:
        stream.write(made.encode("utf-8", "replace"))
    return Path(target)
