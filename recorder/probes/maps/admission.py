# SPDX-License-Identifier: Apache-2.0
"""Builds `struct bt_config` (bpf/config.h): the constants that the programs are loaded with.

Filters, ring sizes, numbers of this kernel's operations, and how to know the recorder's own I/O.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from biotrail.recorder.filters.filters import Filters, is_stacked, masks
from biotrail.recorder.host import cgroups
from biotrail.recorder.host.own_io import pid_namespace
from biotrail.recorder.probes.file_ways import NO_FILES, Files
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema import limits, shared
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import KernelEnums

_ID_PID, _ID_TID = 1 << 32, 2 << 32
"""Mark a key of the map bt_ids as the id of a process or thread (the lower 32 bits)."""

_COMM_BYTES = 15  # TASK_COMM_LEN without the NUL
_NO_DATA_OPS = ("FLUSH", "DISCARD", "SECURE_ERASE", "WRITE_ZEROES")
_OWN_OPS = ("DRV_IN", "DRV_OUT", "SCSI_IN", "SCSI_OUT")
_FILE_OPS = ("WRITE", "ZONE_APPEND")
_MAX_OP = 63
_WAITED_ENDS = ("iomap_dio_bio_end_io", "submit_bio_wait_endio", "bio_wait_end_io")
"""Of iomap's direct I/O, and of submit_bio_wait() on older kernels and on newer ones."""
_LOOP_COMPLETE = "lo_rw_aio_complete"
END_FUNCTIONS = (*_WAITED_ENDS, _LOOP_COMPLETE)
"""Functions that end bios."""


DeviceFilter = shared.FILTER.ctype


def device_filters(devices: list[tuple[int, int]]) -> list[ctypes.Structure]:
    """Return a DeviceFilter for each of `devices`; a partition's with its sectors."""
    if len(devices) > limits.MAX_FILTERS:
        raise ProbeError(
            f"{len(devices)} devices were named, at most {limits.MAX_FILTERS} can be: "
            "record all devices and choose when converting"
        )
    found = []
    for disk, part in devices:
        start = end = 0
        if part:
            base = Path(f"/sys/dev/block/{dev_text(part)}")
            try:
                start = int((base / "start").read_text())
                end = start + int((base / "size").read_text())
            except (OSError, ValueError) as error:
                raise ProbeError(
                    f"{dev_text(part)} is no partition of this machine ({base}): "
                    "name a device that /sys/class/block lists"
                ) from error
        found.append(DeviceFilter(disk, part, start, end))
    return found


def task_ids(pids: Iterable[int], tids: Iterable[int] = ()) -> list[int]:
    """Return keys of the map bt_ids."""
    return [_ID_PID | pid for pid in pids] + [_ID_TID | tid for tid in tids]


def follows(filters: Filters, devices: Sequence[tuple[int, int]]) -> bool:
    """Return whether the programs keep a table of admitted bios from Q to completion.

    They need none where every event of an I/O carries the chosen disk's number.
    """
    return filters.judge_bios or any(part or is_stacked(disk) for disk, part in devices)


def _bits(names: Sequence[str], number_of: Mapping[str, int]) -> int:
    numbers = (number_of.get(name) for name in names)
    return sum(1 << n for n in numbers if n is not None and n <= _MAX_OP)


def config(
    sizes: RingSizes,
    devices: list[tuple[int, int]],
    filters: Filters,
    enums: KernelEnums,
    stacks: Stacks = Stacks.NONE,
    files: Files = NO_FILES,
    *,
    hold_irqs: bool = False,
    ends: Mapping[str, int] | None = None,
) -> Any:
    """Return the programs' configuration (shared.CONFIG).

    `filters`: of process and thread ids, and of cgroups, only whether there are any; the caller
    puts the ids into the maps. `hold_irqs`: the kernel has bpf_local_irq_save(). `ends`:
    addresses of END_FUNCTIONS. Partitions' sectors and this process (as the recorder, whose own I/O
    is known by it) are looked up now. Raises ProbeError: too many devices or filter values,
    or a partition, operation or flag that this machine lacks.
    """
    ops, bits = enums["op_enum"], enums["flag_bits"]
    chosen, ends = device_filters(devices), ends or {}
    namespace = pid_namespace() or (0, 0)
    made = shared.CONFIG.ctype(
        ring_bytes=sizes.ring_bytes,
        upper_bytes=sizes.upper_bytes,
        area_bytes=sizes.area_bytes,
        nr_filters=len(chosen),
        no_data_ops=_bits(_NO_DATA_OPS, ops),
        filters=(DeviceFilter * limits.MAX_FILTERS)(*chosen),
        follow=follows(filters, devices),
        by_pid=bool(filters.pids),
        by_tid=bool(filters.tids),
        by_cgroup=filters.by_cgroup,
        hierarchy=cgroups.number(),
        min_bytes=filters.min_bytes,
        ops=sum(1 << number for number in set(masks(filters.ops, ops, "--op"))),
        own_ops=_bits(_OWN_OPS, ops),
        flush_op=ops.get("FLUSH", 0),
        preflush=_bits(["PREFLUSH"], bits),
        sequence=_bits(["PREFLUSH", "FUA"], bits),
        kernel_stacks=stacks >= Stacks.KERNEL,
        user_stacks=stacks >= Stacks.USER,
        files=files.recorded,
        iomap_end_io=files.iomap_end_io,
        hold_irqs=hold_irqs,
        # By which bpf/behalf.h and bpf/loop.h know whose I/O a bio is.
        waited_ends=tuple(ends.get(name, 0) for name in _WAITED_ENDS),
        loop_complete=ends.get(_LOOP_COMPLETE, 0),
        # By which bpf/own.h knows the recorder's own I/O; CoreProbes.own_file() tells its files.
        file_ops=_bits(_FILE_OPS, ops),
        recorder=os.getpid(),
        leave_own=not filters.own_io,
        ns_dev=namespace[0],
        ns_inode=namespace[1],
    )
    for given, limit, what in (
        (filters.comms, limits.MAX_COMMS, "task names"),
        (filters.flags, limits.MAX_FLAGS, "sets of flags"),
        (filters.sectors, limits.MAX_RANGES, "ranges of sectors"),
    ):
        if len(given) > limit:
            raise ProbeError(f"{len(given)} {what} were named, at most {limit} can be: name fewer")
    flags = [sum(1 << n for n in set(masks(names, bits, "--flags"))) for names in filters.flags]
    made.nr_comms, made.nr_flags = len(filters.comms), len(flags)
    made.nr_ranges = len(filters.sectors)
    for place, name in enumerate(filters.comms):
        # Compared with its NUL, or as a prefix if it ends in *.
        prefix = name.endswith("*")
        text = os.fsencode(name[:-1] if prefix else name)[:_COMM_BYTES]
        mask = b"\xff" * (len(text) if prefix else len(text) + 1)
        both = text.ljust(16, b"\0") + mask.ljust(16, b"\0")
        made.comms[place] = shared.COMM.ctype.from_buffer_copy(both)
    for place, mask_of in enumerate(flags):
        made.flags[place] = mask_of
    for place, (first, last) in enumerate(filters.sectors):
        made.ranges[place] = shared.RANGE.ctype(first, last + 1)
    return made
