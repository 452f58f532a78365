# SPDX-License-Identifier: Apache-2.0
"""What blkparse does not print of a record, found by the records before it.

A merge is of a bio or of a whole request, a completion of a request or of a bio without one: the
category FS tells them apart in a record, and nothing does in its line. So bios are followed from
their Q to their request (G, M, F), and requests to their C. The bytes of a passthrough request
are printed at its D, and not at its C.
"""

from collections import defaultdict, deque

import numpy as np

from biotrail.converters.events.tables import I64, SECTOR_BYTES, U64, Bool
from biotrail.converters.inputs.blktrace.format import CATEGORY_SHIFT, Act, Category

# Numbers: an IntEnum's members take ten times as long to compare.
_Q, _M, _F, _G, _R, _D, _C, _X = map(
    int,
    (
        *(Act.QUEUE, Act.BACKMERGE, Act.FRONTMERGE, Act.GETRQ),
        *(Act.REQUEUE, Act.ISSUE, Act.COMPLETE, Act.SPLIT),
    ),
)
_FOLLOWED = (_Q, _M, _F, _G, _R, _D, _C, _X)
_MOST = 1 << 20
"""Places that are followed at once; of more, which wait for records that are missing, all are given
up."""
_PASSTHROUGH = np.uint64(int(Category.PC) << CATEGORY_SHIFT)

Ends = dict[tuple[int, int], list[int]]
"""By device and first sector: the sectors behind the ends, the newest last."""


class Requests:
    """Bios without a request and requests without an end, by device and place."""

    def __init__(self) -> None:
        self._bios: Ends = {}
        self._waiting: Ends = {}
        self._issued: Ends = {}
        self._commands: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
        self._queues: set[int] = set()
        """Devices with a Q."""
        self._request_based: set[int] = set()
        """Devices with requests."""

    def follow(
        self, act: I64, action: U64, dev: U64, sector: U64, size: U64, first: U64, command: U64
    ) -> tuple[Bool, U64]:
        """Return (which merges and completions are of requests, sizes in bytes), (n,) each.

        act, action: `Lines.act`, and the records' actions. size: bytes, of passthrough's C put in
        place. first: where the rest begins, of X. command: hash of passthrough's command. In the
        order of the lines.
        """
        of_request, size = np.zeros(len(act), np.bool_), size.copy()
        rows = np.flatnonzero(np.isin(act, _FOLLOWED))
        driver = (action[rows] & _PASSTHROUGH) != 0
        for row in rows[driver].tolist():
            size[row] = self._passthrough(
                int(act[row]), (int(dev[row]), int(command[row])), int(size[row])
            )
        rows = rows[~driver]
        places = dev[rows].tolist(), sector[rows].tolist()
        ends = (sector[rows] + size[rows] // np.uint64(SECTOR_BYTES)).tolist()
        found: list[bool] = [
            self._follow(a, (d, s), end, rest)
            for a, d, s, end, rest in zip(
                act[rows].tolist(), *places, ends, first[rows].tolist(), strict=True
            )
        ]
        of_request[rows] = found
        for held in (self._bios, self._waiting, self._issued):
            if len(held) > _MOST:
                held.clear()
        if len(self._commands) > _MOST:
            self._commands.clear()
        return of_request, size

    def _follow(self, act: int, place: tuple[int, int], end: int, rest: int) -> bool:
        """Take in one record; return whether it is of a request, where that is the question."""
        dev = place[0]
        if act == _Q:
            self._queues.add(dev)
            self._bios.setdefault(place, []).append(end)
        elif act == _X:
            self._split(place, rest)
        elif act in (_G, _F):
            _take(self._bios, place, end)
            self._request_based.add(dev)
            self._waiting[place] = [end]
        elif act == _M:
            # A request that is merged into another has its bios' requests behind it.
            return not _take(self._bios, place, end) and self._waiting.pop(place, None) is not None
        elif act == _D:
            _take(self._bios, place, end)
            self._waiting.pop(place, None)
            self._request_based.add(dev)
            self._issued.setdefault(place, []).append(end)
        elif act == _R:
            _take(self._issued, place, end)
            self._waiting[place] = [end]
        elif act == _C:
            return self._complete(place, end)
        return False

    def _split(self, place: tuple[int, int], rest: int) -> None:
        """Divide the newest bio at a place, which goes on behind `rest`."""
        ends = self._bios.get(place, [])
        longer = [end for end in ends if end > rest]
        if longer:
            ends.remove(longer[-1])
            self._bios.setdefault((place[0], rest), []).append(longer[-1])
            ends.append(rest)

    def _complete(self, place: tuple[int, int], end: int) -> bool:
        """Return whether a completion is of a request.

        One that ends before the request does is of a part: the rest is completed later.
        """
        ends = self._issued.get(place)
        if ends:
            whole = ends.pop(ends.index(end)) if end in ends else ends.pop(0)
            if not ends:
                del self._issued[place]
            if place[1] < end < whole:
                self._issued.setdefault((place[0], end), []).append(whole)
            return True
        if _take(self._bios, place, end):
            return False
        return place[0] in self._request_based or place[0] not in self._queues

    def _passthrough(self, act: int, key: tuple[int, int], size: int) -> int:
        """Return the bytes of a passthrough request; of a C those of the D of its command."""
        if act == _D:
            self._commands[key].append(size)
        elif act in (_C, _R) and (waiting := self._commands.get(key)):
            size = waiting.popleft()
            if not waiting:
                del self._commands[key]
        return size


def _take(held: Ends, place: tuple[int, int], end: int) -> bool:
    """Remove what has this place and end; return whether it was there."""
    ends = held.get(place)
    if not ends or end not in ends:
        return False
    ends.remove(end)
    if not ends:
        del held[place]
    return True
