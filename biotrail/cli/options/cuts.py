# SPDX-License-Identifier: Apache-2.0
"""A part of a log: the times, devices and I/Os that the options of `cut_options` choose."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from biotrail.cli.options.moments import Times
from biotrail.cli.options.opening import USUAL, Reading, open_again, open_trace, readable_twice
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
    """The part of a log that the options choose; by default everything."""

    times: Times = ALWAYS
    devices: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    who: Who = EVERYBODY
    wish: Wish = ANYHOW
    files: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
        """Whether I/Os are chosen by anything other than time."""
        return (
            bool(self.devices or self.ops or self.files)
            or self.who != EVERYBODY
            or self.wish != ANYHOW
        )

    def words(self) -> str:
        """Return the choice of I/Os as options: `--device=sda --op=read`; empty if all are."""
        who, wish = self.who, self.wish
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
            "slower-than": [units.duration(wish.slower_than)] if wish.slower_than else [],
            "slowest": [wish.slowest] if wish.slowest else [],
        }
        found = [f"--{option}={one}" for option, values in given.items() for one in values]
        return " ".join([*found, *(["--failed"] if wish.failed else [])])

    def choice(self, context: Context) -> Choice:
        """Return the choice of I/Os by what is known when they are queued: all but `wish`.

        Raises ConversionError if files are chosen and the log has none.
        """
        return Choice(context, self.devices, self.ops, self.who, self.files)

    def limited(self, trace: Trace) -> Trace:
        """Limit `trace` itself to the chosen time, and return it.

        Raises ConversionError if that time is outside of the log.
        """
        if not self.times.all:
            trace.restrict(self.times.span(trace))
        return trace

    def facts(self, trace: Trace) -> dict[str, str]:
        """Return what an output says of the part that it holds; empty if it holds everything.

        `cut`: the time from and to, in seconds since the start; `chosen`: as `words` gives it.
        """
        found = {} if trace.span is None else {"cut": _seconds(trace.span, trace.start)}
        return {**found, **({"chosen": self.words()} if self.chooses else {})}

    def needs_file(self) -> bool:
        """Return whether the log cannot be a pipe: it is read twice, or its end must be known.

        So with cgroups: a pipe's log names them behind their first I/O.
        """
        return self.wish != ANYHOW or self.times.by_end or bool(self.files) or self.who.by_cgroup


@dataclass
class Opened:
    """A trace of the chosen time, and the choice of I/Os in it."""

    trace: Trace
    selection: Selection
    cut: Cut = field(default_factory=Cut)

    def chosen(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Yield the trace's windows with the chosen I/Os only; counts them in `selection`."""
        return self.selection.of(windows) if self.cut.chooses else iter(windows)

    def lines(self) -> list[str]:
        """Return lines that say what was chosen and how much of the log was read for it.

        Their counts are complete once all windows have been read.
        """
        return [*read_lines(self.trace), *self._chosen_lines()]

    def _chosen_lines(self) -> list[str]:
        """Return a line with how many bios were chosen; empty if I/Os are chosen by time alone.

        It also says how many were left out because their thread or process is not known.
        """
        counts = self.selection.counts
        if not self.cut.chooses:
            return []
        chosen = f"{units.count(counts.chosen)} of {units.plural(counts.bios, 'bio')}"
        pairs = f"{units.count(counts.chosen_pairs)} of {units.plural(counts.pairs, 'pair')}"
        shown = [pairs] if counts.pairs else []
        text = f"chosen: {', '.join(([chosen] if counts.bios or not shown else []) + shown)}"
        if counts.unknown:
            what = "what their cgroup is" if self.cut.who.named else "who queued them"
            text += f"; {units.count(counts.unknown)} left out as {what} is not known"
        return [text]


def _seconds(span: Span, start: int) -> str:
    return f"{(span.begin - start) / 1e9:.9g} s to {(span.end - start) / 1e9:.9g} s"


def read_lines(trace: Trace) -> list[str]:
    """Return a line with the time that the trace is limited to and the chunks read for it.

    Empty if the trace is not limited.
    """
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
    """Yield the chosen part of a log, as `cut_of` does. log: a path, or - for standard input.

    Standard input is copied to a temporary file if it must be read twice. Raises TraceError.
    """
    if not cut.needs_file():
        yield cut_of(lambda: open_trace(log, reading), cut)
        return
    with readable_twice(log) as source:
        yield cut_of(lambda: open_again(source, reading), cut)


def cut_of(open_new: Callable[[], Trace], cut: Cut) -> Opened:
    """Return the chosen part of a trace. open_new: opens the trace from its beginning.

    If I/Os are chosen by their outcome (slow, failed), reads the part once to find them; if by
    file, to know each file's last name from the beginning on; and opens the trace again. Raises
    TraceError.
    """
    limited = limiting(open_new, cut)
    outcome = ANY
    if cut.wish != ANYHOW:
        outcome = _find(cut, limited())
    trace = limited()
    return Opened(trace, Selection(cut.choice(trace.context), outcome), cut)


def limiting(open_new: Callable[[], Trace], cut: Cut) -> Callable[[], Trace]:
    """Return what opens a trace from its beginning, limited to the chosen time.

    If files are chosen, the part is read once here, so that each file has its last name from the
    beginning on. Raises TraceError.
    """
    if not cut.files:
        return lambda: cut.limited(open_new())
    first = cut.limited(open_new())
    cut.choice(first.context)
    with progress(first, "reading names") as windows:
        for _ in windows:
            pass

    def limited() -> Trace:
        trace = cut.limited(open_new())
        trace.context.files.foresee(first.context.files)
        return trace

    return limited


def _find(cut: Cut, trace: Trace) -> Outcome:
    """Read the trace to its end and return which I/Os have the outcome that is chosen."""
    finder = Finder(cut.choice(trace.context), cut.wish)
    with progress(trace, "choosing", finder.watch) as windows:
        for _ in windows:
            pass
    return finder.found()
