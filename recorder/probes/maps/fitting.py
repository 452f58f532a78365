# SPDX-License-Identifier: Apache-2.0
"""Reckons the memory that a recording will need before it is taken, and makes it fit the limit.

Who takes more than a cgroup's limit is killed by the kernel, without a word. Maps are taken whole
when they are made; the recorder's own memory is held against measurements (docs/recording.md).
"""

import errno

from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.probes.rings.ring import SMALLEST_RING_BYTES, RingSizes
from biotrail.recorder.schema.errors import ProbeError

RECORDER_BYTES = 32 << 20
"""What rings and tables leave to the recorder: it takes 9 MiB, under load and to load more."""
LEAST = 20 << 20
LEAST_WITH_FILTERS = 28 << 20
"""The least that they leave to it: the verifier takes up to 26 MiB for programs with filters."""
_MIB = 1 << 20
_OLD_LIMIT = 4 << 20
"""Largest array element, in bytes, that old kernels (5.10) accept: KMALLOC_MAX_SIZE."""


def fit(
    sizes: RingSizes,
    cpus: int,
    table: int,
    others: int,
    room: Room | None,
    least_table: int,
    least: int,
) -> tuple[RingSizes, int]:
    """Return rings and table, the larger halved until RECORDER_BYTES of `room` are left.

    table: bytes, a power of two; 0: none. others: of all other maps. Raises ProbeError: not even
    `least` bytes are left with the smallest rings and a table of `least_table`.
    """
    while room is not None:
        rings = cpus * sizes.area_bytes
        if rings + table + others <= room.bytes - RECORDER_BYTES:
            break
        rings_may = sizes.ring_bytes > SMALLEST_RING_BYTES
        if table > least_table and (table >= rings or not rings_may):
            table //= 2
        elif rings_may:
            sizes = sizes.halved()
        else:
            break
    ensure_room(cpus * sizes.area_bytes + table + others, room, least)
    return sizes, table


def ensure_room(maps: int, room: Room | None, least: int = LEAST) -> None:
    """Raise ProbeError unless maps of so many bytes leave the recorder `least` bytes of `room`."""
    if room is None or maps <= room.bytes - least:
        return
    needed, left = -(-(maps + least) // _MIB), max(0, room.bytes) // _MIB
    raise ProbeError(
        f"no room in memory: this recording needs {needed} MiB more with the smallest rings and "
        f"tables, and {left} MiB {room.limit}: raise that (MemoryMax= of a service), or record "
        "less: no --path or some of its parts, no --stacks, no --files, --events light "
        "(docs/recording.md has what each needs)"
    )


def may_shrink(number: int, sizes: RingSizes, locked: bool = False) -> bool:
    """Return whether smaller rings may load; `locked`: EPERM is for RLIMIT_MEMLOCK."""
    if number == errno.E2BIG:
        return sizes.area_bytes > _OLD_LIMIT
    limits = (errno.ENOMEM, errno.EPERM) if locked else (errno.ENOMEM,)
    return number in limits and sizes.ring_bytes > SMALLEST_RING_BYTES
