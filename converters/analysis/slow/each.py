# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os of a log, and the slowest few of each device and operation, in one pass."""

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice, operations
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO, Wanted
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Bool, Lifecycles, Tasks
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.pipeline import Trace

OF_EACH = 5
"""Slowest I/Os kept of each device and operation."""
MOST_EACH = 24
"""Pairs of device and operation of which the slowest I/Os are kept; later pairs have none."""
_OP_BITS = 16


class _Rows(Choice):
    """A choice whose mask is set from outside, for each window anew."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.rows: Bool = np.zeros(0, dtype=np.bool_)
        """Mask of the next window's bios."""

    def mask(self, bios: Bios, tasks: Tasks) -> Bool:
        """Return a copy of `rows`, whatever the bios are."""
        return self.rows.copy()


class SlowestEach:
    """Finds the slowest I/Os of a choice, and of each device and operation.

    Pass `watch` to `Trace.lifecycles(on_window=...)`, read all windows, then call `finish`.
    """

    def __init__(self, trace: Trace, choice: Choice, wanted: Wanted, whole: bool) -> None:
        """Start without I/Os.

        trace: the log's. choice, wanted: which I/Os to look at, and which and how many of all to
        keep. whole: whether, among the slowest of all, bios that serve an upper device's bio are
        left out and only shown as that bio's children. Among the slowest of each device and
        operation they are not.
        """
        self.all = Slowest(trace, choice, wanted, whole)
        self._each: dict[tuple[int, str], Slowest] = {}

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Add the I/Os of one window to the slowest of all, and of each device and operation.

        Of each device and operation the OF_EACH slowest chosen bios are kept, also those too fast
        or not failed for `wanted`; failed NOWAIT attempts and bios of unknown duration never are.
        Of a new device and operation nothing is kept if there are MOST_EACH already. result: what
        the window's tables were made from, with the events.
        """
        self.all.watch(result, window)
        bios = window.bios
        chosen = self.all.choice.mask(bios, window.tasks)
        codes, names = operations(self.all.trace.context, bios.opf, bios.bytes)
        pairs = bios.dev.astype(np.int64) << _OP_BITS | codes
        for pair in np.unique(pairs[chosen]).tolist():
            name = (pair >> _OP_BITS, names[pair & ((1 << _OP_BITS) - 1)])
            if name not in self._each and len(self._each) == MOST_EACH:
                continue
            one = self._each.setdefault(name, self._new())
            if isinstance(one.choice, _Rows):
                one.choice.rows = chosen & (pairs == pair)
            one.watch(result, window)

    def _new(self) -> Slowest:
        """Return an empty list of the slowest I/Os for one device and operation."""
        trace = self.all.trace
        return Slowest(trace, _Rows(trace.context), Wanted(OF_EACH), whole_families=False)

    def finish(self) -> tuple[Slowest, int]:
        """Return (slowest, whole), after the last window; to be called once.

        slowest: `self.all`, to whose list `found` the slowest of each device and operation are
        appended if they were not there: the slowest of each first, then the second of each, and so
        on. whole: how many of `found`, from the first on, are the slowest of all.
        """
        whole = len(self.all.found)
        known = {slow.io.number for slow in self.all.found}
        more: list[SlowIO] = []
        # By rank, so that the least slow are at the end, where a page leaves out what does not fit.
        for place in range(OF_EACH):
            for one in self._each.values():
                more += [s for s in one.found[place : place + 1] if s.io.number not in known]
        self.all.found += more
        return self.all, whole
