# SPDX-License-Identifier: Apache-2.0
"""How records of a simulation reach a log: late, in chunks, with losses, cut at both ends."""

import io
import random
import struct
from typing import Any

from biotrail.recorder.log import LogWriter
from biotrail.recorder.schema.records import BY_LETTER, TIMESTAMP_BITS
from tests.simulation.model import History, Rec
from tests.support import captures

LATE_NS = 1_000_000
"""A CPU's records may arrive this much later than those of others."""

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i"}


def _packer(letter: str) -> tuple[struct.Struct, list[str]]:
    record = BY_LETTER[letter]
    codes, names = "<", []
    for f in record.fields[1:]:
        if f.type.startswith("char"):
            codes += f"{f.type[4:]}s"
        else:
            codes += _CODES[f.type] * f.count
        names += [f.name] * f.count if f.name == "bios" else [f.name]
    return struct.Struct(codes), names


_PACKERS = {letter: _packer(letter) for letter in BY_LETTER if letter != "-"}


def encode(rec: Rec) -> bytes:
    """A record's bytes."""
    packer, names = _PACKERS[rec.letter]
    values: list[Any] = []
    if rec.letter == "b":
        values = [rec.fields["rq"], *rec.fields["bios"]]
    else:
        values = [rec.fields.get(n, b"" if n in ("comm", "name") else 0) for n in names]
    kind = int(BY_LETTER[rec.letter].kind)
    head = kind << TIMESTAMP_BITS | (captures.BASE_NS + rec.ts)
    return head.to_bytes(8, "little") + packer.pack(*values)


def deliver(history: History, rng: random.Random, *, whole: bool = False) -> None:
    """Decides what of a history a recording catches, and when it arrives.

    whole: it catches all but for one record at times.
    """
    wanted = history.kernel.seen | {"T"}
    records = [r for r in history.records if r.letter in wanted]
    if not whole:
        records = _cut_ends(history, records, rng)
        records = _lose(history, records, rng)
    elif records and rng.random() < 0.2:
        gone = rng.choice(records)
        records = [r for r in records if r.ts != gone.ts or r.cpu != gone.cpu]
        history.features["one record lost, not counted"] += 1
    history.recorded = set(records)
    history.chunks = _chunks(history, records, rng)
    history.window_events = [1 << 20, 40, 150][rng.randrange(3)]
    _count(history, records)


def _count(history: History, records: list[Rec]) -> None:
    features = history.features
    for name, letter in (("recorded without s", "s"), ("recorded without G", "G")):
        features[name] += letter not in history.kernel.letters
    features["minimal event set"] += "I" not in history.kernel.letters
    features["M says the request"] += history.kernel.tells_merge
    seen: dict[tuple[str, int], int] = {}
    for rec in records:
        if rec.letter in "QXs":
            key = (rec.letter, rec.fields["rq" if rec.letter == "s" else "bio"])
            what = "request" if rec.letter == "s" else "bio"
            if rec.ts - seen.get(key, -1 << 60) < 50_000:
                features[f"{what} pointer recycled within 50 µs"] += 1
        for bio in rec.bios if rec.letter in "Cc" else ():
            seen["Q", bio.pointer] = seen["X", bio.pointer] = rec.ts
        if rec.letter == "C":
            seen["s", rec.fields["rq"]] = rec.ts


def _cut_ends(history: History, records: list[Rec], rng: random.Random) -> list[Rec]:
    """A recording that starts or stops while I/O is in flight."""
    if not records or rng.random() < 0.75:
        return records
    last = len(records) - 1
    if rng.random() >= 0.4:
        first = records[rng.randrange(last + 1)].ts
        history.features["begins in flight"] += 1
        records = [r for r in records if r.ts >= first]
    if rng.random() >= 0.4:
        stop = records[rng.randrange(len(records))].ts
        history.features["ends in flight"] += 1
        records = [r for r in records if r.ts <= stop]
    return records


def _lose(history: History, records: list[Rec], rng: random.Random) -> list[Rec]:
    """Records that never arrive: counted in a loss window, or C alone and not counted."""
    if not records or rng.random() < 0.6:
        return records
    how = rng.randrange(3)
    if how == 0:
        share = 0.05 + rng.random() * 0.2
        ends = [r for r in records if r.letter == "C"]
        gone = {r for r in ends if rng.random() >= 1 - share}
        history.features["C never seen, not counted"] += len(gone)
        return [r for r in records if r not in gone]
    count = 1 if how == 1 else 2 + rng.randrange(20)
    first = rng.randrange(len(records))
    cpu = records[first].cpu
    burst = [r for r in records[first:] if r.cpu == cpu][:count]
    if burst[-1].letter in "Db":
        burst += [r for r in records if r.ts == burst[-1].ts]
    name = "single record lost, counted" if how == 1 else "burst lost, counted"
    history.features[name] += 1
    begin, end = burst[0].ts - rng.randrange(2000), burst[-1].ts + rng.randrange(2000)
    window = {"start": begin, "end": end, "cpu": cpu, "level": 0, "kind": 0}
    history.losses.append(window | {"count": len(burst)})
    lost = set(burst)
    return [r for r in records if r not in lost]


def _chunks(
    history: History, records: list[Rec], rng: random.Random
) -> list[tuple[int, list[Rec]]]:
    """Chunks as rings are drained: each CPU up to a time of its own."""
    if not records:
        return []
    last = records[-1].ts
    count = 1 + rng.randrange(6)
    times = [*sorted(rng.randrange(last + 1) for _ in range(count - 1)), last + LATE_NS + 1]
    left: dict[int, list[Rec]] = {}
    for rec in records:
        left.setdefault(rec.cpu, []).append(rec)
    chunks = []
    newest = 0
    for number, at in enumerate(times):
        final = number == len(times) - 1
        found: list[Rec] = []
        for cpu in sorted(left):
            lag = 0 if final else rng.randrange(LATE_NS) * rng.randrange(2)
            ready = [r for r in left[cpu] if final or r.ts <= at - lag]
            left[cpu] = left[cpu][len(ready) :]
            history.features["records that arrive late"] += sum(r.ts < newest for r in ready)
            found += ready
        newest = max([newest, *(r.ts for r in found)])
        chunks.append((at, found))
    return chunks


def log_of(history: History, backend: str = "core") -> io.BytesIO:
    """The history's log."""
    stream = io.BytesIO()
    letters = {"set": "all", "letters": sorted(history.kernel.seen), "missing": []}
    header = captures.header(devices=history.devices, events=letters, backend=backend)
    log = LogWriter(stream, header, level=0)
    rings = captures.Rings()
    for at, records in history.chunks:
        segments = rings.segments([(rec.cpu, [encode(rec)]) for rec in records])
        if segments:
            log.write_chunk(segments, captures.clock(at))
    if history.losses:
        base = captures.BASE_NS
        log.write_loss(
            [w | {"start": w["start"] + base, "end": w["end"] + base} for w in history.losses]
        )
    log.close({"clocks": captures.clock(history.chunks[-1][0] if history.chunks else 0)})
    stream.seek(0)
    return stream


def arrival(history: History) -> list[Rec]:
    """The recorded records by their number in the log: by (time, arrival)."""
    arrived = [r for _, records in history.chunks for r in records]
    return sorted(arrived, key=lambda r: r.ts)
