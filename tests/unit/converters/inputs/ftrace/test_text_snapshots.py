# SPDX-License-Identifier: Apache-2.0
"""Text that holds the same events twice, and times that go back on a CPU."""

import io

import pytest

import biotrail
from biotrail.converters.events.events import Events
from biotrail.converters.inputs import text_file
from biotrail.converters.inputs.ftrace import text as ftrace_text
from biotrail.converters.inputs.ftrace.text import TextSource
from biotrail.recorder.schema.records import Kind
from tests.support.paths import DATA

HEADER = "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"


def io_at(second: int, sector: int, cpu: int = 0, digits: int = 6) -> str:
    """A read of 200 µs, as ftrace prints it."""
    zeros = "0" * (digits - 6)
    return (
        f"              dd-500     [{cpu:03d}] .....    {second}.000000{zeros}: block_bio_queue: "
        f"8,0 R {sector} + 8 [dd]\n"
        f"              dd-500     [{cpu:03d}] .....    {second}.000002{zeros}: block_rq_issue: "
        f"8,0 R 4096 () {sector} + 8 [dd]\n"
        f"          <idle>-0       [{cpu:03d}] d.h..    {second}.000200{zeros}: block_rq_complete: "
        f"8,0 R () {sector} + 8 [0]\n"
    )


def read(text: str) -> tuple[TextSource, Events]:
    source = TextSource(io.BytesIO(text.encode()))
    events = Events.join([part.events for part in source.parts()])
    return source, events


def test_a_buffer_that_was_printed_twice_counts_once() -> None:
    # GIVEN `cat trace >> all.txt` twice, without clearing the buffer in between
    text = HEADER + io_at(10, 1000) + HEADER + io_at(10, 1000) + io_at(11, 2000)
    # WHEN it is read
    source, _ = read(text)
    bios = biotrail.open(io.BytesIO(text.encode())).bios.to_pylist()
    # THEN there are 2 bios, and 3 lines are told to be repetitions
    assert [(bio["sector"], bio["certainty"]) for bio in bios] == [
        (1000, "interval"),
        (2000, "interval"),
    ]
    [said] = [remark for remark in source.remarks if "repetitions" in remark]
    assert "3 lines of events are repetitions of earlier ones, the first in line 10" in said
    assert not source.problems


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("block", [1 << 20, 5000])
def test_a_real_text_several_times_is_the_text_once(
    times: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a text of 560 events several times, read in blocks of any size
    monkeypatch.setattr(text_file, "BLOCK_BYTES", block)
    once = (DATA / "ftrace" / "small.trace.txt").read_text()
    # WHEN it is read
    _, expected = read(once)
    source, events = read(once * times)
    # THEN its events are there once, in their order, and the number of the others is told
    assert (events.raw == expected.raw).all()
    assert f"{560 * (times - 1)} lines of events are repetitions" in str(source.remarks)
    assert not source.problems


def test_losses_of_a_repeated_text_are_told_once() -> None:
    # GIVEN a text with a ring that began late, twice
    once = (DATA / "ftrace" / "lossy.trace.txt").read_text()
    # WHEN it is read
    source, _ = read(once * 2)
    # THEN its loss is there once
    assert source.losses == read(once)[0].losses


def test_a_later_copy_goes_on_where_the_first_ended() -> None:
    # GIVEN copies of a ring that moved on: the second lacks the first events and has newer ones
    text = io_at(10, 1000) + io_at(11, 2000) + io_at(11, 2000) + io_at(12, 3000)
    # WHEN it is read
    source, events = read(text)
    # THEN each event is there once
    assert len(events.rows(Kind.C)) == 3
    assert "3 lines" in str(source.remarks)


def test_a_thread_whose_name_was_forgotten_is_the_same() -> None:
    # GIVEN a second copy in which ftrace does not know the thread's name any more
    again = io_at(10, 1000).replace("    dd-500", " <...>-500")
    # WHEN it is read / THEN its events are repetitions
    source, events = read(io_at(10, 1000) + again)
    assert len(events.rows(Kind.C)) == 1
    assert "3 lines" in str(source.remarks)


def test_events_of_one_microsecond_are_no_repetitions() -> None:
    # GIVEN two plugs of a thread in one microsecond
    plug = "              dd-500     [000] .....    10.000000: block_plug: [dd]\n"
    # WHEN they are read / THEN both are there
    source, events = read(plug + plug + io_at(11, 1000))
    assert len(events.rows(Kind.P)) == 2
    assert "repetitions" not in str(source.remarks)


def test_with_ns_a_record_that_is_there_twice_is_one() -> None:
    # GIVEN text of perf's, which sometimes writes the last records of a ring twice
    lines = io_at(10, 1000, digits=9).splitlines(keepends=True)
    # WHEN it is read / THEN the second ones are left out
    source, events = read("".join([lines[0], lines[0], lines[1], lines[2], lines[2]]))
    assert len(events.rows(Kind.Q)) == len(events.rows(Kind.C)) == 1
    assert "2 lines of events are repetitions" in str(source.remarks)


def test_cpus_one_after_the_other_do_not_go_back() -> None:
    # GIVEN per_cpu/cpu0/trace, then per_cpu/cpu1/trace, of the same time
    text = io_at(10, 1000) + io_at(11, 2000) + io_at(10, 1000, cpu=1) + io_at(11, 2000, cpu=1)
    # WHEN they are read / THEN each event counts
    source, events = read(text)
    assert len(events.rows(Kind.C)) == 4
    assert not source.problems


def test_another_recording_behind_a_later_one_is_kept_and_told() -> None:
    # GIVEN an earlier recording behind a later one
    text = io_at(20, 1000) + io_at(10, 2000) + io_at(30, 3000)
    # WHEN it is read
    source, events = read(text)
    # THEN all events are there, and that times go back is told, with the place
    assert len(events.rows(Kind.C)) == 3
    [said] = source.problems
    assert "3 events are older than events of their CPU before them, by up to 10.000200 s" in said
    assert "the first in line 4" in said


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for few events, and a text that is longer, twice
    monkeypatch.setattr(ftrace_text, "_MOST_KEPT", 64)
    monkeypatch.setattr(ftrace_text, "_MOST_IN_RUN", 16)
    monkeypatch.setattr(text_file, "BLOCK_BYTES", 2000)
    once = "".join(io_at(second, 8 * second) for second in range(10, 110))
    # WHEN it is read
    source, events = read(once * 2)
    # THEN what is too far back to be compared is kept, and told
    assert len(events.rows(Kind.Q, Kind.D, Kind.C)) == 600
    assert "are older than events of their CPU" in str(source.problems)


def test_two_buffers_that_recorded_the_same_count_once() -> None:
    # GIVEN what trace-cmd prints of two instances that recorded the same, a microsecond apart
    one = io_at(10, 1000) + io_at(11, 2000)
    lines = []
    for line in one.splitlines(keepends=True):
        lines += [f"one: {line}", f"other: {line.replace('0: block', '1: block')}"]
    # WHEN it is read
    source, events = read("cpus=2\n" + "".join(lines))
    # THEN the first buffer's events are there alone, and how many were left out is told
    assert len(events.rows(Kind.Q, Kind.D, Kind.C)) == 6
    told = [remark for remark in source.remarks if "buffer 'one' has the same events" in remark]
    assert len(told) == 1
    assert "6 events of buffer 'other' left out" in told[0]


def test_two_buffers_of_different_devices_are_both_read() -> None:
    # GIVEN what trace-cmd prints of two instances, each of a device of its own
    other = io_at(10, 1000).replace("8,0", "8,16")
    both = zip(io_at(10, 1000).splitlines(True), other.splitlines(True), strict=True)
    # WHEN it is read / THEN both are there
    source, events = read("".join(f"one: {one}other: {two}" for one, two in both))
    assert len(events.rows(Kind.C)) == 2
    assert not source.problems
