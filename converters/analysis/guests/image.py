# SPDX-License-Identifier: Apache-2.0
"""Where the sectors of a virtual disk's image are on the host's device."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.tables import I64, SECTOR_BYTES
from biotrail.recorder.schema.errors import ConversionError

if TYPE_CHECKING:
    from biotrail.converters.analysis.guests.disk_requests import HostBios

_EXTENT = re.compile(r"\s*\d+:\s*(\d+)\.\.\s*(\d+):\s*(\d+)\.\.\s*(\d+):\s*(\d+):")
"""filefrag -v: number, logical range, physical range, length."""
_BLOCK = re.compile(r"block of (\d+) bytes|blocks? of (\d+) bytes")


@dataclass(frozen=True)
class Extents:
    """Ranges of sectors (512 bytes) and where each is, shape (n,), sorted by `there`."""

    here: I64
    """First sector of each range in the image."""
    there: I64
    """First sector of it below: in a file, or on a device."""
    sectors: I64

    @classmethod
    def of(cls, rows: list[tuple[int, int, int]]) -> "Extents":
        """rows: (here, there, sectors), in any order."""
        table = np.array(sorted(rows, key=lambda row: row[1]), dtype=np.int64).reshape(-1, 3)
        return cls(*table.T.copy())


def in_image(served: "HostBios", mapping: Sequence[Extents]) -> "HostBios":
    """Return bios with their sectors in the virtual disk, one row for each mapped piece.

    mapping: of the virtual disk in the image file, then of the file on its device; without them
    sectors are equal. Sectors that no extent has, as of the image's own metadata, are left out;
    bios without sectors (flushes) stay.
    """
    for step in reversed(mapping):
        end = served.sector + served.sectors
        first = np.searchsorted(step.there + step.sectors, served.sector, side="right")
        stop = np.searchsorted(step.there, end, side="left")
        plain = served.sectors == 0
        count = np.where(plain, 0, np.maximum(stop - first, 0))
        row = np.repeat(np.arange(len(served)), count)
        extent = spread(first, count)
        begin = np.maximum(served.sector[row], step.there[extent])
        until = np.minimum(end[row], (step.there + step.sectors)[extent])
        pieces = replace(
            served.take(row),
            sector=begin - step.there[extent] + step.here[extent],
            sectors=until - begin,
        )
        served = type(served).concatenate([pieces, served.take(plain)])
    return served


def read_mapping(paths: tuple[str, ...]) -> list[Extents]:
    """Return the mapping, as of `in_image`, in files that were made on the host.

    paths: of outputs of `qemu-img map --output=json IMAGE` and of `filefrag -v IMAGE`, each at most
    once, in any order. Raises ConversionError: a file cannot be read or is neither.
    """
    disk: list[Extents] = []
    file: list[Extents] = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConversionError(f"{path}: cannot be read: {error}") from error
        is_json = text.lstrip().startswith("[")
        (disk if is_json else file).append(
            _qemu_map(path, text) if is_json else _filefrag(path, text)
        )
    if len(disk) > 1 or len(file) > 1:
        raise ConversionError("--image: one map of qemu-img and one of filefrag at most")
    return [*disk, *file]


def _qemu_map(path: str, text: str) -> Extents:
    try:
        rows: list[dict[str, Any]] = json.loads(text)
        found = [
            tuple(int(row[key]) // SECTOR_BYTES for key in ("start", "offset", "length"))
            for row in rows
            if row.get("data") and "offset" in row
        ]
        compressed = any(row.get("compressed") for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConversionError(
            f"{path}: is no map of an image: make it by qemu-img map --output=json IMAGE"
        ) from error
    if compressed:
        raise ConversionError(f"{path}: compressed clusters have no sectors of their own")
    return Extents.of([(here, there, sectors) for here, there, sectors in found])


def _filefrag(path: str, text: str) -> Extents:
    unit = _BLOCK.search(text)
    found = [
        tuple(map(int, match.groups())) for match in map(_EXTENT.match, text.splitlines()) if match
    ]
    if unit is None or not found:
        raise ConversionError(
            f"{path}: is no map of an image: make it by qemu-img map --output=json IMAGE or "
            "filefrag -v IMAGE"
        )
    if "unknown_loc" in text or "encoded" in text:
        raise ConversionError(
            f"{path}: extents without a place on the device: sync, and make the map again; "
            "compressed or encrypted files have none"
        )
    scale = int(unit[1] or unit[2]) // SECTOR_BYTES
    rows = [(first * scale, there * scale, length * scale) for first, _, there, _, length in found]
    return Extents.of(rows)
