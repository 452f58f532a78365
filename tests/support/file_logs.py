# SPDX-License-Identifier: Apache-2.0
"""Made-up logs that tell files."""

from pathlib import Path
from typing import Any

from biotrail.converters.events.tables import Bios
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import FILE_NAME_CUT, FILE_NAME_DELETED, FILE_NAME_LAST, Kind
from tests.support import stack_logs
from tests.support.stack_logs import DEV, START, ended, queued, record

# The paths that a log gives its bios.


def paths_of(trace: Trace, window_events: int = 1 << 20) -> list[str | None]:
    """Of each bio its file's path."""
    bios = Bios.concatenate([w.bios for w in trace.lifecycles(window_events)])
    files = trace.context.files
    return [files[row].path if row >= 0 else None for row in bios.file.tolist()]


PIECE = 35
MOUNTS = {str(DEV): [["/", "/srv"]]}


def file(at: int, bio: int, inode: int, generation: int = 1, dev: int = DEV) -> bytes:
    return record(Kind.FILE, at, bio=bio, inode=inode, dev=dev, generation=generation)


def names(
    at: int,
    inode: int,
    *components: bytes,
    generation: int = 1,
    dev: int = DEV,
    deleted: bool = False,
    cut: bool = False,
    whole: bool = True,
) -> list[bytes]:
    """The records of a path, its components as in a path: the file's own name last."""
    found: list[dict[str, Any]] = []
    for level, name in enumerate(components[::-1]):
        pieces = [name[i : i + PIECE] for i in range(0, len(name), PIECE)]
        found += [
            {"level": level, "piece": number, "component": piece}
            for number, piece in enumerate(pieces)
        ]
    flags = FILE_NAME_DELETED if deleted else 0
    last = flags | (FILE_NAME_CUT if cut else 0) | (FILE_NAME_LAST if whole else 0)
    key = {"inode": inode, "dev": dev, "generation": generation}
    return [
        record(Kind.FILE_NAME, at, **key, **row, flags=last if row is found[-1] else flags)
        for row in found
    ]


def bio(
    number: int,
    inode: int | None,
    *,
    bytes: int = 4096,
    generation: int = 1,
    dev: int = DEV,
    opf: int = 0,
) -> list[bytes]:
    """Its Q, its file unless there is none, and its end; a millisecond after the bio before."""
    at, address = START + number * 1_000_000, number + 1
    told = [] if inode is None else [file(at, address, inode, generation, dev)]
    return [queued(at, address, bytes, opf=opf), *told, ended(at + 1000 * (number + 1), address)]


def log(records: list[bytes], mounts: dict[str, Any] = MOUNTS, **header: Any) -> bytes:
    """A log that tells files, unless `header` takes that away."""
    head = {"stacks": None, "files": {}, **header}
    return stack_logs.log(records, [mounts] if mounts else [], "mounts", **head)


def write(path: Path, *arguments: Any, **header: Any) -> Path:
    """The same, as a file."""
    path.write_bytes(log(*arguments, **header))
    return path
