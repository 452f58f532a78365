# SPDX-License-Identifier: Apache-2.0
"""Generated histories: the events and the surroundings of I/Os are what truly happened."""

import random

import numpy as np
import pytest

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO, Wanted
from biotrail.converters.analysis.slow.surroundings import MOST_BEFORE, Neighbourhood
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.pipeline import Trace
from tests.simulation.delivery import log_of
from tests.simulation.loads import history
from tests.simulation.model import Bio, History
from tests.simulation.recorded import ns
from tests.simulation.truth import Truth

SEEDS = range(60)
NOT_TOLD = "bTPU"


def determined(truth: Truth) -> dict[int, Bio]:
    """Whole bios of which all is known, by number."""
    found = {}
    for bio in truth.history.bios:
        queue = truth.first(bio, "Q")
        if queue is None or not truth.determined(bio) or truth.bio(bio).interval:
            continue
        first = truth.first(bio, "AQX")
        if first is not None and bio is bio.root:
            found[truth.number[first]] = bio
    return found


def true_events(truth: Truth, bio: Bio) -> set[int]:
    """Numbers of the records about a bio, its pieces and all requests that ever held them."""
    pieces = [bio, *bio.pieces]
    requests = {rq for piece in bio.pieces for rq in piece.requests}
    told = [r for p in pieces for r in p.records] + [r for rq in requests for r in rq.records]
    return {truth.number[r] for r in told if r in truth.recorded and r.letter not in NOT_TOLD}


def found_events(log: History) -> dict[int, set[int]]:
    events: dict[int, set[int]] = {}

    def watch(result: Result, window: Lifecycles) -> None:
        table, told = result.histories(window.bios.number)
        numbers = told.number[table.event]
        for bio, number in zip(table.bio.tolist(), numbers.tolist(), strict=True):
            events.setdefault(bio, set()).add(number)

    for _ in Trace(log_of(log)).lifecycles(log.window_events, on_window=watch):
        pass
    return events


@pytest.mark.parametrize("seed", SEEDS)
def test_the_events_of_a_bio_are_all_that_were_recorded(seed: int) -> None:
    # GIVEN a block layer at work
    log = history(random.Random(seed), size=4)
    truth = Truth(log)
    # WHEN the events of its bios are asked for
    found = found_events(log)
    # THEN they are those that were written about them
    for number, bio in determined(truth).items():
        assert found[number] == true_events(truth, bio), (seed, number)


def slowest_of(log: History, top: int) -> list[SlowIO]:
    trace = Trace(log_of(log))
    found = Slowest(trace, Choice(trace.context), Wanted(top), False)
    for _ in trace.lifecycles(log.window_events, on_window=found.watch):
        pass
    return found.found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slowest_are_the_slowest(seed: int) -> None:
    # GIVEN a block layer at work / WHEN the five slowest I/Os are asked for
    log = history(random.Random(seed), size=4)
    few, every = slowest_of(log, 5), slowest_of(log, 10_000)
    # THEN they are the first of all, by what they waited
    assert [s.io.number for s in few] == [s.io.number for s in every[:5]]
    waits = [s.io.waited_ns for s in every]
    assert waits == sorted(waits, reverse=True)
    # AND where all is known, latency and mates are the true ones
    truth = Truth(log)
    known = determined(truth)
    numbers = {id(bio): number for number, bio in known.items()}
    for slow in every:
        bio = known.get(slow.io.number)
        if bio is None or slow.io.certainty != "exact":
            continue
        end, queue = truth.bio(bio).columns["complete"], truth.bio(bio).columns["queue"]
        assert slow.io.latency_ns == end - queue
        held = {rq for p in bio.pieces for rq in p.requests}
        mates = {m.root for b in log.bios for m in b.pieces if held & set(m.requests)} - {bio}
        sure = {numbers[id(m)] for m in mates if id(m) in numbers}
        if len(sure) == len(mates):
            assert {m.number for m in slow.mates} == sure


@pytest.mark.parametrize("seed", SEEDS)
def test_surroundings_are_the_same_in_any_windows(seed: int) -> None:
    # GIVEN a block layer at work, and its slowest I/Os
    log = history(random.Random(seed), size=5)
    ios = [slow.io for slow in slowest_of(log, 8) if slow.io.queue_ns is not None]
    # WHEN what was around them is gathered in small windows, and from one table of all
    few, whole = (gathered(log, ios, size) for size in (log.window_events, 1 << 20))
    # THEN both say the same
    assert few == whole
    # AND what was in the device is what a look at every bio says
    trace = Trace(log_of(log))
    tables = [w.bios for w in trace.lifecycles(1 << 20)]
    for io, found in zip(ios, whole, strict=True):
        assert found is not None
        count = 0
        for bios in tables:
            at, other = io.queue_ns, bios.number != io.number
            on = (bios.dev == io.dev) & other & (bios.queue >= 0) & (bios.issue >= 0)
            on &= (bios.queue <= at) & (bios.issue <= at) & (bios.complete > at)
            count += int(np.sum(on))
        if log.losses or any(b.certainty.max(initial=0) > 1 for b in tables):
            continue
        assert found.when_queued.in_device.ios == count
        # AND what the device had before it is that, and all that was issued before it since
        before = sum(n.ios for n in found.before) + found.before_left_out
        if found.when_issued is not None:
            assert before == count + found.ahead.ios + found.overtook_it.ios
        assert len(found.before) <= MOST_BEFORE


def gathered(log: History, ios: list[IO], window_events: int) -> list[object]:
    trace = Trace(log_of(log))
    near = Neighbourhood(trace.context, ios)
    for window in trace.lifecycles(window_events):
        if near.add(window):
            break
    near.finish()
    return [near.of(io) for io in ios]


def test_times_of_the_truth_are_the_logs() -> None:
    # GIVEN the simulation's zero / THEN it is the log's
    assert ns(0) == 1_000_000_000_000
