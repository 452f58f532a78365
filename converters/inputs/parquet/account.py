# SPDX-License-Identifier: Apache-2.0
"""An archive's metadata: the log's facts, event counts, chunk bounds, damage and checksums."""

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import zstandard

from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.foreign import MAX_NS
from biotrail.recorder.log import (
    Facts,
    major_of,
    most_raw,
    pack_facts,
    pack_json,
    unpack_facts,
    unpack_json,
)
from biotrail.recorder.schema.errors import LogFormatError

BLOCK_BYTES = 1 << 20
"""Bytes of the file that one checksum covers."""

FORMAT = 2
"""Newest version of the metadata; raised when older readers would misread it. A log's major one
(`major_of`) is its archive's, too."""

PREFIX = "biotrail."
_MAKE_AGAIN = "make it again from the log"
_PACKED = ("header", "notes", "losses", "end", "account", "chunks")
_CHUNK_COLUMNS = ("events", "complete_to", "monotonic", "boottime", "realtime", "uncertainty")
MAX_CHUNKS = 1 << 22
"""Most chunks of an archive, so that the cost of reading their table is bounded."""
NO_CLOCK = -1


@dataclass
class Account:
    """Counts, chunk groups and damage of the archived log, and the file's checksums.

    kinds: events by letter. groups: number of chunks in each group; each group with events is a
    row group, in the same order. grown: [chunk, notes, losses, damaged]: how many notes, loss
    windows and damaged windows the log's reader had met after that chunk (-1: before the first);
    the rest were met at the end. interrupted, problems, remarks, damaged, unknown,
    unreadable_bytes: as of the log's Source; keys of `unknown` are kind numbers as text.
    """

    created_by: str
    log: str
    log_bytes: int
    events: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    groups: list[int] = field(default_factory=list)
    grown: list[list[int]] = field(default_factory=list)
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    damaged: list[dict[str, int]] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    unreadable_bytes: int = 0
    checksums: list[int] = field(default_factory=list)
    """CRC-32 of each BLOCK_BYTES of the file up to the metadata; the last block may be shorter."""
    checked_bytes: int = 0
    """Bytes that the checksums cover: the offset of the metadata."""


@dataclass
class Metadata:
    """The contents of an archive's metadata.

    facts: the log's header, notes, losses and end. chunks: int64, shape (n, 6), per chunk: number
    of events; `Part.complete_to` (ns); its clock reading (monotonic, boottime, realtime,
    uncertainty; ns), NO_CLOCK if it has none.
    """

    facts: Facts
    account: Account
    chunks: I64


def clock_of(row: I64) -> dict[str, int] | None:
    names = _CHUNK_COLUMNS[2:]
    return None if row[2] == NO_CLOCK else dict(zip(names, row[2:].tolist(), strict=True))


def chunk_row(events: int, complete_to: int, clock: Mapping[str, int] | None) -> list[int]:
    reading = [NO_CLOCK] * 4 if clock is None else [int(clock[k]) for k in _CHUNK_COLUMNS[2:]]
    return [events, complete_to, *reading]


def pack(metadata: Metadata) -> dict[str, str]:
    """Return the keys and values for a Parquet file's metadata, which `unpack` reads."""
    # Chunks take a few bytes each: row differences, column by column, zstd, base64.
    chunks = metadata.chunks
    steps = np.diff(chunks, axis=0, prepend=np.zeros((1, chunks.shape[1]), np.int64))
    data = np.ascontiguousarray(steps.T, "<i8").tobytes()
    parts = {
        **pack_facts(metadata.facts),
        "account": pack_json(asdict(metadata.account)),
        "chunks": base64.b64encode(zstandard.ZstdCompressor().compress(data)).decode(),
    }
    parts = {"format": str(major_of(metadata.facts.header)), **parts, "crc32": _checksum(parts)}
    return {PREFIX + key: value for key, value in parts.items()}


def unpack(name: str, stored: Mapping[bytes, bytes]) -> Metadata:
    """Return the metadata that `pack` packed; other keys are ignored. Raises LogFormatError."""
    parts = {
        key.decode(errors="replace").removeprefix(PREFIX): value
        for key, value in stored.items()
        if key.startswith(PREFIX.encode())
    }
    if "format" not in parts:
        raise not_ours(name)
    if parts["format"] not in {str(n).encode() for n in range(1, FORMAT + 1)}:
        raise LogFormatError(
            f"{name}: is an archive of format {parts['format'].decode(errors='replace')}, and this "
            f"biotrail reads up to format {FORMAT}; read it with a newer biotrail"
        )
    texts = {key: parts[key].decode(errors="replace") for key in _PACKED if key in parts}
    if parts.get("crc32", b"").decode(errors="replace") != _checksum(texts):
        raise LogFormatError(
            f"{name}: the log's metadata at its end fails its checksum; {_MAKE_AGAIN}"
        )
    for key in ("account", "chunks"):
        if key not in parts:
            raise LogFormatError(f"{name}: the log's {key} is missing; {_MAKE_AGAIN}")
    account = _account(name, unpack_json(name, parts["account"], "its account"))
    chunks = _unpack_chunks(name, parts["chunks"])
    if min(account.groups, default=0) < 0 or sum(account.groups) != len(chunks):
        raise _wrong(name, "has row groups that do not cover its chunks")
    if (chunks < NO_CLOCK).any() or (chunks > MAX_NS).any() or (chunks[:, 0] < 0).any():
        raise _wrong(name, "has chunks of impossible times")
    if int(chunks[:, 0].sum()) != account.events:
        raise _wrong(name, "has chunks whose events do not add up to its number of events")
    return Metadata(unpack_facts(name, parts), account, chunks)


def not_ours(name: str) -> LogFormatError:
    return LogFormatError(
        f"{name}: is a Parquet file, but no archive of events: give one that `biotrail archive` "
        "wrote"
    )


def _checksum(parts: Mapping[str, str]) -> str:
    """Return the CRC-32 of the packed parts, by key without PREFIX, in `_PACKED` order."""
    return f"{zlib.crc32(''.join(parts.get(key, '') for key in _PACKED).encode()):08x}"


def _unpack_chunks(name: str, packed: bytes) -> I64:
    row = 8 * len(_CHUNK_COLUMNS)
    try:
        data = base64.b64decode(packed, validate=True)
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= min(MAX_CHUNKS * row, most_raw(len(data))) or size % row:
            raise ValueError(f"{size} bytes")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
        steps = np.frombuffer(raw, "<i8").reshape(len(_CHUNK_COLUMNS), -1).T
    except (ValueError, binascii.Error, zstandard.ZstdError) as error:
        raise LogFormatError(
            f"{name}: its table of chunks cannot be read ({error}); {_MAKE_AGAIN}"
        ) from None
    return np.cumsum(steps, axis=0, dtype=np.int64)


def _account(name: str, value: dict[str, Any]) -> Account:
    """Return the Account in a decoded JSON object. Raises LogFormatError."""
    try:
        account = Account(**{f.name: value[f.name] for f in fields(Account)})
    except KeyError as error:
        raise _wrong(name, f"has no {error.args[0]}") from None
    plain = Account("", "", 0)
    for f in fields(Account):
        if type(getattr(account, f.name)) is not type(getattr(plain, f.name)):
            raise _wrong(name, f"has {f.name} of another type")
    if not all(isinstance(row, list) and len(row) == 4 for row in account.grown):
        raise _wrong(name, "has rows of grown that are not of four numbers")
    windows = [w if isinstance(w, dict) else {} for w in account.damaged]
    times: list[Any] = [w.get(key) for w in windows for key in ("offset", "start", "end")]
    numbers: tuple[Iterable[Any], ...] = (
        *(account.groups, account.checksums, account.kinds.values(), account.unknown.values()),
        *(*account.grown, times),
    )
    right = all(type(number) is int for numbers_of in numbers for number in numbers_of)
    right &= all(isinstance(text, str) for text in account.problems + account.remarks)
    right &= all(key.isdecimal() and len(key) < 4 for key in account.unknown)
    if not right or not all(0 <= time <= MAX_NS for time in times):
        raise _wrong(name, "has values of another type")
    return account


def _wrong(name: str, what: str) -> LogFormatError:
    return LogFormatError(f"{name}: its account {what}: no biotrail writes that; {_MAKE_AGAIN}")
