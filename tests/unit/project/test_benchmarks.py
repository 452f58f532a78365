# SPDX-License-Identifier: Apache-2.0
"""What benchmarks work out by themselves: longer logs, figures of runs, tables of the pages."""

import re
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import recorder_replay
from benchmarks.convert_cost import BEGIN, END, section, write_docs
from benchmarks.convert_tools import Given, Tool, run
from benchmarks.cost_figures import (
    BLK_MAGIC,
    BLK_TRACE,
    Account,
    Pair,
    Row,
    Slice,
    count_blk_trace,
    count_perf_data,
    line,
    parse_biotrail,
    parse_lines,
    parse_ring_stats,
    quartiles,
    reduction,
    summarize,
)
from benchmarks.cost_loads import SkippedError
from benchmarks.enlarged_logs import copied_times, end_later, enlarge
from benchmarks.offered import Run, Setting, Written, complaints, read_log
from benchmarks.offered import line as line_of
from benchmarks.offered import summarize as sum_up
from benchmarks.offered_load import Offer
from biotrail.converters.events.tables import NEVER, Certainty
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.lives import LifeReader
from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.schema.records import Kind
from tests.support import path_sample
from tests.support.follow_logs import FollowLog, read_write, shape
from tests.support.log_samples import START, chunk_segments, clock, record, ring
from tests.support.paths import SAMPLE
from tests.support.site_logs import SiteLog

# `make bench-convert`: logs made longer, one run measured, tables put into the documentation.

TIMES = 3


def test_an_enlarged_log_has_the_same_ios_and_calls_so_many_times(tmp_path: Path) -> None:
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
    # GIVEN a log recorded with the path WHEN it is repeated
    recorded, long = path_sample.write(tmp_path / "path"), tmp_path / "long.biotrail"
    enlarge(recorded, TIMES, long)
    # THEN each call and wait comes so many times, as long as it was, with its cause
    once, often = path_of(recorded), path_of(long)
    assert len(once) > 10
    assert {what: TIMES * count for what, count in once.items()} == often


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
    lives = list(LifeReader(trace.context).read(trace.lifecycles()))
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


def test_a_log_is_repeated_until_it_has_as_many_events_as_wanted(tmp_path: Path) -> None:
    # GIVEN a log of 300 events THEN 1,000 take four, 900 three, and none has none
    assert copied_times(Path("log"), 300, 1000) == 4
    assert copied_times(Path("log"), 300, 900) == 3
    with pytest.raises(ValueError, match="no events"):
        copied_times(Path("log"), 0, 1)
    # GIVEN an END with when recording stopped (windows end there) and when the file was closed
    clock = {"monotonic": 5, "boottime": 6, "realtime": 7, "uncertainty": 1}
    end = {"reason": "command ended", "stopped": clock, "clocks": clock, "log": {"chunks": 1}}
    # WHEN the log's last repetition is 100 ns later THEN both are, and the file's own counts go
    later = {"monotonic": 105, "boottime": 106, "realtime": 107, "uncertainty": 1}
    assert end_later(end, 100) == {"reason": "command ended", "stopped": later, "clocks": later}
    # GIVEN a log without its end
    cut, out = tmp_path / "cut.biotrail", tmp_path / "out.biotrail"
    cut.write_bytes(SAMPLE.read_bytes()[:-4096])
    # WHEN it is to be repeated THEN that is refused, and nothing is left
    with pytest.raises(ValueError, match="interrupted"):
        enlarge(cut, TIMES, out)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.biotrail"]


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


# The pure part of benchmarks/record_cost.py.

SECOND = 1_000_000_000


def slice_of(rate: float, cpu_ns: int = SECOND, tool_ns: int = 0) -> Slice:
    return Slice(rate, SECOND, cpu_ns, tool_ns)


def pair_of(traced: float, tool_ns: int = 0, account: Account = Account()) -> Pair:  # noqa: B008
    return Pair(slice_of(90), slice_of(traced, tool_ns=tool_ns), slice_of(110), account, SECOND)


def test_a_slice_is_held_against_its_neighbours_and_rows_are_medians():
    assert reduction(80, 90, 110) == pytest.approx(20)
    assert reduction(110, 90, 110) == pytest.approx(-10)
    assert reduction(1, 0, 0) == 0
    # GIVEN three pairs, one of them disturbed
    account = Account(events=1000, lost=250, size=4000)
    pairs = [pair_of(traced, 20_000_000, account) for traced in (95, 90, 10)]
    # WHEN they are summed up
    row = summarize("ram", "tool", pairs)
    # THEN the middle one counts
    assert row.rate_lost == pytest.approx(10)
    assert row.load_cpu_more == pytest.approx(100 / 0.9 - 100)
    assert row.tool_cpu == pytest.approx(2)
    assert row.tool_ns == pytest.approx(20_000)
    assert row.lost_share == pytest.approx(20)
    assert row.bytes_per_event == pytest.approx(4)
    assert quartiles([1.0, 2.0, 3.0]) == (1.5, 2.5)
    assert quartiles([7.0]) == (7.0, 7.0)
    assert "10.0" in line(row)
    # AND a tool without events or slices still has a row
    assert "-" in line(summarize("ram", "tool", [pair_of(50)]))
    assert summarize("ram", "tool", []).skipped == "no slice was measured"
    assert "skipped: not installed" in line(Row("ram", "tool", "not installed"))


def test_recordings_of_peers_are_counted():
    said = (
        "biotrail: about 7,216,412 events in 10 s (duration), log 22 MiB, 3.2 bytes per event\n"
        "biotrail: LOST 1,250 events: Q 1,000, C 250; use a larger --buffer-size\n"
    )
    assert parse_biotrail(said, 99) == Account(7_216_412, 1250, 99)
    assert parse_biotrail("", 0) == Account()
    assert parse_lines(5, "Lost 12 events\nLost 3 events\n", 80) == Account(5, 15, 80)
    text = "entries: 4\noverrun: 30\ncommit overrun: 2\ndropped events: 5\nread events: 9\n"
    assert parse_ring_stats(text) == 35
    # GIVEN a header whose data begins at 104: two samples, one LOST, one LOST_SAMPLES
    sample = struct.pack("<IHHQ", 9, 0, 16, 0)
    lost = struct.pack("<IHHQQ", 2, 0, 24, 1, 7)
    lost_samples = struct.pack("<IHHQ", 13, 0, 16, 5)
    records = sample + lost + sample + lost_samples
    head = b"PERFILE2" + bytes(32) + struct.pack("<QQ", 104, len(records)) + bytes(48)
    # THEN their counts add up
    assert count_perf_data(head + records) == Account(2, 12, len(head + records))
    with pytest.raises(ValueError, match="perf"):
        count_perf_data(b"something else")

    def record(action: int, more: int = 0) -> bytes:
        return BLK_TRACE.pack(BLK_MAGIC | 7, 1, 2, 3, 4, action, 0, 0, 0, 0, more) + bytes(more)

    data = record(1) + record(1 << 26 | 2, 12) + record(7)
    assert count_blk_trace(data) == 2
    assert count_blk_trace(data[:-1]) == 1
    with pytest.raises(ValueError, match="offset 0"):
        count_blk_trace(bytes(64))


# benchmarks/recorder_replay.py: records go back into rings and through the recorder's steps.

POSITION = recorder_replay.RING_BYTES * 3 - (1 << 20)
"""From here 2 MiB pass the ring's end."""


@pytest.fixture
def segment() -> Segment:
    """A segment of 2 MiB and more, of two kinds and PADs."""
    records = [record(Kind.Q if n % 2 else Kind.C, 10**9 + 100 * n, n) for n in range(40_000)]
    return Segment(1, 0, POSITION, ring(records, POSITION))


def test_what_is_put_into_a_ring_is_drained_in_several_polls(segment: Segment) -> None:
    # GIVEN a segment that passes the ring's end
    rings = recorder_replay.FilledRings(2)
    # WHEN it is drained as polls do
    parts = recorder_replay._drain(rings, segment, recorder_replay.Stopwatch())
    # THEN the polls have its bytes, one behind the other
    assert len(parts) > 1
    assert b"".join(bytes(part.data) for part in parts) == segment.data
    ends = [part.position + len(part.data) for part in parts]
    assert [part.position for part in parts] == [POSITION, *ends[:-1]]


def test_a_log_is_measured_step_by_step(segment: Segment, tmp_path: Path) -> None:
    # GIVEN a log with one chunk of that segment, and one too small to be used
    path = tmp_path / "a.biotrail"
    with open(path, "wb") as stream:
        log = LogWriter(stream, {})
        log.write_chunk([segment], clock(2 * 10**9))
        log.write_chunk([Segment(0, 0, 0, record(Kind.C, 5))], clock(3 * 10**9))
        log.close({})
    # WHEN it is read and measured at both levels
    parts = recorder_replay.read(path)
    rows = [recorder_replay.measure("a", parts, level, rounds=1) for level in (1, 0)]
    # THEN there is a figure for each step, of all records but PADs
    for row in rows:
        assert row.records == 40_000
        assert list(row.steps) == list(recorder_replay.STEPS)
        assert row.total > 0
        assert "ns/record" in recorder_replay.HEAD
        assert recorder_replay.line(row).startswith("a, ")
    assert rows[0].stored_per_record < rows[1].stored_per_record
    # WHEN full rings are emptied, with a helper / THEN all its records were taken
    emptied = recorder_replay.drain_full("a", parts, level=1, helpers=1, rounds=1)
    assert min(emptied.records, emptied.cpu) > 0
    assert "1 helpers" in recorder_replay.drained_line(emptied)
    # GIVEN a log of one record
    path = tmp_path / "b.biotrail"
    with open(path, "wb") as stream:
        log = LogWriter(stream, {})
        log.write_chunk([Segment(0, 0, 0, record(Kind.C, 5))], clock(3 * 10**9))
        log.close({})
    # THEN reading it says what is missing
    with pytest.raises(SkippedError, match="too few records"):
        recorder_replay.read(path)


# The pure part of benchmarks/offered.py.

RING = 1 << 20
WINDOW = {"start": START, "end": START + 9, "cpu": 0, "level": 0}


def run_of(offered: int, written: int, lost: int, cpu_seconds: float = 0.5) -> Run:
    offer = Offer({Kind.Q: offered}, SECOND, RING // 4)
    return Run(offer, Written({Kind.Q: written}, {Kind.Q: lost}, 10 * written, cpu_seconds))


def write_log(path: Path, lost: dict[str, int], windows: list[dict[str, int]]) -> None:
    with open(path, "wb") as stream:
        log = LogWriter(stream, {"clocks": {"monotonic": START}, "devices": []})
        log.write_chunk([Segment(0, 0, 0, record(Kind.TASK, START))], clock(START))
        for number in range(3):
            log.write_chunk(chunk_segments(number), clock(START + number))
        log.write_loss(windows)
        end: dict[str, Any] = {"lost": lost, "recorder": {"cpu_seconds": 1.25, "max_rss_bytes": 1}}
        log.close({**end, "clocks": clock(START + 9)})


def test_rows_are_medians_of_runs_and_totals_of_events():
    # GIVEN three runs, one of them disturbed
    runs = [
        run_of(1000, 1000, 0, 0.2),
        run_of(1000, 1000, 0, 0.3),
        run_of(1000, 400, 600, 0.9),
    ]
    # WHEN they are summed up
    row = sum_up(Setting(1000, 1, RING), runs)
    # THEN the middle one counts, what was lost is not forgotten, and all is accounted for
    assert (row.offered, row.written, row.lost, row.runs_that_lost) == (3000, 2400, 600, 1)
    assert row.reached == pytest.approx(1000)
    assert (row.cpu, row.cpu_ns) == pytest.approx((30, 300_000))
    assert (row.bytes_per_event, row.fullest) == pytest.approx((10, 25))
    assert row.unexplained == {}
    assert list(complaints([row])) == []
    assert "20.00" in line_of(row)
    assert "1/3" in line_of(row)
    # GIVEN one run with an event too few, and one with an event too many
    runs = [run_of(1000, 900, 99), run_of(1000, 900, 101)]
    # WHEN they are summed up
    row = sum_up(Setting(1000, 0, RING), runs)
    # THEN one does not hide the other
    assert row.unexplained == {Kind.Q: 2}
    assert list(complaints([row])) == ["level 0, 1,000/s: not accounted for: 2 of kind 1"]


def test_a_log_is_counted_record_by_record(tmp_path: Path):
    # GIVEN a log of three times Q, s, D and C, with a task's name and a loss
    path = tmp_path / "a.biotrail"
    write_log(path, {"14": 3}, [{**WINDOW, "kind": 14, "count": 3}])
    # WHEN it is read
    found = read_log(path)
    # THEN each event counts and the name does not
    assert found.written == dict.fromkeys((Kind.Q, Kind.START, Kind.D, Kind.C), 3)
    assert found.lost == {Kind.C: 3}
    assert (found.size, found.cpu_seconds) == (path.stat().st_size, 1.25)
    # GIVEN a log whose end says more than its windows
    write_log(path, {"14": 4}, [{**WINDOW, "kind": 14, "count": 3}])
    # WHEN it is read, THEN that is said
    with pytest.raises(RuntimeError, match=r"its windows lost \{14: 3\}, its end says \{14: 4\}"):
        read_log(path)
