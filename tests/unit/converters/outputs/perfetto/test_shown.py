# SPDX-License-Identifier: Apache-2.0
"""What a person sees: colours, names, help, the slowest, the order of tracks."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.analysis.blame import online
from biotrail.converters.analysis.blame.online import Timeline, _spread
from biotrail.converters.events.tables import Certainty, Stage
from biotrail.converters.outputs.perfetto import slowest
from biotrail.converters.outputs.perfetto.columns import FOREVER, Ranking, Slices
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENTS,
    REQUEST,
    STAGE_TITLES,
    Colour,
    Options,
    size_text,
)
from biotrail.converters.outputs.perfetto.slowest import Flights
from biotrail.converters.outputs.perfetto.tracks import Identity
from biotrail.converters.pipeline import Trace
from tests.support import blame_logs
from tests.support.blame_logs import MS, RAM, Io
from tests.support.cli_runner import Cli
from tests.support.driver_logs import SCSI, sample
from tests.support.driver_logs import request as driven
from tests.support.path_logs import PathLog
from tests.support.perfetto_check import Read, Slice, Track, read
from tests.support.perfetto_make import (
    DISK,
    HEADER,
    LOOP,
    PREFLUSH,
    WRITE,
    Scene,
    bio,
    context,
    direct,
    request,
    traced,
)
from tests.support.perfetto_scenes import LABELS, ROOT, T, trace_of


def test_tracks_say_what_they_show():
    # GIVEN a trace / WHEN its tracks' help is read / THEN each stage has a line, and lanes none
    trace, _ = trace_of(Scene(bios=[direct(n, T + n, 10) for n in range(3)]))
    told = {track.name: "" for track in trace.tracks.values()}
    for track in trace.tracks.values():
        told[track.name] = told[track.name] or track.descriptor.description
    for title in STAGE_TITLES.values():
        assert f"\n{title}: " in told["bios"]
    assert "A lane has no meaning" in told["bios"]
    assert [name for name, text in told.items() if not text] == ["recording", LABELS[DISK]]
    # AND a track's lanes say it once
    lanes = [track.descriptor for track in trace.tracks.values() if track.name == "bios"]
    assert [bool(lane.description) for lane in lanes] == [True, False, False]
    # AND of losses, where there are none, no track tells
    assert not [track for track in trace.tracks.values() if "lost" in track.name]


def test_arguments_begin_with_what_people_look_for():
    # GIVEN a bio / WHEN its arguments are read / THEN process and latency come first
    (one,) = trace_of(Scene(bios=[direct(1, T, 10, ioprio=2 << 13 | 4)]))[0].slices("bio")
    assert list(one.args)[:4] == ["process", "latency_ns", "sector", "bytes"]
    assert one.args["ioprio"] == "best-effort 4"
    # GIVEN sizes / WHEN they are named / THEN briefly
    sizes = {0: "", 512: "512 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB"}
    assert {size: size_text(size) for size in sizes} == sizes


@pytest.mark.parametrize(
    ("ioprio", "text"),
    [(1 << 13, "realtime 0"), (3 << 13 | 7, "idle"), (5, "none"), (7 << 13 | 2, "class 7 level 2"),
     (2 << 13 | 3 << 3 | 1, "best-effort 1, hint 3")],
)  # fmt: skip
def test_priorities_are_words(ioprio, text):
    # GIVEN a priority as the kernel has it / WHEN it is told / THEN as ionice does
    (one,) = trace_of(Scene(bios=[direct(1, T, 10, ioprio=ioprio)]))[0].slices("bio")
    assert one.args["ioprio"] == text


STACK = [
    direct(1, T + 10, 90_000, dev=LOOP, part=LOOP),
    direct(2, T + 20, 9_000, parent=1, family=1),
    direct(3, T + 30, 9_000),
]
REQUESTS = [request(n, T + 25, complete=T + 9_000, family=f) for n, f in ((4, 1), (5, 3))]


@pytest.mark.parametrize("windows", [(), [T + 30_000]])
@pytest.mark.parametrize(
    ("colour", "expected"),
    [("auto", [1, 1, None, 1, None]), ("operation", [None] * 5), ("family", [1, 1, 3, 1, 3])],
)
def test_slices_share_colours_by_operation_or_by_family(colour, expected, windows):
    # GIVEN a bio of a stacked device and its lower one, and one that passes through a disk alone
    scene, out = Scene(bios=STACK, requests=REQUESTS), io.BytesIO()
    # WHEN they are coloured so, in windows or not
    convert(scene.windows(windows), context(), out, options=Options(colour=Colour(colour)))
    trace = read(out.getvalue())
    # THEN a family shares a colour where it is asked for, or where it is on several devices
    slices = [*trace.slices("bio"), *trace.slices("request")]
    found = {s.args["number"]: s.correlation for s in slices}
    assert [found[number] for number in range(1, 6)] == expected


def test_the_slowest_have_a_track_of_their_own_above_the_devices():
    # GIVEN more bios than it holds, of which some are not whole, or lower ones
    bios = [direct(n, T + 20_000 * n, 10_000 + 10 * n, bytes=n << 10) for n in range(1, 41)]
    bios += [bio(50, T + 3, certainty=Certainty.INCOMPLETE), direct(51, T, 10**6, parent=1)]
    whole, summary = trace_of(Scene(bios=bios))
    cut, _ = trace_of(Scene(bios=bios), range(T, T + 900_000, 70_000))
    # WHEN they are drawn / THEN the 20 slowest are there by name, whatever the windows are
    found = whole.slices("slowest")
    assert [(s.name, s.start, s.dur) for s in found] == [
        (f"read {n} KiB fio", T + 20_000 * n, 13_000 + 10 * n) for n in range(21, 41)
    ]
    assert [s.args for s in cut.slices("slowest")] == [s.args for s in found]
    assert found[0].args["number"] == 21 and found[0].args["device"] == LABELS[DISK]
    # AND in their operation's colour
    assert {s.correlation for s in found} == {"read"}
    # AND above the devices
    ranks = {track.name: track.descriptor.sibling_order_rank for track in whole.tracks.values()}
    assert ranks["recording"] < ranks["slowest I/Os"] < ranks[LABELS[DISK]]
    assert {whole.path(s.track) for s in found} == {f"{ROOT}/slowest I/Os"}
    # AND the trace says where to look: around the slowest, in its own time, and within it
    boot = HEADER["clocks"]["boottime"] - HEADER["clocks"]["monotonic"]
    view = summary.view
    begin, end = view.begin - boot, view.end - boot
    assert (begin, view.device) == (T + 800_000 - 13_400, LABELS[DISK])
    assert end == min(T + 800_000 + 2 * 13_400, max(i.at for i in whole.instants()))
    assert whole.attributes["biotrail.view"] == f"{view.begin} {view.end} {view.device}"


def test_the_slowest_are_of_all_windows_kinds_and_bursts():
    # GIVEN five bios at once that are slower than three later ones
    bios = [direct(n, T + n, 90_000 + 10 * n) for n in range(5)]
    bios += [direct(10 + n, T + 200_000 * (n + 1), 10_000) for n in range(3)]
    trace, _ = trace_of(Scene(bios=bios))
    # WHEN they are drawn / THEN three of them are there, and the later ones
    found = trace.slices("slowest")
    assert [s.args["number"] for s in found] == [2, 3, 4, 10, 11, 12]
    # AND on three lanes
    assert len({s.track for s in found}) == 3
    # GIVEN windows of random latencies, many of them equal
    rng = np.random.default_rng(7)
    windows = [rng.integers(0, 50, rng.integers(0, 60)) for _ in range(40)]
    ranking, chosen = Ranking(20), []
    # WHEN each is ranked as it comes
    for window in windows:
        rows = ranking.choose(slices(window), fine(len(window)))
        assert (np.diff(rows) > 0).all()
        chosen.append(window[rows])
    # THEN the slowest of all are among them, and of a window no more than are wanted
    everything, found = np.concatenate(windows), np.concatenate(chosen)
    assert sorted(found)[-20:] == sorted(everything)[-20:]
    assert max(map(len, chosen)) == 20
    assert len(found) < len(everything) // 4
    # GIVEN fast and slow I/Os of two devices, two operations, some with an error
    latency = [1, 9, 8, 2, 7, 3]
    group, name = [1, 1, 2, 2, 1, 1], [1, 1, 1, 1, 2, 1]
    failed = np.array([0, 0, 0, 0, 0, 1], dtype=np.bool_)
    # WHEN one of each is wanted THEN it is the slowest of its kind
    assert Ranking(1).choose(slices(latency, group, name), failed).tolist() == [1, 2, 4, 5]
    # GIVEN an I/O without an end / WHEN one is wanted THEN it is that one
    assert Ranking(1).choose(slices([5, None, 7]), fine(3)).tolist() == [1]
    # GIVEN more devices than are looked for one by one / WHEN ranked THEN each has its slowest
    found = Ranking(1).choose(slices([1, 2] * 30, [i // 2 for i in range(60)]), fine(60))
    assert found.tolist() == list(range(1, 60, 2))


def test_the_slowest_say_why(monkeypatch):
    # GIVEN a bio, and two that were queued after it and issued before it
    stages = [(Stage.G2D, T, T + 60_000), (Stage.D2C, T + 60_000, T + 90_000)]
    slow = bio(1, T, getrq=T, issue=T + 60_000, complete=T + 90_000, stages=stages)
    bios = [slow, direct(2, T + 10, 100), direct(3, T + 20, 100)]
    trace, _ = trace_of(Scene(bios=bios))
    # WHEN they are drawn / THEN its slice says what it waited for, what overtook it, and what the
    # device had meanwhile
    one = next(s for s in trace.slices("slowest") if s.args["number"] == 1)
    told = "; 2 I/Os overtook it; meanwhile nvme0n1 had 2 reads (8 KiB) of fio"
    assert one.args["why"].endswith(told)
    assert sum(inner.dur for inner in one.children) == one.dur
    # AND an arrow leads to it from its bio
    assert [(a.args["number"], b is one) for a, b in trace.arrows() if b is one] == [(1, True)]
    # GIVEN a call, and I/O beside it of which only the newest is kept
    monkeypatch.setattr(slowest, "_FEW_KEPT", 2)
    flights = Flights(context())
    bios = [direct(n, T + 10_000 * n, 2_000, opf=WRITE) for n in range(1, 6)]
    for window in Scene(bios=bios).windows(range(T, T + 60_000, 10_000)):
        flights.add(window)
    # WHEN a thread waited for all of it / THEN it is said from when on it is known
    told = flights.beside_call(7, DISK, T, T + 57_000)
    assert told == "in its last 22 µs nvme0n1 had 2 writes (8 KiB) of fio"


@pytest.mark.parametrize("cuts", [range(T, T + 100_000, 7_000), ()])
def test_the_slowest_say_whose_io_the_device_had(cuts):
    # GIVEN a bio beside those of others: those of one party last longest, flushes have no bytes
    names = ("fio", "dd", "jbd2/nvme0n1-8", "a", "b")
    tasks = [{"tid": 101 + n, "tgid": 101 + n, "comm": name} for n, name in enumerate(names)]
    slow = direct(1, T, 90_000)
    big = [direct(2 + n, T - 500 + n, 80_000, task=1, opf=WRITE, bytes=1 << 20) for n in range(3)]
    few = [
        direct(10, T + 9_000, 9_000, task=2, opf=WRITE | PREFLUSH, bytes=0),
        direct(11, T + 9_000, 100, task=3),
        direct(12, T + 9_000, 10, task=4),
        direct(13, T - 50_000, 20_000, task=4),  # over when it began
        direct(14, T + 9_000, 9_000, task=4, dev=LOOP),
    ]
    trace, _ = trace_of(Scene(bios=[slow, *big, *few], tasks=tasks, begin=T - 60_000), cuts)
    # WHEN it is drawn / THEN the party with most time is first, and the fourth is counted
    (one,) = (s for s in trace.slices("slowest") if s.args["number"] == 1)
    told = "3 writes (3 MiB) of dd, 1 flush of jbd2/nvme0n1-8, 1 read (4 KiB) of a, 1 other I/O"
    assert one.args["why"].endswith(f"; meanwhile nvme0n1 had {told}")


def test_what_is_beyond_a_screen_is_on_a_track_of_its_own():
    # GIVEN more bios at once than a screen holds lanes of, one behind the other and again
    bios = [direct(n, T + n, 100_000) for n in range(40)]
    bios += [direct(100 + n, T + 500_000 + 200_000 * n, 100) for n in range(5)]
    trace, _ = trace_of(Scene(bios=bios))
    # WHEN they are drawn / THEN each takes the lowest lane that is free
    names = {s.args["number"]: trace.tracks[s.track].name for s in trace.slices("bio")}
    assert [n for n, name in names.items() if name == "bios"] == [*range(16), *range(100, 105)]
    assert {names[n] for n in range(16, 40)} == {"more bios"}
    # AND the other track says so, behind both
    more = [track.descriptor for track in trace.tracks.values() if track.name == "more bios"]
    assert "beyond the first 16 lanes" in more[0].description
    ranks = {track.name: track.descriptor.sibling_order_rank for track in trace.tracks.values()}
    assert ranks["more bios"] > ranks["bios"]


# Arguments of requests in Perfetto traces that say what the driver did.

NAMES = {
    "driver",
    "setup_to_issue_ns",
    "issue_to_dispatch_ns",
    "dispatch_to_answer_ns",
    "answer_to_complete_ns",
    "driver_done_to_complete_ns",
    "driver_errors",
    "driver_timeouts",
}


def requests_of(log: PathLog) -> list[Slice]:
    """The slices of a log's requests, in their order."""
    return traced(log.data()).slices(REQUEST)


def test_requests_say_what_their_driver_did() -> None:
    # GIVEN a request of each driver, and one without steps WHEN they are drawn
    found = [
        {name: one.args[name] for name in NAMES & one.args.keys()} for one in requests_of(sample())
    ]
    # THEN each has its driver's times, and the last one none
    assert found == [
        {
            "driver": "nvme",
            "setup_to_issue_ns": 5,
            "dispatch_to_answer_ns": 700,
            "answer_to_complete_ns": 300,
            "driver_done_to_complete_ns": 100,
        },
        {
            "driver": "scsi",
            "issue_to_dispatch_ns": 100,
            "dispatch_to_answer_ns": 850,
            "answer_to_complete_ns": 50,
            "driver_errors": 2,
            "driver_timeouts": 1,
        },
        {
            "driver": "loop",
            "issue_to_dispatch_ns": 400,
            "dispatch_to_answer_ns": 400,
            "answer_to_complete_ns": 200,
        },
        {},
    ]
    assert {argument.name for argument in ARGUMENTS[REQUEST]} >= NAMES
    # GIVEN a request that was issued twice WHEN it is drawn
    log = PathLog()
    driven(log, 1000, 2000, {"driver": SCSI, "begun": 900, "answered": 50, "errors": 1}, tries=2)
    (one,) = requests_of(log)
    # THEN it has its driver and its failures, and no times, as they are of the last issue alone
    assert one.args["driver"] == "scsi"
    assert one.args["driver_errors"] == 1
    assert not {name for name in NAMES & one.args.keys() if name.endswith("_ns")}


# Who slowed whom in a Perfetto trace: culprits of the slowest I/Os, and tracks of victims.


def taken_in(path: Path, window: int = 200) -> Timeline:
    trace = Trace(path)
    found = Timeline(trace.context)
    for each in trace.lifecycles(window, small=True):
        found.add(each)
    found.add(None)
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


def test_the_slowest_have_culprits_and_victims_a_track(tmp_path: Path, cli: Cli) -> None:
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
    # AND below "waiting because of others" the reader has a track
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
    monkeypatch.setattr(online, "MOST_STEPS", 50)
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
    kept = sorted(latency for latency, _ in found.slow.values())
    assert kept == [MS + t for t in range(600 - online.MOST_SLOW, 600)]


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


# Which I/Os are drawn with all arguments; and the ids of sequences.


def slices(latency, group=0, name=1):
    n = len(latency)
    start = np.arange(n, dtype=np.int64) * 10
    whole = np.array([FOREVER if one is None else one for one in latency], dtype=np.int64)
    end = np.where(whole == FOREVER, FOREVER, start + np.where(whole == FOREVER, 0, whole))
    names = np.broadcast_to(np.asarray(name, dtype=np.uint64), n)
    groups = np.broadcast_to(np.asarray(group, dtype=np.int64), n)
    return Slices("bio", groups, start, end, names, start // 10, start // 10)


def fine(n):
    return np.zeros(n, dtype=np.bool_)


def test_no_two_sequences_of_a_trace_have_one_id():
    # GIVEN a log with very many lanes, and one behind it in the same trace
    one, other = Identity("a", "t"), Identity("b", "t", 20_000)
    # WHEN they get their ids THEN all differ, from each other and from Perfetto's own
    ids = [who.sequence(i) for who in (one, other) for i in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 4096 and max(ids) < 1 << 21
    # AND those of slices take two bytes as long as there are any
    assert max(ids[1:12_288]) < 1 << 14
    assert one.clock == other.clock and 66 <= one.clock < 128
