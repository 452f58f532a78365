# SPDX-License-Identifier: Apache-2.0
"""Blame in two readings of a recording, of which another can use the windows of both."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from biotrail.cli.options.cuts import Cut
from biotrail.converters.analysis.blame.blame import BlameOptions, Course, First, Second, close
from biotrail.converters.analysis.blame.tree import Blamed
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.text.progress import progress


class Blaming:
    """Blames a recording: its windows go through `watch` first, or `finish` reads it twice."""

    def __init__(
        self,
        again: Callable[[], Trace],
        cut: Cut,
        by: str | BlameOptions,
        *,
        shown: bool = True,
    ) -> None:
        """cut: chooses victims' I/O; without outcomes. shown: whether a terminal sees progress."""
        self._again, self._cut, self._shown = again, cut, shown
        self._options = by if isinstance(by, BlameOptions) else BlameOptions((by, by))
        self._first: First | None = None

    def watch(self, trace: Trace, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Yield all windows of a reading of `trace`, once each was seen here."""
        self._first = First(trace.context, self._cut.choice(trace.context), self._options)
        yield from self._first.watch(windows)

    def finish(
        self, use: Callable[[Trace, Iterator[Lifecycles]], None] | None = None
    ) -> tuple[Trace, Blamed]:
        """Read again; return the trace and what was found. use: gets its windows first."""
        trace, second = self.second(use)
        return trace, close(second)

    def second(
        self,
        use: Callable[[Trace, Iterator[Lifecycles]], None] | None = None,
        course: Course | None = None,
    ) -> tuple[Trace, Second]:
        """Read again; return the trace and the pass. course: gets the sums by slot of time."""
        first = self._first or self._first_pass()
        if (paused := first.again) is not None:  # its periods are known at their ends only
            first = self._first_pass(paused)
        trace = self._cut.limited(self._again())
        second = Second(trace.context, self._cut.choice(trace.context), first, course)
        with self._reading(trace, "blaming") as windows:
            every = second.watch(windows)
            if use is not None:
                use(trace, every)
            for window in every:
                del window
        return trace, second

    def _first_pass(self, paused: Sequence[Mapping[str, Any]] = ()) -> First:
        trace = self._cut.limited(self._again())
        first = First(trace.context, self._cut.choice(trace.context), self._options, paused)
        with self._reading(trace, "learning") as windows:
            for window in first.watch(windows):
                del window
        first.choice.check(first.company.devices)
        return first

    def _reading(self, trace: Trace, what: str) -> AbstractContextManager[Iterator[Lifecycles]]:
        return progress(trace, what) if self._shown else nullcontext(trace.lifecycles())
