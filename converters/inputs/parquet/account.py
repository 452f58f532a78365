# SPDX-License-Identifier: Apache-2.0
"""What an archive's metadata says of its events: where chunks end, counts, and what is missing."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import zstandard

from biotrail.converters.events.tables import I64
from biotrail.recorder.log import Facts, most_raw, pack_facts, pack_json, unpack_facts, unpack_json
from biotrail.recorder.schema.errors import LogFormatError

BLOCK_BYTES = 1 << 20
"""What one of an archive's checksums covers."""

FORMAT = 1
"""Grows when an older reader would misread."""

PREFIX = "biotrail."
_MAKE_AGAIN = "make it again from the log"
_PACKED = ("header", "notes", "losses", "end", "account", "chunks")
_CHUNK_COLUMNS = ("events", "complete_to", "monotonic", "boottime", "realtime", "uncertainty")
MAX_CHUNKS = 1 << 22
"""Of one archive: what reading their table costs is bounded."""

_MAX_NS = 1 << 62
NO_CLOCK = -1


@dataclass
class Account:
    """Of all events: how many, in which chunks; what the log could not tell.

    groups: chunks in each row group; a group without events has no row group. grown: [chunk,
    notes, losses, damaged]: how many of these the log's reader knew once it had given that chunk
    (-1: before the first); the rest is known at the end.
    """

    created_by: str
    log: str
    """Its name when it was archived."""
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
    """crc32 of each mebibyte of the file, up to where the metadata stands; the last is less."""
    checked_bytes: int = 0
    """How much that is."""


@dataclass
class Metadata:
    """All that stands in an archive's metadata.

    chunks: int64, shape (n, 6): events; ns that a chunk is complete up to; its clock reading
    (monotonic, boottime, realtime, uncertainty), NO_CLOCK where it has none.
    """

    facts: Facts
    account: Account
    chunks: I64


def clock_of(row: I64) -> dict[str, int] | None:
    """The clock reading of a row of `Metadata.chunks`."""
    names = _CHUNK_COLUMNS[2:]
    return None if row[2] == NO_CLOCK else dict(zip(names, row[2:].tolist(), strict=True))


def chunk_row(events: int, complete_to: int, clock: Mapping[str, int] | None) -> list[int]:
    """A row of `Metadata.chunks`."""
    reading = [NO_CLOCK] * 4 if clock is None else [int(clock[k]) for k in _CHUNK_COLUMNS[2:]]
    return [events, complete_to, *reading]


def pack(metadata: Metadata) -> dict[str, str]:
    """Keys and values as a Parquet file carries them; all text, as some readers insist on it."""
    parts = {
        **pack_facts(metadata.facts),
        "account": pack_json(asdict(metadata.account)),
        "chunks": _pack_chunks(metadata.chunks),
    }
    parts = {"format": str(FORMAT), **parts, "crc32": _checksum(parts)}
    return {PREFIX + key: value for key, value in parts.items()}


def unpack(name: str, stored: Mapping[bytes, bytes]) -> Metadata:
    """What `pack` gave. name: of the file, for messages. Raises LogFormatError."""
    parts = {
        key.decode().removeprefix(PREFIX): value
        for key, value in stored.items()
        if key.startswith(PREFIX.encode())
    }
    if "format" not in parts:
        raise not_ours(name)
    if parts["format"] != str(FORMAT).encode():
        raise LogFormatError(
            f"{name}: is an archive of format {parts['format'].decode(errors='replace')}, and this "
            f"biotrail reads format {FORMAT}; read it with a newer biotrail"
        )
    texts = {key: parts[key].decode(errors="replace") for key in _PACKED if key in parts}
    if parts.get("crc32", b"").decode(errors="replace") != _checksum(texts):
        raise LogFormatError(
            f"{name}: what stands at its end of the log fails its checksum; {_MAKE_AGAIN}"
        )
    account = _account(name, unpack_json(name, parts["account"], "its account"))
    chunks = _unpack_chunks(name, parts["chunks"])
    _check(name, account, chunks)
    return Metadata(unpack_facts(name, parts), account, chunks)


def not_ours(name: str) -> LogFormatError:
    """What to say of another Parquet file."""
    return LogFormatError(
        f"{name}: is a Parquet file, but no archive of events: give one that `biotrail archive` "
        "wrote"
    )


def _checksum(parts: Mapping[str, str]) -> str:
    """Of all of them in their order, as text."""
    crc = 0
    for key in _PACKED:
        crc = zlib.crc32(parts.get(key, "").encode(), crc)
    return f"{crc:08x}"


def _pack_chunks(chunks: I64) -> str:
    """Differences from row to row, column by column, compressed: a few bytes for a chunk."""
    steps = np.diff(chunks, axis=0, prepend=np.zeros((1, chunks.shape[1]), np.int64))
    data = np.ascontiguousarray(steps.T, "<i8").tobytes()
    return base64.b64encode(zstandard.ZstdCompressor().compress(data)).decode()


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
    """Raises LogFormatError where something is missing or of another type."""
    try:
        account = Account(**{f.name: value[f.name] for f in fields(Account)})
    except KeyError as error:
        raise _wrong(name, f"has no {error.args[0]}") from None
    plain = Account("", "", 0)
    for f in fields(Account):
        found, wanted = getattr(account, f.name), type(getattr(plain, f.name))
        if type(found) is not wanted:
            raise _wrong(name, f"has {f.name} of another type")
    whole = all(type(n) is int for n in account.groups) and all(
        type(n) is int for row in account.grown for n in _four(name, row)
    )
    texts = all(isinstance(text, str) for text in account.problems + account.remarks)
    counts = all(
        type(n) is int
        for n in [*account.kinds.values(), *account.unknown.values(), *account.checksums]
    )
    numbered = all(key.isdecimal() and len(key) < 4 for key in account.unknown)
    windows = all(
        isinstance(w, dict) and all(_is_ns(w.get(key)) for key in ("offset", "start", "end"))
        for w in account.damaged
    )
    if not (whole and texts and counts and numbered and windows):
        raise _wrong(name, "has values of another type")
    return account


def _four(name: str, row: Any) -> list[Any]:
    if not isinstance(row, list) or len(row) != 4:
        raise _wrong(name, "does not say when what was known")
    return row


def _is_ns(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_NS


def _check(name: str, account: Account, chunks: I64) -> None:
    if min(account.groups, default=0) < 0 or sum(account.groups) != len(chunks):
        raise _wrong(name, "has row groups of other chunks")
    if (chunks < NO_CLOCK).any() or (chunks > _MAX_NS).any() or (chunks[:, 0] < 0).any():
        raise _wrong(name, "has chunks of impossible times")
    if int(chunks[:, 0].sum()) != account.events:
        raise _wrong(name, "has chunks of another number of events")


def _wrong(name: str, what: str) -> LogFormatError:
    return LogFormatError(f"{name}: its account {what}: no biotrail writes that; {_MAKE_AGAIN}")
