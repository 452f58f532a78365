# SPDX-License-Identifier: Apache-2.0
"""Blame in one pass: what `blame` says where the base is the same, however a log is cut."""

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.blame import online
from biotrail.converters.analysis.blame.bases import Bases
from biotrail.converters.analysis.blame.blame import BlameOptions, First
from biotrail.converters.analysis.blame.online import Online, Row, Waits
from biotrail.converters.analysis.blame.tree import OTHERS, Kind, Part
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from tests.support import blame_logs
from tests.support.blame_logs import MS, RAM, US, Io, S
from tests.support.blame_reading import blamed, is_long, random_ios, waits
from tests.support.window_loads import loads, piece
from tests.support.window_loads import write as write_loads

QUICK = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def bases_of(path: Path, window: int) -> Bases:
    """The bases of the whole log, which `blame` uses; windows give classes their numbers."""
    trace = Trace(path)
    first = First(trace.context, Choice(trace.context), BlameOptions(("process", "process")))
    for one in trace.lifecycles(window, small=True):
        first.add(one)
    first.finish()
    return first.close().bases


def test_a_reader_waits_for_a_writer_as_blame_says(tmp_path: Path) -> None:
    # GIVEN a reader whose reads take 50 µs, and 550 µs where a write is with the disk
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    # WHEN they are blamed in one pass, by small windows
    [app] = [one for one in waits(path, 50).victims() if one.name == "app"]
    # THEN of the reader, whose base never changes, it says what `blame` says, to the nanosecond
    [told] = [one for one in blamed(path).victims if one.name == "app"]
    assert (app.ios, app.wait_ns, app.parts) == (told.ios, told.wait_ns, told.parts)


@pytest.mark.parametrize("seed", range(12))
def test_with_the_same_base_it_is_blames_sum(tmp_path: Path, seed: int) -> None:
    # GIVEN random I/O of three programs, none of which lasts longer than can be waited for
    ios = [io for io in random_ios(seed) if not is_long(io)]
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN it is blamed in one pass, in windows of any size, by the bases that the log has
    for window in (20, 200, WINDOW_EVENTS):
        bases = bases_of(path, window)
        with patch.object(Online, "_learn", lambda _self, _batch, bases=bases: bases):
            found = waits(path, window).victims()
            # THEN it says what `blame` says
            for one, told in zip(found, blamed(path).victims, strict=True):
                assert (one.name, one.ios, one.wait_ns) == (told.name, told.ios, told.wait_ns)
                # but for the rounding of shares, which goes by the order of slots
                parts = {(p.kind, p.culprit): p.wait_ns for p in told.parts}
                assert {(p.kind, p.culprit) for p in one.parts} == parts.keys()
                for part in one.parts:
                    expected = parts[part.kind, part.culprit]
                    assert part.wait_ns == pytest.approx(expected, abs=len(ios), rel=0)
                assert one.small_ns == told.small_ns


@QUICK
@given(
    pieces=st.lists(piece, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    window=st.sampled_from([1, 7, 30, 200]),
)
def test_sums_are_blames(
    tmp_path: Path, pieces: list[tuple[int, int, int, int]], cuts: list[int], window: int
) -> None:
    # GIVEN loads of every kind: merges, splits, flushes, stacks, losses
    events = loads(pieces)
    path = write_loads(tmp_path / "a.biotrail", events, [c % len(events) for c in cuts], [0, 0])
    # WHEN they are blamed in one pass
    found = {one.name: one for one in waits(path, window).victims()}
    # THEN each victim has the I/Os and the time that `blame` finds; no part is negative
    for told in blamed(path).victims:
        one = found.pop(told.name)
        assert (one.ios, one.wait_ns) == (told.ios, told.wait_ns)
        assert sum(p.wait_ns for p in one.parts) == one.wait_ns
        assert all(p.wait_ns >= 0 for p in one.parts if p.kind != Kind.SERVICE)
    assert not found


def test_the_base_is_of_what_has_passed(tmp_path: Path) -> None:
    # GIVEN reads that take 50 µs in the first 20 s, and 200 µs from then on
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + 50 * US) for t in range(2000)]
    ios += [Io("app", at, at, at + 200 * US) for at in (20 * S + t * 10 * MS for t in range(4000))]
    # AND at last ten beside a write
    begin = 60 * S
    for t in range(10):
        at = begin + t * 10 * MS
        ios.append(Io("app", at, at, at + 300 * US))
        ios.append(Io("backup", at, at, at + 300 * US, "W", 64))
    path = blame_logs.write(tmp_path / "a.biotrail", ios, 500)
    # WHEN it is blamed in one pass
    app = next(one for one in waits(path, 500).victims() if one.name == "app")
    # THEN the base is of the last stretches, not of the whole time
    behind = [p.wait_ns for p in app.parts if p.kind == Kind.OTHER]
    assert behind == [10 * 100 * US]


def test_a_stretch_of_time_keeps_few_stretches_apart(tmp_path: Path) -> None:
    # GIVEN five minutes of I/O
    ios = [Io("app", t * 100 * MS, t * 100 * MS, t * 100 * MS + MS) for t in range(3000)]
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios, 500))
    # WHEN they are blamed in one pass
    found = Online(trace.context, "process")
    for one in trace.lifecycles(500, small=True):
        found.add(one)
        # THEN what is kept does not grow with the time
        assert len({step for _, step in found._learner._alone}) <= 2
        assert len(found._bases.of_stretch) <= 4
        assert len(found._company._served[0]) <= 200 if found._company._served else True


def test_long_requests_stand_beside_nothing_and_are_counted(tmp_path: Path) -> None:
    # GIVEN a request that lasts for two seconds, and reads beside it
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + 50 * US) for t in range(300)]
    ios.append(Io("backup", MS, MS, 2 * S, "W", 64))
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios))
    # WHEN they are blamed in one pass / THEN it is counted
    found, whole = Online(trace.context, "process"), Waits()
    for one in trace.lifecycles(100, small=True):
        whole.merge(found.add(one).waits)
    whole.merge(found.finish().waits)
    assert whole.left_out == {"requests_too_long": 1}
    assert whole.rows["app"].behind == {}
    assert whole.rows["backup"].wait_ns == 2 * S - MS


def test_devices_on_the_cpus_cannot_be_told(tmp_path: Path) -> None:
    # GIVEN a reader beside a writer on a loop device
    ios = [Io("app", t * MS, t * MS, t * MS + 500 * US, device=RAM) for t in range(100)]
    ios += [Io("backup", t * MS, t * MS, t * MS + 300 * US, "W", 64, RAM) for t in range(50)]
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN it is blamed in one pass / THEN nobody is named, and that is said
    app = next(one for one in waits(path).victims() if one.name == "app")
    assert app.small_ns == app.wait_ns
    assert not any(part.kind == Kind.OTHER for part in app.parts)


def test_names_are_bounded() -> None:
    # GIVEN many stretches, each with victims of its own
    whole = Waits()
    for number in range(3 * online.MOST_NAMES):
        row = Row(1, 10, 0, 0, 0, 0)
        row.behind[f"culprit {number}"] = 5
        whole.merge(Waits({f"victim {number}": row, "app": row}))
    # WHEN they are added up / THEN the rest is one party, and nothing is lost
    assert len(whole.rows) == online.MOST_NAMES + 1
    assert len(whole.rows["app"].behind) == online.MOST_NAMES + 1
    assert sum(row.wait_ns for row in whole.rows.values()) == 2 * 3 * online.MOST_NAMES * 15
    assert whole.victims()[-1].name == OTHERS


def test_a_negative_sum_is_the_devices() -> None:
    # GIVEN a culprit beside whom I/O was faster
    row = Row(1, 100, 0, 30, 0, 0)
    row.behind["fast"] = -10
    # WHEN it is told / THEN no part is negative, and they add up
    [one] = Waits({"app": row}).victims()
    assert one.parts == [Part(Kind.SERVICE, None, 100), Part(Kind.DEVICE, None, 20)]
