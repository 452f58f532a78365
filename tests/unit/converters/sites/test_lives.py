# SPDX-License-Identifier: Apache-2.0
"""Hits gathered by life: the same lives from windows of any size, and bounds."""

from dataclasses import asdict
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites import lives as gathering
from biotrail.converters.sites.trees import Ending
from tests.support.follow_logs import (
    US,
    FollowLog,
    followed,
    lives,
    many,
    read_write,
)
from tests.support.followed_strategies import logs

SECOND = 1_000_000_000


@settings(max_examples=30, deadline=None)
@given(logs(), st.integers(1, 9), st.lists(st.integers(0, 10 * SECOND), max_size=5))
def test_windows_of_any_size_give_the_same_lives(
    log: FollowLog, window: int, cuts: list[int]
) -> None:
    # GIVEN any hits  WHEN they are read in one window, or in small ones from several chunks
    whole = followed(log)
    parts = followed(log, window, *cuts)
    # THEN lives and trees are the same, in the same order
    assert [asdict(one.life) for one in parts] == [asdict(one.life) for one in whole]
    # AND every hit is in a life, or counted
    names = [name for name in whole[0].hits.dtype.names or () if name != "number"]
    for one, other in zip(parts, whole, strict=True):
        assert one.hits[names].tolist() == other.hits[names].tolist()


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


def test_hits_that_are_written_when_their_life_is_over() -> None:
    # GIVEN a life whose hits come in a chunk after that of their time, as of follow --slower
    log = FollowLog()
    read_write(log)
    early = list(log.sites)
    log.sites = [(at + 500 * US, cpu, row) for at, cpu, row in early]
    # WHEN read THEN the tree is in the order of the hits' own times
    (life,) = lives(log)
    assert life.took == 907 * US


def test_lives_come_in_the_order_of_their_ends() -> None:
    # GIVEN a long life and a short one within it
    log = FollowLog()
    log.passes(0, "a", born=True, life=1, object=1)
    log.passes(1 * US, "a", born=True, life=2, object=2)
    log.passes(2 * US, "b", ended=True, life=2, object=2)
    log.passes(9 * US, "b", ended=True, life=1, object=1)
    # WHEN read  THEN the short one comes first
    assert [life.number for life in lives(log)] == [2, 1]


def test_hits_long_after_the_end_are_counted() -> None:
    # GIVEN a hit two seconds after its life's death
    log = FollowLog()
    log.passes(0, "a", born=True)
    log.passes(1 * US, "b", ended=True)
    log.passes(2 * SECOND, "a")
    # WHEN read  THEN it is in no life
    (life,) = lives(log)
    assert life.hits == 2


def test_a_life_alone_ends_when_its_address_is_used_again() -> None:
    # GIVEN lives of two addresses, whose ends are not recorded
    log = FollowLog()
    for life, address in ((1, 8), (2, 16), (3, 8)):
        log.passes(life * US, "a", born=True, life=life, object=address)
    trace = Trace(BytesIO(log.data()))
    # WHEN some are read alone
    gatherer = gathering.Gatherer(wanted=gathering.Wanted(lives=frozenset((1, 2))))
    for window in trace.lifecycles():
        gatherer.add(window.sites and window.sites.hits, NEVER)
    # THEN the first ended by the third, and no birth elsewhere ended the second
    found = {life.number: life.ending for life in gatherer.rest()}
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


def test_many_lives_are_not_mixed() -> None:
    # GIVEN ten lives one after the other on ten addresses  WHEN read
    log = FollowLog()
    many(log, 10)
    # THEN each has its 13 hits
    assert [(life.number, life.hits) for life in lives(log)] == [(n, 13) for n in range(1, 11)]
