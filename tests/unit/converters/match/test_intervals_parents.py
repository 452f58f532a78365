# SPDX-License-Identifier: Apache-2.0
"""Without pointers, the parent of a clone whose upper bio has others of its sectors beside it."""

import pytest

from biotrail.converters.events.tables import NEVER, Certainty
from tests.scenarios.tools import events_of, tables_of
from tests.scenarios.variants import DM, REQUEST_BASED
from tests.support.captures import BASE_NS

AT_ONCE = """
    0   Q 252:0 R 100+8 bio=1 pid={first}
    1   Q 252:0 R 100+8 bio=2 pid={second}
    3   A 254:0 R 2148+8 bio=3 from=252:0+100 pid={sender}
    4   Q 254:0 R 2148+8 bio=3 pid={sender}
    5   G 254:0 R 2148+8 bio=3 pid={sender}
    8   D 254:0 R 2148+8 bio=3 rq=1
    30  c 252:0 R 100+8 bio=2
    70  C 254:0 R 2148+8 bio=3 rq=1
    75  c 252:0 R 100+8 bio=1
    """
"""Two reads of the same sectors, and the clone of one; of the other nothing else is told."""

LATE_REMAP = """
    0   Q 252:0 R 100+8 bio=1 pid=100
    1   Q 252:0 R 100+8 bio=2 pid=150
    2   A 254:0 R 2148+8 bio=3 from=252:0+100 pid=150
    3   Q 254:0 R 2148+8 bio=3 pid=150
    4   G 254:0 R 2148+8 bio=3 pid=150
    5   D 254:0 R 2148+8 bio=3 rq=1
    30  C 254:0 R 2148+8 bio=3 rq=1
    31  c 252:0 R 100+8 bio=2
    40  A 254:0 R 2148+8 bio=4 from=252:0+100 pid=100
    41  Q 254:0 R 2148+8 bio=4 pid=100
    42  G 254:0 R 2148+8 bio=4 pid=100
    43  D 254:0 R 2148+8 bio=4 rq=2
    70  C 254:0 R 2148+8 bio=4 rq=2
    71  c 252:0 R 100+8 bio=1
    """
"""A thread is preempted between Q and A, and a younger read of its sectors ends meanwhile."""


def _parents(text: str, associate: str = "intervals") -> list[tuple[int, int]]:
    """Return (Q of the clone, Q of its parent) of all bios of vda, in µs; NEVER: no parent."""
    t = tables_of(events_of(text), devices=(DM, REQUEST_BASED), associate=associate)
    queued = dict(zip(t.bios.number.tolist(), t.bios.queue.tolist(), strict=True))
    found = []
    for number, parent, dev in zip(
        t.bios.number.tolist(), t.bios.parent.tolist(), t.bios.dev.tolist(), strict=True
    ):
        if dev == 254 << 20:
            above = (queued[parent] - BASE_NS) // 1000 if parent >= 0 else NEVER
            found.append(((queued[number] - BASE_NS) // 1000, above))
    return found


@pytest.mark.parametrize(("sender", "parent"), [(100, 0), (150, 1)])
def test_the_thread_of_the_remap_decides_among_identical_bios(sender: int, parent: int) -> None:
    # GIVEN identical reads of two threads, of which one sends a clone
    text = AT_ONCE.format(first=100, second=150, sender=sender)
    # WHEN the log is read without pointers / THEN the clone is of that thread's read
    assert _parents(text) == [(4, parent)]


@pytest.mark.parametrize(
    ("first", "second", "sender"),
    [(100, 100, 100), (100, 150, 200), (0, 150, 0)],
    ids=["both of one thread", "a worker sends", "in an interrupt of the idle thread"],
)
def test_no_parent_is_named_where_no_thread_decides(first: int, second: int, sender: int) -> None:
    # GIVEN identical reads, and a clone whose sender did not queue exactly one of them
    text = AT_ONCE.format(first=first, second=second, sender=sender)
    # WHEN the log is read without pointers / THEN the clone has no parent
    assert _parents(text) == [(4, NEVER)]


def test_with_pointers_threads_decide_nothing() -> None:
    # GIVEN identical reads of two threads, with pointers of both
    text = AT_ONCE.format(first=100, second=150, sender=150)
    # WHEN the log is read by identity / THEN the clone has no parent, as ever
    assert _parents(text, "identity") == [(4, NEVER)]


def test_a_late_remap_is_not_of_another_threads_read() -> None:
    # GIVEN a read whose completion seems to be that of the older one, which is remapped after it
    # WHEN the log is read by identity / THEN each clone has one read alone as parent in the end
    assert _parents(LATE_REMAP, "identity") == [(3, NEVER), (41, 0)]
    # WHEN it is read without pointers / THEN the late clone is not said to be of the younger read
    assert _parents(LATE_REMAP) == [(3, 1), (41, NEVER)]


def test_reads_that_cannot_be_told_apart_are_ambiguous() -> None:
    # GIVEN the same
    # WHEN it is read without pointers
    t = tables_of(events_of(LATE_REMAP), devices=(DM, REQUEST_BASED), associate="intervals")
    # THEN both reads above are marked, as either may have ended first
    above = t.bios.certainty[t.bios.dev == 252 << 20]
    assert above.tolist() == [Certainty.AMBIGUOUS, Certainty.AMBIGUOUS]


def test_a_worker_that_sends_the_only_read_decides_nothing_against_it() -> None:
    # GIVEN a read alone on its sectors, whose clone a worker sends
    text = "\n".join(line for line in AT_ONCE.splitlines() if "bio=2" not in line)
    # WHEN the log is read without pointers / THEN it is the clone's parent
    assert _parents(text.format(first=100, second=0, sender=200)) == [(4, 0)]
