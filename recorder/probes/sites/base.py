# SPDX-License-Identifier: Apache-2.0
"""What programs at chosen sites have in common: their object, filters, ring and losses."""

import ctypes
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters, check_tasks, descendants
from biotrail.recorder.host import cgroups, memory_limit
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Capabilities, Probes
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.core import allow_locked_memory
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import BpfObject, load_library
from biotrail.recorder.probes.maps import admission
from biotrail.recorder.probes.maps.cgroup_maps import TRACEPOINT, CgroupMaps
from biotrail.recorder.probes.maps.fitting import ensure_room, least_bytes
from biotrail.recorder.probes.programs import is_preemptible, object_path
from biotrail.recorder.probes.rings.ring import LEVELS, RingSizes
from biotrail.recorder.probes.sites.attaching import Descriptors
from biotrail.recorder.probes.sites.ring import SiteRing, fitting
from biotrail.recorder.schema.device_numbers import dev_number
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import MAX_DEVS
from biotrail.recorder.schema.payloads import KernelEnums
from biotrail.recorder.schema.site_structs import SITE_CONFIG, SITE_COUNTS
from biotrail.recorder.sites.expressions import Value

_ONE = ctypes.c_uint64(1)
_BLOCK = Path("/sys/class/block")


def _device_numbers(devices: Sequence[tuple[int, int]]) -> list[int]:
    """Return the dev_t that events of chosen devices may have: of disks and of their partitions.

    devices: (dev_t of the disk, dev_t of the partition or 0). With a whole disk come its
    partitions, as some objects name these. Raises ProbeError: more than MAX_DEVS.
    """
    found: dict[int, None] = {}
    for disk, part in devices:
        for number in [part] if part else [disk, *_partitions(disk)]:
            found[number] = None
    if len(found) > MAX_DEVS:
        raise ProbeError(
            f"the chosen devices have {len(found)} numbers with their partitions, at most "
            f"{MAX_DEVS} can be told apart: choose fewer, or partitions (-d)"
        )
    return list(found)


def _partitions(disk: int) -> list[int]:
    directories = [path.resolve() for path in _BLOCK.glob("*") if _dev(path) == disk]
    parts = [part.parent for directory in directories for part in directory.glob("*/partition")]
    return [number for part in parts if (number := _dev(part)) is not None]


def _dev(directory: Path) -> int | None:
    try:
        return dev_number((directory / "dev").read_text().strip())
    except OSError:
        return None


def per_cpu(
    bpf: BpfObject, name: str, key: "ctypes._CData", kind: type[ctypes.Structure]
) -> list[ctypes.Structure]:
    """Return the values of a per-CPU map's key, by possible CPU; all 0 where it is not there.

    kind: the ctypes class of a value, whose size is a multiple of 8. Raises RefusedError: there is
    no such map.
    """
    library = load_library()
    values = (kind * library.possible_cpus())()
    look_up = library.get("bpf_map_lookup_elem")
    look_up(bpf.map_fd(name), ctypes.byref(key), ctypes.byref(values))
    return list(values)


_ALL_TEMPLATES = (
    *("bt_pair_begin", "bt_pair_end", "bt_pair_begin_p", "bt_pair_end_p"),
    *("bt_pair_begin_f", "bt_pair_end_f", "bt_hit_typed", "bt_hit_typed_p"),
    *("bt_hit_entry_copy", "bt_hit_return_copy", "bt_hit_entry", "bt_hit_return"),
    "bt_hit_session",
)
"""Programs of the object; those that are not needed are not loaded."""


def fill_value(to: Any, value: Value) -> None:
    """Fill a struct bt_value."""
    to.source, to.size, to.steps = int(value.source), value.size, len(value.at)
    to.shift, to.bits, to.is_signed = value.shift, value.bits, value.is_signed
    for index, offset in enumerate(value.at):
        to.at[index] = offset


class SiteProbes(Probes):
    """Base of what records sites.

    A subclass has open(), attach(), programs() and backend_facts(). It sets `_object` and `_ring`,
    and adds its programs and what attaches them to `_programs` and `_links`. Nothing is pinned, so
    the kernel detaches and frees everything when the process ends, however it ends.
    """

    capabilities = Capabilities("core")

    def __init__(self) -> None:
        super().__init__()
        self._enums: KernelEnums = {}
        self.counts_skips = False
        self._hold_irqs = self._reports_cgroups = False
        self._object: BpfObject | None = None
        self._ring: SiteRing | None = None
        self._wanted_bytes = 0
        self._programs = Descriptors()
        self._links = Descriptors()

    def short_of_memory(self) -> str:
        """Return a message if the ring was made smaller as memory was short; "" if it was not."""
        if self._ring is None or self._ring.size >= self._wanted_bytes:
            return ""
        return (
            f"the ring of pairs and followed objects is {self._ring.size >> 10} KiB instead of "
            f"{self._wanted_bytes >> 10}: a memory limit leaves no room for more, so records may "
            "be lost under load; raise the memory limit of this service or login"
        )

    @staticmethod
    def _check_start(filters: Filters) -> None:
        """Raise ProbeError where rights or memory are missing; allow locked memory."""
        require_rights()
        ensure_room(0, memory_limit.room(), least_bytes(filters=False))
        check_tasks(filters)
        allow_locked_memory()

    def _read_kernel(self) -> bool:
        """Take facts from the kernel's types; return whether its tracepoints are preemptible."""
        with KernelBtf() as btf:
            self._enums = kernel_enums(btf)
            self.counts_skips = btf.has_function("bpf_prog_inc_misses_counter")
            self._hold_irqs = btf.has_function("bpf_local_irq_save")
            self._reports_cgroups = btf.parameters(TRACEPOINT) is not None
            return is_preemptible(btf)

    def _load(
        self,
        templates: Collection[str],
        filters: Filters,
        devices: Sequence[tuple[int, int]],
        fill: Callable[[BpfObject], None],
        ring: int,
        *,
        record: bool = False,
        count: bool = False,
    ) -> BpfObject:
        """Load the object with these templates, and map its ring. Raises ProbeError.

        fill: sets constants and sizes of maps before. ring: its wanted bytes. record, count: what
        becomes of pairs of events, records or histograms.
        """
        bpf = self._object = BpfObject(object_path("sites.bpf.o"))
        for name in _ALL_TEMPLATES:
            bpf.set_autoload(name, name in templates)
        sizes = RingSizes.choose(1, None)
        config = admission.config(sizes, [], filters, self._enums, hold_irqs=self._hold_irqs)
        bpf.set_initial_value(".rodata", config)
        numbers = _device_numbers(devices)
        where = cgroups.hierarchy() if filters.by_cgroup else None
        made = SITE_CONFIG.ctype(
            record=record,
            count=count,
            unified=where is not None and where.unified,
            nr_devs=len(numbers),
            devs=(ctypes.c_uint32 * MAX_DEVS)(*numbers),
        )
        bpf.set_initial_value(".rodata.sites", made)
        pids = set(filters.pids)
        if filters.children:
            pids |= descendants(filters.pids)
        ids = [admission.ID_PID | pid for pid in pids]
        ids += [admission.ID_TID | tid for tid in filters.tids]
        bpf.set_map_size("bt_ids", 8, max(1, len(ids)))
        maps = self._cgroups = CgroupMaps(
            bpf, filters, reports=bool(filters.named), made=self._reports_cgroups
        )
        fill(bpf)
        # What memory allows beside the other maps.
        self._wanted_bytes, room = ring, memory_limit.room()
        if room is not None:
            others = bpf.map_bytes(load_library().possible_cpus())
            room = room._replace(bytes=room.bytes - others)
        size = fitting(ring, room)
        ensure_room(size, room, least_bytes(filters=False))
        bpf.set_map_size("bt_site_ring", 0, size)
        bpf.load()
        for number in ids:
            bpf.put("bt_ids", ctypes.c_uint64(number), _ONE)
        maps.open()
        self._ring = SiteRing.map(bpf.map_fd("bt_site_ring"), size)
        return bpf

    def _opened(self) -> BpfObject:
        if self._object is None:
            raise ProbeError("the probes are not open: call open() first")
        return self._object

    def detach(self) -> None:
        """Detach the programs, those that were attached last first; maps stay readable."""
        self._links.close()
        if self._object is not None:
            self._object.detach()

    def close(self) -> None:
        """Detach and unload everything. Closing again has no effect."""
        self._run_stats.switch(False)
        self._links.close()
        self._programs.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._object is not None:
            if self._cgroups is not None:
                self._cgroups.close()
            self._object.close()
            self._object = None

    def drain(self) -> list[Segment]:
        return self._ring.drain() if self._ring is not None else []

    def fill(self) -> float:
        return self._ring.fill() if self._ring is not None else 0.0

    def lost(self) -> NDArray[np.uint64]:
        """Return counts of records lost to a full ring, (cpus, LEVELS, 256) by kind, since open.

        All at level 0, as the ring is one for all levels. Raises ProbeError: not open.
        """
        counts = per_cpu(self._opened(), "bt_site_counts", ctypes.c_uint32(0), SITE_COUNTS.ctype)
        totals = np.zeros((len(counts), LEVELS, 256), np.uint64)
        for cpu, one in enumerate(counts):
            lost = np.frombuffer(bytes(one.lost), np.uint64)
            totals[cpu, 0, : len(lost)] = lost
        return totals

    def too_deep(self) -> NDArray[np.uint64]:
        """Return zeros (cpus, 256): sites' programs may nest to any depth."""
        return np.zeros((load_library().possible_cpus(), 256), np.uint64)

    def kernel_enums(self) -> KernelEnums:
        return self._enums
