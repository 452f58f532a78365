# SPDX-License-Identifier: Apache-2.0
"""Keys that group I/O by what the bio is for, and by the system call that queued it."""

from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.tables import (
    I64,
    Lifecycles,
)
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes

Name = Mapping[str, str | int | None]


class ByPurpose:
    """Key: what the bio is for. Codes are those of Purpose."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the Purpose of each bio: int64 (n,), by row of the window's bios."""
        return purposes(window.bios, window.tasks, self._context).astype(np.int64)

    def name(self, code: int) -> Name:
        """Return the name of a group, with the field `purpose`: "no data" for Purpose.NONE."""
        return {"purpose": PURPOSE_NAMES.get(Purpose(code), "no data")}


class ByCall:
    """Key: name of the system call that queued the bio, or a page fault."""

    def __init__(self, context: Context) -> None:
        """Start without calls. context: the log's, for its machine's names of calls."""
        self._context = context
        self._names: list[str | None] = [None]
        self._known: dict[str | None, int] = {None: 0}

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of each bio's call: int64 (n,), by row of the window's bios.

        0: no call is known, as of bios that kernel threads queue. A new name gets the next code.
        samples: not used.
        """
        found = np.zeros(len(window.bios), dtype=np.int64)
        if window.path is None:
            return found
        paths = window.path.bios
        row, known = rows_of(paths.number, window.bios.number)
        with_call = np.flatnonzero(known)
        with_call = with_call[paths.call[row[with_call]] != NO_CALL]
        row = row[with_call]
        numbers = paths.call[row].astype(np.int64) * 2 + paths.foreign[row]
        distinct, place = np.unique(numbers, return_inverse=True)
        codes = [self._code(number >> 1, bool(number & 1)) for number in distinct.tolist()]
        found[with_call] = np.array(codes, dtype=np.int64)[place]
        return found

    def _code(self, number: int, foreign: bool) -> int:
        """Return the code of a call's name; a new name gets the next code."""
        name = name_of_call(number, foreign, self._context.machine)
        code = self._known.setdefault(name, len(self._names))
        if code == len(self._names):
            self._names.append(name)
        return code

    def name(self, code: int) -> Name:
        """Return the name of a group, with the field `call`: None where no call is known."""
        return {"call": self._names[code]}
