# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os of a log, and the slowest few of each device and operation, in one pass."""

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice, operations
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO, Wanted
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Bool, Lifecycles, Tasks
from biotrail.converters.lifecycles.lifecycles import Result
from biotrail.converters.pipeline import Trace

OF_EACH = 5
MOST_EACH = 24
"""Devices with an operation of which the slowest are looked for."""
_OP_BITS = 16


class _Rows(Choice):
    """Rows of a window that were chosen before."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.rows: Bool = np.zeros(0, dtype=np.bool_)

    def mask(self, bios: Bios, tasks: Tasks) -> Bool:
        """As Choice's."""
        return self.rows.copy()


class SlowestEach:
    """`watch` is for `Trace.lifecycles(on_window=...)`; then `finish`."""

    def __init__(self, trace: Trace, choice: Choice, wanted: Wanted, whole: bool) -> None:
        """whole: as Slowest.whole_families; of one device I/Os count that serve others, too."""
        self.all = Slowest(trace, choice, wanted, whole)
        self._each: dict[tuple[int, str], Slowest] = {}

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Takes in one window."""
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
        trace = self.all.trace
        return Slowest(trace, _Rows(trace.context), Wanted(OF_EACH), whole_families=False)

    def finish(self) -> tuple[Slowest, int]:
        """(the slowest of all, then those of each that are not among them; how many of all)."""
        whole = len(self.all.found)
        known = {slow.io.number for slow in self.all.found}
        more: list[SlowIO] = []
        for place in range(OF_EACH):  # what does not fit in a page is at the end
            for one in self._each.values():
                more += [s for s in one.found[place : place + 1] if s.io.number not in known]
        self.all.found += more
        return self.all, whole
