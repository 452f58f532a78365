# SPDX-License-Identifier: Apache-2.0
"""A virtual disk: a guest's requests, the bios of its process on the host, and where its image is.

Requests and bios are kept for the whole log: about 80 bytes of memory each.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from biotrail.converters.analysis.choosing.choosing import failed_nowait
from biotrail.converters.analysis.distributions.keys import WORKERS
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    SECTOR_BYTES,
    U32,
    U64,
    Bios,
    Bool,
    Requests,
    Table,
    Tasks,
)
from biotrail.converters.lifecycles.operations import FLUSH, operations
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError

OPERATIONS = ("read", "write", FLUSH, "discard")
READ, WRITE, FLUSHES, DISCARD = range(len(OPERATIONS))
OTHER = -1
_CODES = {
    **{name: code for code, name in enumerate(OPERATIONS)},
    **{"zone_append": WRITE, "write_zeroes": DISCARD, "secure_erase": DISCARD},
}
_UNKNOWN_CGROUP, _ROOT_CGROUP = 0, 1
_COMM = 15
"""Characters of a thread's name that the kernel keeps."""


@dataclass
class GuestRequests(Table):
    """Requests of the guest, in the order of issue. Times are ns of its CLOCK_MONOTONIC."""

    number: I64
    dev: U32
    op: I64
    """Index in OPERATIONS; OTHER: a driver command or another operation."""
    sector: I64
    """First sector on the virtual disk; 0 for a flush."""
    sectors: I64
    issue: I64
    complete: I64
    doubtful: Bool
    """Whether `complete` may be that of another request (`Requests.doubtful`)."""


@dataclass
class HostBios(Table):
    """Bios on the host, or the pieces of them that are neighbours in the image.

    Times are ns of the host's CLOCK_MONOTONIC; NEVER where not recorded.
    """

    number: I64
    """The bio's number, the same for all of its pieces."""
    dev: U32
    part: U32
    tgid: I64
    cgroup: U64
    op: I64
    sector: I64
    """First sector in the image: of `part`, moved by the image's mapping."""
    sectors: I64
    queue: I64
    issue: I64
    complete: I64
    doubtful: Bool
    """Whether `complete` may be that of another bio (`Bios.doubtful`)."""


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


def guest_side(trace: Trace) -> GuestRequests:
    """Raises ConversionError: the guest's log has no requests."""
    parts = []
    for window in trace.lifecycles():
        # Those that a driver was given, or may have been given.
        table = window.requests
        replaced = (table.bytes == 0) & (table.issue == NEVER)
        table = table.take((table.absorbed_by == NEVER) & ~replaced)
        parts.append(_taken(GuestRequests, trace.context, table))
    requests = GuestRequests.concatenate(parts) if parts else None
    if requests is None or not len(requests):
        raise ConversionError(
            "--guest-of: the first log, the guest's, has no requests: record the guest's virtual "
            "disks there, by --events lifecycle or light"
        )
    return requests.take(np.argsort(requests.issue, kind="stable"))


Taken = TypeVar("Taken", GuestRequests, HostBios)


def _taken(
    kind: type[Taken], context: Context, table: Bios | Requests, start: I64 | int = 0, **more: I64
) -> Taken:
    """Return what is kept of a table. start: sector on the device where the disk begins."""
    codes, names = operations(context, table.opf, table.bytes)
    op = np.array([_CODES.get(name, OTHER) for name in names] or [OTHER], dtype=np.int64)[codes]
    sector = np.where(op == FLUSHES, 0, table.sector.astype(np.int64) - start)
    sectors = table.bytes.astype(np.int64) // SECTOR_BYTES
    return as_row(kind, table, op=op, sector=sector, sectors=sectors, **more)


def host_side(trace: Trace, wanted: str, mapping: Sequence[Extents]) -> tuple[HostBios, int, str]:
    """Return the process's bios, by image sector, and its id and name.

    wanted: the process's id, or the name of one of its threads. Bios of lower devices that serve
    another one, and failed NOWAIT attempts, are left out. Raises ConversionError: no such process
    queued a bio, or several did.
    """
    parts: list[HostBios] = []
    tasks: Tasks | None = None
    for window in trace.lifecycles():
        context, tasks, table = trace.context, window.tasks, window.bios
        tried = failed_nowait(context, table)
        table = table.take((table.parent == NEVER) & (table.task >= 0) & ~tried)
        start = np.zeros(len(table), dtype=np.int64)
        for part, dev in {*zip(table.part.tolist(), table.dev.tolist(), strict=True)}:
            begin = context.partition_start(part, dev)
            start[(table.part == part) & (table.dev == dev)] = begin or 0
        tgid = tasks.tgid[table.task].astype(np.int64)
        parts.append(_taken(HostBios, context, table, start, tgid=tgid))
    pid, process = _process(wanted, tasks, parts)
    served = HostBios.concatenate(parts)
    mine = served.tgid == pid
    if tasks is not None:  # and what the kernel's threads queued for it
        mine |= np.isin(served.tgid, tasks.tgid[tasks.comm == f"vhost-{pid}"])
        cgroups = np.setdiff1d(served.cgroup[mine], (_UNKNOWN_CGROUP, _ROOT_CGROUP))
        is_worker = np.array([comm.startswith(WORKERS) for comm in tasks.comm], dtype=bool)
        mine |= np.isin(served.cgroup, cgroups) & np.isin(served.tgid, tasks.tgid[is_worker])
    served = served.take(mine)
    return in_image(served, mapping), pid, process


def _process(wanted: str, tasks: Tasks | None, parts: list[HostBios]) -> tuple[int, str]:
    active = {int(tgid) for part in parts for tgid in np.unique(part.tgid)}
    names: dict[int, set[str]] = {}
    mains: dict[int, str] = {}
    if tasks is not None:
        for tid, tgid, comm in zip(
            *(c.tolist() for c in (tasks.tid, tasks.tgid, tasks.comm)), strict=True
        ):
            names.setdefault(tgid, set()).add(comm)
            if tid == tgid or tgid not in mains:
                mains[tgid] = comm
    if wanted.isascii() and wanted.isdigit():
        found = [pid for pid in active if str(pid) == wanted.lstrip("0")]
    else:
        found = sorted(pid for pid in active if wanted[:_COMM] in names.get(pid, ()))
    if not found:
        raise ConversionError(
            f"--guest-of {wanted}: no such process queued a bio in the host's log, which is the "
            "second log given: biotrail report HOST.biotrail names those that did"
        )
    if len(found) > 1:
        pids = ", ".join(map(str, found))
        raise ConversionError(
            f"--guest-of {wanted}: several processes are called so: give one of {pids}"
        )
    return found[0], mains.get(found[0], "")


# Where the sectors of a virtual disk's image are on the host's device.

_EXTENT = re.compile(r"\s*\d+:\s*(\d+)\.\.\s*(\d+):\s*(\d+)\.\.\s*(\d+):\s*(\d+):")
"""filefrag -v: number, logical range, physical range, length."""
_BLOCK = re.compile(r"block of (\d+) bytes|blocks? of (\d+) bytes")


def in_image(served: HostBios, mapping: Sequence[Extents]) -> HostBios:
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
