# SPDX-License-Identifier: Apache-2.0
"""Sets up the maps of bpf/trigger.h, and reads which triggers fired."""

import ctypes
import time

from biotrail.recorder.filters.triggers import Hit, Triggers
from biotrail.recorder.log.chunks import unwrap
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.schema import shared
from biotrail.recorder.schema.limits import FIRED_SLOTS

_INFLIGHT_SLOTS = 65536
_DEPTH_SLOTS = 4096
_INFLIGHT_BYTES = 24
_NAMES = {1: "slow", 2: "failed", 3: "depth"}  # enum bt_trigger


class TriggerMaps:
    def __init__(self, bpf: BpfObject, triggers: Triggers) -> None:
        """Set the triggers' constants and the tables' sizes, before `bpf` is loaded."""
        self._bpf = bpf
        self._armed = 1
        value = shared.TRIGGERS.ctype(triggers.slow_ns, triggers.failed, triggers.depth)
        bpf.set_initial_value(".rodata.trigger", value)
        if triggers.slow_ns or triggers.depth:
            bpf.set_map_size("bt_requests", _INFLIGHT_BYTES, _INFLIGHT_SLOTS)
        if triggers.slow_ns:
            bpf.set_map_size("bt_bios", _INFLIGHT_BYTES, _INFLIGHT_SLOTS)
        if triggers.depth:
            bpf.set_map_size("bt_depths", 8, _DEPTH_SLOTS)

    def hits(self) -> list[Hit]:
        """Return the first trigger that fired on each CPU since the last call, ordered by time.

        CPUs whose numbers are equal modulo 64 count as one. If there is any hit, arms the triggers
        again; those that fire before that are not known.
        """
        fired = (shared.FIRED.ctype * FIRED_SLOTS)()
        self._bpf.read_section(".data.fired", fired)
        fired_slots = [slot for slot in fired if slot.armed == self._armed]
        if not fired_slots:
            return []
        self._armed += 1
        self._bpf.update_section(".data.armed", ctypes.c_uint64(self._armed))
        near = time.monotonic_ns()
        hits = [
            Hit(_NAMES.get(s.trigger, "?"), unwrap(s.now, near), s.dev, s.sector, s.value, s.op)
            for s in fired_slots
        ]
        return sorted(hits, key=lambda hit: hit.monotonic)
