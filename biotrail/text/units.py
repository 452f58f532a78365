# SPDX-License-Identifier: Apache-2.0
"""Parse and format quantities: durations, sizes, counts."""

import re
from collections.abc import Callable
from decimal import Decimal

import click

from biotrail.recorder.schema import durations

duration = durations.duration
_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "": 1_000_000_000,
    "s": 1_000_000_000,
    "sec": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_BYTES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)\s*")
LONGEST = 1e9
"""Longest duration in seconds, some 32 years: in ns it fits where times are added up."""
MOST_BYTES = (1 << 62) - 1
MOST = (1 << 63) - 1
"""Largest whole number of an option that does not say another."""
_MOST_DIGITS = 20


def whole(text: str, least: int = 0, most: int = MOST) -> int | None:
    """Return a whole number that is written in digits alone; None: it is none, or out of range."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if least <= number <= most else None


class Count(click.IntRange):
    """Option type: a whole number of a range, both ends included."""

    def __init__(self, least: int = 1, most: int = MOST) -> None:
        super().__init__(least, most)

    def _describe_range(self) -> str:
        return f"x>={self.min}" if self.max == MOST else super()._describe_range()


def duration_from(least: float = 0.0) -> Callable[[str | float], float]:
    """Return an option type: what `seconds` reads; a default may be seconds themselves."""

    def duration(value: str | float) -> float:
        return seconds(value, least) if isinstance(value, str) else float(value)

    return duration


def seconds(text: str, least: float = 0.0) -> float:
    """Return the seconds of `10`, `10s`, `250ms`, `5min` or `2h`; `least` to LONGEST."""
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in _NS:
        raise click.BadParameter(f"{text!r} is not a duration: write 10s, 250ms, 5min or 2h")
    found = float(Decimal(match[1]) * _NS[match[2]] / 10**9)
    if not least <= found <= LONGEST:
        shortest = as_option(least) if least else "0"
        raise click.BadParameter(f"{text!r} is not between {shortest} and {LONGEST:.0f}s")
    return found


def as_option(seconds: float) -> str:
    """Return a duration as `seconds` reads it, to the nanosecond: `1500ms`, `250ns`."""
    number = round(seconds * 1e9)
    for unit in ("s", "ms", "us", "ns"):
        if number % _NS[unit] == 0:
            return f"{number // _NS[unit]}{unit}"
    raise AssertionError


ABOVE_ZERO = 1e-9
"""`duration_from(ABOVE_ZERO)`: any but 0."""


def size_from(least: int = 0, most: int = MOST_BYTES) -> Callable[[str | int], int]:
    """Return an option type: `65536`, `512K`, `8M`, `8MiB`, in bytes."""

    def size(value: str | int) -> int:
        return bytes_of(value, least, most) if isinstance(value, str) else value

    return size


def bytes_of(text: str, least: int = 0, most: int = MOST_BYTES) -> int:
    match = _NUMBER.fullmatch(text)
    unit = "" if match is None else match[2].upper().removesuffix("IB")
    if match is None or unit not in _BYTES:
        raise click.BadParameter(f"{text!r} is not a size: write 65536, 512K or 8M")
    exact = Decimal(match[1]) * _BYTES[unit]
    if not least <= exact <= most:
        raise click.BadParameter(f"{text!r} is not between {least} B and {size(most)}")
    return int(exact)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def count(number: int) -> str:
    return f"{number:,}"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def since(nanoseconds: int) -> str:
    """Return a time after the beginning as `duration` does, the beginning itself as `0 s`."""
    return duration(nanoseconds) if nanoseconds else "0 s"


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 event`, `2,000 events`."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"
