# SPDX-License-Identifier: Apache-2.0
"""Event sequences, captured or written by hand, as the records and logs of a recording.

events = load("fsync-virtio")           # or parse(text)
segments = records(events)              # one per CPU, as the rings hold them
write_log(tmp_path / "a.biotrail", events)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import (
    BLOCK_BYTES,
    BY_KIND,
    BY_LETTER,
    CHAIN_SLOTS,
    NO_TAG,
    TIMESTAMP_BITS,
    Kind,
    schema,
)
from tests.support.capture_follow import Follower
from tests.support.capture_text import (
    DATA,
    FLAG_BITS,
    OPS,
    SECTOR_BYTES,
    Event,
    device_number,
    format_event,
    load,
    opf_of,
    parse,
)

__all__ = [
    "BASE_NS",
    "BIO_HIGH",
    "DATA",
    "DEVICES",
    "FLAG_BITS",
    "OPS",
    "RQ_HIGH",
    "Event",
    "clock",
    "device_number",
    "encoding",
    "format_event",
    "header",
    "load",
    "names",
    "opf_of",
    "parse",
    "records",
    "write_log",
]

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
    row = np.zeros(1, dtype=BY_KIND[kind].dtype)
    row["head"] = int(kind) << TIMESTAMP_BITS | (BASE_NS + ns) & ((1 << TIMESTAMP_BITS) - 1)
    for name in row.dtype.names or ():
        if name in values:
            row[name] = values[name]
    return row.tobytes()


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


def _pack(rows: Sequence[bytes], start: int) -> bytes:
    """Records as a ring holds them from byte `start` on: none crosses a block, PAD fills up."""
    ring = bytearray()
    for row in rows:
        left = BLOCK_BYTES - (start + len(ring)) % BLOCK_BYTES
        if len(row) > left:
            ring += (int(Kind.PAD) << TIMESTAMP_BITS).to_bytes(8, "little").ljust(left, b"\0")
        ring += row
    return bytes(ring)


class _Rings:
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
            data = _pack(of_cpu, position)
            self._positions[cpu] = position + len(data)
            found.append(Segment(cpu=cpu, level=0, position=position, data=data))
        return found


def encoding(*, drop_pointers: bool = False) -> tuple[_Encoder, _Rings]:
    """What encodes events one after the other, and the rings that hold what comes of it."""
    return _Encoder(drop_pointers=drop_pointers), _Rings()


def records(events: Sequence[Event], *, drop_pointers: bool = False) -> list[Segment]:
    """A sequence as the rings hold it: one segment per CPU, records in order of arrival.

    Times are BASE_NS + `ns`. `drop_pointers` leaves bio, rq and chain out, as a log has them
    that was recorded without identities. Raises ValueError where a D's chain or an X's parent
    neither follows from the sequence nor is said.
    """
    encoder = _Encoder(drop_pointers=drop_pointers)
    return _Rings().segments([(event["cpu"], encoder.encode(event)) for event in events])


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
