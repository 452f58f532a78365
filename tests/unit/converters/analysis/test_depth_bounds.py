# SPDX-License-Identifier: Apache-2.0
"""How many I/Os were in flight where it is not known of each when it ended."""

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.distributions import flow
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from tests.support import captures

HEAD = "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
MS = 1_000_000


def line(at_us: int, event: str) -> str:
    """A line of ftrace's text."""
    return f"  a-5402  [002] .....  {at_us // 10**6:5d}.{at_us % 10**6:06d}: {event}\n"


def text(lines: list[str]) -> Trace:
    """A trace of ftrace's text."""
    return Trace(open_source(io.BytesIO((HEAD + "".join(lines)).encode())))


def half() -> list[str]:
    """200 reads, one per ms, each 200 us in the device; every second completion is missing."""
    found = []
    for n in range(200):
        at, where = 10_000_000 + 1000 * n, 1000 + 8 * n
        found.append(line(at, f"block_rq_issue: 8,0 R 4096 () {where} + 8 [a]"))
        if n % 2 == 0:
            found.append(line(at + 200, f"block_rq_complete: 8,0 R () {where} + 8 [0]"))
    return found


def issued(trace: Trace, window: int = 250_000) -> dict[str, Any]:
    """The report's figures of requests in flight on its only device."""
    [device] = make_report(trace, trace.lifecycles(window)).devices
    return as_json(device.issued)


@pytest.mark.parametrize("window", [1, 7, 50, 250_000])
def test_lost_completions_leave_bounds(window: int) -> None:
    # GIVEN reads of which every second completion was lost / WHEN their depth is asked for, in
    # windows of any size
    found = issued(text(half()), window)
    # THEN it counts what is known to have been in flight: one, for a tenth of the time
    assert found["mean"] == pytest.approx(0.1, rel=0.01)
    assert (found["max"], found["active_ns"]) == (1, 20 * MS)
    # AND says for how many the end is not known, and what may have been in flight at most
    assert found["unended"] == 100
    assert found["high"]["max"] == 100
    assert found["high"]["mean"] == pytest.approx(49.85, rel=0.001)


def test_nothing_is_said_where_all_ends_are_known() -> None:
    # GIVEN reads with their completions / WHEN their depth is asked for
    lines = half()
    known = [pair for pair in pairwise(lines) if "complete" in pair[1]]
    found = issued(text([line for pair in known for line in pair]))
    # THEN there is one figure
    assert (found["unended"], found["high"]) == (0, None)


def event(letter: str, us: int, address: int, sector: int, **facts: Any) -> dict[str, Any]:
    """An event of a read of 4 KiB whose bio and request have an address each."""
    common = {"cpu": 0, "dev": captures.device_number("7:1"), "rwbs": "R", "sector": sector}
    common |= {"sectors": 8, "pid": 7, "tgid": 7, "comm": "a", "bio": 0x1000 + address * 16}
    request = {"rq": 0x9000 + address * 16, "bios": 1, "tag": (address, -1)}
    return {**common, **request, "letter": letter, "ns": us * 1000, **facts}


def read(begin: int, address: int, sector: int, end: int | None = None) -> list[dict[str, Any]]:
    """Its Q, G, s and D, and its C where `end` (us) says when."""
    found = [event(letter, begin, address, sector) for letter in "QGsD"]
    if end is not None:
        found.append(event("C", end, address, sector, bytes=4096, err=0))
    return found


@pytest.mark.parametrize("window", [1, 3, 250_000])
def test_an_address_that_is_used_again_bounds_the_time(tmp_path: Path, window: int) -> None:
    # GIVEN a log with kernel pointers: a read whose completion was not recorded, and whose bio and
    # request are used again 500 us later; and one that is in flight when the log ends
    events = [
        *read(1000, 1, 8),
        *read(1500, 1, 64, end=1700),
        *read(2000, 2, 128),
        *read(3000, 3, 256, end=3100),
    ]
    log = captures.write_log(tmp_path / "a.biotrail", events)
    # WHEN the depth is asked for
    found = issued(Trace(log), window)
    # THEN of the first the end is not known: it was in flight for 0 to 500 us
    assert found["unended"] == 1
    assert found["high"]["active_ns"] - found["active_ns"] == 500_000
    # AND the other is: it is in flight to the end, where two are
    assert (found["max"], found["high"]["max"]) == (2, 2)
    assert found["active_ns"] == 200_000 + 1_100_001


def test_too_much_to_hold_back_changes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a read that never ends beside many, and room to hold back few
    monkeypatch.setattr(flow, "MOST_HELD", 20)
    lines = [line(9_999_000, "block_rq_issue: 8,0 R 4096 () 8 + 8 [a]")]
    for n in range(200):
        at, where = 10_000_000 + 1000 * n, 1000 + 8 * n
        lines.append(line(at, f"block_rq_issue: 8,0 R 4096 () {where} + 8 [a]"))
        lines.append(line(at + 200, f"block_rq_complete: 8,0 R () {where} + 8 [0]"))
    # WHEN its depth is asked for, window by window
    found = issued(text(lines), 10)
    # THEN it is between what it is without that read and with it
    assert 0.19 < found["mean"] <= 1.21
    assert found["high"]["mean"] == pytest.approx(1.2, rel=0.01)
    assert found["unended"] == 1
