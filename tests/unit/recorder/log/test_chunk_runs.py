# SPDX-License-Identifier: Apache-2.0
"""Segments of many polls: stored as one segment for each run of a ring."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.recorder.log import Segment, columns, names
from biotrail.recorder.log.chunks import decode_chunk, encode_chunk, runs
from biotrail.recorder.schema.records import BLOCK_BYTES, Kind
from tests.support.both_ways import uncompiled
from tests.support.log_samples import clock, record, ring

CLOCK = clock(10**9)
KINDS = [Kind.Q, Kind.D, Kind.C, Kind.TASK, Kind.M]


def test_segments_of_one_ring_that_follow_each_other_are_one_run() -> None:
    # GIVEN three polls of two rings, one ring with a gap
    polls = [
        Segment(0, 0, 0, b"a" * 8),
        Segment(1, 0, 64, b"x" * 16),
        Segment(0, 0, 8, memoryview(b"b" * 8)),
        Segment(1, 0, 80, b"y" * 8),
        Segment(0, 0, 32, b"c" * 8),
        Segment(0, 1, 40, b"z" * 8),
    ]
    # WHEN they are grouped
    grouped = [[(s.cpu, s.level, s.position) for s in run] for run in runs(polls)]
    # THEN what is contiguous is one run, and nothing else is
    assert grouped == [[(0, 0, 0), (0, 0, 8)], [(0, 0, 32)], [(1, 0, 64), (1, 0, 80)], [(0, 1, 40)]]


def _records(times: list[int]) -> list[bytes]:
    return [record(KINDS[at % len(KINDS)], ns, at) for at, ns in enumerate(times)]


def _pieces(data: bytes, position: int, cuts: int) -> list[Segment]:
    """Cut a ring's bytes at record boundaries: of every block, and of the first block's records."""
    bounds = {0, len(data)}
    starts = range(BLOCK_BYTES - position % BLOCK_BYTES, len(data), BLOCK_BYTES)
    bounds |= {at for number, at in enumerate(starts) if cuts >> number & 1}
    if len(data) > 64 and data[7] == Kind.Q:  # behind the first record, which is a Q of 64 bytes
        bounds.add(64)
    edges = sorted(bounds)
    return [Segment(3, 1, position + a, data[a:b]) for a, b in itertools.pairwise(edges)]


@given(
    times=st.lists(st.integers(0, 2**56 - 1), min_size=1, max_size=600),
    place=st.integers(0, 600),
    cuts=st.integers(0, 2**16),
    before=st.integers(0, 3),
    columns_=st.booleans(),
)
def test_a_run_is_stored_as_if_it_were_one_segment(
    times: list[int], place: int, cuts: int, before: int, columns_: bool
) -> None:
    # GIVEN records of a ring, whole and in pieces as polls copied them, behind another ring's,
    # whose length moves the columns off the multiples of 8 bytes
    position = place * 8
    data = ring(_records(times), position)
    other = Segment(0, 0, 0, b"".join(_records([5] * before)))
    front = [[other]] if before else []
    # WHEN both are encoded
    whole = encode_chunk([*front, [Segment(3, 1, position, data)]], CLOCK, columns=columns_)
    pieces = encode_chunk([*front, _pieces(data, position, cuts)], CLOCK, columns=columns_)
    # THEN the bytes are equal, and decode to one segment with all records
    assert bytes(pieces) == bytes(whole)
    last = decode_chunk(bytes(pieces))[1][-1]
    assert (last.cpu, last.level, last.position) == (3, 1, position)
    decoded = b"".join(columns.pack(last.data, position) or [])
    assert decoded == b"".join(columns.pack(data, position) or [])


def test_pieces_without_compiled_loops_are_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN pieces, of times close to each other and far apart
    times = [1000 + 7 * n for n in range(300)] + [2**40, 5, 2**55, 2**55 + 2**30]
    data = ring(_records(times), 4080)
    pieces = _pieces(data, 4080, 0b101)
    compiled = bytes(encode_chunk([pieces], CLOCK))
    # WHEN they are encoded by numpy
    monkeypatch.setattr(columns, "loops", None)
    # THEN nothing differs
    assert bytes(encode_chunk([pieces], CLOCK)) == compiled


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.CGROUP, Kind.FILE_NAME, Kind.Q])
def test_name_records_are_found_by_the_kinds_that_are_present(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN records of which one may be a name
    data = ring([record(Kind.D, 5, 1), record(kind, 6, 2), record(Kind.C, 7, 3)], 0)
    segments = [Segment(0, 0, 0, data), Segment(0, 0, len(data), ring([record(Kind.Q, 8, 4)], 0))]
    # WHEN the names are looked for, with the compiled loops and without
    found = [len(rows) for rows in names.name_records(segments)]
    monkeypatch.setattr(columns, "loops", None)
    # THEN there are as many
    assert found == [len(rows) for rows in names.name_records(segments)]
    assert sum(found) == (kind != Kind.Q)


@given(
    kinds=st.lists(st.sampled_from([*KINDS, Kind.FILE_NAME, Kind.CGROUP]), max_size=300),
    place=st.integers(0, 600),
    behind=st.sampled_from([b"", bytes([0] * 7 + [250]) * 3, bytes([0] * 7 + [Kind.FILE_NAME])]),
)
def test_starts_are_those_of_a_walk_over_all_records(
    kinds: list[Kind], place: int, behind: bytes
) -> None:
    # GIVEN records of a ring, whole, or followed by a kind that is not known, or by half a record
    records = [record(kind, at, at) for at, kind in enumerate(kinds)]
    data = ring(records, place * 8) + behind
    words = np.frombuffer(data, "<u8")
    wanted = (Kind.TASK, Kind.FILE_NAME)
    # WHEN the names among them are looked for
    found = columns.starts_of(words, place, wanted)
    # THEN they are where a walk over all records finds them
    tops = np.frombuffer(data, np.uint8)[7::8]
    walked = columns.record_starts(tops, place) if len(tops) else np.empty(0, np.int64)
    assert found.tolist() == [at for at in walked.tolist() if tops[at] in wanted]


def test_uncompiled_loops_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN records of several blocks
    data = ring(_records(list(range(400))), 4080)
    words = np.frombuffer(data, "<u8")
    compiled = columns.starts_of(words, 510, KINDS).tolist()
    # WHEN the source of the loops runs as it is THEN nothing differs
    monkeypatch.setattr(columns, "loops", uncompiled("recorder/log/column_loops.py"))
    assert columns.starts_of(words, 510, KINDS).tolist() == compiled
    assert columns.counts_of(data, 4080) is not None
