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


@pytest.mark.parametrize("cuts", [(), (SECOND // 2, 3 * SECOND // 2, 5 * SECOND // 2)])
def test_a_death_long_after_the_address_was_used_again_is_none(cuts: tuple[int, ...]) -> None:
    # GIVEN a death two seconds after the next life's birth, in one window or in several
    log = FollowLog()
    log.passes(0, "a", born=True, life=1, object=8)
    log.passes(SECOND, "a", born=True, life=2, object=8)
    log.passes(3 * SECOND, "b", ended=True, life=1, object=8)
    # WHEN read  THEN the first life ended where the second began
    first = lives(log, 1 if cuts else 250_000, *cuts)[0]
    assert (first.number, first.ending, first.hits) == (1, Ending.REUSED, 1)


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


def request(log: SiteLog, rq: int, start: int, end: int, bio: int | None = None) -> None:
    """A bio and its request: queued at `start`, issued 2 ns later, completed at `end`."""
    bio = start << 6 if bio is None else bio
    both = {"bio": bio, "sector": 8 * start, "bytes": 4096, "dev": DEV}
    log.add(Kind.Q, start, **both, part=DEV, tid=42)
    log.add(Kind.START, start + 1, rq=rq, **both)
    log.add(Kind.D, start + 2, rq=rq, **both, nr_bios=1)
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


@dataclass
class Case:
    """Requests (request, start, end, and bio's address), lives, and what becomes of them."""

    requests: list[tuple[int, ...]]
    lives: list[tuple[int | None, ...]]
    starts: dict[int, int]
    counts: tuple[int, int, int]
    """Lives, those joined, those of several."""
    kind: str = "request"
    returns: tuple[int, ...] = ()
    """When functions of life 1, at 0x1000, return late."""


CASES = {
    # Lives begin and end inside of, or around, their requests' events.
    "each is the request of its address and time": Case(
        [*((0x1000, at, at + 500) for at in (100, 1_000, 60 * MS)), (0x2000, 150, 650)],
        [
            (1, 0x1000, 102, 601),
            (3, 0x1000, 999, 1_490, 1_003),
            (4, 0x1000, 60 * MS + 2, 60 * MS + 499),
            (2, 0x2000, 140, 700),
        ],
        {1: 101, 2: 151, 3: 1_001, 4: 60 * MS + 1},
        (4, 4, 0),
    ),
    "those of no request, or before it, are counted": Case(
        [(0x1000, 5_000, 6_000)],
        [(1, 0x3000, 10, 90), (2, 0x1000, 100, 200), (3, 0x1000, 5_001, None, 5_900)],
        {3: 5_001},
        (3, 1, 0),
    ),
    "one without a death goes on with the next request": Case(
        [(0x1000, at, at + 500) for at in (100, 1_000)],
        [(1, 0x1000, 102, None, 1_200)],
        {1: 101},
        (1, 1, 1),
    ),
    "one ends where its address is another's": Case(
        [(0x1000, at, at + 500) for at in (100, 1_000)],
        [(1, 0x1000, 102, None, 400), (2, 0x1000, 1_001, 1_500)],
        {1: 101, 2: 1_001},
        (2, 2, 0),
        returns=(1_200,),
    ),
    "a return in a later window is no life": Case(
        [(0x1000, 100, 600), (0x2000, 4 * SECOND, 4 * SECOND + 50)],
        [(1, 0x1000, 102, 599)],
        {1: 101},
        (1, 1, 0),
        returns=(4 * SECOND + 20,),
    ),
    "those of bios have the numbers of bios": Case(
        [(0x1000, 100, 600, 0x40), (0x2000, 2_000, 2_600, 0x40)],
        [(7, 0x40, 100, 599), (8, 0x40, 2_001, 2_601)],
        {7: 100, 8: 2_000},
        (2, 2, 0),
        kind="bio",
    ),
    "those of another struct are no I/O": Case(
        [(0x1000, 100, 600)], [(1, 0x1000, 102, 599)], {}, (0, 0, 0), kind="folio"
    ),
}


@pytest.mark.parametrize("window", [1, 3, 250_000])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_lives_are_the_ios_of_their_addresses(tmp_path: Path, case: Case, window: int) -> None:
    # GIVEN requests and followed lives  WHEN the log is read in windows of any size
    log = SiteLog(pairs=[], follow={**FOLLOW, "type": case.kind})
    for one in case.requests:
        request(log, *one)
    for each in case.lives:
        life(log, *each)
    for at in case.returns:
        log.hit(at, 0, Role.RETURN, life=1, object=0x1000)
    found = read(log, tmp_path / "log", window)
    # THEN each life is that of its time, and counted once
    assert found == Read(case.starts, FollowedCounts(*case.counts))
    # AND by intervals, where events have no addresses, none is
    assert read(log, tmp_path / "log", window, "intervals") == Read({}, FollowedCounts())
