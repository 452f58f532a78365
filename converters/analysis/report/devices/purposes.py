# SPDX-License-Identifier: Apache-2.0
"""The time of each device's bios by what they are for, for the sentences of a report."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.sums import sum_by
from biotrail.converters.analysis.report.tree import PurposeTime
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import OP_MASK, Lifecycles
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes

DISCARD = "discard"
_DISCARD = len(Purpose)
_BITS = 8
_NAMES = {**{int(one): name for one, name in PURPOSE_NAMES.items()}, _DISCARD: DISCARD}


@dataclass
class Purposes:
    """Number and time by device and purpose, window after window."""

    _sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    """dev_t << _BITS | purpose → bios, ns."""

    def add(self, window: Lifecycles, bios: Samples, context: Context) -> None:
        """Add the next window's bios. bios: samples of them, row by row; context: the log's."""
        if not len(bios):
            return
        purpose = purposes(window.bios, window.tasks, context).astype(np.int64)
        discard = (window.bios.opf & OP_MASK) == context.op_number(DISCARD)
        purpose = np.where(discard, _DISCARD, purpose)
        keys, _, place = distinct_values(window.bios.dev.astype(np.int64) << _BITS | purpose)
        count = np.bincount(place, minlength=len(keys))
        ns = sum_by(place, np.maximum(bios.latency, 0), len(keys))
        for key, ios, took in zip(keys.tolist(), count.tolist(), ns.tolist(), strict=True):
            before = self._sums.get(key, (0, 0))
            self._sums[key] = before[0] + ios, before[1] + took

    def reports(self, context: Context) -> list[PurposeTime]:
        """Return the figures of each device and purpose, most time first."""
        found = [
            PurposeTime(
                context.device_name(key >> _BITS),
                _NAMES.get(key & ((1 << _BITS) - 1), "no data"),
                ios,
                ns,
            )
            for key, (ios, ns) in sorted(self._sums.items())
        ]
        return sorted(found, key=lambda one: -one.ns)
