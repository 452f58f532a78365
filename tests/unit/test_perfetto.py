# SPDX-License-Identifier: Apache-2.0
import errno
import io
import random
import tracemalloc
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto_check import read
from perfetto_make import (
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
)
from perfetto_scenes import LABELS, ROOT, T, assert_shows, cuts, drawn, scenes, trace_of

from converters.model.tables import NEVER, Certainty, Stage
from converters.perfetto import convert
from converters.perfetto_names import ARGUMENTS, BIO, REQUEST, STAGE_TITLES, Colour
from converters.perfetto_slowest import size_text
from recorder.errors import OutputError


@settings(max_examples=80, deadline=None)
@given(scenes(), cuts)
def test_everything_is_drawn_with_all_that_is_known(scene, windows):
    # GIVEN any bios and requests, in windows / WHEN they are converted
    trace, summary = trace_of(scene, windows)
    # THEN the trace is sound (read checks it), and shows each of them
    assert_shows(trace, scene)
    assert (summary.bios, summary.requests) == (len(scene.bios), len(scene.requests))
    assert summary.loss_windows == len(scene.losses) == len(trace.slices("loss"))


@settings(max_examples=60, deadline=None)
@given(scenes(), cuts, st.booleans())
def test_windows_change_nothing_that_is_drawn(scene, windows, keep_open):
    # GIVEN the same load whole and in windows, that may leave out what is under way
    whole, _ = trace_of(scene)
    cut, _ = trace_of(scene, windows, keep_open=keep_open)
    # WHEN both are converted / THEN their slices are the same
    assert drawn(cut) == drawn(whole)


def depth_at(rows, times, begin, end):
    return [sum(1 for r in rows if begin(r) <= t < end(r)) for t in times]


@settings(max_examples=50, deadline=None)
@given(scenes(), st.lists(st.integers(T, T + 700), max_size=4))
def test_depths_end_where_they_should(scene, windows):
    # GIVEN any load / WHEN it is converted
    trace, _ = trace_of(scene, windows)
    for dev in {r["dev"] for r in scene.bios}:
        bios = [r for r in scene.bios if r["dev"] == dev]
        stuck = [r for r in bios if r["complete"] < 0 and r["certainty"] != Certainty.LOST]
        queued = trace.counter(f"{LABELS[dev]}/queued")
        running = trace.counter(f"{LABELS[dev]}/in device")
        # THEN the counters rest at what never ended, and never go below zero
        assert queued[-1][1] == sum(1 for r in stuck if r["issue"] < 0)
        assert running[-1][1] == sum(1 for r in stuck if r["issue"] >= 0)
        assert min(v for _, v in queued + running) >= 0
        # AND hold few samples, all within the trace
        for samples in (queued, running):
            assert max(Counter(at // 250_000 for at, _ in samples).values()) <= 6
            assert samples[0][0] == scene.begin
            assert samples[-1][0] <= max(i.at for i in trace.instants())


def test_few_changes_of_a_depth_are_a_sample_each():
    # GIVEN three bios at once for 43 µs, of which each waits for 3 µs
    scene = Scene(bios=[direct(n, T + 5_500_000, 40_000, family=n) for n in range(3)])
    trace, _ = trace_of(scene)
    # WHEN the depths are read / THEN they change when the bios do
    assert trace.counter("nvme0n1 (259:0)/queued") == [
        (T, 0), (T + 5_500_000, 3), (T + 5_503_000, 0),
    ]  # fmt: skip
    assert trace.counter("nvme0n1 (259:0)/in device") == [
        (T, 0), (T + 5_503_000, 3), (T + 5_543_000, 0),
    ]  # fmt: skip


def test_a_peak_among_many_changes_shows_and_the_rest_follows():
    # GIVEN a dozen bios one behind the other, of which two are under way at once
    bios = [direct(n, T + 5_250_000 + 10_000 * n, 4_000) for n in range(12)]
    bios.append(direct(12, T + 5_300_500, 1_000))
    bios.append(direct(13, T + 5_490_000, 3_000_000))
    trace, _ = trace_of(Scene(bios=bios))
    # WHEN the depth is read / THEN the peak stands at the beginning of a quarter of a
    # millisecond, and what it came to at that quarter's end
    assert trace.counter("nvme0n1 (259:0)/in device") == [
        (T, 0), (T + 5_250_000, 2), (T + 5_500_000, 1), (T + 8_493_000, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("windows", [(), range(T, T + 20_000_000, 777_777)])
def test_depths_do_not_depend_on_windows(windows):
    # GIVEN bursts between single I/Os, in windows or not
    rng = random.Random(3)
    starts = [rng.randrange(15_000_000) for _ in range(40)]
    starts += [4_000_000 + 5_000 * n for n in range(200)]
    bios = [direct(n, T + at, rng.randrange(200_000)) for n, at in enumerate(sorted(starts))]
    trace, _ = trace_of(Scene(bios=bios), windows)
    whole, _ = trace_of(Scene(bios=bios))
    for name in ("queued", "in device"):
        # WHEN the depth is read / THEN it is the same, and never less than it was in a quarter
        samples = trace.counter(name)
        assert samples == whole.counter(name)
        phase = {"queued": ("queue", "issue"), "in device": ("issue", "complete")}[name]
        for row in bios:
            at = row[phase[0]]
            level = sum(r[phase[0]] <= at < r[phase[1]] for r in bios)
            shown = [value for time, value in samples if time <= at][-1]
            assert shown >= level


def test_a_level_that_stays_is_shown_where_it_rests():
    # GIVEN one bio in the device for long, and a short second one
    scene = Scene(bios=[direct(1, T + 500_000, 50_000_000), direct(2, T + 700_000, 20_000)])
    trace, _ = trace_of(scene)
    # WHEN the depth is read / THEN it goes up to two, rests at one, ends at zero
    assert trace.counter("nvme0n1 (259:0)/in device") == [
        (T, 0), (T + 503_000, 1), (T + 703_000, 2), (T + 723_000, 1), (T + 50_503_000, 0),
    ]  # fmt: skip


def test_throughput_is_by_completion_and_direction():
    # GIVEN a read and a write of 1 MB, and a discard
    million = {"bytes": 1_000_000}
    scene = Scene(
        bios=[
            direct(1, T + 1_000_000, 5_000, **million),
            direct(2, T + 25_000_000, 5_000, opf=WRITE, **million),
            direct(3, T + 25_000_000, 5_000, opf=3, bytes=2**30),
        ]
    )
    trace, _ = trace_of(scene)
    # WHEN rates are read / THEN each has its bin, here of 1 ms, and zero after it
    assert trace.counter("nvme0n1 (259:0)/read bytes/s") == [
        (T, 0), (T + 1_000_000, 1e9), (T + 2_000_000, 0),
    ]  # fmt: skip
    # AND the last one takes in what is left: 8 µs, to the trace's end
    assert trace.counter("nvme0n1 (259:0)/written bytes/s") == [
        (T, 0), (T + 24_000_000, round(1e6 / 1.008e-3)),
    ]  # fmt: skip
    assert max(i.at for i in trace.instants()) == T + 25_008_000


@pytest.mark.parametrize("windows", [(), range(T, T + 900_000_000, 7_000_000)])
@pytest.mark.parametrize("length", [14_000_000, 400_000_000, 1_300_000_000])
def test_throughput_adds_up_to_the_bytes_within_the_trace(length, windows):
    # GIVEN traces of some length, with completions up to their ends
    rng = random.Random(length)
    starts = sorted(rng.randrange(length - 20_000) for _ in range(150))
    bios = [direct(n, T + at, 10_000) for n, at in enumerate(starts)]
    bios.append(direct(999, T + length - 13_000, 10_000))
    trace, _ = trace_of(Scene(bios=bios, end=T + length + 1), windows)
    # WHEN the rate is read / THEN it begins and ends with the trace, and is all of the bytes
    samples = trace.counter("read bytes/s")
    end = max(i.at for i in trace.instants())
    times = [at for at, _ in samples] + [end]
    assert end == T + length
    assert times[0] == T and times == sorted(times)
    moved = sum(
        rate * (b - a) / 1e9 for (_, rate), (a, b) in zip(samples, pairwise(times), strict=True)
    )
    assert moved == pytest.approx(sum(r["bytes"] for r in bios), rel=1e-6)
    # AND a bin has at most 10 ms, and a fiftieth of the trace or little more
    assert min(b - a for a, b in pairwise(times)) <= min(10_000_000, length / 20)


def test_bios_that_never_end_reach_the_end_of_the_recording():
    # GIVEN a bio without an end, and a clock reading 3 s after the recording's begin
    scene = Scene(bios=[bio(1, T + 5, issue=T + 9, certainty=Certainty.INCOMPLETE)])
    facts = context()
    later = {clock: at + 3_000_000_000 for clock, at in HEADER["clocks"].items()}
    facts.clocks.append(later)
    out = io.BytesIO()
    # WHEN it is converted
    summary = convert(scene.windows([T + 100]), facts, out)
    # THEN it is drawn to that reading and marked
    (one,) = read(out.getvalue()).slices("bio")
    assert (one.start, one.end) == (T + 5, T + 3_000_000_000)
    assert one.args["open_at_end"] is True
    assert one.args["certainty"] == "incomplete"
    assert summary.open_at_end == 1


def test_what_is_still_open_when_the_windows_stop_is_drawn():
    # GIVEN windows of which the last one leaves bios open / WHEN they are converted
    scene = Scene(bios=[bio(1, T + 5, certainty=Certainty.INCOMPLETE)])
    windows = list(scene.windows([T + 100]))[:1]
    out = io.BytesIO()
    summary = convert(windows, context(), out)
    # THEN nothing of them is missing
    assert [s.args["number"] for s in read(out.getvalue()).slices("bio")] == [1]
    assert summary.bios == summary.open_at_end == 1


def test_a_bio_whose_beginning_was_not_seen_has_no_latency():
    # GIVEN a bio that is known from its issue on / WHEN it is converted
    scene = Scene(bios=[bio(1, NEVER, issue=T + 50, complete=T + 90, tid=0, task=-1)])
    (one,) = trace_of(scene)[0].slices("bio")
    # THEN it begins there, and says what it does not know
    assert (one.start, one.dur) == (T + 50, 40)
    assert one.args["begin_not_seen"] is True
    assert not {"latency_ns", "tid", "pid", "process"} & one.args.keys()


def test_a_bio_without_any_time_is_counted():
    # GIVEN a bio of which nothing was seen / WHEN it is converted / THEN the summary says so
    _, summary = trace_of(Scene(bios=[bio(1, NEVER)]))
    assert (summary.bios, summary.not_drawn) == (0, 1)


def test_names_are_operations():
    # GIVEN operations of all kinds / WHEN they are drawn / THEN slices are named after them
    kinds = [(0, 4096, "read"), (1, 4096, "write"), (3, 4096, "discard"), (9, 4096, "write_zeroes"),
             (2, 0, "flush"), (WRITE | PREFLUSH, 0, "flush"), (WRITE | PREFLUSH, 4096, "write"),
             (77, 4096, "op 77")]  # fmt: skip
    scene = Scene(
        bios=[direct(n, T + n, 10, opf=opf, bytes=size) for n, (opf, size, _) in enumerate(kinds)]
    )
    found = trace_of(scene)[0].slices("bio")
    assert [s.name for s in found] == [name for _, _, name in kinds]


def test_an_absorbed_request_ends_where_it_was_absorbed():
    # GIVEN a request that another one took in / WHEN it is drawn
    stages = [(Stage.G2I, T + 5, T + 30)]
    scene = Scene(requests=[request(1, T + 5, absorbed_by=2, stages=stages)])
    (one,) = trace_of(scene)[0].slices("request")
    # THEN it ends there and is not marked as open
    assert (one.start, one.end) == (T + 5, T + 30)
    assert one.args["absorbed_by"] == 2
    assert not {"open_at_end", "end_not_seen"} & one.args.keys()


def test_a_bio_of_very_many_stages_is_whole():
    # GIVEN a bio that was requeued 3,000 times among others / WHEN it is drawn
    bounds = [T + i for i in range(3001)]
    turns = [(Stage.D2C if i % 2 == 0 else Stage.R2D, a, a + 1) for i, a in enumerate(bounds[:-1])]
    scene = Scene(
        bios=[
            bio(1, T, complete=T + 3000, stages=turns),
            *(direct(n, T + n, 10) for n in range(2, 40)),
        ]
    )
    trace, _ = trace_of(scene)
    # THEN all its stages are there, and its arguments add them up
    assert_shows(trace, scene)


def test_loss_is_visible():
    # GIVEN windows of known and unknown loss / WHEN they are converted
    scene = Scene(
        bios=[direct(1, T + 10, 10)],
        losses=[
            {"start": T + 5, "end": T + 900, "cpu": 1, "kind": 14, "count": 7},
            {"start": T + 500, "end": T + 9_500_000, "cpu": -1, "kind": 0, "count": -1},
        ],
    )
    trace, _ = trace_of(scene)
    # THEN both are slices on their own track, and the counter has what is known
    assert [(s.start, s.end, s.args) for s in trace.slices("loss")] == [
        (T + 5, T + 900, {"cpu": 1, "kind": "complete", "count": 7}),
        (T + 500, T + 9_500_000, {"kind": "unknown"}),
    ]
    assert {trace.path(s.track) for s in trace.slices("loss")} == {f"{ROOT}/lost events"}
    assert trace.counter("nvme0n1 (259:0)/lost events") == [(T, 0), (T + 1_000_000, 7)]


def test_nothing_is_said_of_losses_where_there_are_none():
    # GIVEN a recording without losses / WHEN it is converted / THEN no track tells of losses
    trace, _ = trace_of(Scene(bios=[direct(1, T + 10, 10)]))
    assert not [track for track in trace.tracks.values() if "lost" in track.name]


def test_flushes_have_a_name_each():
    # GIVEN an fsync: its bio, its request, and the flush request that the kernel issues for it
    stages = [(Stage.FLUSH, T + 10, T + 90)]
    empty = {"bytes": 0, "opf": WRITE | PREFLUSH, "complete": T + 90, "stages": stages}
    internal = {"bytes": 0, "opf": 2 | PREFLUSH, "kind": 1, "complete": T + 80}
    scene = Scene(
        bios=[bio(1, T + 10, **empty)],
        requests=[request(2, T + 10, **empty), request(3, T + 20, **internal)],
    )
    trace, _ = trace_of(scene)
    # WHEN it is drawn / THEN an area's sums keep operation, stage and device's flush apart
    (one,) = trace.slices("bio")
    assert (one.name, [c.name for c in one.children]) == ("flush", ["flushing"])
    assert "flush_ns" in one.args
    assert [s.name for s in trace.slices("request")] == ["flush", "device flush"]


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


def test_arguments_begin_with_what_people_look_for():
    # GIVEN a bio / WHEN its arguments are read / THEN process and latency come first
    (one,) = trace_of(Scene(bios=[direct(1, T, 10, ioprio=2 << 13 | 4)]))[0].slices("bio")
    assert list(one.args)[:4] == ["process", "latency_ns", "sector", "bytes"]
    assert one.args["ioprio"] == "best-effort 4"


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
    convert(scene.windows(windows), context(), out, colour=Colour(colour))
    trace = read(out.getvalue())
    # THEN a family shares a colour where it is asked for, or where it is on several devices
    slices = [*trace.slices("bio"), *trace.slices("request")]
    found = {s.args["number"]: s.correlation for s in slices}
    assert [found[number] for number in range(1, 6)] == expected


def test_the_slowest_have_a_track_of_their_own_above_the_devices():
    # GIVEN more bios than it holds, of which some are not whole, or lower ones
    bios = [direct(n, T + 1_000 * n, 10_000 + 10 * n, bytes=n << 10) for n in range(1, 41)]
    bios += [bio(50, T + 3, certainty=Certainty.INCOMPLETE), direct(51, T, 10**6, parent=1)]
    whole, summary = trace_of(Scene(bios=bios))
    cut, _ = trace_of(Scene(bios=bios), range(T, T + 60_000, 7_000))
    # WHEN they are drawn / THEN the 20 slowest are there by name, whatever the windows are
    found = whole.slices("slowest")
    assert [(s.name, s.start, s.dur) for s in found] == [
        (f"read {n} KiB fio", T + 1_000 * n, 13_000 + 10 * n) for n in range(21, 41)
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
    begin, end = summary.view.begin - boot, summary.view.end - boot
    assert (begin, summary.view.device) == (T + 40_000 - 13_400, LABELS[DISK])
    assert end == min(T + 40_000 + 2 * 13_400, max(i.at for i in whole.instants()))
    assert whole.attributes["biotrail.view"] == str(summary.view)


def test_sizes_are_in_their_units():
    # GIVEN sizes / WHEN they are named / THEN briefly
    sizes = {0: "", 512: "512 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB"}
    assert {size: size_text(size) for size in sizes} == sizes


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


def test_clocks_lead_to_wall_clock_time():
    # GIVEN readings half a second apart, two seconds apart, and after a sleep of 5 s
    def reading(after, slept=0):
        at = T + after
        return {"monotonic": at, "boottime": at + 500_000_000 + slept, "realtime": 10**18 + at}

    facts = context(clocks=reading(0))
    facts.clocks += [reading(5 * 10**8), reading(2 * 10**9, 70), reading(3 * 10**9, 5 * 10**9)]
    out = io.BytesIO()
    # WHEN a trace is made / THEN snapshots come at most once a second; 70 ns are no sleep
    convert(Scene(bios=[direct(1, T + 5, 10)]).windows(), facts, out)
    assert read(out.getvalue()).snapshots == [
        {3: T, 6: T + 500_000_000, 1: 10**18 + T},
        {3: T + 2 * 10**9, 6: T + 2_500_000_000, 1: 10**18 + T + 2 * 10**9},
        {3: T + 3 * 10**9, 6: T + 3_500_000_000 + 5 * 10**9, 1: 10**18 + T + 3 * 10**9},
    ]


def test_a_log_without_clocks_still_has_a_time_line():
    # GIVEN a header without clock readings / WHEN it is converted / THEN MONOTONIC stands alone
    header = {k: v for k, v in HEADER.items() if k != "clocks"}
    scene = Scene(bios=[direct(1, T + 5, 10)])
    trace, _ = trace_of(scene, header=header)
    assert [s.start for s in trace.slices("bio")] == [T + 5]
    assert trace.snapshots == [{3: T}]


def test_an_empty_recording_is_a_trace():
    # GIVEN no windows at all, or an empty one / WHEN they are converted
    for windows in ([], Scene().windows()):
        out = io.BytesIO()
        convert(windows, context(), out)
        # THEN the metadata are there
        trace = read(out.getvalue())
        assert trace.attributes["biotrail.host"] == "testhost"
        assert [i.name for i in trace.instants()] == ["recording", "end of recording"]


def test_two_logs_can_be_concatenated():
    # GIVEN the traces of two logs of one host
    scene = Scene(bios=[direct(1, T + 5, 10)])
    parts = []
    for log_id in ("1" * 32, "2" * 32):
        out = io.BytesIO()
        convert(scene.windows(), context(log_id=log_id), out)
        parts.append(out.getvalue())
    # WHEN they are concatenated / THEN they read as one trace, with no track or sequence shared
    alone = [read(p) for p in parts]
    both = read(b"".join(parts))
    assert len(both.tracks) == sum(len(a.tracks) for a in alone)
    assert len(both.sequences) == sum(len(a.sequences) for a in alone)
    assert len(both.slices("bio")) == 2


def test_many_texts_are_interned_anew_without_harm(monkeypatch):
    # GIVEN room for ten texts, and far more process names, in many windows
    monkeypatch.setattr("converters.perfetto._MOST_STRINGS", 10)
    rng = random.Random(1)
    tasks = [{"tid": i + 1, "tgid": i + 1, "comm": f"job{i}"} for i in range(60)]
    scene = Scene(
        tasks=tasks,
        bios=[
            direct(n, T + 40 * n, rng.randrange(200), task=rng.randrange(60)) for n in range(300)
        ],
    )
    # WHEN they are converted / THEN every bio has its own process
    trace, _ = trace_of(scene, range(T, T + 12_000, 500))
    assert_shows(trace, scene)


def test_a_full_disk_is_an_error_with_a_remedy():
    # GIVEN an output that cannot be written / WHEN a trace is made / THEN the error says so
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match=r"No space left on device. Make room"):
        convert(Scene().windows(), context(), Full())


def test_progress_is_told_after_every_window():
    # GIVEN three windows / WHEN they are converted / THEN the bytes written grow
    told = []
    scene = Scene(bios=[direct(n, T + n * 100, 10) for n in range(9)])
    convert(scene.windows([T + 300, T + 600]), context(), io.BytesIO(), on_progress=told.append)
    assert [p.bios for p in told] == sorted(p.bios for p in told)
    assert len(told) == 3


def test_memory_does_not_grow_with_the_recording():
    # GIVEN recordings of few and of many windows, all with new process names
    def windows(count):
        for n in range(count):
            begin = T + n * 1_000_000
            scene = Scene(
                begin=begin,
                end=begin + 1_000_000,
                tasks=[{"tid": i, "tgid": i, "comm": f"job{n}-{i}"} for i in range(50)],
                bios=[
                    direct(n * 1000 + i, begin + 700 * i, 5_000 + i, task=i % 50, tid=1)
                    for i in range(1000)
                ],
            )
            yield from scene.windows()

    class Nowhere(io.BytesIO):
        def write(self, data):
            return len(data)

    # WHEN both are converted
    peaks = []
    for count in (15, 15, 90):  # the first one warms caches
        tracemalloc.start()
        convert(windows(count), context(), Nowhere())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # THEN six times the length needs hardly more memory
    assert peaks[2] < 1.5 * peaks[1]


def test_thousands_of_slices_at_once_are_drawn():
    # GIVEN 3,000 bios in flight together / WHEN they are converted
    scene = Scene(bios=[direct(n, T + n, 100_000) for n in range(3000)])
    trace, summary = trace_of(scene, [T + 2000, T + 50_000])
    # THEN each has a lane, and all are there
    assert summary.lanes == 3000
    assert len(trace.slices("bio")) == 3000


def test_arguments_are_documented():
    # GIVEN the arguments that slices can have / WHEN the page on Perfetto is read
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "perfetto.md").read_text(encoding="utf-8")
    # THEN it names each of them
    for category in (BIO, REQUEST, "loss"):
        for argument in ARGUMENTS[category]:
            assert f"`{argument.name}`" in page, argument.name
