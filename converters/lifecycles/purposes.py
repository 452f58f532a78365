# SPDX-License-Identifier: Apache-2.0
"""What each bio is for: data, metadata, the journal, swap, readahead."""

from enum import IntEnum

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import U8, Bios, Bool, PageKind, Tasks
from biotrail.converters.events.tasks import by_threads


class Purpose(IntEnum):
    """What a bio is for."""

    NONE = 0
    """It moves no data: a flush, a discard, a zone's reset, …"""
    DATA = 1
    METADATA = 2
    JOURNAL = 3
    SWAP = 4
    READAHEAD = 5


PURPOSE_NAMES = {purpose: purpose.name.lower() for purpose in Purpose if purpose}
"""Name of each purpose but NONE."""
JOURNAL_THREADS = "jbd2/"
"""Beginning of the names of the journal's threads of ext4 and ocfs2: `jbd2/sda1-8`."""
_METADATA_THREADS = "ext4lazyinit"
"""Beginning of the name of the thread that zeroes ext4's inode tables after mkfs, without META."""
_SWAPPED = "[SWAP]"
"""Mount point of a device that is swapped to (recorder/host/device_mounts.py)."""


def purposes(bios: Bios, tasks: Tasks, context: Context) -> U8:
    """Return per bio its Purpose, (n,): the first of these that holds.

    NONE: it has no data, or is no read, write or zone append (a discard, a driver's command). SWAP:
    it has the flag SWAP, its page is being swapped, or its device is swapped to as a whole.
    JOURNAL: a write by a thread jbd2/…, but of no file's page (which that thread writes back before
    it commits); or a write with META, SYNC and IDLE and of no page cache, as of XFS's log.
    METADATA: it has the flag META or PRIO; or its page is a block device's own, of a device with a
    mounted file system; or the thread ext4lazyinit queued it. READAHEAD: it has the flag RAHEAD.
    DATA: all others.

    Where the log has no part `dirty` of the path, pages are not known: then SWAP rests on the flag
    (writes alone have it) and the device, pages that a jbd2 thread writes back count as JOURNAL,
    as do those that ext4 writes to their place with META, SYNC and IDLE, and a device's own pages
    without flags as DATA. Flags that the kernel lacks never hold.
    """
    found = np.full(len(bios), Purpose.DATA, np.uint8)
    if not len(bios):
        return found

    def has(*names: str) -> Bool:
        """Return per bio whether all of these flags are set; False if the kernel lacks one."""
        masks = [context.flag_mask(name) for name in names]
        mask = np.uint32(sum(masks))
        return np.asarray(all(masks) & ((bios.opf & mask) == mask), dtype=np.bool_)

    numbers = [context.op_number(name) for name in ("read", "write", "zone_append")]
    op = (bios.opf & np.uint32(0xFF)).astype(np.int64)
    writes = np.isin(op, [n for n in numbers[1:] if n >= 0])
    cached = (bios.page == PageKind.FILE) | (bios.page == PageKind.DEVICE)
    by_journal = (
        writes & (bios.page != PageKind.FILE) & by_threads(JOURNAL_THREADS, bios.task, tasks)
    )
    journal = by_journal | (writes & ~cached & has("META", "SYNC", "IDLE"))
    mounted, swaps = list[int](), list[int]()
    for dev, entry in context.devices.items():
        points = entry.get("mounts")
        for point in points if isinstance(points, list) else ():
            (swaps if str(point) == _SWAPPED else mounted).append(dev)
    own_pages = (bios.page == PageKind.DEVICE) & np.isin(bios.part, np.array(mounted, np.uint32))
    swapped = (bios.page == PageKind.SWAP) | np.isin(bios.part, np.array(swaps, np.uint32))
    # From the last that holds to the first.
    found[has("RAHEAD")] = Purpose.READAHEAD
    by_init = by_threads(_METADATA_THREADS, bios.task, tasks)
    found[has("META") | has("PRIO") | own_pages | by_init] = Purpose.METADATA
    found[journal] = Purpose.JOURNAL
    found[has("SWAP") | swapped] = Purpose.SWAP
    found[(bios.bytes == 0) | ~np.isin(op, [n for n in numbers if n >= 0])] = Purpose.NONE
    return found
