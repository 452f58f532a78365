# SPDX-License-Identifier: Apache-2.0
"""A followed life is the request or bio that had its address at that time."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from biotrail.converters.lifecycles.account import FollowedCounts
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.payloads import FollowFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind, Role
from tests.support.site_logs import FOLLOW, SiteLog
from tests.support.stack_logs import DEV, START

MS = 1_000_000
SECOND = 1_000 * MS
WINDOWS = [1, 3, 250_000]
BIOS: FollowFacts = {**FOLLOW, "type": "bio"}


def followed(follow: FollowFacts = FOLLOW) -> SiteLog:
    return SiteLog(pairs=[], follow=follow)


def request(log: SiteLog, rq: int, bio: int, start: int, end: int | None, sector: int = 8) -> None:
    """A bio and its request: queued at `start`, issued 2 ns later, completed at `end`."""
    both = {"bio": bio, "sector": sector, "bytes": 4096, "dev": DEV}
    log.add(Kind.Q, start, **both, part=DEV, tid=42)
    log.add(Kind.START, start + 1, rq=rq, **both)
    log.add(Kind.D, start + 2, rq=rq, **both, nr_bios=1)
    if end is not None:
        log.add(Kind.C, end, rq=rq, **both)


def life(log: SiteLog, number: int, address: int, born: int, died: int | None, *more: int) -> None:
    """Hits of a life, at functions and tracepoints; more: times of further hits."""
    log.hit(born, 0, life=number, object=address, flags=HIT_BORN)
    for at in more:
        log.hit(at, 1, Role.EVENT, life=number, object=address)
    if died is not None:
        log.hit(died, 2, life=number, object=address, flags=HIT_ENDED)


@dataclass
class Read:
    """What is read of a log."""

    starts: dict[int, int]
    """Life → ns since START of its request's first event, or of its bio's Q."""
    counts: FollowedCounts


def read(log: SiteLog, path: Path, window: int, associate: str = "auto") -> Read:
    trace = Trace(log.write(path), associate)
    starts, lives = {}, []
    for one in trace.lifecycles(window):
        requests, bios = one.requests, one.bios
        starts |= dict(zip(requests.number.tolist(), requests.start.tolist(), strict=True))
        starts |= dict(zip(bios.number.tolist(), bios.queue.tolist(), strict=True))
        if one.sites is not None and one.sites.joined is not None:
            found = one.sites.joined
            lives += zip(found.life.tolist(), found.number.tolist(), strict=True)
    assert len(dict(lives)) == len(lives), "a life came twice"
    return Read({one: starts[number] - START for one, number in lives}, trace.account.followed)


@pytest.mark.parametrize("window", WINDOWS)
def test_lives_are_the_requests_of_their_addresses_and_times(tmp_path: Path, window: int) -> None:
    # GIVEN an address that three requests had one after the other, and another one meanwhile;
    # lives begin and end inside of, or around, their requests' events
    log = followed()
    for at, rq in ((100, 0x1000), (1_000, 0x1000), (60 * MS, 0x1000), (150, 0x2000)):
        request(log, rq, at << 6, at, at + 500, sector=8 * at)
    life(log, 1, 0x1000, 102, 601)
    life(log, 3, 0x1000, 999, 1_490, 1_003)
    life(log, 4, 0x1000, 60 * MS + 2, 60 * MS + 499)
    life(log, 2, 0x2000, 140, 700)
    # WHEN the log is read  THEN each life is that of its time
    found = read(log, tmp_path / "log", window)
    assert found.starts == {1: 101, 2: 151, 3: 1_001, 4: 60 * MS + 1}
    assert found.counts == FollowedCounts(lives=4, joined=4, several=0)


@pytest.mark.parametrize("window", WINDOWS)
def test_lives_without_a_request_are_counted(tmp_path: Path, window: int) -> None:
    # GIVEN a life whose address is no request's, and one before the request that has its address
    log = followed()
    request(log, 0x1000, 0x40, 5_000, 6_000)
    life(log, 1, 0x3000, 10, 90)
    life(log, 2, 0x1000, 100, 200)
    life(log, 3, 0x1000, 5_001, None, 5_900)
    # WHEN the log is read  THEN only the third one is known
    found = read(log, tmp_path / "log", window)
    assert found.starts == {3: 5_001}
    assert (found.counts.lives, found.counts.not_found) == (3, 2)


@pytest.mark.parametrize("window", [3, 250_000])
def test_a_life_without_a_death_is_its_first_request(tmp_path: Path, window: int) -> None:
    # GIVEN a life whose death is not recorded, so that it goes on with the next request there
    log = followed()
    for at in (100, 1_000):
        request(log, 0x1000, at << 6, at, at + 500, sector=8 * at)
    life(log, 1, 0x1000, 102, None, 1_200)
    # WHEN the log is read  THEN it is the first one, and counted
    found = read(log, tmp_path / "log", window)
    assert found.starts == {1: 101}
    assert found.counts == FollowedCounts(lives=1, joined=1, several=1)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_life_ends_where_its_address_is_anothers(tmp_path: Path, window: int) -> None:
    # GIVEN the same with a birth of the second life, and a return of the first one's function late
    log = followed()
    for at in (100, 1_000):
        request(log, 0x1000, at << 6, at, at + 500, sector=8 * at)
    life(log, 1, 0x1000, 102, None, 400)
    life(log, 2, 0x1000, 1_001, 1_500)
    log.hit(1_200, 0, Role.RETURN, life=1, object=0x1000)
    # WHEN the log is read  THEN each is its own, and neither is more
    found = read(log, tmp_path / "log", window)
    assert found.starts == {1: 101, 2: 1_001}
    assert found.counts == FollowedCounts(lives=2, joined=2, several=0)


def test_a_late_return_begins_no_life(tmp_path: Path) -> None:
    # GIVEN a function that returns long after the end of the life, in a later window
    log = followed()
    request(log, 0x1000, 0x40, 100, 600)
    life(log, 1, 0x1000, 102, 599)
    request(log, 0x2000, 0x80, 4 * SECOND, 4 * SECOND + 50)
    log.hit(4 * SECOND + 20, 0, Role.RETURN, life=1, object=0x1000)
    # WHEN the log is read in small windows  THEN the life is counted once
    found = read(log, tmp_path / "log", 1)
    assert found.counts == FollowedCounts(lives=1, joined=1, several=0)


@pytest.mark.parametrize("window", WINDOWS)
def test_followed_bios_are_joined_by_their_addresses(tmp_path: Path, window: int) -> None:
    # GIVEN two bios with one address, one after the other
    log = followed(BIOS)
    request(log, 0x1000, 0x40, 100, 600)
    request(log, 0x2000, 0x40, 2_000, 2_600)
    life(log, 7, 0x40, 100, 599)
    life(log, 8, 0x40, 2_001, 2_601)
    # WHEN the log is read  THEN their numbers are those of bios
    found = read(log, tmp_path / "log", window)
    assert found.starts == {7: 100, 8: 2_000}


def test_other_types_and_events_without_addresses_are_not_joined(tmp_path: Path) -> None:
    # GIVEN a log that follows another struct, and one that is associated by intervals
    other, plain = followed({**FOLLOW, "type": "folio"}), followed()
    for log in (other, plain):
        request(log, 0x1000, 0x40, 100, 600)
        life(log, 1, 0x1000, 102, 599)
    # WHEN they are read  THEN no life is joined, nor counted
    nothing = Read({}, FollowedCounts())
    assert read(other, tmp_path / "other", 10) == nothing
    assert read(plain, tmp_path / "plain", 10, "intervals") == nothing
