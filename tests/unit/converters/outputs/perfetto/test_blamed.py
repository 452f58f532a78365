# SPDX-License-Identifier: Apache-2.0
"""Who slowed whom in a Perfetto trace: culprits of the slowest I/Os, and tracks of victims."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.analysis.blame import timeline
from biotrail.converters.analysis.blame.timeline import Timeline, _spread
from biotrail.converters.pipeline import Trace
from tests.support import blame_logs
from tests.support.blame_logs import MS, RAM, Io
from tests.support.cli_runner import Cli
from tests.support.perfetto_check import Read, Track, read


def taken_in(path: Path, window: int = 200) -> Timeline:
    trace = Trace(path)
    found = Timeline(trace.context)
    for _ in found.watching(trace.lifecycles(window, small=True)):
        pass
    found.finish()
    return found


def converted(cli: Cli, tmp_path: Path, ios: list[Io], *options: str) -> Read:
    path, target = blame_logs.write(tmp_path / "a.biotrail", ios), tmp_path / "a.pftrace"
    assert cli("convert", *options, path, "-o", target).status == 0
    return read(target.read_bytes())


def group(found: Read) -> list[Track]:
    """The tracks of victims."""
    return [
        track
        for uuid, track in found.tracks.items()
        if track.descriptor.HasField("counter")
        and "/waiting because of others/" in found.path(uuid)
    ]


def beside() -> list[Io]:
    """Reads that take 1 ms, and ten of them 5 ms beside a write."""
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + MS) for t in range(100)]
    for t in range(100, 110):
        at = t * 10 * MS
        ios.append(Io("app", at, at, at + 5 * MS))
        ios.append(Io("backup", at, at, at + 4 * MS, "W", 64))
    return ios


def test_the_slowest_have_their_culprits(tmp_path: Path, cli: Cli) -> None:
    # GIVEN reads beside writes / WHEN they are drawn
    found = converted(cli, tmp_path, beside())
    # THEN the slowest of them say who slowed them, and for how much of their time
    slow = [s for s in found.slices("slowest") if "app" in s.name]
    behind = [s for s in slow if s.dur == 5 * MS]
    assert len(behind) == 10
    for one in behind:
        told = one.args["behind"]
        assert told == [{"culprit": "backup", "wait_ns": 4 * MS, "percent": 80.0}]
    # AND those that were alone say nothing
    assert all("behind" not in s.args for s in slow if s.dur == MS)


def test_a_victim_has_a_track_of_what_waits_for_others(tmp_path: Path, cli: Cli) -> None:
    # GIVEN reads beside writes / WHEN they are drawn
    found = converted(cli, tmp_path, beside())
    # THEN below "waiting because of others" the reader has a track
    [app] = [track for track in group(found) if track.name == "app"]
    samples = app.samples
    # AND 4 ms of 10 wait for the writer while it writes, and none before and after
    assert max(value for _, value in samples) == pytest.approx(0.4)
    assert samples[-1][1] == 0


@pytest.mark.parametrize("detail", ["stages", "bios"])
def test_less_detail_blames_nobody(tmp_path: Path, cli: Cli, detail: str) -> None:
    # GIVEN a trace of less detail / THEN nobody is blamed
    found = converted(cli, tmp_path, beside(), "--detail", detail)
    assert all("behind" not in s.args for s in found.slices("slowest"))
    assert not group(found)


def test_what_cannot_be_told_is_said(tmp_path: Path, cli: Cli) -> None:
    # GIVEN the same on a loop device
    ios = [Io(io.comm, io.queue, io.issue, io.complete, io.op, io.sectors, RAM) for io in beside()]
    # WHEN it is drawn / THEN the slowest say that it is unknown, and nobody has a track
    found = converted(cli, tmp_path, ios)
    told = [s.args["behind"] for s in found.slices("slowest") if "behind" in s.args]
    assert told and {one["culprit"] for behind in told for one in behind} == {"(unknown)"}
    assert not group(found)


@pytest.mark.parametrize("window", [20, 200, 250_000])
def test_tracks_have_all_that_waits_and_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    # GIVEN few steps, and I/O of minutes
    monkeypatch.setattr(timeline, "MOST_STEPS", 50)
    ios = [Io(io.comm, 60 * io.queue, 60 * io.queue, 60 * io.queue + io.complete - io.queue,
              io.op, io.sectors) for io in beside()]  # fmt: skip
    # WHEN it is taken in, in windows of any size
    found = taken_in(blame_logs.write(tmp_path / "a.biotrail", ios), window)
    # THEN a track has no more steps, and what waited is in them to the nanosecond
    [app] = [(times, values) for name, times, values in found.waiting() if name == "app"]
    times, values = app
    assert len(times) <= 51
    assert (values * found._steps.width).sum() == pytest.approx(10 * 4 * MS)


def test_what_is_kept_of_the_slowest_is_bounded(tmp_path: Path) -> None:
    # GIVEN more I/O than is kept
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + MS + t) for t in range(600)]
    found = taken_in(blame_logs.write(tmp_path / "a.biotrail", ios), 100)
    # WHEN it is taken in / THEN the slowest are kept
    kept = sorted(latency for latency, _ in found._slow.values())
    assert kept == [MS + t for t in range(600 - timeline.MOST_SLOW, 600)]


@given(
    ios=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(1, 5000), st.integers(-1000, 1000)),
        min_size=1,
        max_size=20,
    ),
    width=st.integers(1, 700),
)
def test_what_is_spread_stays_whole(ios: list[tuple[int, int, int]], width: int) -> None:
    # GIVEN I/Os that waited for others / WHEN that is spread over steps
    begin, length, ns = (np.array(column, np.int64) for column in zip(*ios, strict=True))
    first, found = _spread(begin, begin + length, ns, width)
    # THEN it is all there, in the steps that the I/Os are in
    assert found.sum() == ns.sum()
    assert first == begin.min() // width
    assert first + len(found) - 1 == ((begin + length - 1) // width).max()
