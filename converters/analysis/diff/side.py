# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison: a recording, or several, with its slots of time and random draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from biotrail.converters.analysis.diff.figures import (
    PERCENTILES,
    Estimate,
    Estimates,
    Resampling,
    times,
)
from biotrail.converters.analysis.diff.tree import SideReport
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.distributions.slots import Recording, Slots
from biotrail.converters.events.tables import I64, OP_MASK, Stage
from biotrail.converters.lifecycles.recorder_time import recorder_ns


@dataclass
class Pool(Recording):
    """Recordings that are compared together, as one Recording.

    A device is identified by its name (and host) in all parts. In a part that does not have a
    device, the device's depth has no time, rather than idle time.
    """

    parts: list[Recording] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Names of the devices, by their number in `slots`."""
    operations: list[str] = field(default_factory=list)
    """Names of the operations, by their number in `slots`."""
    seconds: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(slots,): length of each slot, ns."""
    call_seconds: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(slots,): that of each slot as far as calls were timed, ns."""
    owners: list[str] = field(default_factory=list)
    """Per slot: host of the recording that the slot is of."""
    machines: list[str] = field(default_factory=list)
    """Per device: its host; "" if devices of all hosts with that name are pooled."""

    @property
    def span_ns(self) -> int:
        return sum(part.span_ns for part in self.parts)

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(part.hosts for part in self.parts)))

    @property
    def kernels(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(part.kernels for part in self.parts)))

    @property
    def log_id(self) -> str:
        return "+".join(part.log_id for part in self.parts)

    @property
    def begin(self) -> str | None:
        return min((part.begin for part in self.parts if part.begin is not None), default=None)

    @property
    def lost_records(self) -> int:
        return sum(part.lost_records for part in self.parts)

    def device_name(self, dev: int) -> str:
        return self.names[dev]

    def operation_name(self, place: int) -> str:
        return self.operations[place & OP_MASK]

    def slot_times(self) -> I64:
        return self.seconds

    def call_times(self) -> I64:
        return self.call_seconds

    def device_times(self, dev: int) -> I64:
        """0 for slots of other hosts than the device's."""
        machine = self.machines[dev]
        if not machine:
            return self.seconds
        return np.where(np.array([owner == machine for owner in self.owners]), self.seconds, 0)


def pooled(parts: Sequence[Recording], by_host: bool = False) -> Recording:
    """Return several recordings as one; a single one is returned as it is, unless by_host.

    The slots of the parts, one part after the other, are all as wide as the widest (to which the
    parts' own are widened). by_host: device names become `host:device`, so that devices of two
    hosts stay apart.
    """
    if len(parts) == 1 and not by_host:
        return parts[0]
    width = max(part.slots.width for part in parts)
    pool = Pool(parts[0].trace, Slots(width, 0), list(parts))
    times: list[I64] = []
    for part in parts:
        while part.slots.width < width:
            part.slots.widen()
        places = {place: _place(pool, part, place, by_host) for place in part.slots.places()}
        pool.slots.add_all(part.slots, sum(map(len, times)), places)
        times.append(part.slot_times())
        pool.owners += part.hosts * len(times[-1])
    pool.seconds = np.concatenate(times)
    pool.call_seconds = np.concatenate([part.call_times() for part in parts])
    return pool


def _place(pool: Pool, part: Recording, place: int, by_host: bool) -> int:
    name = part.device_name(place >> OP_BITS)
    name = f"{part.hosts[0]}:{name}" if by_host else name
    operation = part.operation_name(place)
    if name not in pool.names:
        pool.names.append(name)
        pool.machines.append(part.hosts[0] if by_host else "")
    if operation not in pool.operations:
        pool.operations.append(operation)
    return pool.names.index(name) << OP_BITS | pool.operations.index(operation)


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
        return recorder_ns(run.trace.reader.end for run in runs_of(self.recording))

    def devices(self) -> dict[str, int]:
        devs = {place >> OP_BITS for place in self.recording.slots.places()}
        return {self.recording.device_name(dev): dev for dev in sorted(devs)}

    def operations(self, dev: int) -> dict[str, int]:
        places = self.recording.slots.places()
        return {self.recording.operation_name(p): p for p in places if p >> OP_BITS == dev}

    def times_of(self, place: int | None) -> I64:
        """Return the ns of each slot that a place's rates are per; None: of any place."""
        return self.seconds if place is None else self.recording.device_times(place >> OP_BITS)

    def counter(self, groups: dict[int, Group], name: str) -> I64:
        return self.column({slot: group[name] for slot, group in groups.items()})

    def column(self, values: Mapping[int, int]) -> I64:
        column = np.zeros(len(self.seconds), dtype=np.int64)
        for slot, value in values.items():
            column[min(slot, len(column) - 1)] += value
        return column

    def times(self, stage: str, by_slot: Mapping[int, Distribution]) -> Estimates:
        found = times(by_slot, len(self.seconds), self.drawn)
        names = ("mean", *PERCENTILES)
        return {(stage, name, "ns"): one for name, one in zip(names, found, strict=True)}

    def report(self) -> SideReport:
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
            calls_left_out=recording.slots.calls_left_out,
            pairs_left_out=recording.slots.pairs_left_out,
            runs=len(runs_of(recording)),
            options=options,
        )


def per_second(per_ns: Estimate, ios: I64) -> Estimate:
    """Without I/Os a rate has no value: it is not 0, but not there."""
    if per_ns.value is None or not ios.any():
        return Estimate(None)
    drawn = None if per_ns.draws is None else per_ns.draws * 1e9
    return Estimate(per_ns.value * 1e9, drawn, per_ns.blocks, why=per_ns.why)


# How a recording was made, as far as that changes its figures: options of `record`.
#
# The recorder's own programs take time in the path of an I/O: a stack walk at Q makes Q2G longer.


def options_of(header: Mapping[str, Any]) -> dict[str, str]:
    """Return option of `record` → its value as text; other tools' recordings have none."""
    found: dict[str, str] = {}
    if isinstance(events := header.get("events"), dict) and events.get("set"):
        found["--events"] = str(events["set"])
    if isinstance(stacks := header.get("stacks"), dict):
        found["--stacks"] = "kernel and user" if stacks.get("user") else "kernel"
    if isinstance(header.get("files"), dict):
        found["--files"] = "yes"
    if isinstance(path := header.get("path"), dict):
        found["--path"] = ",".join(sorted(str(part) for part in path.get("parts") or ()))
    sites = header.get("sites")
    if isinstance(sites, dict) and (follow := sites.get("follow")):
        found["--follow"] = str(follow.get("type", ""))
    if isinstance(filters := header.get("filters"), dict):
        found |= {f"filter {name}": _filter(value) for name, value in filters.items() if value}
    if header.get("backend") not in (None, "core"):
        found["--backend"] = str(header["backend"])
    return dict(sorted(found.items()))


def _filter(value: Any) -> str:
    if not isinstance(value, list):
        return "yes" if value is True else str(value)
    specs = (one.get("spec", "") if isinstance(one, dict) else one for one in value)
    return ", ".join(map(str, specs))
