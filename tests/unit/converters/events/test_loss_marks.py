# SPDX-License-Identifier: Apache-2.0
"""Loss windows: what was in flight while records were lost is marked, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.loss import loss_windows
from biotrail.converters.events.tables import NEVER, Certainty
from tests.scenarios.tools import bio_lines, events_of, read, tables_of
from tests.support import captures

READS = """
0   Q R 0+8 bio=1
1   D R 0+8 bio=1 rq=1
30  C R 0+8 bio=1 rq=1
40  Q R 8+8 bio=2
41  D R 8+8 bio=2 rq=2
90  C R 8+8 bio=2 rq=2
95  Q R 16+8 bio=3
96  D R 16+8 bio=3 rq=3
"""


def loss(start: int, end: int, **other: int) -> dict[str, int]:
    """A loss window, µs."""
    base = captures.BASE_NS
    own = {"start": base + start * 1000, "end": base + end * 1000, "cpu": 0, "count": 3}
    return own | {"level": 0, "kind": 0} | other


def marks(*windows: dict[str, int]) -> list[str]:
    t = tables_of(events_of(READS), losses=windows)
    return [Certainty(c).name.lower() for c in t.bios.certainty.tolist()]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([], ["exact", "exact", "incomplete"]),
        ([loss(10, 12)], ["lost", "exact", "incomplete"]),
        ([loss(30, 30)], ["lost", "exact", "incomplete"]),
        ([loss(31, 39)], ["exact", "exact", "incomplete"]),
        ([loss(39, 40)], ["exact", "lost", "incomplete"]),
        ([loss(0, 200)], ["lost", "lost", "incomplete"]),
        ([loss(91, 94), loss(31, 33)], ["exact", "exact", "incomplete"]),
        ([loss(50, 51), loss(2, 3)], ["lost", "lost", "incomplete"]),
        ([loss(2, 95), loss(91, 92)], ["lost", "lost", "incomplete"]),
    ],
)
def test_what_was_in_flight_is_lost(windows: list[dict[str, int]], expected: list[str]) -> None:
    # GIVEN reads before, in and after loss windows / WHEN read / THEN those in flight are marked
    assert marks(*windows) == expected


def test_requests_are_marked_as_their_bios_are() -> None:
    # GIVEN a loss while the second read is under way / WHEN read / THEN so is its request
    t = tables_of(events_of(READS), losses=[loss(50, 60)])
    names = [Certainty(c).name.lower() for c in t.requests.certainty.tolist()]
    assert names == ["exact", "lost", "incomplete"]
    # THEN its times stay
    assert bio_lines(t)[1] == "b2 vda read 8+8 Q@40 D1 C50 | Q2D 1, D2C 49 | r2 | lost"


def test_each_loss_window_is_given_once(tmp_path: Path) -> None:
    # GIVEN a log with loss windows, in many chunks / WHEN read in small windows
    events = events_of(READS, 1_000_000)
    windows = [loss(50, 60, kind=14, count=7, cpu=1), loss(5, 6)]
    path = captures.write_log(tmp_path / "a.biotrail", events, chunks=8, losses=windows)
    t = read(path, 1)
    # THEN they come once, whole, by start
    found = [row for w in t.windows for row in zip(w.loss.start, w.loss.count, strict=True)]
    base = captures.BASE_NS
    assert found == [(base + 5000, 3), (base + 50_000, 7)]
    assert [int(k) for w in t.windows for k in w.loss.kind] == [0, 14]


def test_damaged_chunks_are_losses_of_unknown_count() -> None:
    # GIVEN a damaged chunk's window / WHEN listed / THEN it is no CPU's, of unknown count
    table = loss_windows([loss(5, 6)], [{"offset": 9, "start": 1, "end": 2}])
    assert table.start.tolist() == [1, captures.BASE_NS + 5000]
    assert (table.cpu.tolist(), table.count.tolist()) == ([-1, 0], [-1, 3])


def test_marks_agree_with_brute_force() -> None:
    # GIVEN many windows and reads, by chance
    rng = np.random.default_rng(7)
    lines, spans = [], []
    for i in range(60):
        start = 100 * i + int(rng.integers(0, 30))
        end = start + int(rng.integers(2, 2000))
        spans.append((start, end))
        lines += [(start, f"Q R 0+8 bio={i + 1:x}"), (start + 1, f"D R 0+8 bio={i + 1:x} rq={i:x}")]
        lines.append((end, f"C R 0+8 bio={i + 1:x} rq={i:x}"))
    text = "\n".join(f"{us} {rest} " for us, rest in sorted(lines)).replace("rq=0 ", "rq=ff ")
    windows = [(int(a), int(a + rng.integers(0, 60))) for a in rng.integers(0, 7000, 12)]
    # WHEN read
    t = tables_of(events_of(text), losses=[loss(a, b) for a, b in windows])
    # THEN exactly those are lost that a window touches
    wanted = [any(a <= end and b >= start for a, b in windows) for start, end in spans]
    assert (t.bios.certainty == Certainty.LOST).tolist() == wanted
    assert 5 < sum(wanted) < 60
    assert (t.bios.complete != NEVER).all()
