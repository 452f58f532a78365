# SPDX-License-Identifier: Apache-2.0
"""What programs at chosen sites have in common: their object, filters, ring and losses."""

import ctypes
from abc import abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters, check_tasks, descendants
from biotrail.recorder.host import cgroups, device_sysfs, memory_limit
from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.core import allow_locked_memory
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import BpfObject, load_library
from biotrail.recorder.probes.maps import admission
from biotrail.recorder.probes.maps.cgroup_maps import TRACEPOINT, CgroupMaps
from biotrail.recorder.probes.maps.fitting import RECORDER_BYTES, ensure_room
from biotrail.recorder.probes.programs import is_preemptible, object_path
from biotrail.recorder.probes.rings.entries import EntryRing
from biotrail.recorder.probes.rings.ring import LEVELS, RingSizes
from biotrail.recorder.probes.sites.attaching import Descriptors
from biotrail.recorder.schema.device_numbers import dev_number, dev_text
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import MAX_DEVS
from biotrail.recorder.schema.records import TIMESTAMP_BITS
from biotrail.recorder.schema.site_structs import SITE_CONFIG, SITE_COUNTS
from biotrail.recorder.sites.expressions import Value

_DEVICES = Path("/sys/dev/block")


def per_cpu(
    bpf: BpfObject, name: str, key: "ctypes._CData", kind: type[ctypes.Structure]
) -> list[ctypes.Structure]:
    """Return the values of a per-CPU map's key, by possible CPU; all 0 where it is not there."""
    values = (kind * load_library().possible_cpus())()
    bpf.get(name, key, values)
    return list(values)


def fill_value(to: Any, value: Value) -> None:
    to.source, to.size, to.steps = int(value.source), value.size, len(value.at)
    to.shift, to.bits, to.is_signed = value.shift, value.bits, value.is_signed
    for index, offset in enumerate(value.at):
        to.at[index] = offset


# The one ring of all sites' programs (`bt_site_ring` of bpf/sites.h), read without a loop

SITE_LEVEL = 3
"""Segment.level of sites' records: behind the nesting levels of the mapped rings."""
_RECORD_BYTES = 64
"""Size of every record of a site (HIT, PAIR). A block holds a whole number of them."""
_DEFAULT_RING_BYTES = 16 << 20
"""Room for 200,000 records, which a recorder that polls 20 times a second has to copy in 50 ms."""
SMALLEST_RING_BYTES = 64 << 10

SITE_ENTRY = np.dtype(
    [("cpu", "<u4"), ("zero", "<u4"), ("head", "<u8"), ("rest", f"V{_RECORD_BYTES - 8}")]
)
"""`struct bt_site_entry`: a record of a site and its CPU."""
_TIME_MASK = np.uint64((1 << TIMESTAMP_BITS) - 1)


def ring_bytes(wanted: int | None = None, room: Room | None = None) -> int:
    """Return the size of the ring, a power of two. Raises ProbeError: `wanted` cannot be.

    room: without one, memory is not limited. Else the size is halved until it leaves the recorder
    32 MiB of it, or to SMALLEST_RING_BYTES: the recorder's own memory comes from the same limit.
    """
    size = _DEFAULT_RING_BYTES
    if wanted is not None:
        if not SMALLEST_RING_BYTES <= wanted <= 512 << 20:
            raise ProbeError(
                f"a ring of {wanted} bytes cannot be used: choose between {SMALLEST_RING_BYTES} "
                f"and {512 << 20}"
            )
        size = 1 << (wanted - 1).bit_length()
    while room is not None and size > SMALLEST_RING_BYTES and size > room.bytes - RECORDER_BYTES:
        size //= 2
    return size


class SiteRing(EntryRing):
    """Entries are SITE_ENTRY."""

    def __init__(self, *parts: Any, **others: Any) -> None:
        super().__init__(*parts, **others)
        self._positions: dict[int, int] = {}

    def drain(self, more: NDArray[np.void] | None = None) -> list[Segment]:
        """Copy all complete records, and `more` that were kept elsewhere (n,), as SITE_ENTRY.

        Returns a Segment for each CPU that wrote, by time; positions go on where the last ended.
        """
        entries = self.take()
        if more is not None and len(more):
            kept = np.zeros(len(more), self.entry)
            for name in ("cpu", "head", "rest"):
                kept[name] = more[name]
            entries = np.concatenate([kept, entries])
        if not len(entries):
            return []
        entries = entries.take(np.lexsort((entries["head"] & _TIME_MASK, entries["cpu"])))
        cpus, starts = np.unique(entries["cpu"], return_index=True)
        segments = []
        for cpu, part in zip(cpus.tolist(), np.split(entries, starts[1:]), strict=True):
            position = self._positions.get(cpu, 0)
            raw = part.view(np.uint8).reshape(len(part), self.entry.itemsize)
            data = raw[:, -_RECORD_BYTES:].tobytes()
            segments.append(Segment(cpu, SITE_LEVEL, position, data))
            self._positions[cpu] = position + len(data)
        return segments


# What records sites


class SiteProbes(Probes):
    """Base of what records sites.

    A subclass has attach(), programs(), backend_facts(), and what open() calls: _look_up(), _fill()
    and _loaded(). It adds its programs and what attaches them to `_programs` and `_links`. It
    records neither files nor the path, and stacks of followed objects alone. Nothing is
    pinned, so the kernel detaches and frees everything when the process ends, however it ends.
    """

    backend = "core"

    def __init__(
        self,
        filters: Filters,
        devices: Sequence[tuple[int, int]],
        ring: int | None,
        *,
        record: bool = False,
        count: bool = False,
    ) -> None:
        """devices: as of ProbeConfig. ring: bytes of the one ring; None: chosen.

        record, count: what becomes of pairs of events, records or histograms.
        """
        super().__init__()
        self.filters, self.devices = filters, devices
        self._asked_ring, self._wanted_bytes = ring, 0
        self._record, self._count = record, count
        self._ring: SiteRing | None = None
        self._programs = Descriptors()
        self._links = Descriptors()

    @abstractmethod
    def _look_up(self) -> None:
        """Look up what the kernel has, before anything is loaded. Raises SiteError, ProbeError."""

    @abstractmethod
    def _fill(self, bpf: BpfObject, suffix: str) -> Collection[str]:
        """Set constants and maps' sizes; return templates to load, typed ones with `suffix`."""

    @abstractmethod
    def _loaded(self, bpf: BpfObject) -> None:
        """Use the loaded object. Raises OSError, ProbeError."""

    def open(self) -> None:
        require_rights()
        ensure_room(0, memory_limit.room())
        check_tasks(self.filters)
        allow_locked_memory()
        self._look_up()
        try:
            self._load()
        except (OSError, ProbeError):
            self.close()
            raise

    def _load(self) -> None:
        filters = self.filters
        with KernelBtf() as btf:
            self.enums = kernel_enums(btf)
            self.counts_skips = btf.function_id("bpf_prog_inc_misses_counter") is not None
            hold_irqs = btf.function_id("bpf_local_irq_save") is not None
            reports_cgroups = btf.parameters(TRACEPOINT) is not None
            suffix = "_p" if is_preemptible(btf) else ""
        bpf = self._object = BpfObject(object_path("sites.bpf.o"))
        sizes = RingSizes.choose(1, None)
        config = admission.config(sizes, [], filters, self.enums, hold_irqs=hold_irqs)
        bpf.set_initial_value(".rodata", config)
        # With a whole disk come its partitions, as some objects name these.
        numbers = {part or disk for disk, part in self.devices}
        for disk, part in self.devices:
            for mark in () if part else _DEVICES.joinpath(dev_text(disk)).glob("*/partition"):
                number = dev_number(device_sysfs.read(str(mark.with_name("dev"))))
                if number is not None:
                    numbers.add(number)
        if len(numbers) > MAX_DEVS:
            raise ProbeError(
                f"the chosen devices have {len(numbers)} numbers with their partitions, at most "
                f"{MAX_DEVS} can be told apart: choose fewer, or partitions (-d)"
            )
        where = cgroups.hierarchy() if filters.by_cgroup else None
        made = SITE_CONFIG.ctype(
            record=self._record,
            count=self._count,
            unified=where is not None and where.fstype == "cgroup2",
            nr_devs=len(numbers),
            devs=(ctypes.c_uint32 * MAX_DEVS)(*numbers),
        )
        bpf.set_initial_value(".rodata.sites", made)
        pids = set(filters.pids)
        if filters.children:
            pids |= descendants(filters.pids)
        ids = admission.task_ids(pids, filters.tids)
        bpf.set_map_size("bt_ids", 8, max(1, len(ids)))
        maps = self._cgroups = CgroupMaps(
            bpf, filters, reports=bool(filters.named), made=reports_cgroups
        )
        bpf.choose({*self._fill(bpf, suffix), *maps.programs})
        # What memory allows beside the other maps.
        self._wanted_bytes, room = ring_bytes(self._asked_ring), memory_limit.room()
        if room is not None:
            others = bpf.map_bytes(load_library().possible_cpus())
            room = room._replace(bytes=room.bytes - others)
        size = ring_bytes(self._asked_ring, room)
        ensure_room(size, room)
        bpf.set_map_size("bt_site_ring", 0, size)
        bpf.load()
        for number in ids:
            bpf.put("bt_ids", ctypes.c_uint64(number), ctypes.c_uint64(1))
        maps.open()
        self._ring = SiteRing.map(bpf.map_fd("bt_site_ring"), size, SITE_ENTRY)
        self._loaded(bpf)

    def short_of_memory(self) -> str:
        if self._ring is None or self._ring.size >= self._wanted_bytes:
            return ""
        return (
            f"the ring of pairs and followed objects is {self._ring.size >> 10} KiB instead of "
            f"{self._wanted_bytes >> 10}: a memory limit leaves no room for more, so records may "
            "be lost under load; raise the memory limit of this service or login"
        )

    def detach(self) -> None:
        """Detach the programs, those that were attached last first; maps stay readable."""
        self._links.close()
        if self._object is not None:
            self._object.detach()

    def close(self) -> None:
        self._links.close()
        self._programs.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        super().close()

    def drain(self) -> list[Segment]:
        return self._ring.drain() if self._ring is not None else []

    def fill(self) -> float:
        return self._ring.fill() if self._ring is not None else 0.0

    def lost(self) -> NDArray[np.uint64]:
        """All at level 0, as the ring is one for all levels."""
        counts = per_cpu(self._opened(), "bt_site_counts", ctypes.c_uint32(0), SITE_COUNTS.ctype)
        totals = np.zeros((len(counts), LEVELS, 256), np.uint64)
        for cpu, one in enumerate(counts):
            lost = np.frombuffer(bytes(one.lost), np.uint64)
            totals[cpu, 0, : len(lost)] = lost
        return totals

    def too_deep(self) -> NDArray[np.uint64]:
        """Return zeros: sites' programs may nest to any depth."""
        return np.zeros((load_library().possible_cpus(), 256), np.uint64)
