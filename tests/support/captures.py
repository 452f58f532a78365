# SPDX-License-Identifier: Apache-2.0
"""Event sequences, captured or written by hand, as the records and logs of a recording.

events = load("fsync-virtio")           # or parse(text)
segments = records(events)              # one per CPU, as the rings hold them
write_log(tmp_path / "a.biotrail", events)"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.kernel_names import FLAGS, OPS
from biotrail.recorder.schema.records import (
    BY_KIND,
    BY_LETTER,
    CHAIN_SLOTS,
    NO_TAG,
    TIMESTAMP_BITS,
    Kind,
    schema,
)
from tests.support import paths
from tests.support.log_samples import ring
from tests.support.stack_logs import record

# Block-layer event sequences as text: read and written back.
#
# One form serves the captures in `tests/data/captures/` (legend there) and the scenarios
# that tests write by hand:
#
# 0.000045 cpu1 D 7:1 WS 2096+16 bio=9c7ad8 rq=4fbd00 bios=1 tag=126/-1 pid=5297 comm=dd
#
# An event is a dict: `ns` (since the sequence's zero), `cpu`, `letter`, `dev` (dev_t), `rwbs`,
# `sector`, `sectors` (512 bytes each), then the line's keys in their order.

Event = dict[str, Any]

DATA = paths.DATA / "captures"
SECTOR_BYTES = 512

FLAG_BITS = FLAGS | {
    "ALLOC_CACHE": 23,
    "SWAP": 24,
    "DRV": 25,
    "FS_PRIVATE": 26,
    "ATOMIC": 27,
    "P2PDMA": 28,
    "NOUNMAP": 29,
}
"""Those of 6.18, from its BTF; production knows by number what tracepoints' letters can tell."""
_RWBS = re.compile(
    r"(?P<PREFLUSH>F(?=[RWDFZN]))?(?P<op>WZ|DE|ZRA|Z[AOCFR]|[RWDFN])"
    r"(?P<FUA>F)?(?P<RAHEAD>A)?(?P<SYNC>S)?(?P<META>M)?(?P<ATOMIC>U)?(?P<NOMERGE>i)?"
)
_RWBS_OPS = {
    "R": "READ",
    "W": "WRITE",
    "F": "FLUSH",
    "D": "DISCARD",
    "DE": "SECURE_ERASE",
    "WZ": "WRITE_ZEROES",
    "ZA": "ZONE_APPEND",
    "ZO": "ZONE_OPEN",
    "ZC": "ZONE_CLOSE",
    "ZF": "ZONE_FINISH",
    "ZR": "ZONE_RESET",
    "ZRA": "ZONE_RESET_ALL",
    "N": "DRV_IN",
}
_LINE = re.compile(
    r"(?P<seconds>\d+\.\d+) cpu(?P<cpu>\d+) (?P<letter>\w) (?P<dev>\d+:\d+) (?P<rwbs>\w+) "
    r"(?P<sector>\d+)\+(?P<sectors>\d+)(?P<rest>.*)"
)
_HEX = {"bio", "rq", "parent", "into", "page", "opf", "backing"}
_TEXT = {"ino", "comm"}


def device_number(text: str) -> int:
    """Kernel dev_t of `major:minor`."""
    major, minor = text.split(":")
    return int(major) << 20 | int(minor)


def device_text(dev: int) -> str:
    """`major:minor` of a kernel dev_t."""
    return f"{dev >> 20}:{dev & 0xFFFFF}"


def opf_of(rwbs: str) -> int:
    """bi_opf of an rwbs string, as 6.18 numbers operations and flags; ValueError if foreign."""
    found = _RWBS.fullmatch(rwbs)
    if found is None:
        raise ValueError(f"rwbs {rwbs!r} is not one that 6.18 prints")
    flags = {k: v for k, v in found.groupdict().items() if k != "op" and v}
    return OPS[_RWBS_OPS[found["op"]]] | sum(1 << FLAG_BITS[name] for name in flags)


def _value(key: str, text: str) -> Any:
    if key in _HEX:
        return int(text, 16)
    if key in _TEXT:
        return text
    if key == "chain":
        return [int(bio, 16) for bio in text.split(",")]
    if key == "tag":
        return tuple(int(tag) for tag in text.split("/"))
    if key == "from":
        dev, sector = text.split("+")
        return (device_number(dev), int(sector))
    return device_number(text) if key == "part" else int(text)


def _value_text(key: str, value: Any) -> str:
    if key in _HEX:
        return f"{value:x}"
    if key == "chain":
        return ",".join(f"{bio:x}" for bio in value)
    if key == "tag":
        return "/".join(str(tag) for tag in value)
    if key == "from":
        return f"{device_text(value[0])}+{value[1]}"
    return device_text(value) if key == "part" else str(value)


def _nanoseconds(seconds: str) -> int:
    whole, fraction = seconds.split(".")
    return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0"))


def parse_line(line: str) -> Event:
    """One event; ValueError names the line when it is none."""
    found = _LINE.fullmatch(line.strip())
    if found is None or found["letter"] not in BY_LETTER:
        raise ValueError(f"not an event: {line!r}")
    event: Event = {
        "ns": _nanoseconds(found["seconds"]),
        "cpu": int(found["cpu"]),
        "letter": found["letter"],
        "dev": device_number(found["dev"]),
        "rwbs": found["rwbs"],
        "sector": int(found["sector"]),
        "sectors": int(found["sectors"]),
    }
    keys, _, comm = found["rest"].partition(" comm=")
    event |= {k: _value(k, v) for k, _, v in (pair.partition("=") for pair in keys.split())}
    return event | ({"comm": comm} if comm else {})


def parse(text: str) -> list[Event]:
    """The events of a text, in its order; blank lines and lines that begin with # are none.

    Events of one printed time get a nanosecond more each, so that their order survives
    sorting by time. A time may go back: such an event arrives later than it happened.
    """
    events: list[Event] = []
    printed, ties = -1, 0
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        event = parse_line(line)
        ties = ties + 1 if event["ns"] == printed else 0
        printed = event["ns"]
        event["ns"] += ties
        events.append(event)
    return events


def load(path: str | Path) -> list[Event]:
    """The events of a capture file; a bare name such as "fsync-virtio" is one of ours."""
    path = Path(path)
    return parse((path if path.exists() else DATA / f"{path}.txt").read_text())


def format_event(event: Event) -> str:
    """The line of an event, times in microseconds as in the captures."""
    fixed = ("ns", "cpu", "letter", "dev", "rwbs", "sector", "sectors")
    micros = event["ns"] // 1000
    words = [
        f"{micros // 1_000_000}.{micros % 1_000_000:06d}",
        f"cpu{event['cpu']}",
        event["letter"],
        device_text(event["dev"]),
        event["rwbs"],
        f"{event['sector']}+{event['sectors']}",
    ]
    words += [f"{k}={_value_text(k, v)}" for k, v in event.items() if k not in fixed]
    return " ".join(words)


# What a captured line leaves out and a record holds: D's chain, X's parent, Q's partition.

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


# Their records, and the logs of them.

BASE_NS = 1_000_000_000_000
"""CLOCK_MONOTONIC at a sequence's zero."""
REALTIME_NS = 1_790_000_000_000_000_000 - BASE_NS
BIO_HIGH = 0xFFFF_8881_0000_0000
"""Upper half of a bio's address; lines give the lower one."""
RQ_HIGH = 0xFFFF_8882_0000_0000
UNKNOWN_HCTX = 0xFFFF

DEVICES: list[dict[str, Any]] = [
    {"dev": device_number("7:1"), "name": "loop1", "kind": "loop", "sectors": 1 << 20},
    {"dev": device_number("7:2"), "name": "loop2", "kind": "loop", "sectors": 1 << 20},
    {"dev": device_number("253:1"), "name": "zram1", "kind": "disk", "sectors": 1 << 19},
    {"dev": device_number("254:0"), "name": "vda", "kind": "disk", "sectors": 1 << 27},
    {
        "dev": device_number("259:0"),
        "name": "loop1p1",
        "kind": "partition",
        "disk": device_number("7:1"),
        "start": 2048,
        "sectors": 1 << 19,
    },
]
"""Devices of the captures, as a log's header lists them."""


def names(devices: Sequence[Mapping[str, Any]] = DEVICES) -> dict[str, int]:
    """dev_t by device name."""
    return {device["name"]: device["dev"] for device in devices}


def clock(ns: int = 0) -> dict[str, int]:
    """A clock reading at `ns` after a sequence's zero; the machine slept 5 s before."""
    monotonic = BASE_NS + ns
    return {
        "monotonic": monotonic,
        "boottime": monotonic + 5_000_000_000,
        "realtime": monotonic + REALTIME_NS,
        "uncertainty": 100,
    }


def header(**overrides: Any) -> dict[str, Any]:
    """A plausible log header; `overrides` replace its keys."""
    return {
        "format": {"major": 1, "minor": 0},
        "log_id": "0123456789abcdef0123456789abcdef",
        "created_by": "biotrail tests",
        "host": {"name": "testhost", "machine": "x86_64", "cpus": 2, "os": "Debian 12"},
        "kernel": {"release": "6.18.0", "version": "#1", "op_enum": OPS, "flag_bits": FLAG_BITS},
        "clocks": clock(),
        "devices": DEVICES,
        "command": ["biotrail", "record"],
        "filters": {},
        "events": {"set": "all", "letters": sorted(BY_LETTER), "missing": []},
        "backend": "core",
        "versions": {},
        "rings": {"levels": 1, "bytes": 1 << 20},
        "schema": schema(),
    } | overrides


def _record(kind: Kind, ns: int, values: Mapping[str, Any]) -> bytes:
    known = {name: values[name] for name in BY_KIND[kind].dtype.names or () if name in values}
    return record(kind, BASE_NS + ns & (1 << TIMESTAMP_BITS) - 1, **known)


class _Encoder:
    """Events to records, one after the other: task and chain records come with them."""

    def __init__(self, *, drop_pointers: bool) -> None:
        partitions = [d["dev"] for d in DEVICES if d["kind"] == "partition"]
        self._follower = Follower(partitions)
        self._drop = drop_pointers
        self._tasks: dict[int, tuple[int, str]] = {}

    def encode(self, event: Event) -> list[bytes]:
        """The records of an event, in their order."""
        event = self._follower.follow(event)
        kind = BY_LETTER[event["letter"]].kind
        values = self._values(event)
        chain = values.pop("chain", [])
        rows = [] if "tid" not in (BY_KIND[kind].dtype.names or ()) else self._task(event)
        rows.append(_record(kind, event["ns"], values))
        if "backing" in event and not self._drop:
            of_loop = {"bio": values["bio"], "rq": RQ_HIGH | event["backing"]}
            rows.append(_record(Kind.BACKING, event["ns"], of_loop))
        for first in range(1, len(chain), CHAIN_SLOTS):
            slots = chain[first : first + CHAIN_SLOTS]
            bios = slots + [0] * (CHAIN_SLOTS - len(slots))
            rows.append(_record(Kind.CHAIN, event["ns"], {"rq": values["rq"], "bios": bios}))
        return rows

    def _task(self, event: Event) -> list[bytes]:
        if "comm" not in event:
            return []
        tid, comm = int(event["pid"]), str(event["comm"])
        tgid = int(event.get("tgid", tid))
        if self._tasks.get(tid) == (tgid, comm):
            return []
        self._tasks[tid] = (tgid, comm)
        return [_record(Kind.TASK, event["ns"], {"tid": tid, "tgid": tgid, "comm": comm.encode()})]

    def _values(self, event: Event) -> dict[str, Any]:
        """A record's fields of every kind, by name."""
        done = event["letter"] in "CE"
        sectors = event["sectors"] * SECTOR_BYTES
        tag, sched_tag = event.get("tag", (-1, -1))
        values = {
            "sector": event["sector"],
            "bytes": event["bytes"] if done else sectors,
            "opf": event.get("opf", opf_of(event["rwbs"])),
            "dev": event["dev"],
            "part": event.get("part", event["dev"]),
            "tid": event.get("pid", 0),
            "tag": NO_TAG if tag < 0 else tag,
            "sched_tag": NO_TAG if sched_tag < 0 else sched_tag,
            "status": event.get("err", 0),
            "new_sector": event.get("new", event["sector"] + event["sectors"]) & 0xFFFFFFFF,
            "hctx": event.get("hctx", UNKNOWN_HCTX),
        }
        values |= {k: event[k] for k in self._AS_THEY_ARE if k in event}
        if "from" in event:
            values["from_dev"], values["from_sector"] = event["from"]
        return values | self._pointers(event)

    _AS_THEY_ARE = ("depth", "explicit", "cgroup", "ioprio", "hint", "page", "flags")

    def _pointers(self, event: Event) -> dict[str, Any]:
        if self._drop:
            return {"rq": 0}
        chain = [BIO_HIGH | bio for bio in event.get("chain", [])]
        return {
            "bio": BIO_HIGH | event["bio"] if "bio" in event else 0,
            "rq": RQ_HIGH | event["rq"] if "rq" in event else 0,
            "parent": BIO_HIGH | event["parent"] if "parent" in event else 0,
            "nr_bios": len(chain),
            "chain": chain,
        }


def io_events(
    times: Sequence[int],
    number: int,
    place: tuple[str, str, int, int],
    task: tuple[int, int, str],
    *,
    cpu: int = 0,
    status: int = 0,
    **queued: Any,
) -> list[Event]:
    """The events Q, G, s, D and C of a bio with a request of its own, at `times` (ns).

    number: of its addresses and its tag. place: device, rwbs, sector, sectors. task: tid, tgid,
    name. queued: more of Q alone.
    """
    dev, op, sector, sectors = place
    both = {"cpu": cpu, "dev": device_number(dev), "rwbs": op, "sector": sector, "sectors": sectors}
    both |= dict(zip(("pid", "tgid", "comm"), task, strict=True)) | {"bio": number * 64}
    rq = {"rq": number * 64, "bios": 1, "tag": (number % 64, -1)}
    more = queued, {}, rq, rq, {**rq, "bytes": sectors * SECTOR_BYTES, "err": status}
    return [
        {**both, "letter": letter, "ns": ns, **facts}
        for letter, ns, facts in zip("QGsDC", times, more, strict=True)
    ]


class Rings:
    """Each CPU's ring: where it stands, and how rows become segments of it."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}

    def segments(self, encoded: Sequence[tuple[int, list[bytes]]]) -> list[Segment]:
        """One segment per CPU of (cpu, records) pairs."""
        rows: dict[int, list[bytes]] = {}
        for cpu, records_of_event in encoded:
            rows.setdefault(cpu, []).extend(records_of_event)
        found = []
        for cpu, of_cpu in sorted(rows.items()):
            position = self._positions.get(cpu, 0)
            data = ring(of_cpu, position)
            self._positions[cpu] = position + len(data)
            found.append(Segment(cpu=cpu, level=0, position=position, data=data))
        return found


def encoding(*, drop_pointers: bool = False) -> tuple[_Encoder, Rings]:
    """What encodes events one after the other, and the rings that hold what comes of it."""
    return _Encoder(drop_pointers=drop_pointers), Rings()


def records(events: Sequence[Event], *, drop_pointers: bool = False) -> list[Segment]:
    """A sequence as the rings hold it: one segment per CPU, records in order of arrival.

    Times are BASE_NS + `ns`. `drop_pointers` leaves bio, rq and chain out, as a log has them
    that was recorded without identities. Raises ValueError where a D's chain or an X's parent
    neither follows from the sequence nor is said.
    """
    encoder = _Encoder(drop_pointers=drop_pointers)
    return Rings().segments([(event["cpu"], encoder.encode(event)) for event in events])


def write_log(
    path: Path,
    events: Sequence[Event],
    header_overrides: Mapping[str, Any] | None = None,
    *,
    chunks: int = 1,
    losses: Sequence[dict[str, Any]] = (),
    drop_pointers: bool = False,
    stopped: int | None = None,
    programs: Mapping[str, tuple[int, int]] | None = None,
) -> Path:
    """Writes a sequence as a log of `chunks` chunks of about as many events each.

    `stopped` is when the recorder stopped, if its end says so. `programs`: runs that the kernel
    timed of the program with each letter, and their ns. `losses` are loss windows as
    `LogWriter.write_loss` takes them, times absolute.
    """
    encoder, rings = encoding(drop_pointers=drop_pointers)
    encoded = [(event["cpu"], encoder.encode(event)) for event in events]
    last = max((event["ns"] for event in events), default=0)
    with path.open("wb") as stream:
        log = LogWriter(stream, header(**(header_overrides or {})))
        for part in np.array_split(np.arange(len(events)), chunks):
            if len(part):
                piece = encoded[part[0] : part[-1] + 1]
                log.write_chunk(rings.segments(piece), clock(events[part[-1]]["ns"]))
        if losses:
            log.write_loss(list(losses))
        end: dict[str, Any] = {} if stopped is None else {"stopped": clock(stopped)}
        if programs is not None:
            end["programs"] = [
                {"letter": letter, "run_count": count, "run_ns": ns}
                for letter, (count, ns) in programs.items()
            ]
        log.close({"clocks": clock(max(last, stopped or 0)), **end})
    return path
