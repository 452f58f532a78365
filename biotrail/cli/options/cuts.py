# SPDX-License-Identifier: Apache-2.0
"""A log, cut as the options of `cut_options` say."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from biotrail.cli.options.moments import Times
from biotrail.cli.options.opening import open_again, open_trace, readable_twice
from biotrail.converters.analysis.choosing.choosing import Choice, Who
from biotrail.converters.analysis.choosing.outcomes import ANY, Finder, Outcome, Wish
from biotrail.converters.analysis.choosing.select import Selection
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.log import Indexed
from biotrail.converters.lifecycles.cutting import Span
from biotrail.converters.pipeline import Trace
from biotrail.text import units
from biotrail.text.progress import progress

EVERYBODY, ANYHOW, ALWAYS = Who(), Wish(), Times()


@dataclass(frozen=True)
class Cut:
    """What the options chose."""

    times: Times = ALWAYS
    devices: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    who: Who = EVERYBODY
    wish: Wish = ANYHOW
    files: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
        """Whether I/Os are chosen, not only times."""
        return (
            bool(self.devices or self.ops or self.files)
            or self.who != EVERYBODY
            or self.wish != ANYHOW
        )

    def words(self) -> str:
        """Which I/Os are chosen, as options."""
        who, wish = self.who, self.wish
        given = {
            "device": self.devices,
            "op": self.ops,
            "file": self.files,
            "pid": sorted(who.pids),
            "comm": sorted(who.comms),
            "cgroup": sorted(who.cgroups),
            "slower-than": [units.duration(wish.slower_than)] if wish.slower_than else [],
            "slowest": [wish.slowest] if wish.slowest else [],
        }
        found = [f"--{option}={one}" for option, values in given.items() for one in values]
        return " ".join([*found, *(["--failed"] if wish.failed else [])])

    def choice(self, context: Context) -> Choice:
        """Which I/Os, by what is known from their beginning on.

        Raises ConversionError: files are chosen, and the log does not tell them.
        """
        return Choice(context, self.devices, self.ops, self.who, self.files)

    def limited(self, trace: Trace) -> Trace:
        """The trace, of the chosen time alone. Raises ConversionError: outside of the log."""
        if not self.times.all:
            trace.limit(self.times.span(trace))
        return trace

    def facts(self, trace: Trace) -> dict[str, str]:
        """What was chosen of the trace, for who gets the output; nothing where all is there."""
        found = {} if trace.span is None else {"cut": _seconds(trace.span, trace.start)}
        return {**found, **({"chosen": self.words()} if self.chooses else {})}

    def needs_file(self) -> bool:
        """Whether a pipe will not do: it is read twice, or its end must be known first."""
        return self.wish != ANYHOW or self.times.by_end


@dataclass
class Opened:
    """A trace of the chosen time, and the choice of I/Os in it."""

    trace: Trace
    selection: Selection
    cut: Cut = field(default_factory=Cut)

    def chosen(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """The trace's windows with the chosen I/Os alone."""
        return self.selection.of(windows) if self.cut.chooses else iter(windows)

    def lines(self) -> list[str]:
        """What was chosen, and how much was read for it; complete when all was read."""
        return [*read_lines(self.trace), *self._chosen_lines()]

    def _chosen_lines(self) -> list[str]:
        counts = self.selection.counts
        if not self.cut.chooses:
            return []
        text = f"chosen: {units.count(counts.chosen)} of {units.plural(counts.bios, 'bio')}"
        if counts.unknown:
            text += f"; {units.count(counts.unknown)} left out as who queued them is not known"
        return [text]


def _seconds(span: Span, start: int) -> str:
    return f"{(span.begin - start) / 1e9:.9g} s to {(span.end - start) / 1e9:.9g} s"


def read_lines(trace: Trace) -> list[str]:
    """Of a trace that is limited: to what time, and how much of the log was read for it."""
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
def opened(log: str, cut: Cut, associate: str = "auto", own_io: bool = False) -> Iterator[Opened]:
    """The log, cut: as `cut_of`, and a pipe, too. Raises TraceError."""
    if not cut.needs_file():
        yield cut_of(lambda: open_trace(log, associate, own_io), cut)
        return
    with readable_twice(log) as source:
        yield cut_of(lambda: open_again(source, associate, own_io), cut)


def cut_of(open_new: Callable[[], Trace], cut: Cut) -> Opened:
    """A trace, cut. open_new opens it from its beginning.

    How I/Os went is found out first, by reading that part once more. Raises TraceError.
    """
    outcome = ANY
    if cut.wish != ANYHOW:
        outcome = _find(cut, cut.limited(open_new()))
    trace = cut.limited(open_new())
    return Opened(trace, Selection(cut.choice(trace.context), outcome), cut)


def _find(cut: Cut, trace: Trace) -> Outcome:
    finder = Finder(cut.choice(trace.context), cut.wish)
    with progress(trace, "choosing", finder.watch) as windows:
        for _ in windows:
            pass
    return finder.found()
