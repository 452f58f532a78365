# SPDX-License-Identifier: Apache-2.0
"""`make bench-convert`: logs made longer, one run measured, tables put into the documentation."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.convert_docs import BEGIN, END, section, write_docs
from benchmarks.convert_tools import Given, Tool, run
from benchmarks.enlarged_logs import copied_times, end_later, enlarge
from biotrail.converters.events.tables import NEVER, Certainty
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.building import LifeReader, read_lives
from biotrail.recorder.log import LogReader
from tests.support import path_sample
from tests.support.follow_logs import FollowLog, read_write, shape
from tests.support.paths import SAMPLE
from tests.support.site_logs import SiteLog

TIMES = 3


def test_an_enlarged_log_has_the_same_lifecycles_so_many_times(tmp_path: Path) -> None:
    # GIVEN a recorded log WHEN it is repeated
    long = tmp_path / "long.biotrail"
    enlarge(SAMPLE, TIMES, long)
    # THEN its tables have every bio and request so many times, with the same certainty and stages
    once, often = counted(SAMPLE), counted(long)
    assert len(once) > 100
    assert {what: TIMES * count for what, count in once.items()} == often
    # and it is whole, in order of time
    with LogReader(long) as reader:
        assert (reader.interrupted, reader.problems) == (False, [])
        spans = reader.chunk_spans or []
    assert spans == sorted(spans)
    assert long.exists() and not list(tmp_path.glob("*.part"))


def test_all_that_an_end_says_of_time_is_later() -> None:
    # GIVEN an END with when recording stopped (windows end there) and when the file was closed
    clock = {"monotonic": 5, "boottime": 6, "realtime": 7, "uncertainty": 1}
    end = {"reason": "command ended", "stopped": clock, "clocks": clock, "log": {"chunks": 1}}
    # WHEN the log's last repetition is 100 ns later THEN both are, and the file's own counts go
    later = {"monotonic": 105, "boottime": 106, "realtime": 107, "uncertainty": 1}
    assert end_later(end, 100) == {"reason": "command ended", "stopped": later, "clocks": later}


def counted(log: Path) -> Counter[tuple[Any, ...]]:
    """Count a log's bios and requests by certainty and size, and its stages by duration (ns).

    Those without a completion are one class: the last of a log are open at its end (INCOMPLETE),
    and LOST once their address is used again.
    """
    found: Counter[tuple[Any, ...]] = Counter()
    for window in Trace(log).lifecycles():
        for name, rows in (("bio", window.bios), ("request", window.requests)):
            for certainty, size in zip(rows.certainty.tolist(), rows.bytes.tolist(), strict=True):
                open_ended = certainty in (Certainty.INCOMPLETE, Certainty.LOST)
                found[name, "open" if open_ended else certainty, size] += 1
        stages = window.bio_stages
        durations = (stages.end - stages.start).tolist()
        for each in zip(stages.stage.tolist(), durations, strict=True):
            found["stage", *each] += 1
    return found


def test_an_enlarged_log_has_the_same_calls_and_waits_so_many_times(tmp_path: Path) -> None:
    # GIVEN a log recorded with the path WHEN it is repeated
    recorded, long = path_sample.write(tmp_path / "path"), tmp_path / "long.biotrail"
    enlarge(recorded, TIMES, long)
    # THEN each call and wait comes so many times, as long as it was, with its cause
    once, often = path_of(recorded), path_of(long)
    assert len(once) > 10
    assert {what: TIMES * count for what, count in once.items()} == often


def path_of(log: Path) -> Counter[tuple[Any, ...]]:
    """Count calls by name, duration and parts, waits by cause and duration, bios by their call."""
    found: Counter[tuple[Any, ...]] = Counter()
    for window in Trace(log).lifecycles():
        if (path := window.path) is None:
            continue
        calls, waits, bios = path.calls, path.waits, path.bios
        known = calls.entry != NEVER
        parts = (calls.number, calls.exit - calls.entry, calls.own_io, calls.other_io)
        found.update(zip(*(column[known].tolist() for column in parts), strict=True))
        lasted = (waits.cause, waits.woken - waits.out)
        found.update(zip(*(column.tolist() for column in lasted), strict=True))
        found.update((call,) for call in bios.call.tolist())
    return found


def test_an_enlarged_log_has_further_lives_and_pairs(tmp_path: Path) -> None:
    # GIVEN a log of a life of four hits, and one of a pair
    followed, paired, long = (tmp_path / name for name in ("lives", "pairs", "long"))
    log = FollowLog()
    read_write(log)
    followed.write_bytes(log.data())
    pairs = SiteLog()
    pairs.pair(5_000, 20_000)
    paired.write_bytes(pairs.data())
    # WHEN they are repeated THEN lives have numbers of their own, each with the same hits
    enlarge(followed, TIMES, long)
    trace = Trace(long)
    lives = [one.life for one in read_lives(trace.lifecycles(), LifeReader(trace.context))]
    assert [life.number for life in lives] == [1, 2, 3]
    assert len({tuple(shape(life)) for life in lives}) == 1
    # AND a pair takes as long each time
    enlarge(paired, TIMES, long)
    took = [
        (sites.pairs.ended - sites.pairs.began).tolist()
        for window in Trace(long).lifecycles()
        if (sites := window.sites) is not None
    ]
    assert [one for each in took for one in each] == [15_000] * TIMES


def test_an_interrupted_log_is_not_enlarged(tmp_path: Path) -> None:
    # GIVEN a log without its end
    cut, out = tmp_path / "cut.biotrail", tmp_path / "out.biotrail"
    cut.write_bytes(SAMPLE.read_bytes()[:-4096])
    # WHEN it is to be repeated THEN that is refused, and nothing is left
    with pytest.raises(ValueError, match="interrupted"):
        enlarge(cut, TIMES, out)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.biotrail"]


def test_a_log_is_repeated_until_it_has_as_many_events_as_wanted() -> None:
    # GIVEN a log of 300 events THEN 1,000 take four, 900 three, and none has none
    assert copied_times(Path("log"), 300, 1000) == 4
    assert copied_times(Path("log"), 300, 900) == 3
    with pytest.raises(ValueError, match="no events"):
        copied_times(Path("log"), 0, 1)


def child(script: str) -> Tool:
    """Return a tool that runs a Python script with the path that it may write."""
    return Tool("child", lambda given, out: [sys.executable, "-c", script, out])


def test_a_run_tells_cpu_time_memory_and_bytes(tmp_path: Path) -> None:
    # GIVEN a program that needs 64 MiB and writes 1000 bytes WHEN it is run
    script = "import sys; held = b'x' * (64 << 20); open(sys.argv[1], 'wb').write(held[:1000])"
    used = run(child(script), Given(SAMPLE, 1), tmp_path / "out")
    # THEN these are what is told, whatever this process needs, and its files are gone
    assert used is not None
    assert used.size == 1000
    assert 64 << 20 <= used.max_rss < 128 << 20
    assert used.cpu > 0
    assert not list(tmp_path.iterdir())


def test_a_tool_that_fails_or_has_nothing_to_read(tmp_path: Path) -> None:
    # GIVEN a program that fails WHEN it is run THEN the error is what it said, and no file stays
    with pytest.raises(RuntimeError, match="no such thing"):
        run(child("raise SystemExit('no such thing')"), Given(SAMPLE, 1), tmp_path / "out")
    assert not list(tmp_path.iterdir())
    # and a tool whose input could not be made is left out
    assert run(Tool("none", lambda given, out: None), Given(SAMPLE, 1), tmp_path / "out") is None


def row(load: str, millions: int, tool: str, rate: float, size: int = 0) -> dict[str, Any]:
    events = millions * 1_000_000
    return {"load": load, "millions": millions, "tool": tool, "events": events, "rounds": 3} | {
        "cpu": events / rate / 1e6,
        "max_rss": 100 << 20,
        "size": size,
        "rate": rate,
    }


FOUND = {
    "machine": "a machine",
    "date": "2026-11-23T12:00:00+00:00",
    "loads": {"reads": "random reads", "writes": "writes in order"},
    "rows": [
        row("reads", 1, "info", 4.0),
        row("reads", 1, "btt", 2.0),
        row("writes", 1, "info", 3.0, size=1_500_000),
        row("reads", 10, "info", 5.0),
    ],
}


def test_tables_have_rates_ratios_memory_and_bytes() -> None:
    # GIVEN figures WHEN the section of the documentation is made
    lines = section(FOUND).splitlines()
    # THEN each load has its rate, with the ratio to btt where that ran at the same log
    assert "| reads | 4.00 (2.00) | 2.00 |" in lines
    assert "| writes | 3.00 | - |" in lines
    assert "| reads | 5.00 |" in lines
    # and memory by size, and bytes per event of the smallest logs
    assert "| reads | 10 | 100 | - |" in lines
    assert "| writes | 1.5 | - |" in lines


def test_the_section_is_replaced_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    # GIVEN a page with the marks, and an earlier section
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{BEGIN}\n\nearlier\n\n{END}\n\n# After\n")
    # WHEN the tables are written twice
    for _ in range(2):
        write_docs(page, FOUND)
    # THEN the section is there once, between what was there
    text = page.read_text()
    assert re.sub(f"{BEGIN}.*{END}", "", text, flags=re.S) == "# Before\n\n\n\n# After\n"
    assert text.count(section(FOUND)) == 1
    assert "earlier" not in text
    # and a page without marks is refused
    page.write_text("# Before")
    with pytest.raises(ValueError, match="needs the lines"):
        write_docs(page, FOUND)
