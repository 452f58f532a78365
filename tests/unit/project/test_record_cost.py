# SPDX-License-Identifier: Apache-2.0
"""The pure part of benchmarks/record_cost.py."""

import struct

import pytest

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

SECOND = 1_000_000_000


def slice_of(rate: float, cpu_ns: int = SECOND, tool_ns: int = 0) -> Slice:
    return Slice(rate, SECOND, cpu_ns, tool_ns)


def pair_of(traced: float, tool_ns: int = 0, account: Account = Account()) -> Pair:  # noqa: B008
    return Pair(slice_of(90), slice_of(traced, tool_ns=tool_ns), slice_of(110), account, SECOND)


def test_a_slice_is_held_against_the_mean_of_its_two_neighbours():
    assert reduction(80, 90, 110) == pytest.approx(20)
    assert reduction(110, 90, 110) == pytest.approx(-10)
    assert reduction(1, 0, 0) == 0


def test_rows_are_medians_of_pairs_and_totals_of_accounts():
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


def test_a_tool_without_events_or_slices_still_has_a_row():
    assert "-" in line(summarize("ram", "tool", [pair_of(50)]))
    assert summarize("ram", "tool", []).skipped == "no slice was measured"
    assert "skipped: not installed" in line(Row("ram", "tool", "not installed"))


def test_biotrail_says_what_it_wrote_and_lost():
    said = (
        "biotrail: about 7,216,412 events in 10 s (duration), log 22 MiB, 3.2 bytes per event\n"
        "biotrail: LOST 1,250 events: Q 1,000, C 250; use a larger --buffer-size\n"
    )
    assert parse_biotrail(said, 99) == Account(7_216_412, 1250, 99)
    assert parse_biotrail("", 0) == Account()


def test_tools_that_print_a_line_per_event():
    assert parse_lines(5, "Lost 12 events\nLost 3 events\n", 80) == Account(5, 15, 80)


def test_perf_data_is_counted_record_by_record():
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


def test_blk_traces_are_counted_without_their_messages():
    def record(action: int, more: int = 0) -> bytes:
        return BLK_TRACE.pack(BLK_MAGIC | 7, 1, 2, 3, 4, action, 0, 0, 0, 0, more) + bytes(more)

    data = record(1) + record(1 << 26 | 2, 12) + record(7)
    assert count_blk_trace(data) == 2
    assert count_blk_trace(data[:-1]) == 1
    with pytest.raises(ValueError, match="offset 0"):
        count_blk_trace(bytes(64))


def test_ftrace_counts_what_its_buffers_lost():
    text = "entries: 4\noverrun: 30\ncommit overrun: 2\ndropped events: 5\nread events: 9\n"
    assert parse_ring_stats(text) == 35
