# SPDX-License-Identifier: Apache-2.0
"""Hits of followed objects by chance, for property tests."""

from hypothesis import strategies as st

from tests.support.follow_logs import EXIT, IDLE, REQUEST, SYSCALL, FollowLog

STACKS = (None, (*SYSCALL, "submit_bio"), (*IDLE, *EXIT))


@st.composite
def logs(draw: st.DrawFn) -> FollowLog:
    """Lives one after the other on each of three addresses, with hits in any order of roles.

    Births, deaths, entries and returns may be missing; hits may follow a death.
    """
    log = FollowLog()
    on: dict[int, int] = {}
    at = lives = 0
    for _ in range(draw(st.integers(1, 40))):
        # Steps of up to 0.7 s, so that lives are over within the log.
        at += draw(st.sampled_from((0, 1, 500, 20_000_000, 700_000_000)))
        place = draw(st.integers(0, 2))
        born = place not in on or draw(st.integers(0, 4)) == 0
        if born:
            lives += 1
            on[place] = lives
        who = {
            "life": on[place],
            "object": REQUEST + 0x400 * place,
            "tid": draw(st.sampled_from((0, 7, 8))),
            "cpu": draw(st.integers(0, 1)),
            "flags": draw(st.sampled_from((0, 0, 0, 0, 2, 4))) | (born and lives % 4 > 0),
        }
        name = draw(st.sampled_from(("a", "b", "c")))
        role = draw(st.integers(0, 2))
        if role == 0:
            log.enter(at, name, draw(st.sampled_from(STACKS)), **who)
        elif role == 1:
            log.leave(at, name, **who)
        else:
            log.passes(at, name, draw(st.sampled_from(STACKS)), **who)
    return log
