# SPDX-License-Identifier: Apache-2.0
"""The cgroup and the file of each call, by the bios that it queued."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biotrail.converters.calls.keys import Keys, held_with_entry, rows_with_entry
from biotrail.converters.events.path_tables import BioPaths, HeldBios
from biotrail.converters.events.tables import I64, U8, U32, U64, Bios, Lifecycles, Table

_NONE = -1


@dataclass
class _Found(Table):
    """Bios of calls, or what is known so far of calls that have not returned."""

    tid: I64
    entry: I64
    """ns: with `tid`, the call's key."""
    queue: I64
    """ns: Q, by which the first bio is found."""
    cgroup: U64
    file: I64
    """Row in Context.files; -1: none."""
    opf: U32
    page: U8
    """What the bio's page is, a PageKind."""

    @classmethod
    def of(cls, bios: Bios, paths: BioPaths, held: HeldBios) -> "_Found":
        """Return a row for each bio of a timed call, or that a limit held while one waited."""
        rows, entry = rows_with_entry(bios, paths)
        waited, held = held_with_entry(bios, held)
        tid = np.concatenate([bios.tid[rows], held.tid]).astype(np.int64)
        begun = np.concatenate([bios.queue[rows], bios.queue[waited] - held.held])
        entry, rows = np.concatenate([entry, held.entry]), np.concatenate([rows, waited])
        file = bios.file[rows].astype(np.int64)
        return cls(tid, entry, begun, bios.cgroup[rows], file, bios.opf[rows], bios.page[rows])


class FirstBio(NamedTuple):
    """Of each call, (n,) each, what its first bio is (by Q, or when a limit began to hold it)."""

    cgroup: U64
    """Id that it is charged to; 0: the call queued and waited for no bio whose entry time is in the
    log."""
    file: I64
    """Row in Context.files of the call's descriptor, else of the first bio that has one; -1: none.
    """
    opf: U32
    """0: as `cgroup`."""
    page: U8


class FirstBios:
    """The cgroup and file of each call's first bio, window after window, in the log's order.

    Between windows it keeps a row for each thread that is or was inside a call with bios.
    """

    def __init__(self) -> None:
        self._before = _Found.none()

    def of_calls(self, window: Lifecycles) -> FirstBio:
        """Return what is known of the first bio of each of the window's calls.

        Bios of earlier windows count; what is known of a thread's newest call is kept until it
        returns. window: the log's next one, with tables of the path.
        """
        assert window.path is not None
        path, calls = window.path, window.path.calls
        bios = _Found.concatenate(
            [
                self._before,
                _Found.of(window.bios, path.bios, path.held),
                _Found.of(window.open_bios, path.open_bios, path.open_held),
            ]
        )
        keys = Keys.among((bios.tid, bios.entry), (calls.tid, calls.entry))
        key, key_call = keys.of
        order = np.lexsort((bios.queue, key))[::-1]  # of equal keys the first one is written last
        cgroup = np.zeros(len(keys.tid), dtype=np.uint64)
        file, queue = np.full((2, len(keys.tid)), _NONE, dtype=np.int64)
        opf = np.zeros(len(keys.tid), dtype=np.uint32)
        page = np.zeros(len(keys.tid), dtype=np.uint8)
        cgroup[key[order]], queue[key[order]] = bios.cgroup[order], bios.queue[order]
        opf[key[order]], page[key[order]] = bios.opf[order], bios.page[order]
        filed = order[bios.file[order] >= 0]
        file[key[filed]] = bios.file[filed]
        kept = keys.newest() & (queue != _NONE)
        kept[key_call] = False
        columns = (keys.tid, keys.entry, queue, cgroup, file, opf, page)
        self._before = _Found(*(column[kept] for column in columns))
        file = np.where(calls.file >= 0, calls.file, file[key_call])
        return FirstBio(cgroup[key_call], file, opf[key_call], page[key_call])
