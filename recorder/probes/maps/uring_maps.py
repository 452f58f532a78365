# SPDX-License-Identifier: Apache-2.0
"""The maps and constants of the part `uring` of the path (bpf/uring.h)."""

import ctypes

from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.schema import shared
from biotrail.recorder.symbols.kallsyms import addresses_of

_SETS, _SET_BYTES = 1 << 14, 8 * 32
_THREADS, _THREAD_BYTES = 1 << 16, 16
_FUNCTIONS = {
    "iomap_end_io": "iomap_dio_bio_end_io",
    "blkdev_end_io": "blkdev_bio_end_io",
    "blkdev_end_io_async": "blkdev_bio_end_io_async",
    "ring_complete": "io_complete_rw",
    "ring_complete_polled": "io_complete_rw_iopoll",
    "aio_complete": "aio_complete_rw",
}
"""Kernel function by its member of `struct bt_uring`."""


class Uring(ctypes.Structure):
    """`struct bt_uring`, the section .rodata.uring."""

    _fields_ = shared.fields(shared.URING)


def prepare(bpf: BpfObject, recorded: bool) -> None:
    """Set the sizes of the maps and the addresses of kernel functions, before `bpf` is loaded.

    recorded: whether the part is. If it is not, the maps have one entry and addresses are 0.
    Addresses of functions that the kernel lacks or hides are 0, too: bios of direct I/O are then
    joined to their request by the thread or worker that queues them, and those of aio are not
    joined. Raises RefusedError.
    """
    addresses = addresses_of(_FUNCTIONS.values()) if recorded else {}
    section = Uring(**{name: addresses.get(of, 0) for name, of in _FUNCTIONS.items()})
    bpf.set_initial_value(".rodata.uring", section)
    bpf.set_map_size("bt_ring_sets", _SET_BYTES, _SETS if recorded else 1)
    bpf.set_map_size("bt_running_reqs", _THREAD_BYTES, _THREADS if recorded else 1)
