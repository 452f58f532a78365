# SPDX-License-Identifier: Apache-2.0
"""What a captured line leaves out and a record holds: D's chain, X's parent, Q's partition."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.capture_text import SECTOR_BYTES, Event, format_event, opf_of

_OP_MASK = 0xFF


@dataclass
class _Bio:
    sector: int
    sectors: int
    pid: int
    part: int
    order: int


@dataclass
class _Request:
    dev: int
    sector: int
    sectors: int
    op: int
    bios: list[list[int]] = field(default_factory=list)
    """[bio, bytes left] each, in the chain's order."""
    issued: bool = False


class Follower:
    """Follows a sequence, so that each event can be completed by what came before it.

    What a line says explicitly (`chain=`, `parent=`, `part=`, `rq=`, `into=`) wins.
    """

    def __init__(self, partitions: Iterable[int] = ()) -> None:
        self._partitions = frozenset(partitions)
        self._bios: dict[tuple[int, int], _Bio] = {}
        self._requests: dict[tuple[int, int], _Request] = {}
        self._unnamed: list[_Request] = []
        self._order = 0
        self._handlers = {
            "A": self._remap,
            "Q": self._queue,
            "X": self._split,
            "G": self._getrq,
            "M": self._merge,
            "F": self._merge,
            "m": self._request_merge,
            "s": self._start,
            "I": self._request,
            "R": self._requeue,
            "D": self._issue,
            "C": self._complete,
            "c": self._bio_complete,
        }

    def follow(self, event: Event) -> Event:
        """The event with `chain`, `parent` and `part` added; ValueError where D contradicts."""
        event = dict(event)
        self._order += 1
        handler = self._handlers.get(event["letter"])
        if handler is not None:
            handler(event)
        return event

    def _remap(self, event: Event) -> None:
        source = event["from"][0]
        event.setdefault("part", source if source in self._partitions else event["dev"])
        self._remember(event)

    def _queue(self, event: Event) -> None:
        before = self._bios.get((event["dev"], event["bio"]))
        remapped = before is not None and before.order == self._order - 1
        event.setdefault("part", before.part if before and remapped else event["dev"])
        self._remember(event)

    def _remember(self, event: Event) -> None:
        self._bios[event["dev"], event["bio"]] = _Bio(
            event["sector"], event["sectors"], event.get("pid", 0), event["part"], self._order
        )

    def _split(self, event: Event) -> None:
        if "parent" not in event:
            event["parent"] = self._parent(event)
        parent = self._bios.get((event["dev"], event["parent"]))
        if parent is not None:
            parent.sector += event["sectors"]
            parent.sectors -= event["sectors"]

    def _parent(self, event: Event) -> int:
        wanted = (event["dev"], event["sector"], event.get("pid", 0))
        found = [
            (known.order, bio)
            for (dev, bio), known in self._bios.items()
            if (dev, known.sector, known.pid) == wanted and known.sectors > event["sectors"]
        ]
        if not found:
            raise ValueError(f"no bio queued that this is split from: {format_event(event)}")
        return max(found)[1]

    def _new_request(self, event: Event) -> _Request:
        op = opf_of(event["rwbs"]) & _OP_MASK
        request = _Request(event["dev"], event["sector"], event["sectors"], op)
        if "bio" in event:
            request.bios.append([event["bio"], event["sectors"] * SECTOR_BYTES])
        return request

    def _getrq(self, event: Event) -> None:
        self._unnamed.append(self._new_request(event))

    def _start(self, event: Event) -> None:
        self._requests.pop((event["dev"], event["rq"]), None)
        self._request(event)

    def _request(self, event: Event) -> _Request:
        """The request of an event, named by now, with the event's range."""
        key = (event["dev"], event["rq"])
        if key not in self._requests:
            self._requests[key] = self._take_unnamed(event) or self._new_request(event)
        request = self._requests[key]
        request.sector, request.sectors = event["sector"], event["sectors"]
        return request

    def _take_unnamed(self, event: Event) -> _Request | None:
        for request in reversed(self._unnamed):
            if request.dev == event["dev"] and event.get("bio") in [b for b, _ in request.bios]:
                self._unnamed.remove(request)
                return request
        return None

    def _merge(self, event: Event) -> None:
        at_end = event["letter"] == "M"
        request = self._target(event, "rq", at_end)
        if request is None:
            return
        bio = [event["bio"], event["sectors"] * SECTOR_BYTES]
        request.bios.insert(len(request.bios) if at_end else 0, bio)
        request.sectors += event["sectors"]
        request.sector -= 0 if at_end else event["sectors"]

    def _request_merge(self, event: Event) -> None:
        absorbed = self._request(event)
        del self._requests[event["dev"], event["rq"]]
        target = self._target(event, "into", at_end=True)
        if target is not None:
            target.bios += absorbed.bios
            target.sectors += absorbed.sectors

    def _target(self, event: Event, named_by: str, at_end: bool) -> _Request | None:
        """The request that is joined: the one named, or the latest one adjacent."""
        if named_by in event:
            return self._requests.get((event["dev"], event[named_by]))
        edge = event["sector"] + (0 if at_end else event["sectors"])
        op = opf_of(event["rwbs"]) & _OP_MASK
        found = [
            request
            for request in [*self._requests.values(), *self._unnamed]
            if (request.dev, request.op, request.issued) == (event["dev"], op, False)
            and edge == request.sector + (request.sectors if at_end else 0)
        ]
        return found[-1] if found else None

    def _requeue(self, event: Event) -> None:
        self._request(event).issued = False

    def _issue(self, event: Event) -> None:
        request = self._request(event)
        request.issued = True
        if "chain" in event:
            request.bios = [[bio, self._bytes_of(event["dev"], bio)] for bio in event["chain"]]
        event["chain"] = [bio for bio, _ in request.bios]
        wanted = event.get("bios", len(request.bios))
        head = [event["bio"]] if "bio" in event else []
        if len(request.bios) != wanted or event["chain"][:1] != head:
            raise ValueError(f"chain is {event['chain']}, say chain=: {format_event(event)}")

    def _bytes_of(self, dev: int, bio: int) -> int:
        known = self._bios.get((dev, bio))
        return known.sectors * SECTOR_BYTES if known else 0

    def _complete(self, event: Event) -> None:
        request = self._request(event)
        left = event["bytes"]
        while request.bios and request.bios[0][1] <= left:
            bio, length = request.bios.pop(0)
            left -= length
            self._bios.pop((event["dev"], bio), None)
        if request.bios:
            request.bios[0][1] -= left
        else:
            del self._requests[event["dev"], event["rq"]]

    def _bio_complete(self, event: Event) -> None:
        self._bios.pop((event["dev"], event["bio"]), None)
