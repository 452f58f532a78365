# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison: a recording, its slots of time, and its random draws."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from biotrail.converters.analysis.diff.bootstrap import Resampling
from biotrail.converters.analysis.diff.figures import Estimate
from biotrail.converters.analysis.diff.options import options_of
from biotrail.converters.analysis.diff.pooled import Pool
from biotrail.converters.analysis.diff.tree import SideReport
from biotrail.converters.analysis.distributions.blocks import Recording
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.events.tables import I64, Stage
from biotrail.converters.lifecycles.recorder_time import recorder_ns

Named = dict[str, Estimate]
"""Name of a figure → estimate."""


def runs_of(recording: Recording) -> list[Recording]:
    """Return the recordings of a side; a rotated one is one."""
    return recording.parts if isinstance(recording, Pool) else [recording]


@dataclass
class Side:
    """One side of a comparison: a recording and its draws."""

    recording: Recording
    seconds: I64
    """(slots,): length of each slot, ns."""
    drawn: Resampling | None
    """None: the recording has too few slots for intervals."""

    @classmethod
    def of(cls, recording: Recording, seed: tuple[int, int], count: int) -> "Side":
        """Return a recording, which was read to its end, with `count` draws; 0: none."""
        slots = recording.slot_times()
        return cls(recording, slots, Resampling.of(len(slots), count, seed))

    @cached_property
    def recorder(self) -> dict[Stage, float]:
        """What the recorder's programs added to stages (`recorder_ns`), in all runs."""
        return recorder_ns(run.trace.reader.end for run in runs_of(self.recording))

    def devices(self) -> dict[str, int]:
        """Return name → number of the devices with I/O."""
        devs = {place >> OP_BITS for place in self.recording.slots.places()}
        return {self.recording.device_name(dev): dev for dev in sorted(devs)}

    def operations(self, dev: int) -> dict[str, int]:
        """Return name → place of a device's operations."""
        places = self.recording.slots.places()
        return {self.recording.operation_name(p): p for p in places if p >> OP_BITS == dev}

    def times_of(self, place: int | None) -> I64:
        """Return the ns of each slot that a place's rates are per (slots,); None: of any place."""
        return self.seconds if place is None else self.recording.device_times(place >> OP_BITS)

    def counter(self, groups: dict[int, Group], name: str) -> I64:
        """Return a counter of each slot's group: int64 (slots,); 0 for slots without a group.

        groups: slot → group; each slot below the recording's number of slots. name: of COUNTERS.
        """
        values = np.zeros(len(self.seconds), dtype=np.int64)
        for slot, group in groups.items():
            values[slot] = group[name]
        return values

    def report(self) -> SideReport:
        """Return the facts about this side's recording and about the blocks of its draws.

        A draw consists of `blocks` blocks of the recording's time, each about `block_ns` long. If
        the recording has too few slots for confidence intervals, both are 0. Several hosts or
        kernels (of a Pool) are joined by ", ".
        """
        recording, drawn = self.recording, self.drawn
        options: dict[str, list[str]] = {}
        made = [options_of(run.trace.context.header) for run in runs_of(recording)]
        for name in dict.fromkeys(name for one in made for name in one):
            options[name] = list(dict.fromkeys(one.get(name, "no") for one in made))
        length = -(-len(self.seconds) // drawn.blocks) if drawn else 0
        return SideReport(
            log_id=recording.log_id,
            host=", ".join(recording.hosts),
            kernel=", ".join(recording.kernels),
            begin=recording.begin,
            span_ns=recording.span_ns,
            block_ns=length * recording.slots.width,
            blocks=drawn.blocks if drawn else 0,
            lost_records=recording.lost_records,
            left_out=recording.slots.left_out,
            calls_ns=int(recording.call_times().sum()),
            calls_left_out=recording.slots.calls.left_out,
            pairs_left_out=recording.slots.pairs.left_out,
            runs=len(runs_of(recording)),
            options=options,
        )


def per_second(per_ns: Estimate, ios: I64) -> Estimate:
    """Return a rate per ns as one per second, with its draws and `why`.

    Without a value if `per_ns` has none, or if there are no I/Os: then the rate is not 0, but not
    there. ios: I/Os (or calls) in each slot (slots,). `error` is dropped; rates have none.
    """
    if per_ns.value is None or not ios.any():
        return Estimate(None)
    drawn = None if per_ns.draws is None else per_ns.draws * 1e9
    return Estimate(per_ns.value * 1e9, drawn, per_ns.blocks, why=per_ns.why)
