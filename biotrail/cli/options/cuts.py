# SPDX-License-Identifier: Apache-2.0
"""A part of a log: its times, devices and I/Os; the options that choose it (docs/cuts.md)."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from biotrail.cli.options.gathering import Decorator, made_of
from biotrail.cli.options.opening import USUAL, Reading, opener
from biotrail.cli.options.task_options import named_options
from biotrail.converters.analysis.choosing.choosing import (
    ANYBODY,
    ANYHOW,
    Choice,
    Finder,
    OutcomeFilter,
    Who,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.log import Indexed
from biotrail.converters.lifecycles.cutting import ENDLESS, Span, outside
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.cgroup_names import NamedCgroups
from biotrail.recorder.schema.errors import ConversionError
from biotrail.recorder.schema.kernel_names import OPS
from biotrail.text import units, values
from biotrail.text.progress import progress

if TYPE_CHECKING:
    from biotrail.converters.analysis.choosing.select import Selection

_EXAMPLES = '2.5s, "last 5s", 14:03:05 or 2026-01-31T14:03:05Z'
_BEFORE_END = re.compile(r"\s*(?:last\s+|-)(.+)")
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?")
_LOOKS = 3
"""Clock readings that `_monotonic` tries, each one nearer to the time than the one before."""


@dataclass(frozen=True)
class Moment:
    """A time as the user wrote it (`text`). Exactly one other attribute is not None.

    offset: ns since recording began; before_end: ns before the log's end; daytime: in UTC.
    """

    text: str
    offset: int | None = None
    before_end: int | None = None
    wall: datetime | None = None
    daytime: time | None = None


def parse_moment(text: str) -> Moment:
    """Parse `2.5s`, `last 5s`, `-5s`, `14:03[:05[.5]]` or ISO 8601 (UTC if it has no offset)."""
    try:
        if match := _BEFORE_END.fullmatch(text):
            return Moment(text, before_end=round(units.seconds(match[1]) * 1e9))
        if _TIME.fullmatch(text.strip()):
            hour, rest = text.strip().split(":", 1)
            return Moment(text, daytime=time.fromisoformat(f"{hour:0>2}:{rest}"))
        if "-" in text or "T" in text:
            found = datetime.fromisoformat(text.strip())
            return Moment(text, wall=found if found.tzinfo else found.replace(tzinfo=UTC))
        return Moment(text, offset=round(units.seconds(text) * 1e9))
    except (ValueError, click.UsageError):
        raise click.BadParameter(f"{text!r} is no time: write {_EXAMPLES}") from None


@dataclass(frozen=True)
class Times:
    """A part of a log's time, from `begin` to before `end`; or `window` ns `around` a time."""

    begin: Moment | None = None
    end: Moment | None = None
    around: Moment | None = None
    window: int = 0

    def span(self, trace: Trace) -> Span:
        """Return this part in the trace's clock (ns of CLOCK_MONOTONIC), clipped to the log."""
        bounds = trace.reader.bounds() if isinstance(trace.reader, Indexed) else None
        first, last = bounds or (trace.start, ENDLESS - 1)
        if self.around is not None:
            middle = _resolved(self.around, trace, first, last)
            begin, end = middle - self.window // 2, middle + self.window - self.window // 2
        else:
            begin = first if self.begin is None else _resolved(self.begin, trace, first, last)
            end = last + 1 if self.end is None else _resolved(self.end, trace, first, last)
        if begin > last or end <= first:
            shown = ENDLESS if self.end is None and self.around is None else min(end, ENDLESS)
            raise outside(Span(begin, shown), first, last, trace.context)
        if end <= begin:
            words = [moment.text for moment in (self.begin, self.end) if moment is not None]
            raise ConversionError(f"there is no time between {' and '.join(words)} in this log")
        return Span(max(begin, first), min(end, last + 1, ENDLESS))


def _resolved(moment: Moment, trace: Trace, first: int, last: int) -> int:
    """Return a moment in ns of CLOCK_MONOTONIC. first, last: of the log's events.

    A time of day before the log's begin is that of the next day, if the log lasts as long.
    """
    if moment.offset is not None:
        return trace.start + moment.offset
    if moment.before_end is not None:
        if last >= ENDLESS - 1:
            raise ConversionError(
                f"{moment.text!r} counts back from the end of the log, which is not known for this "
                "input: give an offset (2.5s)"
            )
        return last - moment.before_end + 1
    if not trace.context.clocks:
        raise ConversionError(
            f"{moment.text} is a wall-clock time, and the log has no wall clock; give offsets "
            "(2.5s)"
        )
    first_reading = trace.context.clocks[0]
    realtime = int(first_reading["realtime"]) + first - int(first_reading["monotonic"])
    if (found := moment.wall) is None:
        assert moment.daytime is not None
        day = date(1970, 1, 1) + timedelta(days=realtime // (86400 * 10**9))
        found = datetime.combine(day, moment.daytime, UTC)
    # Exactly: datetime.timestamp() would round.
    since_1970 = (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    if moment.daytime is not None and since_1970 < realtime:
        later = _monotonic(trace, since_1970 + 86400 * 10**9)
        if later <= last:
            return later
    return _monotonic(trace, since_1970)


def _monotonic(trace: Trace, realtime: int) -> int:
    """Convert CLOCK_REALTIME (ns since 1970) to CLOCK_MONOTONIC by the nearest clock reading."""
    reading = trace.context.clocks[0]
    for _ in range(_LOOKS):
        at = int(reading["monotonic"]) + realtime - int(reading["realtime"])
        near = trace.reader.clock_near(at) if isinstance(trace.reader, Indexed) else None
        if near is None or near == reading:
            break
        reading = near
    return int(reading["monotonic"]) + realtime - int(reading["realtime"])


ALWAYS = Times()


@dataclass(frozen=True)
class Cut:
    """The part of a log that the options choose; by default everything."""

    times: Times = ALWAYS
    devices: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    who: Who = ANYBODY
    wanted: OutcomeFilter = ANYHOW
    files: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
        return (
            bool(self.devices or self.ops or self.files)
            or self.who != ANYBODY
            or self.wanted != ANYHOW
        )

    def choice(self, context: Context) -> Choice:
        """Return the choice of I/Os by what is known when they are queued: all but `wanted`."""
        return Choice(context, self.devices, self.ops, self.who, self.files)

    def limited(self, trace: Trace) -> Trace:
        """Limit `trace` itself to the chosen time, and return it."""
        if self.times != ALWAYS:
            trace.span = self.times.span(trace)
        return trace

    def facts(self, trace: Trace) -> dict[str, str]:
        """Return what an output says of the part that it holds; empty if it holds everything."""
        found = {} if trace.span is None else {"cut": _seconds(trace.span, trace.start)}
        if not self.chooses:
            return found
        who, wanted = self.who, self.wanted
        given = {
            "device": self.devices,
            "op": self.ops,
            "file": self.files,
            "pid": sorted(who.pids),
            "comm": sorted(who.comms),
            "cgroup": sorted(who.cgroups),
            "unit": who.named.units,
            "container": who.named.containers,
            "pod": who.named.pods,
            "slower-than": [units.duration(wanted.slower_than)] if wanted.slower_than else [],
            "slowest": [wanted.slowest] if wanted.slowest else [],
        }
        words = [f"--{option}={one}" for option, values in given.items() for one in values]
        return {**found, "chosen": " ".join([*words, *(["--failed"] if wanted.failed else [])])}

    def needs_file(self) -> bool:
        """Return whether the log cannot be a pipe; one names cgroups behind their first I/O."""
        given = (self.times.begin, self.times.end, self.times.around)
        by_end = any(moment is not None and moment.before_end is not None for moment in given)
        return self.wanted != ANYHOW or by_end or bool(self.files) or self.who.by_cgroup


@dataclass
class Opened:
    """A trace of the chosen time, and the choice of I/Os in it."""

    trace: Trace
    selection: "Selection | None"
    """None: I/Os are chosen by time alone."""
    cut: Cut = field(default_factory=Cut)

    def chosen(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Yield the trace's windows with the chosen I/Os only; counts them in `selection`."""
        return iter(windows) if self.selection is None else self.selection.of(windows)

    def lines(self) -> list[str]:
        """Return what was chosen and how much was read for it, once all windows were read."""
        found = read_lines(self.trace)
        if self.selection is None:
            return found
        counts = self.selection.counts
        chosen = f"{units.count(counts.chosen)} of {units.plural(counts.bios, 'bio')}"
        pairs = f"{units.count(counts.chosen_pairs)} of {units.plural(counts.pairs, 'pair')}"
        shown = [pairs] if counts.pairs else []
        text = f"chosen: {', '.join(([chosen] if counts.bios or not shown else []) + shown)}"
        if counts.unknown:
            what = "what their cgroup is" if self.cut.who.named else "who queued them"
            text += f"; {units.count(counts.unknown)} left out as {what} is not known"
        return [*found, text]


def _seconds(span: Span, start: int) -> str:
    return f"{(span.begin - start) / 1e9:.9g} s to {(span.end - start) / 1e9:.9g} s"


def read_lines(trace: Trace) -> list[str]:
    span, reader = trace.span, trace.reader
    if span is None:
        return []
    text = f"cut: {_seconds(span, trace.start)}"
    if isinstance(reader, Indexed):
        total = "" if reader.parts_total < 0 else f" of {units.count(reader.parts_total)}"
        text += f"; {units.count(reader.parts_read)}{total} chunks read"
        if reader.parts_searched:
            text += f", {units.count(reader.parts_searched)} more for names of threads"
    return [text]


@contextmanager
def opened(log: str, cut: Cut, reading: Reading = USUAL) -> Iterator[Opened]:
    with opener(log, reading, twice=cut.needs_file()) as again:
        yield cut_of(again, cut)


def cut_of(open_new: Callable[[], Trace], cut: Cut) -> Opened:
    """Return the chosen part of a trace, which is read once to find I/Os by their outcome."""
    limited = limiting(open_new, cut)
    numbers = None
    if cut.wanted != ANYHOW:
        first = limited()
        finder = Finder(cut.choice(first.context), cut.wanted)
        with progress(first, "choosing", finder.watch) as windows:
            for _ in windows:
                pass
        numbers = finder.found()
    trace = limited()
    if not cut.chooses:
        return Opened(trace, None, cut)
    from biotrail.converters.analysis.choosing import select

    return Opened(trace, select.Selection(cut.choice(trace.context), cut.wanted, numbers), cut)


def limiting(open_new: Callable[[], Trace], cut: Cut) -> Callable[[], Trace]:
    """Return what opens the chosen time. Files are read for here, so each has its last name."""
    if not cut.files:
        return lambda: cut.limited(open_new())
    first = cut.limited(open_new())
    cut.choice(first.context)
    with progress(first, "reading names") as windows:
        for _ in windows:
            pass

    def limited() -> Trace:
        trace = cut.limited(open_new())
        trace.context.files.foreseen = first.context.files
        return trace

    return limited


OPERATIONS = sorted({name.lower() for name in OPS})
WINDOW = "2s"


_TIMES: tuple[Decorator, ...] = (
    click.option(
        "--from",
        "cut_from",
        type=parse_moment,
        metavar="TIME",
        help="Start of the part of the log to use: 2.5s after the start of recording, "
        '"last 5s", 14:03:05 (UTC), or ISO 8601.',
    ),
    click.option(
        "--to",
        "cut_to",
        type=parse_moment,
        metavar="TIME",
        help="End of that part, not included; written as --from.",
    ),
    click.option(
        "--around",
        "cut_around",
        type=parse_moment,
        metavar="TIME",
        help="Use the part of the log around this time; see --window.",
    ),
    click.option(
        "--window",
        "cut_window",
        type=units.duration_from(units.ABOVE_ZERO),
        metavar="TIME",
        help=f"Length of the part that --around chooses.  [default: {WINDOW}]",
    ),
)
_names = partial(click.option, multiple=True, type=values.name)
_DEVICE: Decorator = _names(
    *("-d", "--device", "cut_devices"),
    metavar="DEV",
    help="Only this device or partition of the log, by name or as 8:0. Can be repeated.",
)
_IOS: tuple[Decorator, ...] = (
    click.option(
        "--op",
        "cut_ops",
        multiple=True,
        type=click.Choice(OPERATIONS),
        metavar="OP",
        help="Only this operation (read, write, flush, discard, …). Can be repeated.",
    ),
    click.option(
        "--pid",
        "cut_pids",
        multiple=True,
        type=units.Count(1, (1 << 31) - 1),
        metavar="PID",
        help="Only I/O queued by this process. Can be repeated.",
    ),
    _names(
        *("--comm", "cut_comms"),
        metavar="NAME",
        help="Only I/O queued by threads of this name; NAME* matches a prefix. Can be repeated.",
    ),
    _names(
        *("--cgroup", "cut_cgroups"),
        metavar="PATH",
        help="Only I/O charged to this cgroup or a descendant. Can be repeated.",
    ),
    *named_options("cut_", "I/O of", "Can be repeated, and with --cgroup: of either."),
)
_FILE: Decorator = _names(
    *("--file", "cut_files"),
    metavar="PATTERN",
    help="Only I/O of files whose path matches, e.g. '/srv/db/*'. Needs a log made with "
    "record --files. Can be repeated.",
)
_OUTCOMES: tuple[Decorator, ...] = (
    click.option(
        "--slower-than",
        "cut_slower",
        type=units.duration_from(),
        metavar="TIME",
        help="Only I/Os that took at least this long.",
    ),
    click.option(
        "--slowest",
        "cut_slowest",
        type=units.Count(),
        metavar="N",
        help="Only the N slowest of the I/Os that the other options choose.",
    ),
    click.option("--failed", "cut_failed", is_flag=True, help="Only I/Os that ended in an error."),
)


def _cut(given: dict[str, Any]) -> Cut:
    begin: Moment | None = given["cut_from"]
    end: Moment | None = given["cut_to"]
    around: Moment | None = given["cut_around"]
    window: float | None = given["cut_window"]
    if around is None:
        if window is not None:
            raise click.UsageError("--window is the length around a time: give --around TIME, too")
        offsets = [m.offset for m in (begin, end) if m is not None and m.offset is not None]
        if begin and end and len(offsets) == 2 and offsets[1] <= offsets[0]:
            raise click.UsageError(f"--to {end.text} is not after --from {begin.text}")
    elif begin is not None or end is not None:
        raise click.UsageError("--around needs no other time: leave out --from and --to")
    length = 0.0 if around is None else units.seconds(WINDOW) if window is None else window
    devices, comms, cgroups, *named, files = (
        tuple(map(values.as_read, given.get(f"cut_{name}", ())))
        for name in ("devices", "comms", "cgroups", "unit", "container", "pod", "files")
    )
    return Cut(
        Times(begin, end, around, round(length * 1e9)),
        devices,
        tuple(given.get("cut_ops", ())),
        Who(
            frozenset(given.get("cut_pids", ())),
            frozenset(comms),
            frozenset(cgroups),
            NamedCgroups(*named),
        ),
        OutcomeFilter(
            round((given.get("cut_slower") or 0) * 1e9),
            given.get("cut_slowest") or 0,
            bool(given.get("cut_failed")),
        ),
        files,
    )


_options = partial(made_of, "cut", _cut, lambda name: name.startswith("cut_"))
"""Returns a decorator that adds options; the command gets their values as `cut`: a Cut."""
cut_options = _options(*_TIMES, _DEVICE, *_IOS, _FILE, *_OUTCOMES)
choice_options = _options(*_TIMES, _DEVICE, *_IOS, _FILE)
"""For commands that have their own --slower-than, --slowest and --failed."""
record_options = _options(*_TIMES, _DEVICE)
time_options = _options(*_TIMES)
