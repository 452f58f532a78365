# SPDX-License-Identifier: Apache-2.0
"""However a log is cut into chunks and windows, the same bios and requests come out."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import Table
from biotrail.converters.pipeline import HOLD_NS
from tests.scenarios import cases
from tests.scenarios.tools import Tables, events_of, read
from tests.support.window_loads import FILES, followed, loads, piece, shifted, write

QUICK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def assert_equal(one: Table, other: Table) -> None:
    for field in dataclasses.fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(first, second), f"{type(one).__name__}.{field.name}"


def assert_same(t: Tables, whole: Tables) -> None:
    for name in ("bios", "requests", "edges", "bio_stages", "request_stages"):
        assert_equal(getattr(t, name), getattr(whole, name))
    for name in ("devices", "bios", "requests", "edges", "late", "first_ns", "last_ns"):
        assert getattr(t.account, name) == getattr(whole.account, name), name
    assert reasons(t) == reasons(whole)


def reasons(t: Tables) -> dict[tuple[str, str], int]:
    """The account; comments (d, E) that come very late are nobody's, so theirs are added up."""
    found: dict[tuple[str, str], int] = {}
    for (letter, reason), count in t.account.events.items():
        key = (letter, "" if letter in "dE" else str(reason))
        found[key] = found.get(key, 0) + count
    return found


@QUICK
@given(
    pieces=st.lists(piece, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    delays=st.lists(st.integers(0, HOLD_NS // 4), min_size=2, max_size=2),
    window=st.sampled_from([1, 2, 7, 30, 200]),
)
@example([(71, 0, 0, 1000), (4, 0, 0, 1)], [], [0, 0], 1)  # over by its bio's reuse, then its own
@example(
    [(60, 0, 0, 1), (3, 0, 0, 1), (0, 0, 0, 1000), (60, 0, 0, 1)], [], [0, 0], 1
)  # used thrice
def test_windows_of_any_size(
    tmp_path: Path,
    pieces: list[tuple[int, int, int, int]],
    cuts: list[int],
    delays: list[int],
    window: int,
) -> None:
    # GIVEN loads of several kinds, recycled pointers, in chunks cut anywhere, where each
    # CPU's records come up to some ms late
    events = loads(pieces)
    path = write(tmp_path / "a.biotrail", events, [c % len(events) for c in cuts], delays)
    # WHEN it is read in small windows
    t, whole = read(path, window), read(path)
    # THEN every table and count is that of one window
    assert whole.account.late == 0
    assert_same(t, whole)
    # THEN windows follow one another without a gap
    assert all(a.end == b.begin for a, b in zip(t.windows, t.windows[1:], strict=False))


@pytest.mark.parametrize("name", FILES)
def test_captures_slowed_down_in_windows_of_one_chunk(tmp_path: Path, name: str) -> None:
    # GIVEN a capture a thousand times slower, with a chunk for every few events
    events = shifted(followed(name), 0, 0, 1000)
    cuts = list(range(0, len(events), 3))
    path = write(tmp_path / "a.biotrail", events, cuts, [0, 1_000_000])
    # WHEN it is read in windows of a few events / THEN they give what one window gives
    t, whole = read(path, 3), read(path)
    assert len(t.windows) > 2
    assert_same(t, whole)


def test_open_lifecycles_are_shown_until_they_end(tmp_path: Path) -> None:
    # GIVEN a read that takes 5 s, with other I/O meanwhile
    slow = shifted(events_of(cases.READ_DEADLINE.given), 0, 0, 50_000)
    quick = [
        event
        for i in range(20)
        for event in shifted(events_of(cases.READ_NONE.given), 4096, i * 200_000_000, 1)
    ]
    events = sorted(slow + quick, key=lambda e: e["ns"])
    path = write(tmp_path / "a.biotrail", events, list(range(len(events))), [0, 0])
    # WHEN read in windows of one event
    t = read(path, 1)
    number = int(t.bios.number[0])
    ended = [i for i, w in enumerate(t.windows) if number in w.bios.number]
    shown = [i for i, w in enumerate(t.windows) if number in w.open_bios.number]
    # THEN it is open in every window before the one that it ends in, and in none after
    assert len(ended) == 1
    assert shown == list(range(shown[0], ended[0]))
    assert len(shown) > 10
