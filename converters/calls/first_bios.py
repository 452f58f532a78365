# SPDX-License-Identifier: Apache-2.0
"""The cgroup and the file of each call, by the bios that it queued."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.calls.keys import Keys, rows_with_entry
from biotrail.converters.events.path_tables import BioPaths
from biotrail.converters.events.tables import I64, U64, Bios, Lifecycles, Table

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

    @classmethod
    def of(cls, bios: Bios, paths: BioPaths) -> "_Found":
        """Return a row for each of the `bios` whose call and its entry time are in `paths`."""
        rows, entry = rows_with_entry(bios, paths)
        tid, file = bios.tid[rows].astype(np.int64), bios.file[rows].astype(np.int64)
        return cls(tid, entry, bios.queue[rows], bios.cgroup[rows], file)


class FirstBios:
    """The cgroup and file of each call's first bio, window after window, in the log's order.

    Between windows it keeps a row for each thread that is or was inside a call with bios.
    """

    def __init__(self) -> None:
        """Start before the first window."""
        none = np.zeros(0, dtype=np.int64)
        self._before = _Found(none, none, none, none.astype(np.uint64), none)

    def of_calls(self, window: Lifecycles) -> tuple[U64, I64]:
        """Return (cgroup, file) of each of the window's calls, (n,) each.

        cgroup: id that the call's first bio (by Q) is charged to; 0: the call queued no bio, or
        none whose entry time is in the log. file: row in Context.files of the first bio that has
        one; -1: none. Bios of earlier windows count; what is known of a thread's newest call is
        kept until it returns. window: the log's next one, with tables of the path.
        """
        assert window.path is not None
        path, calls = window.path, window.path.calls
        bios = _Found.concatenate(
            [
                self._before,
                _Found.of(window.bios, path.bios),
                _Found.of(window.open_bios, path.open_bios),
            ]
        )
        keys = Keys.among((bios.tid, bios.entry), (calls.tid, calls.entry))
        key, key_call = keys.of
        order = np.lexsort((bios.queue, key))[::-1]  # of equal keys the first one is written last
        cgroup = np.zeros(len(keys.tid), dtype=np.uint64)
        file, queue = np.full((2, len(keys.tid)), _NONE, dtype=np.int64)
        cgroup[key[order]], queue[key[order]] = bios.cgroup[order], bios.queue[order]
        filed = order[bios.file[order] >= 0]
        file[key[filed]] = bios.file[filed]
        kept = keys.newest() & (queue != _NONE)
        kept[key_call] = False
        columns = (keys.tid, keys.entry, queue, cgroup, file)
        self._before = _Found(*(column[kept] for column in columns))
        return cgroup[key_call], file[key_call]
