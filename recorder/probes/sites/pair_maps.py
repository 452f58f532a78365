# SPDX-License-Identifier: Apache-2.0
"""The constants and maps of pairs' programs (bpf/pairs.h), as ctypes."""

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import byref, c_uint32
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from biotrail.recorder.probes.kernel.libbpf import BpfObject, load_library
from biotrail.recorder.probes.sites.base import per_cpu
from biotrail.recorder.probes.sites.latencies import Latencies
from biotrail.recorder.schema import site_structs
from biotrail.recorder.schema.limits import HIST_SLOTS, MAX_PAIRS
from biotrail.recorder.schema.shared import plain_class
from biotrail.recorder.sites.expressions import Value
from biotrail.recorder.sites.resolving import ResolvedPair, ResolvedSide

BEGUN, BY_HISTS, HISTS, COUNTS = (
    *("bt_begun", "bt_pair_by_hists", "bt_pair_hists", "bt_pair_counts"),
)
_PairSites: type[Any] = plain_class(site_structs.PAIR_SITES)
_Key: type[Any] = plain_class(site_structs.PAIR_KEY)
_Begun = plain_class(site_structs.PAIR_BEGUN)
_By: type[Any] = plain_class(site_structs.PAIR_BY)
Hist = plain_class(site_structs.PAIR_HIST)
_Counts = plain_class(site_structs.PAIR_COUNTS)


class Section(ctypes.Structure):
    """.rodata.pairs: `struct bt_pair_sites pairs[]`."""

    _fields_ = (("pairs", _PairSites * MAX_PAIRS),)


@dataclass(frozen=True)
class PairCounts:
    """What became of a pair's events that are in no histogram; running totals, but for `open`."""

    open: int = 0
    """Begins that wait for their end now."""
    no_begin: int = 0
    """Ends without a begin."""
    overwritten: int = 0
    """Begins that another with the same key replaced."""
    full: int = 0
    """Begins for which there was no room."""
    bad_begin: int = 0
    """Begins with a field that could not be read."""
    bad_end: int = 0
    """Ends likewise."""
    left_begin: int = 0
    """Begins that conditions and filters left out."""
    left_end: int = 0
    """Pairs that conditions on the end left out."""

    def account(self) -> dict[str, int]:
        """Return the counts by name, as JSON."""
        return asdict(self)

    def without_left_out(self) -> "PairCounts":
        """Return the counts without what conditions left out, as where no user asked for any.

        A declared pair's own conditions choose among a tracepoint's events: that is no loss.
        """
        return replace(self, left_begin=0, left_end=0)


def section(pairs: Sequence[ResolvedPair]) -> Section:
    """Return the constants of these pairs, at most MAX_PAIRS."""
    made = Section()
    for place, pair in zip(made.pairs, pairs, strict=False):
        for begin, side in zip(place.begins, pair.begins, strict=False):
            _fill_side(begin, side)
        _fill_side(place.end, pair.end)
    return made


def _fill_side(to: Any, side: ResolvedSide) -> None:
    """Fill a struct bt_side."""
    for place, value in zip(to.key, side.keys, strict=False):
        fill_value(place, value)
    fill_value(to.by, side.by)
    fill_value(to.dev, side.device)
    fill_value(to.process, side.process)
    to.nr_conditions, to.choosing = len(side.conditions), side.choosing
    for place, condition in zip(to.conditions, side.conditions, strict=False):
        fill_value(place.value, condition.value)
        place.operand, place.operator = condition.operand, condition.operator


def fill_value(to: Any, value: Value) -> None:
    """Fill a struct bt_value."""
    to.source, to.size, to.steps = int(value.source), value.size, value.steps
    to.shift, to.bits, to.is_signed = value.shift, value.bits, value.is_signed
    for index, offset in enumerate(value.at):
        to.at[index] = offset


def size_maps(bpf: BpfObject, pairs: Sequence[ResolvedPair], max_open: int, by_values: int) -> None:
    """Set the maps' sizes before loading.

    max_open: begins that may wait at once. by_values: values of --by with a histogram of their own,
    for each pair.
    """
    with_by = sum(bool(pair.by) for pair in pairs)
    bpf.set_map_size(BEGUN, ctypes.sizeof(_Begun), max_open)
    bpf.set_map_size(BY_HISTS, ctypes.sizeof(Hist), max(1, with_by * by_values))


def _keys(bpf: BpfObject, name: str, kind: type[Any]) -> Iterator[Any]:
    """Yield copies of the keys of a hash map while programs change it; some may come twice."""
    step, fd = load_library().get("bpf_map_get_next_key"), bpf.map_fd(name)
    key, following = kind(), kind()
    last = None
    while step(fd, last, byref(following)) == 0:
        key = kind.from_buffer_copy(following)
        last = byref(key)
        yield kind.from_buffer_copy(following)


def open_begins(bpf: BpfObject) -> list[int]:
    """Return by pair how many begins wait for their end, (MAX_PAIRS,)."""
    found = [0] * MAX_PAIRS
    for key in _keys(bpf, BEGUN, _Key):
        found[key.pair] += 1
    return found


def counts(bpf: BpfObject, pair: int) -> PairCounts:
    """Return a pair's counts, summed over CPUs; `open` is 0."""
    values = per_cpu(bpf, COUNTS, c_uint32(pair), _Counts)
    names = [one.name for one in fields(PairCounts) if one.name != "open"]
    return PairCounts(**{name: sum(getattr(one, name) for one in values) for name in names})


def latencies(bpf: BpfObject, pair: int) -> Latencies:
    """Return a pair's latencies that belong to no value of --by."""
    return _summed(per_cpu(bpf, HISTS, c_uint32(pair), Hist))


def latencies_by(bpf: BpfObject) -> dict[tuple[int, int], Latencies]:
    """Return latencies by (pair, value of --by)."""
    keys = {(int(key.pair), int(key.by)): key for key in _keys(bpf, BY_HISTS, _By)}
    return {at: _summed(per_cpu(bpf, BY_HISTS, key, Hist)) for at, key in keys.items()}


def _summed(hists: Sequence[Any]) -> Latencies:
    """Return the latencies of all CPUs' histograms."""
    total = Latencies()
    for one in hists:
        if one.count:
            slots = np.frombuffer(bytes(one.slots), np.uint64)
            # From the slots: another program may count while this is read.
            total += Latencies(int(slots.sum()), int(one.sum), max(one.max), slots)
    assert len(total.slots) == HIST_SLOTS
    return total
