# SPDX-License-Identifier: Apache-2.0
"""The maps of bpf/cgroups.h: which cgroups are recorded, and cgroups that the programs tell of."""

import ctypes
import mmap
import os
import threading

import numpy as np

from biotrail.recorder.filters.filters import Filters, cgroup_id
from biotrail.recorder.host import cgroups
from biotrail.recorder.probes.kernel.libbpf import SECTION, BpfObject
from biotrail.recorder.probes.rings.entries import EntryRing
from biotrail.recorder.schema import shared
from biotrail.recorder.schema.limits import CGROUP_RING_BYTES

TRACEPOINT = "cgroup_mkdir"
"""Whose program sends the paths of cgroups that are made."""
_PROGRAM = "bt_cgroup_made"
MAX_NAMED = 4096
"""Cgroups with a name that is asked for which can be recorded at once."""
_WANTED = "bt_wanted_cgroups"
_SALT_SHIFT = 44
"""Bits from here on are in no id: its lower half is a number, its upper half counts their reuse."""
_ONE = ctypes.c_uint64(1)


CgroupPath = tuple[int, str | None]
"""A cgroup's id, and its path from the root of its hierarchy; None: too long to be sent."""


class CgroupMaps:
    """These maps of one object."""

    def __init__(self, bpf: BpfObject, filters: Filters, *, reports: bool, made: bool) -> None:
        """reports: the programs' paths of cgroups are read; made: of those made later, too."""
        where = cgroups.hierarchy() if filters.cgroups else None
        self._chosen = [cgroup_id(path, where) for path in filters.cgroups]
        self._bpf = bpf
        self._ring: EntryRing | None = None
        self.descriptor: int | None = None
        """Readable when the programs have sent a path; None: they send none."""
        self._changes = 0
        self._lock = threading.Lock()
        many = len(self._chosen) + (MAX_NAMED if filters.named else 0)
        bpf.set_map_size(_WANTED, 8, max(1, many))
        self._reports = reports
        self.programs = {_PROGRAM} if reports and made else set()
        """The program to load, if any."""
        if not reports:
            bpf.set_map_size("bt_cgroups_sent", 8, 1)
            bpf.set_map_size("bt_cgroup_ring", 0, mmap.PAGESIZE)

    def open(self) -> None:
        """List the chosen cgroups, once loaded, and map the ring."""
        for number in self._chosen:
            self._bpf.put(_WANTED, ctypes.c_uint64(number), _ONE)
        if self._reports:
            self.descriptor = self._bpf.map_fd("bt_cgroup_ring")
            entry = np.dtype(shared.CGROUP_PATH.ctype)
            self._ring = EntryRing.map(self.descriptor, CGROUP_RING_BYTES, entry)

    def attach(self) -> None:
        for program in self.programs:
            self._bpf.attach(program)

    def new_cgroups(self) -> list[CgroupPath]:
        found: list[CgroupPath] = []
        for one in [] if self._ring is None else self._ring.take():
            path = None
            if one["whole"]:
                names = one["names"][: one["bytes"]].tobytes()  # upwards, each with its NUL
                path = "/" + os.fsdecode(b"/".join(reversed(names.split(b"\0")[:-1])))
            found.append((int(one["cgroup"]), path))
        return found

    def list_cgroup(self, number: int, *, wanted: bool) -> None:
        with self._lock:
            if wanted:
                self._bpf.put(_WANTED, ctypes.c_uint64(number), _ONE)
            else:
                self._bpf.remove(_WANTED, ctypes.c_uint64(number))
            self._changes += 1
            salt = self._changes << _SALT_SHIFT & (1 << 64) - 1
            self._bpf.put(".data.cgroups", SECTION, ctypes.c_uint64(salt))

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = self.descriptor = None
