# SPDX-License-Identifier: Apache-2.0
"""What slices of one log have to do with those of another log in the same trace."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, U64


def _none() -> I64:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Arrows:
    """Flows of slices: (n,) each, in any order. Slices of both logs with one id are joined."""

    number: I64 = field(default_factory=_none)
    """Of the request or bio."""
    id: U64 = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))


@dataclass(frozen=True)
class Crossing:
    """A guest's requests, or the bios of its host, of one log."""

    requests: Arrows = field(default_factory=Arrows)
    bios: Arrows = field(default_factory=Arrows)
    timed: I64 = field(default_factory=_none)
    """Numbers of requests whose stages on the host are known, ascending."""
    stages: I64 = field(default_factory=lambda: np.zeros((0, 4), dtype=np.int64))
    """Of these, ns: to the host, queued there, with its device, and from there."""
