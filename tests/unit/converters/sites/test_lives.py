# SPDX-License-Identifier: Apache-2.0
"""Hits gathered by life: the same lives from windows of any size, and bounds."""

from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.lifecycles.account import FollowedCounts
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites import lives as gathering
from biotrail.converters.sites.trees import Ending
from biotrail.recorder.schema.payloads import FollowFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind, Role
from tests.support.follow_logs import US, FollowLog, lives, logs, many, read_write
from tests.support.site_logs import FOLLOW, SiteLog
from tests.support.stack_logs import DEV, START

SECOND = 1_000_000_000


@settings(max_examples=30, deadline=None)
@given(logs(), st.integers(1, 9), st.lists(st.integers(0, 10 * SECOND), max_size=5))
def test_windows_of_any_size_give_the_same_lives(
    log: FollowLog, window: int, cuts: list[int]
) -> None:
    # GIVEN any hits  WHEN they are read in one window, or in small ones from several chunks
    whole, parts = (
        [asdict(life) for life in found] for found in (lives(log), lives(log, window, *cuts))
    )
    # THEN lives, hits and trees are the same, in the same order
    for life in (*whole, *parts):
        rows = life.pop("rows")
        life["hits"] = rows[[name for name in rows.dtype.names if name != "number"]].tolist()
    assert parts == whole


@settings(max_examples=30, deadline=None)
@given(logs())
def test_every_tree_is_sound(log: FollowLog) -> None:
    # GIVEN any hits  WHEN their trees are built
    for life in lives(log):
        # THEN each node is below its parent, in its context, and not before it
        for run in life.contexts:
            for root in run.roots:
                assert life.nodes[root].parent == -1
        walked = [node for run in life.contexts for node in life.walk(run.roots)]
        assert len(walked) == len(life.nodes)
        for index, node in enumerate(life.nodes):
            assert node.end == -1 or node.end >= node.begin
            assert node.seen >= node.begin
            for child in node.below:
                below = life.nodes[child]
                assert (below.parent, below.context) == (index, node.context)
                assert below.begin >= node.begin
                assert node.end == -1 or below.begin <= node.end
        # AND each hit has a node
        assert len(life.node_of) == life.hits


def test_hits_are_written_in_the_order_of_their_lives_ends() -> None:
    # GIVEN a life whose hits come in a chunk after that of their time, as of follow --slower
    log = FollowLog()
    read_write(log)
    early = list(log.sites)
    log.sites = [(at + 500 * US, cpu, row) for at, cpu, row in early]
    # WHEN read THEN the tree is in the order of the hits' own times
    (life,) = lives(log)
    assert life.took == 907 * US
    # GIVEN a long life and a short one within it
    log = FollowLog()
    log.passes(0, "a", born=True, life=1, object=1)
    log.passes(1 * US, "a", born=True, life=2, object=2)
    log.passes(2 * US, "b", ended=True, life=2, object=2)
    log.passes(9 * US, "b", ended=True, life=1, object=1)
    # WHEN read  THEN the short one comes first
    assert [life.number for life in lives(log)] == [2, 1]
    # GIVEN a hit two seconds after its life's death
    log = FollowLog()
    log.passes(0, "a", born=True)
    log.passes(1 * US, "b", ended=True)
    log.passes(2 * SECOND, "a")
    # WHEN read  THEN it is in no life
    (life,) = lives(log)
    assert life.hits == 2
    # GIVEN ten lives one after the other on ten addresses  WHEN read
    log = FollowLog()
    many(log, 10)
    # THEN each has its 13 hits
    assert [(life.number, life.hits) for life in lives(log)] == [(n, 13) for n in range(1, 11)]


def test_a_life_alone_ends_when_its_address_is_used_again() -> None:
    # GIVEN lives of two addresses, whose ends are not recorded
    log = FollowLog()
    for life, address in ((1, 8), (2, 16), (3, 8)):
        log.passes(life * US, "a", born=True, life=life, object=address)
    trace = Trace(BytesIO(log.data()))
    # WHEN some are read alone
    reader = gathering.LifeReader(trace.context, (1, 2))
    found = {life.number: life.ending for life in reader.read(trace.lifecycles())}
    # THEN the first ended by the third, and no birth elsewhere ended the second
    assert found == {1: Ending.REUSED, 2: Ending.LOG_ENDED}


def test_a_life_has_so_many_hits_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for five hits of a life, and one of eight
    monkeypatch.setattr(gathering, "MOST_HITS", 5)
    log = FollowLog()
    for at in range(8):
        log.passes(at, "a", born=not at, ended=at == 7)
    # WHEN read  THEN the rest is counted, and the death still known
    (life,) = lives(log)
    assert (life.hits, life.left_out, life.ending) == (5, 3, Ending.DIED)


def test_lives_that_never_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for ten hits of lives that go on, and twenty such lives
    monkeypatch.setattr(gathering, "MOST_HELD", 10)
    log = FollowLog()
    for life in range(1, 21):
        log.passes(life, "a", born=True, life=life, object=life)
    # WHEN read  THEN the oldest are closed, and say why
    endings = [(life.number, life.ending) for life in lives(log)]
    assert endings[:10] == [(life, Ending.NO_ROOM) for life in range(1, 11)]
    assert endings[10:] == [(life, Ending.LOG_ENDED) for life in range(11, 21)]


# A followed life is the request or bio that had its address at that time.

MS = 1_000_000
WINDOWS = [1, 3, 250_000]
BIOS: FollowFacts = {**FOLLOW, "type": "bio"}


def followed_with_io(follow: FollowFacts = FOLLOW) -> SiteLog:
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
    log = followed_with_io()
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
    log = followed_with_io()
    request(log, 0x1000, 0x40, 5_000, 6_000)
    life(log, 1, 0x3000, 10, 90)
    life(log, 2, 0x1000, 100, 200)
    life(log, 3, 0x1000, 5_001, None, 5_900)
    # WHEN the log is read  THEN only the third one is known
    found = read(log, tmp_path / "log", window)
    assert found.starts == {3: 5_001}
    assert (found.counts.lives, found.counts.joined) == (3, 1)


@pytest.mark.parametrize("window", [3, 250_000])
def test_a_life_without_a_death_is_its_first_request(tmp_path: Path, window: int) -> None:
    # GIVEN a life whose death is not recorded, so that it goes on with the next request there
    log = followed_with_io()
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
    log = followed_with_io()
    for at in (100, 1_000):
        request(log, 0x1000, at << 6, at, at + 500, sector=8 * at)
    life(log, 1, 0x1000, 102, None, 400)
    life(log, 2, 0x1000, 1_001, 1_500)
    log.hit(1_200, 0, Role.RETURN, life=1, object=0x1000)
    # WHEN the log is read  THEN each is its own, and neither is more
    found = read(log, tmp_path / "log", window)
    assert found.starts == {1: 101, 2: 1_001}
    assert found.counts == FollowedCounts(lives=2, joined=2, several=0)


def test_lives_without_requests_and_late_returns(tmp_path: Path) -> None:
    # GIVEN a function that returns long after the end of the life, in a later window
    log = followed_with_io()
    request(log, 0x1000, 0x40, 100, 600)
    life(log, 1, 0x1000, 102, 599)
    request(log, 0x2000, 0x80, 4 * SECOND, 4 * SECOND + 50)
    log.hit(4 * SECOND + 20, 0, Role.RETURN, life=1, object=0x1000)
    # WHEN the log is read in small windows  THEN the life is counted once
    found = read(log, tmp_path / "log", 1)
    assert found.counts == FollowedCounts(lives=1, joined=1, several=0)
    # GIVEN a log that follows another struct, and one that is associated by intervals
    other, plain = followed_with_io({**FOLLOW, "type": "folio"}), followed_with_io()
    for log in (other, plain):
        request(log, 0x1000, 0x40, 100, 600)
        life(log, 1, 0x1000, 102, 599)
    # WHEN they are read  THEN no life is joined, nor counted
    nothing = Read({}, FollowedCounts())
    assert read(other, tmp_path / "other", 10) == nothing
    assert read(plain, tmp_path / "plain", 10, "intervals") == nothing


@pytest.mark.parametrize("window", WINDOWS)
def test_followed_bios_are_joined_by_their_addresses(tmp_path: Path, window: int) -> None:
    # GIVEN two bios with one address, one after the other
    log = followed_with_io(BIOS)
    request(log, 0x1000, 0x40, 100, 600)
    request(log, 0x2000, 0x40, 2_000, 2_600)
    life(log, 7, 0x40, 100, 599)
    life(log, 8, 0x40, 2_001, 2_601)
    # WHEN the log is read  THEN their numbers are those of bios
    found = read(log, tmp_path / "log", window)
    assert found.starts == {7: 100, 8: 2_000}
