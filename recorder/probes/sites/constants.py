# SPDX-License-Identifier: Apache-2.0
"""The constants and ids that all programs at chosen sites are loaded with: filters, devices."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from biotrail.recorder.filters.filters import Filters, descendants
from biotrail.recorder.host import cgroups
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.maps import admission
from biotrail.recorder.probes.maps.cgroup_maps import CgroupMaps
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema import site_structs
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import MAX_DEVS
from biotrail.recorder.schema.payloads import KernelEnums
from biotrail.recorder.schema.structs import fields

_ONE = ctypes.c_uint64(1)
_BLOCK = Path("/sys/class/block")


class SiteConfig(ctypes.Structure):
    """`struct bt_site_config`."""

    _fields_ = fields(site_structs.SITE_CONFIG)


def device_numbers(devices: Sequence[tuple[int, int]], block: Path = _BLOCK) -> list[int]:
    """Return the dev_t that events of chosen devices may have: of disks and of their partitions.

    devices: (dev_t of the disk, dev_t of the partition or 0). With a whole disk come its
    partitions, as some objects name these. Raises ProbeError: more than MAX_DEVS.
    """
    found: dict[int, None] = {}
    for disk, part in devices:
        for number in [part] if part else [disk, *_partitions(disk, block)]:
            found[number] = None
    if len(found) > MAX_DEVS:
        raise ProbeError(
            f"the chosen devices have {len(found)} numbers with their partitions, at most "
            f"{MAX_DEVS} can be told apart: choose fewer, or partitions (-d)"
        )
    return list(found)


def _partitions(disk: int, block: Path) -> list[int]:
    """Return the dev_t of a disk's partitions by sysfs, in no order."""
    number = f"{disk >> 20}:{disk & 0xFFFFF}"
    directories = [path for path in block.glob("*") if _dev(path) == number]
    parts = [path for directory in directories for path in directory.resolve().glob("*/partition")]
    found = []
    for path in parts:
        major, _, minor = _dev(path.parent).partition(":")
        if minor:
            found.append(int(major) << 20 | int(minor))
    return found


def _dev(directory: Path) -> str:
    """Return "major:minor" of a device's directory in sysfs, "" if it has none."""
    try:
        return (directory / "dev").read_text().strip()
    except OSError:
        return ""


def set_filters(
    bpf: BpfObject,
    filters: Filters,
    devices: Sequence[tuple[int, int]],
    *,
    hold_irqs: bool,
    tells_made: bool,
    record: bool = False,
    count: bool = False,
) -> CgroupMaps:
    """Set the sections and map sizes of the filters, before `bpf` is loaded.

    hold_irqs: the kernel has bpf_local_irq_save(). tells_made: it tells of cgroups that are made,
    which is asked for where they are chosen by name. record, count: what becomes of pairs of
    events, records or histograms. Returns the maps of cgroups, to be opened once loaded.

    Raises ProbeError: a cgroup that does not exist, or too many values.
    """
    empty: KernelEnums = {"op_enum": {}, "flag_bits": {}}
    config = admission.config(RingSizes.choose(1, None), [], filters, empty)
    config.hold_irqs = hold_irqs
    bpf.set_initial_value(".rodata", config)
    numbers = device_numbers(devices)
    where = cgroups.hierarchy() if filters.by_cgroup else None
    made = SiteConfig(
        record=record,
        count=count,
        unified=where is not None and where.unified,
        nr_devs=len(numbers),
        devs=(ctypes.c_uint32 * MAX_DEVS)(*numbers),
    )
    bpf.set_initial_value(".rodata.sites", made)
    bpf.set_map_size("bt_ids", 8, max(1, len(_ids(filters))))
    return CgroupMaps(bpf, filters, tells=bool(filters.named), made=tells_made)


def fill_ids(bpf: BpfObject, filters: Filters) -> None:
    """Put the ids of chosen processes and threads into their map, once loaded."""
    for number in _ids(filters):
        bpf.put("bt_ids", ctypes.c_uint64(number), _ONE)


def _ids(filters: Filters) -> list[int]:
    """Return the keys of bt_ids: processes, with their descendants if wanted, and threads."""
    pids = set(filters.pids)
    if filters.children:
        pids |= descendants(filters.pids)
    return [admission.ID_PID | pid for pid in pids] + [admission.ID_TID | t for t in filters.tids]
