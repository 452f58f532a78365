# SPDX-License-Identifier: Apache-2.0
"""Faults of a history's records: one is missing, comes twice, or says something else.

Records that are missing are what recordings have. A wrong value is as of another use of the
address, whose own records are missing; where that cannot be, as with two bios in flight at one
address, what the machine makes of it depends on which other I/O there is.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.model import SECTOR, History, Rec

LETTERS = "QGMFXAsIDbCd"
Fault = tuple[str, str]
"""(what happens, the letter of the record)."""


def _sector(fields: dict[str, int], rng: random.Random) -> None:
    fields["sector"] = max(fields["sector"] + rng.choice([-8, 8]), 0) % 2**64


def _bytes(fields: dict[str, int], rng: random.Random) -> None:
    fields["bytes"] = max(fields["bytes"] + rng.choice([-8, 8]) * SECTOR, 0)


def _operation(fields: dict[str, int], rng: random.Random) -> None:
    fields["opf"] ^= 1


def _device(fields: dict[str, int], rng: random.Random) -> None:
    fields["dev"] += 16


def _bio(fields: dict[str, int], rng: random.Random) -> None:
    fields["bio"] ^= 1 << 40


def _request(fields: dict[str, int], rng: random.Random) -> None:
    fields["rq"] ^= 1 << 40


def _status(fields: dict[str, int], rng: random.Random) -> None:
    fields["status"] = 10


CHANGES: dict[str, tuple[Callable[[dict[str, int], random.Random], None], str]] = {
    "another sector": (_sector, "QGMFXAsIDC"),
    "other bytes": (_bytes, "QGMFXAsIDC"),
    "another operation": (_operation, "QGMFXAsID"),
    "another device": (_device, "QsIDC"),
    "an unknown bio": (_bio, "GMFXAsIDC"),
    "an unknown request": (_request, "sDCbd"),
    "an error": (_status, "C"),
}
"""What a record may say wrongly, and which records do."""
MISSING: tuple[Fault, ...] = tuple(("missing", letter) for letter in f"{LETTERS}R")
"""Faults that recordings have: what is made of them does not depend on plain I/O beside."""
FAULTS: tuple[Fault, ...] = (
    *MISSING,
    *(("twice", letter) for letter in "QGMFAsIDbCd"),
    *((name, letter) for name, (_, letters) in CHANGES.items() for letter in letters),
)


def faulty(history: History, fault: Fault, rng: random.Random) -> History:
    """Return the history with a fault in one of eight of the records that it can be in."""
    what, letter = fault
    found = [rec for _, records in history.chunks for rec in records if rec.letter == letter]
    chosen = set(rng.sample(found, min(max(2, len(found) // 8), len(found))))
    chunks = [
        (at, [new for rec in records for new in _with(rec, what, rec in chosen, rng)])
        for at, records in history.chunks
    ]
    kept = {rec for _, records in chunks for rec in records}
    return replace(history, chunks=chunks, recorded=kept)


def _with(rec: Rec, what: str, chosen: bool, rng: random.Random) -> list[Rec]:
    """Return what stands in a record's place."""
    if not chosen:
        return [rec]
    if what == "missing":
        return []
    if what == "twice":
        return [rec, replace(rec, fields=dict(rec.fields))]
    fields = dict(rec.fields)
    CHANGES[what][0](fields, rng)
    return [replace(rec, fields=fields)]
