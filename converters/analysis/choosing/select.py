# SPDX-License-Identifier: Apache-2.0
"""Windows restricted to chosen I/O: the chosen bios, and the requests that served them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.outcomes import ANY, Outcome
from biotrail.converters.analysis.choosing.pairs import chosen_pairs
from biotrail.converters.calls.selection import CallsOfBios
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.tables import (
    I64,
    Bios,
    Bool,
    Lifecycles,
    Requests,
    Tasks,
)
from biotrail.converters.lifecycles.windows import restricted


@dataclass
class Counts:
    """Numbers of bios that a Selection looked at."""

    bios: int = 0
    """All bios."""
    chosen: int = 0
    """Chosen bios."""
    pairs: int = 0
    """All pairs of events."""
    chosen_pairs: int = 0
    unknown: int = 0
    """Bios not chosen whose task or cgroup, by which the choice is made, is not in the log."""


@dataclass
class Selection:
    """Restricts windows to the I/O of a choice and an outcome.

    A bio is chosen by its own properties. A request is chosen if it served a chosen bio or, if it
    served no known bio, by its own device, operation and outcome. A call is chosen by its thread,
    if the choice is by process or thread name alone; else if it queued a chosen bio. A wait is
    chosen as its call, in the latter case from the call's first chosen bio on. A submission is
    chosen if it queued a chosen bio. A pair of events is chosen as `chosen_pairs` says.
    """

    choice: Choice
    outcome: Outcome = ANY
    counts: Counts = field(default_factory=Counts)
    _seen: set[int] = field(default_factory=set)
    _calls: CallsOfBios = field(default_factory=CallsOfBios)
    _submissions: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the submissions of chosen bios that no window has had yet."""

    def of(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Yield each window (part of the log) with its chosen bios and requests only.

        Adds the windows' bios to `counts`. The given windows are not changed. After the last window
        raises ConversionError if the choice names a device that is not in the log: neither in its
        header or notes, nor the disk of any bio.
        """
        for window in windows:
            self._seen.update(names_of(window.bios.dev).tolist())
            yield self._restricted(window)
        self.choice.check(self._seen)

    def _restricted(self, window: Lifecycles) -> Lifecycles:
        """Return a copy of the log's next window with its chosen I/O only; count bios and pairs.

        The window's `bios` are added to `counts`; open ones are not, they come again. Bios are
        chosen by choice and outcome. A request is kept if it served a chosen bio (by `edges`; an
        open request: if it is the last `request` of a chosen open bio) or if it served no known bio
        and its own device, operation and outcome are chosen. Stages go with their rows, edges with
        their bios. Of `path`, all commits stay, and the chosen calls, waits and submissions (see
        `_path`), by `_calls` and `_submissions`, which know the windows before and are changed.
        """
        bios = self._bios(window.bios, window.tasks)
        self._count(window.bios, bios)
        open_bios = self._bios(window.open_bios, window.tasks)
        edges, numbers = window.edges, window.bios.number[bios]
        served = edges.request[np.isin(edges.bio, numbers)]
        found = restricted(
            window,
            bios,
            self._requests(window.requests, served),
            open_bios,
            self._requests(window.open_requests, window.open_bios.request[open_bios]),
        )
        if found.path is not None:
            found.path = self._path(found, found.path)
        if found.sites is not None:
            pairs = found.sites.pairs
            chosen = chosen_pairs(pairs, window.tasks, self.choice, self.outcome)
            found.sites = replace(found.sites, pairs=pairs.take(chosen))
            self.counts.pairs += len(pairs)
            self.counts.chosen_pairs += int(chosen.sum())
        return found

    def _path(self, window: Lifecycles, path: PathTables) -> PathTables:
        """Return a copy of the window's `path` with the chosen calls, waits and submissions only.

        window: with its chosen bios only. Call it for each window, in the log's order: `_calls` and
        `_submissions` carry over. By an outcome, calls are never chosen by their thread. A
        submission is also kept if an earlier window had a chosen bio of it. All commits stay.
        """
        who, tasks = self.choice.who, window.tasks
        if self.choice.by_thread_alone and self.outcome.numbers is None:
            calls = who.of_threads(path.calls, tasks)
            waits = who.of_threads(path.waits, tasks)
        else:
            calls, waits = self._calls.masks(
                path.calls,
                path.waits,
                (window.bios, path.bios, path.held),
                (window.open_bios, path.open_bios, path.open_held),
            )
        of_bios = np.concatenate([path.bios.submission, path.open_bios.submission])
        wanted = np.union1d(self._submissions, of_bios[of_bios >= 0])
        number = path.submissions.number
        self._submissions = np.setdiff1d(wanted, number)
        return replace(
            path,
            calls=path.calls.take(calls),
            waits=path.waits.take(waits),
            submissions=path.submissions.take(np.isin(number, wanted)),
        )

    def _bios(self, bios: Bios, tasks: Tasks) -> Bool:
        """Mark the chosen bios (n,)."""
        return np.asarray(self.choice.mask(bios, tasks) & self.outcome.bios(bios), dtype=np.bool_)

    def _requests(self, requests: Requests, served: I64) -> Bool:
        """Mark the chosen requests (n,): those in `served`, and chosen ones without bios.

        served: numbers of requests that served chosen bios, in any order. Requests that served no
        known bio (`bios` is 0) are chosen by device, operation and outcome.
        """
        alone = self.choice.request_mask(requests) & self.outcome.requests(requests)
        alone &= requests.bios == 0
        return np.asarray(np.isin(requests.number, served) | alone, dtype=np.bool_)

    def _count(self, bios: Bios, chosen: Bool) -> None:
        """Add a window's bios to `counts`.

        chosen: mask (n,) over `bios`. `counts.unknown` grows by the bios that are not chosen and
        whose task (if the choice is by process or thread name) or cgroup, or its name, (if by
        cgroup) is not known.
        """
        self.counts.bios += len(bios)
        self.counts.chosen += int(chosen.sum())
        who = self.choice.who
        unknown = np.zeros(len(bios), dtype=np.bool_)
        if who.pids or who.comms:
            unknown |= bios.task < 0
        unknown |= who.unknown_cgroups(self.choice.context, bios)
        self.counts.unknown += int((unknown & ~chosen).sum())
