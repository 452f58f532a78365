# SPDX-License-Identifier: Apache-2.0
"""Tracks of devices: depths, throughput and latencies over time, and their states."""

import io
import itertools
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import Certainty
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import Detail, Options
from tests.support.perfetto_check import read
from tests.support.perfetto_make import PREFLUSH, WRITE, Scene, context, direct, request
from tests.support.perfetto_scenes import LABELS, T, scenes, trace_of

# Depths, throughput and latencies over time.


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


def test_depths_are_shown_where_they_change_and_rest():
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
@pytest.mark.parametrize("length", [14_000_000, 28_200_000, 400_000_000, 1_300_000_000])
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


@pytest.mark.parametrize("windows", [range(T, T + 1_000_000_000, 70_000_000), ()])
def test_latencies_are_by_completion_in_bins(windows):
    # GIVEN 200 bios that complete in one 10 ms, of 13 to 212 µs, one in doubt, and others later
    bios = [direct(n, T + 21_000_000 + 7_000 * n, 10_000 + 1000 * n) for n in range(200)]
    bios += [direct(300, T + 22_000_000, 5_000_000, doubtful=True)]
    bios += [direct(301, T + 39_000_000, 2_997_000), direct(302, T + 900_000_000, 97)]
    trace, _ = trace_of(Scene(bios=bios), windows)
    # WHEN latencies are read / THEN each 10 ms has its quantiles, by nearest rank, and a gap 0
    begin = T + 20_000_000
    expected = {"p50": (112, 3000, 3), "p99": (210, 3000, 3)}
    for name, (first, second, third) in expected.items():
        found = trace.counter(f"nvme0n1 (259:0)/latency {name}")
        assert found[:5] == [
            (T, 0), (begin, first), (begin + 10_000_000, 0),
            (begin + 20_000_000, second), (begin + 30_000_000, 0),
        ]  # fmt: skip
        assert [value for _, value in found[5:]] == [third]


def test_short_traces_and_short_gaps():
    # GIVEN a trace of some 4 ms / WHEN latencies are read / THEN bins are of 0.1 ms
    bios = [direct(n, T + 80_000 * n, 47_000) for n in range(50)]
    trace, _ = trace_of(Scene(bios=bios))
    assert trace.counter("nvme0n1 (259:0)/latency p99")[0] == (T, 50)
    assert {value for _, value in trace.counter("nvme0n1 (259:0)/latency p50")} <= {0, 50}
    # GIVEN thousands of I/Os with gaps between, one of which is long
    starts = [20_000 * n + 50 * MS * (n >= 2_000) for n in range(4_000)]
    scene = Scene(bios=[direct(n, T + at, 9_000) for n, at in enumerate(starts)])
    # WHEN the states are read / THEN they are few, and the long gap is there
    found = states(scene)
    assert len(found) <= 501
    assert max(end - start for name, start, end in found if name == "idle") > 49 * MS
    # GIVEN an I/O / WHEN it is drawn without requests / THEN there is no track of states
    assert states(Scene(bios=[direct(0, T, 9_000)]), detail=Detail.STAGES) == []


# Whether a device was idle, busy or flushing, on a track of its own.

MS = 1_000_000
FLUSH = {"bytes": 0, "opf": WRITE | PREFLUSH}


def states(scene, windows=(), detail=Detail.STANDARD):
    out = io.BytesIO()
    convert(scene.windows(windows), context(), out, options=Options(detail=detail))
    trace = read(out.getvalue())
    return [(s.name, s.start - T, s.end - T) for s in trace.slices("state")]


@pytest.mark.parametrize("windows", [(), range(T, T + 9 * MS, MS)])
def test_a_device_is_idle_busy_or_flushing(windows):
    # GIVEN two writes that overlap, a flush within a third, and the flush to the device after that
    bios = [
        direct(0, T + MS, 2 * MS),
        direct(1, T + 2 * MS, 2 * MS),
        direct(2, T + 5 * MS, 2 * MS),
        direct(3, T + 6 * MS, 500_000, **FLUSH),
    ]
    device_flush = {"bytes": 0, "opf": 2 | PREFLUSH, "kind": 1}
    requests = [request(9, T + 8 * MS, complete=T + 8 * MS + 5, **device_flush)]
    scene = Scene(bios=bios, requests=requests)
    # WHEN the states are read / THEN a flush stands before other I/O, and both before nothing
    found = states(scene, windows)
    assert [one[0] for one in found] == [
        "idle", "busy", "idle", "busy", "flushing", "busy", "idle", "flushing",
    ]  # fmt: skip
    assert found[0][1] == 0 and found[1][1] == MS and found[4][1] == 6 * MS
    # AND they fill the trace without gaps
    assert all(one[2] == other[1] for one, other in itertools.pairwise(found))
