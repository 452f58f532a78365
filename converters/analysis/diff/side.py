# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison: a recording, or several, with its slots of time and random draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from biotrail.converters.analysis.distributions.keys import OP_BITS, Codes
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.distributions.slots import Recording, Slots
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.events.tables import I64, OP_MASK, Stage
from biotrail.converters.lifecycles.recorder_time import recorder_ns


def pooled(parts: Sequence[Recording], by_host: bool = False) -> Recording:
    """Return several recordings as one; a single one is returned as it is, unless by_host.

    A device is identified by its name in all parts, and with by_host by its host, too
    (`host:device`). In a part that does not have a device, the device's depth has no time, rather
    than idle time. The slots of the parts, one part after the other, are all as wide as the widest
    (to which the parts' own are widened).
    """
    if len(parts) == 1 and not by_host:
        return parts[0]
    slots = Slots(max(part.slots.width for part in parts), 0)
    devices, operations = Codes[str](), Codes[str]()
    owner: dict[int, str] = {}
    hosts: list[str] = []  # of each slot
    for part in parts:
        part.widen(slots.width)
        [host] = part.hosts
        places = {}
        for place in part.slots.places():
            name = part.device_name(place >> OP_BITS)
            dev = devices.of(f"{host}:{name}" if by_host else name)
            owner[dev] = host
            places[place] = dev << OP_BITS | operations.of(part.operation_name(place))
        slots.add_all(part.slots, len(hosts), places)
        hosts += [host] * len(part.times)
    times, of_slot = np.concatenate([part.times for part in parts]), np.array(hosts)
    return Recording(
        slots=slots,
        times=times,
        call_times=np.concatenate([part.call_times for part in parts]),
        span_ns=sum(part.span_ns for part in parts),
        begin=min((part.begin for part in parts if part.begin is not None), default=None),
        log_id="+".join(part.log_id for part in parts),
        hosts=list(dict.fromkeys(hosts)),
        kernels=list(dict.fromkeys(kernel for part in parts for kernel in part.kernels)),
        lost_records=sum(part.lost_records for part in parts),
        header={},
        end=None,
        device_name=devices.values.__getitem__,
        operation_name=lambda place: operations.values[place & OP_MASK],
        parts=list(parts),
        device_times={dev: np.where(of_slot == host, times, 0) for dev, host in owner.items()}
        if by_host
        else {},
    )


@dataclass
class Side:
    recording: Recording
    drawn: Resampling | None
    """None: the recording has too few slots for intervals, or none are wanted."""

    @cached_property
    def recorder(self) -> dict[Stage, float]:
        return recorder_ns(run.end for run in self.recording.runs)

    def devices(self) -> dict[str, int]:
        devs = {place >> OP_BITS for place in self.recording.slots.places()}
        return {self.recording.device_name(dev): dev for dev in sorted(devs)}

    def operations(self, dev: int) -> dict[str, int]:
        places = self.recording.slots.places()
        return {self.recording.operation_name(p): p for p in places if p >> OP_BITS == dev}

    def column(self, values: Mapping[int, int]) -> I64:
        column = np.zeros(len(self.recording.times), dtype=np.int64)
        for slot, value in values.items():
            column[min(slot, len(column) - 1)] += value
        return column

    def times(self, stage: str, by_slot: Mapping[int, Distribution]) -> Estimates:
        found = times(by_slot, len(self.recording.times), self.drawn)
        names = ("mean", *PERCENTILES)
        return {(stage, name, "ns"): one for name, one in zip(names, found, strict=True)}

    def report(self) -> SideReport:
        recording, drawn = self.recording, self.drawn
        options: dict[str, list[str]] = {}
        made = [options_of(run.header) for run in recording.runs]
        for name in dict.fromkeys(name for one in made for name in one):
            options[name] = list(dict.fromkeys(one.get(name, "no") for one in made))
        length = -(-len(recording.times) // drawn.blocks) if drawn else 0
        return as_row(
            SideReport,
            recording,
            host=", ".join(recording.hosts),
            kernel=", ".join(recording.kernels),
            block_ns=length * recording.slots.width,
            blocks=drawn.blocks if drawn else 0,
            left_out=recording.slots.left_out,
            calls_ns=int(recording.call_times.sum()),
            calls_left_out=recording.slots.calls_left_out,
            pairs_left_out=recording.slots.pairs_left_out,
            runs=len(recording.runs),
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
        for name, value in filters.items():
            if isinstance(value, list) and value:
                specs = (one.get("spec", "") if isinstance(one, dict) else one for one in value)
                found[f"filter {name}"] = ", ".join(map(str, specs))
            elif value:
                found[f"filter {name}"] = "yes" if value is True else str(value)
    if header.get("backend") not in (None, "core"):
        found["--backend"] = str(header["backend"])
    return dict(sorted(found.items()))
