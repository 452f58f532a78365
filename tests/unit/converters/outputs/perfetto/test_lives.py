# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects in Perfetto traces."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from biotrail.converters.events.tables import LossWindows
from biotrail.converters.outputs.perfetto.convert import convert, convert_parts
from biotrail.converters.outputs.perfetto.names import Detail
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.payloads import FollowFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind
from tests.support.cli_runner import Cli
from tests.support.follow_logs import US, FollowLog, logs, many, read_write
from tests.support.paths import SAMPLE
from tests.support.perfetto_check import Read, Slice, read
from tests.support.perfetto_make import traced
from tests.support.site_logs import FOLLOW, SiteLog
from tests.support.stack_logs import DEV, START

LIFE = "request 0xffff888000001400 life 1 (sector 2048)"


def test_parts_hold_every_life_once() -> None:
    # GIVEN 40 lives in small windows  WHEN they are converted in small parts
    log = FollowLog()
    many(log, 40, 80_000_000)
    trace = Trace(io.BytesIO(log.data(range(0, 3_200_000_000, 100_000_000))))
    outs: list[io.BytesIO] = []

    def opened(_: int) -> io.BytesIO:
        outs.append(io.BytesIO())
        return outs[-1]

    windows = trace.lifecycles(20, small=True)
    convert_parts(windows, trace.context, opened, 60_000)
    # THEN there are several, each sound, and no life is in two of them
    found = [
        int(one.args["life"])
        for out in outs
        for one in read(out.getvalue()).slices("followed")
        if "life" in one.args
    ]
    assert len(outs) > 2
    assert sorted(found) == list(range(1, 41))


def test_a_loss_before_the_window_of_the_first_hits_is_known_to_their_life() -> None:
    # GIVEN a followed request whose hits come a window after the loss of others in its time
    log = FollowLog()
    read_write(log)
    trace = Trace(io.BytesIO(log.data()))
    window, *rest = trace.lifecycles()
    at = np.array([START + 10 * US])
    lost = LossWindows(at, at + US, np.array([0]), np.array([int(Kind.HIT)]), np.array([3]))
    # WHEN converted / THEN the life says so
    out = io.BytesIO()
    convert([replace(window, sites=None, loss=lost), window, *rest], trace.context, out)
    found = read(out.getvalue())
    (track,) = [t for uuid, t in found.tracks.items() if found.path(uuid).endswith(LIFE)]
    assert track.slices[0].args["lost"] == "records were lost meanwhile"


def test_the_command_says_how_many_lives_there_are(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of 300 lives
    log = FollowLog()
    many(log, 300)
    path = tmp_path / "a.biotrail"
    path.write_bytes(log.data())
    # WHEN it is converted to one file, and to parts / THEN their number is said
    said = "  300 lives of request, a track each"
    assert said in cli("convert", path, "-o", tmp_path / "a.pftrace").out.splitlines()
    parts = cli("convert", "--max-size", "256K", path, "-o", tmp_path / "b.pftrace").out
    assert said in parts.splitlines() and "b-1.pftrace" in parts
    # AND nothing of lives where there are none
    assert "a track each" not in cli("convert", SAMPLE, "-o", tmp_path / "c.pftrace").out


@settings(max_examples=20, deadline=None)
@given(logs())
def test_any_hits_give_a_sound_trace(log: FollowLog) -> None:
    # GIVEN any hits  WHEN converted  THEN slices nest, and time does not go back on a track
    traced(log.data(), small=True)


# Slices of followed requests and bios in Perfetto traces: their life, and the arrow to it.

SECOND = 1_000_000_000
PREAD = 17


def made(path: Path, follow: FollowFacts, *, timed: bool = False, twice: bool = False) -> Path:
    """Three I/Os with one address of requests and one of bios; the first two are followed.

    timed: in a timed call each, so that they have arrows already. twice: the first one has two
    lives, one after the other.
    """
    log = SiteLog(pairs=[], follow=follow)
    for number, start in enumerate((0, 10_000, 3 * SECOND), 1):
        both = {"bio": 0x40, "sector": 8 * number, "bytes": 4096, "dev": DEV}
        log.add(Kind.Q, start, **both, part=DEV, tid=42)
        if timed:
            entry = 5_000_000_000_000 + start - 5
            log.add(Kind.CALL, start, bio=0x40, entry=entry, number=PREAD)
        log.add(Kind.START, start + 10, rq=0x1000, **both)
        log.add(Kind.D, start + 20, rq=0x1000, **both, nr_bios=1)
        log.add(Kind.C, start + 900, rq=0x1000, **both)
        if timed:
            log.returns(start - 5, start + 950)
        if number > 2:
            continue
        address = 0x1000 if follow["type"] == "request" else 0x40
        log.span(start + 15, start + 30, 0, flags=HIT_BORN, life=number, object=address)
        middle = start + 400
        if twice and number == 1:
            log.hit(middle, 2, life=number, object=address, flags=HIT_ENDED)
            log.span(middle + 5, middle + 9, 0, flags=HIT_BORN, life=7, object=address)
            log.hit(start + 890, 2, life=7, object=address, flags=HIT_ENDED)
        else:
            log.hit(start + 890, 2, life=number, object=address, flags=HIT_ENDED)
    parts = ("call", "time") if timed else ()
    return log.write(path, parts=parts)


def traced_beside_io(log: Path, window: int, detail: Detail = Detail.FULL) -> Read:
    return traced(log, window, detail=detail, every_arrow=True)


def lives_of(trace: Read, slices: list[Slice]) -> list[list[int]]:
    """Numbers of the lives to which each slice has an arrow."""
    lives = [one for one in trace.slices("followed") if one.name in ("request", "bio")]
    return [[life.args["life"] for life in lives if _joined(trace, life, one)] for one in slices]


def _joined(trace: Read, life: Slice, one: Slice) -> bool:
    return any(one in pair and life in pair for pair in trace.arrows())


@pytest.mark.parametrize("window", [1, 3, 250_000])
@pytest.mark.parametrize("timed", [False, True], ids=["", "timed"])
def test_requests_lead_to_their_lives(tmp_path: Path, window: int, timed: bool) -> None:
    # GIVEN followed requests, with and without other arrows  WHEN converted
    trace = traced_beside_io(made(tmp_path / "log", FOLLOW, timed=timed), window)
    requests, bios = trace.slices("request"), trace.slices("bio")
    # THEN the slices of a followed request and of its bio have the life's number
    assert [one.args.get("life") for one in requests] == [1, 2, None]
    assert [one.args.get("life") for one in bios] == [1, 2, None]
    # AND an arrow leads from the request to its life, which names it; the bio's are as before
    assert lives_of(trace, requests) == [[1], [2], []]
    assert lives_of(trace, bios) == [[], [], []]
    assert [[one.category for one, to in trace.arrows() if to is bio] for bio in bios] == [
        ["call"] * timed
    ] * 3
    lives = [one for one in trace.slices("followed") if one.name == "request"]
    assert [one.args["request"] for one in lives] == [r.args["number"] for r in requests[:2]]


def test_other_slices_that_lead_to_lives(tmp_path: Path) -> None:
    # GIVEN followed bios  WHEN converted  THEN it is their slices that lead to the lives
    trace = traced_beside_io(made(tmp_path / "log", {**FOLLOW, "type": "bio"}), 250_000)
    assert lives_of(trace, trace.slices("bio")) == [[1], [2], []]
    assert lives_of(trace, trace.slices("request")) == [[], [], []]
    # GIVEN a request that was followed twice  WHEN converted
    trace = traced_beside_io(made(tmp_path / "twice", FOLLOW, twice=True), 250_000)
    first = trace.slices("request")[0]
    # THEN it has the first one's number, and arrows to both
    assert first.args["life"] == 1
    assert lives_of(trace, [first]) == [[1, 7]]
    # GIVEN a trace without arguments  THEN lives are drawn, and lead nowhere
    trace = traced_beside_io(made(tmp_path / "less", FOLLOW), 250_000, Detail.BIOS)
    assert lives_of(trace, trace.slices("bio")) == [[], [], []]
    assert len(trace.slices("followed")) >= 2
