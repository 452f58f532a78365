# SPDX-License-Identifier: Apache-2.0
"""The constants and maps of the programs that follow objects (bpf/objects.h, bpf/open_calls.h)."""

import ctypes
import mmap
import os
import platform
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.kernel.libbpf import BpfObject, load_library
from biotrail.recorder.probes.maps.stack_maps import before_zero, max_depth, new_stacks
from biotrail.recorder.probes.sites.base import fill_value, per_cpu
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.probes.sites.ring import SITE_ENTRY
from biotrail.recorder.schema import follow_structs
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.follow_structs import (
    KEPT_HITS,
    SITE_BIRTH,
    SITE_DEATH,
    LifeState,
    Machine,
)
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.sites.following import FollowPlan

_CALL_THREADS = 4096
"""Threads with open calls at one time (BT_CALL_THREADS)."""
_STACKS = 16384
_MACHINES = {"x86_64": Machine.X86_64, "aarch64": Machine.AARCH64}
_LOOK_NS = 100_000_000
_IDLE_NS = 200_000_000
_STACK_MAP, _CALLS = "bt_site_stacks", "bt_calls_of_threads"
_COUNTS = tuple(m.name for m in follow_structs.FOLLOW_COUNTS.members if m.name != "pad")
_LIFE = np.dtype(follow_structs.LIFE.ctype)
_HIT = BY_KIND[Kind.HIT].dtype


class FollowMaps:
    """The maps of one object: sized before it is loaded, then filled and read."""

    def __init__(self, bpf: BpfObject, plan: FollowPlan, options: FollowOptions) -> None:
        """Set the sizes of the maps, before `bpf` is loaded."""
        self._bpf, self._plan, self._options = bpf, plan, options
        self._depth = max_depth()
        self._known: set[int] = set()
        self._value = ctypes.create_string_buffer(self._depth * 8)
        slots = options.at_once
        self._kept = slots * KEPT_HITS if options.slower_ns else 1
        threads = _CALL_THREADS if plan.functions else 1
        for name, value_size, entries in (
            ("bt_objects", 4, slots),
            ("bt_lives", _LIFE.itemsize, slots),
            ("bt_free_lives", 4, slots),
            ("bt_kept_hits", SITE_ENTRY.itemsize, self._kept),
            ("bt_refused", 8, 1 << follow_structs.REFUSED_BITS),
            (_CALLS, bpf.value_size(_CALLS), threads),
            (_STACK_MAP, self._depth * 8, _STACKS),
        ):
            bpf.set_map_size(name, value_size, entries)
        self._lives: NDArray[np.void] = np.empty(0, _LIFE)
        self._hits: NDArray[np.void] = np.empty(0, SITE_ENTRY)
        self._mapped: list[mmap.mmap] = []
        self._has_deaths = bool(plan.named(SITE_DEATH))
        self._looked = 0
        self.idle = 0
        """Lives that ended as nothing more was seen of their object."""

    def constants(self) -> Any:
        """Return the constants of the programs (FOLLOW)."""
        plan, options = self._plan, self._options
        made = follow_structs.FOLLOW.ctype(
            slower_ns=options.slower_ns,
            lives=options.lives,
            every=options.every,
            remember=options.every > 1 or sum(bool(s.meaning & SITE_BIRTH) for s in plan.sites) > 1,
            returns=bool(plan.functions),
            machine=_MACHINES.get(platform.machine(), 0),
        )
        fill_value(made.detail, plan.detail)
        fill_value(made.device, plan.device)
        fill_value(made.process, plan.process)
        return made

    def map(self) -> None:
        """Map what is read of candidates, once loaded. Raises ProbeError."""
        self._lives = self._view("bt_lives", _LIFE, self._options.at_once)
        if self._options.slower_ns:
            self._hits = self._view("bt_kept_hits", SITE_ENTRY, self._kept)

    def _view(self, name: str, dtype: np.dtype[np.void], count: int) -> NDArray[np.void]:
        """Map an array of `count` elements, which the kernel rounds up to whole pages each 8."""
        size = dtype.itemsize * count
        try:
            mapped = mmap.mmap(self._bpf.map_fd(name), -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        except OSError as error:
            raise ProbeError(
                f"the map {name} ({size} bytes) cannot be mapped: {os.strerror(error.errno or 0)}"
            ) from error
        self._mapped.append(mapped)
        view: NDArray[np.void] = np.ndarray((count,), dtype, mapped)
        return view

    def start(self) -> None:
        """Let lives begin."""
        self._free(range(self._options.at_once))
        self._bpf.update_section("bt_follow_numbers", follow_structs.FOLLOW_NUMBERS.ctype(open=1))

    def stop(self) -> None:
        """Let no life begin any more; those that go on are still followed."""
        self._bpf.update_section("bt_follow_numbers", follow_structs.FOLLOW_NUMBERS.ctype())

    def _free(self, slots: Iterable[int]) -> None:
        library, fd = load_library(), self._bpf.map_fd("bt_free_lives")
        for slot in slots:
            number = ctypes.c_uint32(slot)
            library.call(
                "map bt_free_lives", "bpf_map_update_elem", fd, None, ctypes.byref(number), 0
            )

    def forget_idle(self, now_ns: int) -> None:
        """End lives without a hit for a while, whose end was not seen.

        So if a site was passed after which only the release comes, which not every way of release
        shows; or if this type has no deaths at all. now_ns: CLOCK_MONOTONIC. Looks at most every
        _LOOK_NS.
        """
        if now_ns - self._looked < _LOOK_NS:
            return
        self._looked = now_ns
        lives = self._lives
        idle = now_ns - lives["touched"].astype(np.int64)
        over = (lives["last"] != 0) & (idle > _IDLE_NS)
        if not self._has_deaths:
            over |= idle > self._options.idle_ns
        for slot in np.flatnonzero(over & (lives["object"] != 0)).tolist():
            self._forget(slot)

    def _forget(self, slot: int) -> None:
        """End the life in a slot, as bt_end_life in bpf/objects.h does."""
        life = self._lives[slot]
        key, value = ctypes.c_uint64(int(life["object"])), ctypes.c_uint32(0)
        fd, library = self._bpf.map_fd("bt_objects"), load_library()
        look_up, delete = library.get("bpf_map_lookup_elem"), library.get("bpf_map_delete_elem")
        if look_up(fd, ctypes.byref(key), ctypes.byref(value)) or value.value != slot:
            return
        delete(fd, ctypes.byref(key))
        life["object"] = 0
        self.idle += 1
        slower = self._options.slower_ns
        if slower and int(life["touched"]) - int(life["born"]) >= slower:
            life["state"] = LifeState.KEPT
            return
        life["state"] = LifeState.DROPPED
        self._free([slot])

    def take_kept(self) -> NDArray[np.void]:
        """Return the hits (n,) of SITE_ENTRY of long lives that ended since the last call.

        Their slots are free then.
        """
        slots = np.flatnonzero(self._lives["state"] == LifeState.KEPT).tolist()
        if not slots:
            return np.empty(0, SITE_ENTRY)
        parts = []
        for slot in slots:
            hits = self._hits[slot * KEPT_HITS : (slot + 1) * KEPT_HITS].copy()
            # Places that stayed empty hold hits of former lives.
            raw = hits.view(np.uint8).reshape(len(hits), SITE_ENTRY.itemsize)
            records = np.ascontiguousarray(raw[:, -_HIT.itemsize :]).view(_HIT)[:, 0]
            parts.append(hits[records["life"] == self._lives["life"][slot]])
        self._lives["state"][slots] = LifeState.TAKEN
        self._free(slots)
        return np.concatenate(parts)

    def fresh_stacks(self) -> dict[int, NDArray[np.uint64]]:
        """Return the stacks that are new since the last call, by id, innermost frame first."""
        found = new_stacks(self._bpf, _STACK_MAP, self._known, self._value)
        return {key: before_zero(np.frombuffer(data, "<u8")) for key, data in found}

    def counts(self) -> dict[str, int]:
        """Return running totals by name (struct bt_follow_counts), summed over all CPUs."""
        kind = follow_structs.FOLLOW_COUNTS.ctype
        rows = per_cpu(self._bpf, "bt_follow_counts", ctypes.c_uint32(0), kind)
        return {name: sum(int(getattr(row, name)) for row in rows) for name in _COUNTS}

    def close(self) -> None:
        """Unmap; nothing can be taken any more."""
        self._lives, self._hits = np.empty(0, _LIFE), np.empty(0, SITE_ENTRY)
        while self._mapped:
            self._mapped.pop().close()
