# SPDX-License-Identifier: Apache-2.0
import errno
import io
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import NEVER, Certainty, Stage
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import ARGUMENTS, BIO, CALL, REQUEST, SUBMISSION
from biotrail.recorder.schema.errors import OutputError
from tests.support import paths
from tests.support.perfetto_check import read
from tests.support.perfetto_make import (
    HEADER,
    PREFLUSH,
    WRITE,
    Scene,
    bio,
    context,
    direct,
    request,
)
from tests.support.perfetto_scenes import ROOT, T, assert_shows, cuts, drawn, scenes, trace_of


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
    monkeypatch.setattr("biotrail.converters.outputs.perfetto.convert._MOST_STRINGS", 10)
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

    page = (paths.ROOT / "docs" / "perfetto.md").read_text(encoding="utf-8")
    # THEN it names each of them
    for category in (BIO, REQUEST, "loss", CALL, SUBMISSION):
        for argument in ARGUMENTS[category]:
            assert f"`{argument.name}`" in page, argument.name
