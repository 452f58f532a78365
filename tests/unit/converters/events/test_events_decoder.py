# SPDX-License-Identifier: Apache-2.0
"""Records of a ring as events: sizes, blocks, padding, times, and what is not understood."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from biotrail.converters.calls import keys
from biotrail.converters.events import distinct
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import Certainty
from biotrail.converters.lifecycles.losses import loss_windows
from biotrail.recorder.log import Segment
from biotrail.recorder.schema.records import (
    BLOCK_BYTES,
    BY_KIND,
    TIMESTAMP_BITS,
    Kind,
    schema,
    sizes,
)
from tests.scenarios.tools import bio_lines, events_of, read, tables_of
from tests.support import captures
from tests.support.both_ways import uncompiled
from tests.support.record_rings import NOW, chunk, record, ring

SIZES = sizes()


def decode(*segments: Segment, now: int = NOW, kinds: Any = None) -> Any:
    decoder = Decoder(kinds)
    events = decoder.decode(chunk(*segments, now=now))
    return SimpleNamespace(events=events, **vars(decoder))


def letters(events: Events) -> str:
    return "".join(BY_KIND[Kind(k)].letter for k in events.kind.tolist())


def test_columns_are_the_fields_of_each_kind() -> None:
    # GIVEN records with all the common fields
    common = {"sector": 2**63 + 5, "bytes": 4096, "opf": 0x80000801, "dev": 254 << 20 | 3}
    bio, request = {"bio": 0xFFFF888100000001}, {"rq": 0xFFFF888200000002}
    rows = [
        record(Kind.Q, 0, tid=9, part=1, ioprio=2, cgroup=3, page=4, **common, **bio),
        record(Kind.M, 1, tid=9, **common, **bio, **request),
        record(Kind.BIO_COMPLETE, 2, status=-5, **common, **bio),
        record(Kind.D, 3, tag=7, **common, **bio, **request),
        record(Kind.C, 4, status=10, **common, **bio, **request),
        record(Kind.DONE, 5, dev=common["dev"], **request),
        record(Kind.P, 6, dev=common["dev"], tid=9),
        record(Kind.TASK, 7, tid=9, tgid=8, comm=b"dd"),
        record(Kind.CHAIN, 8, **request),
    ]
    # WHEN decoded / THEN columns hold them, and 0 where a kind has none
    events = decode(Segment(0, 0, 0, ring(rows))).events
    assert events.bio.tolist() == [bio["bio"]] * 5 + [0] * 4
    rq = request["rq"]
    assert events.rq.tolist() == [0, rq, 0, rq, rq, rq, 0, 0, rq]
    assert events.dev.tolist() == [common["dev"]] * 7 + [0] * 2
    assert events.sector[:5].tolist() == [common["sector"]] * 5
    assert events.bytes[:5].tolist() == [4096] * 5
    assert events.opf[:5].tolist() == [common["opf"]] * 5
    assert events.status[[2, 4]].tolist() == [-5, 10]
    q = events.fields(Kind.Q, np.array([0]))[0]
    assert [int(q[n]) for n in ("tid", "part", "ioprio", "cgroup", "page")] == [9, 1, 2, 3, 4]


@given(
    parts=st.lists(
        st.lists(st.sampled_from([k for k in BY_KIND if k != Kind.PAD]), max_size=90),
        min_size=1,
        max_size=4,
    ),
    starts=st.lists(
        st.sampled_from([1, 8, 500, 505, 511, 512, 1535]) | st.integers(0, 2 * BLOCK_BYTES // 8),
        min_size=4,
        max_size=4,
    ),
)
@example([[Kind.Q] * 90] * 4, [1, 8, 500, 505])
@example([[Kind.Q] * 90] * 3, [511, 512, 1535, 0])
def test_any_records_at_any_position(parts: list[list[Kind]], starts: list[int]) -> None:
    # GIVEN several rings with any kinds from any position on, in a block's middle or at its end
    segments, wanted = [], []
    for cpu, (kinds, start) in enumerate(zip(parts, starts, strict=False)):
        rows = [record(kind, 10 * i) for i, kind in enumerate(kinds)]
        segments.append(Segment(cpu, 0, start * 8, ring(rows, start * 8)))
        wanted += [(10 * i, cpu, int(kind)) for i, kind in enumerate(kinds)]
    # WHEN decoded / THEN every record is an event, sorted by time, by ring where times are equal
    found = decode(*segments)
    e = found.events
    rows_found = zip((e.ts - NOW).tolist(), e.cpu.tolist(), e.kind.tolist(), strict=True)
    assert list(rows_found) == sorted(wanted, key=lambda w: (w[0], w[1]))
    assert (found.unknown, found.unreadable_bytes) == ({}, 0)


def test_records_of_other_schemas_are_read_as_far_as_they_are_known() -> None:
    # GIVEN a log whose schema has kinds 70 (24 bytes) and 71 (4096 bytes), unknown here
    newer = [*schema(), {"kind": 70, "size": 24}, {"kind": 71, "size": 4096}]
    rows = [record(Kind.Q, 0), record(70, 1, 24), record(Kind.C, 2), record(71, 3, 4096)]
    rows += [record(70, 4, 24), record(Kind.D, 5)]
    # WHEN decoded by that schema
    found = decode(Segment(0, 0, 0, ring(rows)), kinds=newer)
    # THEN they are counted by number, and the known records around them are read
    assert letters(found.events) == "QCD"
    assert found.unknown == {70: 2, 71: 1}
    assert found.unreadable_bytes == 0
    # GIVEN a newer log whose C has 16 bytes more
    grown = [dict(e, size=int(str(e["size"])) + 16) if e["kind"] == 14 else e for e in schema()]
    c = record(Kind.C, 0, bytes=512, rq=5) + b"\xff" * 16
    # WHEN decoded / THEN what is known of it is read, and what follows it
    found = decode(Segment(0, 0, 0, ring([c, record(Kind.Q, 1)])), kinds=grown)
    assert letters(found.events) == "CQ"
    assert found.events.bytes[0] == 512
    # GIVEN an older log whose Q ended before cgroup and page
    older = [dict(e, size=48) if e["kind"] == 1 else e for e in schema()]
    q = record(Kind.Q, 0, bio=1, part=7, cgroup=0xAA, page=0xBB)[:48]
    # WHEN decoded / THEN they are 0, not the next record's bytes
    found = decode(Segment(0, 0, 0, ring([q, q])), kinds=older)
    fields = found.events.fields(Kind.Q, np.array([0, 1]))
    assert fields["part"].tolist() == [7, 7]
    assert (fields["cgroup"].tolist(), fields["page"].tolist()) == ([0, 0], [0, 0])


@pytest.mark.parametrize("word", [0, 1 << 63, 99 << TIMESTAMP_BITS, 254 << TIMESTAMP_BITS | 5])
def test_words_that_are_no_record_cost_their_block_only(word: int) -> None:
    # GIVEN a block whose fifth record is garbage, and a block after it
    rows = [record(Kind.Q, i) for i in range(100)]
    data = bytearray(ring(rows))
    data[4 * 64 : 4 * 64 + 8] = word.to_bytes(8, "little")
    # WHEN decoded
    found = decode(Segment(0, 0, 0, bytes(data)))
    # THEN the rest of that block is counted as unreadable, and the next block is read
    kept = [*range(4), *range(64, 100)]
    assert found.events.ts.tolist() == [NOW + i for i in kept]
    assert found.unreadable_bytes == BLOCK_BYTES - 4 * 64


def test_a_record_that_would_leave_its_block_is_unreadable() -> None:
    # GIVEN a CGROUP record's head in the last 16 bytes of a block
    rows = [record(Kind.DONE, i) for i in range(170)]  # 24 bytes each, 16 are left
    data = b"".join(rows)[: 170 * 24] + record(Kind.CGROUP, 170)[:16] + record(Kind.Q, 171)
    # WHEN decoded / THEN it is not read over the edge
    found = decode(Segment(0, 0, 0, data))
    assert letters(found.events) == "d" * 170 + "Q"
    assert found.unreadable_bytes == 16


@given(st.binary(min_size=8, max_size=3 * BLOCK_BYTES).map(lambda b: b[: len(b) // 8 * 8]))
def test_any_bytes_decode_without_an_exception(data: bytes) -> None:
    # GIVEN anything / WHEN decoded / THEN nothing is counted twice, and nothing raises
    found = decode(Segment(0, 0, 0, data))
    sizes_found = SIZES[found.events.kind].sum()
    assert int(sizes_found) + found.unreadable_bytes <= len(data)


@pytest.mark.parametrize("now", [5, 1 << 56, (1 << 56) + 3, 3 << 56, (1 << 62) + 12_345])
def test_times_are_extended_from_56_bits_by_the_chunks_clock(now: int) -> None:
    # GIVEN records up to a second before and a little after a chunk's clock, at any wrap
    offsets = [o for o in (-1_000_000_000, -5, -1, 0, 1, 400) if now + o >= 0]
    rows = [record(Kind.DONE, now - NOW + o) for o in offsets]
    # WHEN decoded / THEN times are whole
    found = decode(Segment(0, 0, 0, ring(rows)), now=now)
    assert found.events.ts.tolist() == [now + o for o in offsets]


def test_times_of_rings_and_windows_are_in_order() -> None:
    # GIVEN records of one nanosecond in the rings of two CPUs and levels
    one = Segment(1, 0, 0, ring([record(Kind.Q, 0, bio=1), record(Kind.Q, 0, bio=2)]))
    two = Segment(0, 1, 0, ring([record(Kind.Q, 0, bio=3), record(Kind.Q, 0, bio=4)]))
    # WHEN decoded / THEN they come as segments do, and within one as in its ring
    events = decode(one, two).events
    assert (events.bio.tolist(), events.cpu.tolist()) == ([1, 2, 3, 4], [1, 1, 0, 0])
    # GIVEN two parts that interleave and tie
    first = decode(Segment(0, 0, 0, ring([record(Kind.Q, 0, bio=1), record(Kind.Q, 5, bio=2)])))
    second = decode(Segment(0, 0, 0, ring([record(Kind.Q, 0, bio=3), record(Kind.Q, 9, bio=4)])))
    # WHEN joined / THEN sorted by time, the earlier part first among equals
    joined = Events.join([first.events, Events.empty(), second.events])
    assert joined.bio.tolist() == [1, 3, 2, 4]
    assert len(Events.join([])) == 0
    # GIVEN no segment, and segments without bytes / WHEN decoded / THEN there are no events
    assert len(decode().events) == 0
    found = decode(Segment(0, 0, 0, b""), Segment(1, 0, 4096, ring([record(Kind.Q, 0)])))
    assert found.events.cpu.tolist() == [1]


# Distinct values and rows, and rows found by number: by compiled loops, by the same, by numpy.

UNCOMPILED = uncompiled("converters/events/distinct_loops.py")
WAYS = [distinct.loops, UNCOMPILED]
VALUES = st.lists(st.integers(0, 12) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=40)


@pytest.mark.parametrize("loops", WAYS, ids=["as installed", "uncompiled"])
@given(numbers=VALUES, wanted=VALUES)
def test_numbers_are_found_where_they_are(
    loops: ModuleType, numbers: list[int], wanted: list[int]
) -> None:
    # GIVEN ascending numbers, some of them twice
    numbers = sorted(numbers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "loops", loops)
        # WHEN some are looked for
        rows, known = keys.rows_of(np.array(numbers, np.int64), np.array(wanted, np.int64))
    # THEN each is found at its first place, or said not to be there
    assert known.tolist() == [one in numbers for one in wanted]
    assert rows.tolist() == [numbers.index(one) if one in numbers else 0 for one in wanted]


@pytest.mark.parametrize("loops", WAYS, ids=["as installed", "uncompiled"])
@given(rows=st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3), st.integers(-(1 << 63), 0))))
def test_rows_are_numbered_by_occurrence(
    loops: ModuleType, rows: list[tuple[int, int, int]]
) -> None:
    # GIVEN rows of three columns
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distinct, "loops", loops)
        # WHEN they are told apart
        found, of = distinct.distinct(*columns)
    # THEN each is there once, in the order of first occurrence
    assert found == list(dict.fromkeys(rows))
    assert [found[at] for at in of.tolist()] == rows


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))), st.data())
def test_pairs_are_found(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    # GIVEN pairs by their second number, of which several may be alike
    pairs.sort(key=lambda pair: pair[1])
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))))
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    # WHEN pairs are looked for / THEN a row of each is found, or that there is none
    rows = keys.rows_of_pairs(one, other, *np.array(wanted, np.int64).reshape(-1, 2).T)
    for pair, row in zip(wanted, rows.tolist(), strict=True):
        assert pairs[row] == pair if row >= 0 else pair not in pairs


# Loss windows: what was in flight while records were lost is marked, and nothing else.

READS = """
0 QD 30 C R 0+8 bio=1 rq=1
40 QD 90 C R 8+8 bio=2 rq=2
95 QD R 16+8 bio=3 rq=3
"""


def loss(start: int, end: int, **other: int) -> dict[str, int]:
    """A loss window, µs."""
    base = captures.BASE_NS
    own = {"start": base + start * 1000, "end": base + end * 1000, "cpu": 0, "count": 3}
    return own | {"level": 0, "kind": 0} | other


def marks(*windows: dict[str, int]) -> list[str]:
    t = tables_of(events_of(READS), losses=windows)
    return [Certainty(c).name.lower() for c in t.bios.certainty.tolist()]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([], ["exact", "exact", "incomplete"]),
        ([loss(10, 12)], ["lost", "exact", "incomplete"]),
        ([loss(30, 30)], ["lost", "exact", "incomplete"]),
        ([loss(31, 39)], ["exact", "exact", "incomplete"]),
        ([loss(39, 40)], ["exact", "lost", "incomplete"]),
        ([loss(0, 200)], ["lost", "lost", "incomplete"]),
        ([loss(91, 94), loss(31, 33)], ["exact", "exact", "incomplete"]),
        ([loss(50, 51), loss(2, 3)], ["lost", "lost", "incomplete"]),
        ([loss(2, 95), loss(91, 92)], ["lost", "lost", "incomplete"]),
    ],
)
def test_what_was_in_flight_is_lost(windows: list[dict[str, int]], expected: list[str]) -> None:
    # GIVEN reads before, in and after loss windows / WHEN read / THEN those in flight are marked
    assert marks(*windows) == expected


def test_losses_of_requests_and_of_damaged_chunks(tmp_path: Path) -> None:
    # GIVEN a loss while the second read is under way / WHEN read / THEN so is its request
    t = tables_of(events_of(READS), losses=[loss(50, 60)])
    names = [Certainty(c).name.lower() for c in t.requests.certainty.tolist()]
    assert names == ["exact", "lost", "incomplete"]
    # THEN its times stay
    assert bio_lines(t)[1] == "b2 vda read 8+8 Q@40 D1 C50 | Q2D 1, D2C 49 | r2 | lost"
    # GIVEN a damaged chunk's window / WHEN listed / THEN it is no CPU's, of unknown count
    table = loss_windows([loss(5, 6)], [{"offset": 9, "start": 1, "end": 2}])
    assert table.start.tolist() == [1, captures.BASE_NS + 5000]
    assert (table.cpu.tolist(), table.count.tolist()) == ([-1, 0], [-1, 3])
    # GIVEN a log with loss windows, in many chunks / WHEN read in small windows
    windows = [loss(50, 60, kind=14, count=7, cpu=1), loss(5, 6)]
    events = events_of(READS, 1_000_000)
    path = captures.write_log(tmp_path / "a.biotrail", events, chunks=8, losses=windows)
    t = read(path, 1)
    # THEN they come once, whole, by start
    base = captures.BASE_NS
    rows = [row for w in t.windows for row in zip(w.loss.start, w.loss.count, strict=True)]
    assert rows == [(base + 5000, 3), (base + 50_000, 7)]
    assert [int(k) for w in t.windows for k in w.loss.kind] == [0, 14]
