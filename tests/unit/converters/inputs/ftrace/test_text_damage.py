# SPDX-License-Identifier: Apache-2.0
"""Damage of text: pages of zeros, and fewer events than ftrace's header counts."""

import gzip
import io
import re

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs import text_file
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.records import Kind
from tests.support.paths import DATA

WHOLE = (DATA / "ftrace" / "small.trace.txt").read_bytes()
EVENTS = 560
TIME = re.compile(rb" (\d+)\.(\d{6}): ")


def with_zeros(data: bytes, at: int, size: int) -> bytes:
    return data[:at] + bytes(size) + data[at + size :]


def read(data: bytes) -> tuple[Source, Events]:
    source = open_source(io.BytesIO(data))
    events = Events.join([part.events for part in source.parts()])
    return source, events.take([kind != Kind.TASK for kind in events.kind.tolist()])


def time_of(line: bytes) -> int:
    match = TIME.search(line)
    assert match is not None
    return int(match[1]) * 10**9 + int(match[2]) * 1000


def around(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Times (ns) of the last whole line before `at`, and the first behind `end`."""
    return time_of(data[:at].splitlines()[-2]), time_of(data[end:].splitlines()[1])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [1 << 20, 4096, 777])
def test_a_page_of_zeros_is_told_with_size_place_and_time(
    block: int, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a text of which 2 pages are zeros
    monkeypatch.setattr(text_file, "BLOCK_BYTES", block)
    data = with_zeros(WHOLE, 16384, 8192)
    # WHEN it is read
    source, events = read(gzip.compress(data) if packed else data)
    # THEN their size, place and time are told, and that ftrace's header counts more
    start, end = around(WHOLE, 16384, 16384 + 8192)
    assert source.damaged == [{"offset": 16384, "start": start, "end": end}]
    assert source.unreadable_bytes == 8192
    zeros, short = source.problems
    assert "8,192 bytes of zeros at byte 16,384 of the text (line 170)" in zeros
    assert f"between events at {start / 1e9:.6f} and {end / 1e9:.6f} s" in zeros
    missing = EVENTS - len(events)
    assert f"header in line 3 counts 560 entries, and {len(events)} are here: {missing}" in short
    assert f"between events at {start / 1e9:.6f}" in short


def test_text_without_a_header_tells_its_zeros() -> None:
    # GIVEN text as perf prints it, whose header counts nothing
    line = b"dd 500 [000] %d.000000: block:block_rq_issue: 8,0 R 4096 () 1000 + 8 [dd]\n"
    data = b"".join(line % second for second in range(10, 300))
    # WHEN a page of it is zeros
    source, _ = read(with_zeros(data, 8192, 4096))
    # THEN they are told
    [said] = source.problems
    assert "4,096 bytes of zeros at byte 8,192" in said
    assert len(source.damaged) == 1


@pytest.mark.parametrize("size", [4096, 8192])
def test_zeros_at_the_beginning_and_at_the_end_are_told(size: int, tmp_path) -> None:
    # GIVEN a text whose first pages are zeros, and one whose last are
    first, last = tmp_path / "first", tmp_path / "last"
    first.write_bytes(with_zeros(WHOLE, 0, size))
    last.write_bytes(with_zeros(WHOLE, len(WHOLE) - size, size))
    for path in (first, last):
        # WHEN it is opened by its path
        source = open_source(path)
        list(source.parts())
        # THEN it is read, and the zeros are told
        assert f"{size:,} bytes" in str(source.problems) or "has no end" in str(source.problems)
        assert source.unreadable_bytes >= size


def test_a_text_that_was_cut_in_its_middle_is_told_with_the_place() -> None:
    # GIVEN a text whose middle is missing
    data = WHOLE[:20000] + WHOLE[-20000:]
    # WHEN it is read
    source, events = read(data)
    # THEN the number of what is missing is told, and between which events
    start, end = around(data, 20000, 20000)
    missing = EVENTS - len(events) - 1  # one line is of two halves
    [short] = [problem for problem in source.problems if "counts 560 entries" in problem]
    assert (
        f"{missing} are missing, between events at {start / 1e9:.6f} and {end / 1e9:.6f}" in short
    )
    assert source.damaged == [{"offset": source.damaged[0]["offset"], "start": start, "end": end}]


def test_lines_that_were_taken_out_whole_are_told_without_a_place() -> None:
    # GIVEN a text out of which somebody has taken 10 lines
    lines = WHOLE.splitlines(keepends=True)
    # WHEN it is read
    source, events = read(b"".join(lines[:100] + lines[110:]))
    # THEN their number is told; when it was is not known
    assert len(events) == EVENTS - 10
    [short] = source.problems
    assert "10 are missing, where is not known" in short
    assert not source.damaged


def test_events_that_the_text_says_were_lost_are_not_missing() -> None:
    # GIVEN a header that counts 10 entries more, and a line that says where these were lost
    text = WHOLE.replace(b"560/560", b"570/570").splitlines(keepends=True)
    text.insert(100, b"CPU:1 [LOST 10 EVENTS]\n")
    # WHEN it is read / THEN they are a loss, and nothing else is missing
    source, _ = read(b"".join(text))
    assert [loss["count"] for loss in source.losses] == [10]
    assert not source.problems


def test_each_header_counts_what_follows_it() -> None:
    # GIVEN a whole text behind one of which 3 lines are missing
    lines = WHOLE.splitlines(keepends=True)
    # WHEN it is read / THEN the first one alone is short
    source, events = read(b"".join(lines[:100] + lines[103:]) + WHOLE)
    assert len([p for p in source.problems if "counts 560 entries, and 557" in p]) == 1
    assert len(events) == EVENTS


def test_a_number_that_zeros_end_is_not_taken() -> None:
    # GIVEN zeros within a line, where what is before and behind would make a whole one
    data = WHOLE.replace(b" + 8 [", b" + 8\0\0\0\0 [", 1)
    # WHEN it is read / THEN the line is no event
    source, events = read(data)
    assert len(events) == EVENTS - 1
    assert "4 bytes of zeros" in str(source.problems)
