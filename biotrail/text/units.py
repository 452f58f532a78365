# SPDX-License-Identifier: Apache-2.0
"""Parse and format quantities: durations, sizes, counts."""

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # generic in click 8.2 and later only
    _FloatType = click.ParamType[float]
    _IntType = click.ParamType[int]
else:
    _FloatType = _IntType = click.ParamType

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BYTES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)\s*")


class Duration(_FloatType):
    """Option type: `10`, `10s`, `250ms`, `5min`, `2h`; seconds as a float."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds; anything but a duration is a usage error."""
        if isinstance(value, (int, float)):
            return float(value)
        match = _NUMBER.fullmatch(str(value))
        if match is None or match[2] not in _SECONDS:
            self.fail(f"{value!r} is no duration: write 10s, 250ms, 5min or 2h", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class Size(_IntType):
    """Option type: `65536`, `512K`, `8M`, `8MiB`; bytes as an int."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return bytes; anything but a size is a usage error."""
        if isinstance(value, int):
            return value
        match = _NUMBER.fullmatch(str(value))
        unit = "" if match is None else match[2].upper().removesuffix("IB")
        if match is None or unit not in _BYTES:
            self.fail(f"{value!r} is no size: write 65536, 512K or 8M", param, ctx)
        return int(float(match[1]) * _BYTES[unit])


def size(count: float) -> str:
    """Return bytes as text: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def count(number: int) -> str:
    """Return a number as text: `1,234,567`."""
    return f"{number:,}"


def duration(nanoseconds: float) -> str:
    """Return ns as text: `850 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`, `2 min 5 s`."""
    for unit, scale in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if nanoseconds < scale * 999.5:
            return f"{nanoseconds / scale:.3g} {unit}"
    seconds = nanoseconds / 1e9
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s"


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 event`, `2,000 events`.

    many: the plural; empty: `one` with an s.
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def amount(number: int | float) -> str:
    """Return an int as a size in bytes, a float as a duration in seconds."""
    return size(number) if isinstance(number, int) else duration(number * 1e9)
