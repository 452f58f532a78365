# SPDX-License-Identifier: Apache-2.0
"""Block-layer event sequences as text: read and written back.

One form serves the captures in `tests/data/captures/` (legend there) and the scenarios
that tests write by hand:

    0.000045 cpu1 D 7:1 WS 2096+16 bio=9c7ad8 rq=4fbd00 bios=1 tag=126/-1 pid=5297 comm=dd

An event is a dict: `ns` (since the sequence's zero), `cpu`, `letter`, `dev` (dev_t), `rwbs`,
`sector`, `sectors` (512 bytes each), then the line's keys in their order.
"""

import re
from pathlib import Path
from typing import Any

from biotrail.recorder.schema.kernel_names import FLAGS, OPS
from biotrail.recorder.schema.records import BY_LETTER
from tests.support import paths

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
