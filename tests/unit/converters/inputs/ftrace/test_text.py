# SPDX-License-Identifier: Apache-2.0
"""Printed events: the lines of ftrace, trace-cmd and perf, hostile names, losses, damage."""

import gzip
import io
import re

import numpy as np
import pytest

import biotrail
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import NO_CPU
from biotrail.converters.inputs import lines as lines_module
from biotrail.converters.inputs.ftrace import text as ftrace_text
from biotrail.converters.inputs.ftrace.text import SHAPES, EventLines, TextSource
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support.both_ways import uncompiled
from tests.support.golden_files import expect_section
from tests.support.paths import DATA as TEST_DATA
from tests.support.paths import ROOT
from tests.support.sources import everything
from tests.support.text_layouts import (
    ISSUE,
    PAIRS_COMPLETE,
    PAIRS_ISSUE,
    READ,
    REFUSED,
    TextLayout,
    table,
)

DATA = TEST_DATA / "ftrace"
BODIES = [
    "block_bio_queue: 7,0 R 49032 + 8 [fio]",
    "block_getrq: 7,0 R 49032 + 8 [fio]",
    "block_split: 7,0 R 49032 / 49036 [fio]",
    "block_bio_remap: 7,0 R 49032 + 8 <- (259,1) 11",
    "block_rq_remap: 7,0 R 49032 + 8 <- (259,1) 11 1",
    "block_plug: [fio]",
    "block_unplug: [fio] 3",
    "block_rq_insert: 7,0 R 4096 () 49032 + 8 be,0,4 [fio]",
    "block_rq_issue: 7,0 R 4096 () 49032 + 8 [fio]",
    "block_rq_issue: 7,0 N 36 (12 00 00 00 24 00) 0 + 0 none,0,0 [fio]",
    "block_rq_complete: 7,0 R () 49032 + 8 be,0,4 [-5]",
    "block_bio_complete: 7,0 R 49032 + 8 [-121]",
]
HEADS = {
    "ftrace": "             fio-18214   [001] d..1.  1996.596531: {}",
    "without flags": "             fio-18214   [001]  1996.596531: {}",
    "with processes": "             fio-18214   (  18200) [001] d..1.  1996.596531: {}",
    "latency format": "             fio-18214   1d..1.  1996.596531: {}",
    "of an instance": "disk:          fio-18214   [001]  1996.596531: {}",
    "perf": "             fio 18214 [001]  1996.596531:     block:{}",
    "perf with processes": "             fio 18200/18214 [001]  1996.596531:     block:{}",
}


def text(*lines):
    return ("\n".join(lines) + "\n").encode()


def source_of(data):
    return open_source(io.BytesIO(data))


def events_of(source):
    events = everything(source)
    return events.take(np.flatnonzero(events.kind != Kind.TASK))


def line(body, head="ftrace"):
    return HEADS[head].format(body)


@pytest.mark.parametrize("head", HEADS)
def test_lines_of_every_tool_are_the_same_events(head):
    # GIVEN the lines of all events as this tool prints them
    source = source_of(text(*(line(body, head) for body in BODIES)))
    expected = events_of(source_of(text(*(line(body) for body in BODIES))))
    # WHEN they are read / THEN each is an event, the same for all tools
    events = events_of(source)
    assert len(events) == len(BODIES)
    assert (events.raw == expected.raw).all()
    assert set(events.ts.tolist()) == {1996_596_531_000}
    assert set(events.cpu.tolist()) == {1}
    assert not source.problems


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "kworker/0:1H",
        "jbd2/loop0-8",
        "x-1 [0] 1: a:",
        "[x] 1.0: b",
        "<...>",
        "(sd-pam)",
        "a]",
        "-",
        "1 2/3",
    ],
)
@pytest.mark.parametrize("head", ["ftrace", "without flags", "perf"])
def test_names_may_have_any_letters(name, head):
    # GIVEN a thread with such a name
    before = HEADS[head].replace("fio", name)
    body = BODIES[0].replace("fio", name)
    # WHEN its event is read / THEN thread, CPU and sector are right, and so is the name
    source = source_of(text(before.format(body)))
    events = everything(source)
    queued = events.take(events.rows(Kind.Q))
    assert queued.raw[:, 2].tolist() == [49032]
    assert (queued.raw[:, 4] >> np.uint64(32)).tolist() == [18214]
    named = events.take(events.rows(Kind.TASK)).raw[:, 2:4].tobytes()
    assert named.rstrip(b"\0") == name.encode()


def test_what_a_program_writes_into_a_trace_is_no_event():
    # GIVEN a marker that looks like an event
    marker = line(f"tracing_mark_write: {line(BODIES[0]).strip()}")
    # WHEN it is read / THEN it is another event, passed over
    source = source_of(text(marker, line(BODIES[0])))
    assert len(events_of(source)) == 1
    assert source.passed_over == {"tracing_mark_write": 1}


def test_times_have_as_many_digits_as_are_printed():
    # GIVEN a time with ns, and events of one microsecond
    ns = source_of(text(line(BODIES[0]).replace("596531", "596531789")))
    us = source_of(text(*(line(body) for body in BODIES[:2])))
    # WHEN they are read, THEN ns are exact, microseconds are said, and lines keep their order
    assert events_of(ns).ts.tolist() == [1996_596_531_789]
    assert not any("digits" in remark for remark in ns.remarks)
    assert events_of(us).kind.tolist() == [Kind.Q, Kind.G]
    assert any("6 digits" in remark for remark in us.remarks)


def test_counts_are_refused():
    # GIVEN times of the clock "counter"
    data = text(line(BODIES[0]).replace("1996.596531", "1996596531"))
    # WHEN they are read, THEN the reason and the remedy are said
    with pytest.raises(LogFormatError, match=r"counts.*trace_clock 'mono'"):
        events_of(source_of(data))


@pytest.mark.parametrize(
    "lost",
    ["CPU:1 [LOST 234 EVENTS]", "disk: CPU:1 [234 EVENTS DROPPED]", "CPU:1 [234 EVENTS DROPPED]"],
)
def test_lost_events_are_dated_by_their_cpu(lost):
    # GIVEN events lost on CPU 1, between events of CPU 0
    first, other, last = line(BODIES[0]), line(BODIES[0]), line(BODIES[0])
    other = other.replace("[001]", "[000]").replace("1996.", "1997.")
    last = last.replace("1996.", "1998.")
    # WHEN they are read / THEN the loss is from the CPU's last event to its next
    source = source_of(text(first, other, lost, last))
    events_of(source)
    assert source.losses == [
        {
            "start": 1996_596_531_000,
            "end": 1998_596_531_000,
            "cpu": 1,
            "level": 0,
            "kind": 0,
            "count": 234,
        }
    ]


def test_real_losses_of_text_are_dated_and_counted():
    # GIVEN what ftrace printed of a ring that was too small
    source = open_source(DATA / "lossy.trace.txt")
    # WHEN it is read / THEN the second CPU's beginning is a loss, and the number is said
    events = events_of(source)
    assert len(events) == 188
    assert [loss["cpu"] for loss in source.losses] == [1]
    assert source.losses[0]["start"] == events.ts[0]
    assert any("372 older events were overwritten" in remark for remark in source.remarks)
    # GIVEN what trace-cmd printed of the same ring
    source = open_source(DATA / "lossy.report.txt")
    # WHEN it is read, THEN the number is the loss's
    assert len(events_of(source)) == 188
    assert [loss["count"] for loss in source.losses] == [372]


def test_lines_that_are_no_events_are_told():
    # GIVEN a line of an event with other fields
    odd = line("block_rq_issue: dev=7340032 sector=8")
    # WHEN it is read / THEN there is a problem with its number
    source = source_of(text(line(BODIES[0]), odd))
    assert len(events_of(source)) == 1
    assert "1 lines of block events" in source.problems[0]
    assert "line 2" in source.problems[0]
    # GIVEN call chains between perf's lines
    source = source_of(text(line(BODIES[0], "perf"), "\tffffffff81 submit_bio ([kernel])", ""))
    # WHEN they are read, THEN they are no events, and that is said
    assert len(events_of(source)) == 1
    assert any("1 lines are no events, the first in line 2" in r for r in source.remarks)
    # GIVEN a text that is cut in its last number
    data = text(line(BODIES[0]), line(BODIES[3]))[:-2]
    # WHEN it is read / THEN the number is not guessed
    source = source_of(data)
    assert len(events_of(source)) == 1
    assert "line 2 has no end" in source.problems[0]
    assert source.unreadable_bytes > 0


def test_a_file_that_unpacks_to_far_more_than_text_does_is_given_up():
    # GIVEN a gzip file of 64 MiB of spaces behind an event
    packed = gzip.compress(text(line(BODIES[0])) + b" " * (64 << 20))
    source = source_of(packed)
    # WHEN it is read / THEN it is given up before all of it is unpacked
    events = events_of(source)
    assert len(events) == 1
    assert "unpack to more than" in source.problems[0]


@pytest.mark.parametrize("block", [333, lines_module.BLOCK_BYTES])
@pytest.mark.parametrize(
    "data",
    [
        *((DATA / name).read_bytes() for name in ("small.trace.txt", "lossy.report.txt")),
        *(layout.text for layout in (*READ, *REFUSED)),
    ],
    ids=["trace", "report", *(layout.name for layout in (*READ, *REFUSED))],
)
def test_blocks_of_any_size_and_uncompiled_loops_give_the_same_events(data, block, monkeypatch):
    # GIVEN a text, and blocks that end anywhere in its lines, or the loops uncompiled
    def outcome():
        try:
            return events_of(source_of(data)).raw.tolist()
        except LogFormatError as error:
            return str(error)

    expected = outcome()
    if block == lines_module.BLOCK_BYTES:
        monkeypatch.setattr(lines_module, "loops", uncompiled("converters/inputs/line_loops.py"))
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block)
    # WHEN it is read / THEN it is the same
    assert outcome() == expected


def test_random_changes_never_break_the_loops(monkeypatch):
    # GIVEN lines with random bytes changed, read compiled and uncompiled
    loops = uncompiled("converters/inputs/line_loops.py")
    random = np.random.default_rng(7)
    lines = text(*(line(body, head) for body in BODIES for head in HEADS))
    for _ in range(20):
        data = bytearray(lines)
        for at in random.integers(0, len(data), 60).tolist():
            data[at] = random.choice(bytearray(b"0123456789 :[]()-+/,.\n<ax\xff"))
        data += b"\n"
        # WHEN both read them
        found = []
        for module in (lines_module.loops, loops):
            monkeypatch.setattr(lines_module, "loops", module)
            read = lines_module.LineReader(EventLines, SHAPES).read(bytes(data))
            rows = read.rows(0, np.zeros(len(read.time), np.bool_))
            found.append(
                (
                    [r.columns["dev"].tolist() for r in rows if "dev" in r.columns],
                    [r.pid.tolist() for r in rows],
                    read.time.tolist(),
                    [(o.line, o.kind, o.text) for o in read.others],
                )
            )
            monkeypatch.undo()
        # THEN they agree
        assert found[0] == found[1]


# The layouts of text: which are read, what is said of the others; docs/inputs.md lists both.


def named(layout: TextLayout) -> str:
    return layout.name


def events_of_text(data: bytes) -> Events:
    return everything(open_source(io.BytesIO(data)))


@pytest.mark.parametrize("layout", READ, ids=named)
def test_a_layout_is_read(layout: TextLayout) -> None:
    # GIVEN one read in this layout, as it is, packed, and without the newline at its end, as it is
    # pasted
    for data in (layout.text, gzip.compress(layout.text), layout.text.rstrip()):
        # WHEN it is opened / THEN it is one I/O of 200 µs
        [io_] = biotrail.open(io.BytesIO(data)).bios.to_pylist()
        found = (io_["device"], io_["op"], io_["sector"], io_["bytes"])
        assert found == ("8:0", "read", 1000, 4096)
        assert (io_["latency_ns"], io_["status"]) == (200_000, "OK")
    # AND the thread is known, and the CPU, or that it is not
    events = events_of_text(layout.text)
    task = events.fields(Kind.TASK, events.rows(Kind.TASK))
    assert task["tid"].tolist()[0] == 500
    assert set(events.cpu.tolist()) == {NO_CPU if "CPUs" in layout.lacks else 0}


@pytest.mark.parametrize("layout", REFUSED, ids=named)
def test_a_layout_without_what_is_needed_is_named(layout: TextLayout) -> None:
    # GIVEN text in this layout / WHEN it is read
    with pytest.raises(LogFormatError) as error:
        events_of_text(layout.text)
    # THEN the error says what to print instead
    assert layout.refused in str(error.value)


def test_the_document_lists_the_layouts(update: bool) -> None:
    # GIVEN the document / WHEN its table is made again / THEN it is what stands there
    page = ROOT / "docs" / "inputs.md"
    expect_section(page, "generated: layouts of text", table(), update=update)


@pytest.mark.parametrize(
    ("usual", "pairs"),
    [
        (
            "block_bio_queue: 7,0 R 49032 + 8 [fio]",
            "block_bio_queue: dev=7340032 sector=49032 nr_sector=8 rwbs=R comm=fio",
        ),
        (
            "block_split: 7,0 R 49032 / 49036 [fio]",
            "block_split: dev=7340032 sector=49032 new_sector=49036 rwbs=R comm=fio",
        ),
        (
            "block_bio_remap: 7,0 R 49032 + 8 <- (259,1) 11",
            "block_bio_remap: dev=7340032 sector=49032 nr_sector=8 old_dev=271581185 old_sector=11 "
            "rwbs=R",
        ),
        (
            "block_rq_remap: 7,0 R 49032 + 8 <- (259,1) 11 1",
            "block_rq_remap: dev=7340032 sector=49032 nr_sector=8 old_dev=271581185 old_sector=11 "
            "nr_bios=1 rwbs=R",
        ),
        ("block_plug: [a b]", "block_plug: comm=a b"),
        ("block_unplug: [fio] 3", "block_unplug: nr_rq=3 comm=fio"),
        (
            "block_rq_insert: 7,0 FWS 4096 () 49032 + 8 [a cmd= b]",
            "block_rq_insert: dev=0x700000 (7340032) sector=0xbf88 (49032) nr_sector=0x8 (8) "
            "bytes=0x1000 (4096) ioprio=0x0 (0) rwbs=FWS comm=a cmd= b cmd=",
        ),
        (
            "block_rq_complete: 7,0 R () 49032 + 8 [-5]",
            "block_rq_complete: dev=0x700000 (7340032) sector=0xbf88 (49032) nr_sector=0x8 (8) "
            "error=0xfffffffb (-5) rwbs=R cmd=",
        ),
        (
            "block_bio_complete: 7,0 R 49032 + 8 [-121]",
            "block_bio_complete: dev=7340032 sector=49032 nr_sector=8 error=-121 rwbs=R",
        ),
        (
            "block_rq_issue: 7,0 N 36 () 18446744073709551615 + 0 [fio]",
            "block_rq_issue: dev=7340032 sector=18446744073709551615 nr_sector=0 bytes=36 rwbs=N "
            "comm=fio cmd=",
        ),
    ],
)
def test_fields_by_name_are_the_same_events(usual: str, pairs: str) -> None:
    # GIVEN an event in the usual layout, and with its fields by name
    head = "             fio-18214   [001] d..1.  1996.596531: "
    # WHEN both are read / THEN they are the same, but for where a name ends that looks like a field
    one, other = (events_of_text(f"{head}{body}\n".encode()) for body in (usual, pairs))
    kinds = one.kind != Kind.TASK
    assert (one.raw[kinds] == other.raw[other.kind != Kind.TASK]).all()


@pytest.mark.parametrize("left_out", ["dev", "sector", "rwbs", "nr_sector"])
def test_events_that_lack_a_field_are_said(left_out: str) -> None:
    # GIVEN an event of which a field is missing, beside a whole one
    odd = re.sub(rf"\b{left_out}=\S+ ", "", PAIRS_ISSUE)
    head = "dd-500   [000]    10.000000: "
    source = open_source(io.BytesIO(f"{head}{ISSUE}\n{head}{odd}\n".encode()))
    # WHEN it is read / THEN it is left out, and its line named
    events = everything(source)
    assert len(events.rows(Kind.D)) == 1
    assert "1 lines of block events that are not understood, the first in line 2" in str(
        source.problems
    )


def test_times_that_a_difference_wrapped_around_are_differences() -> None:
    # GIVEN text of `perf script --deltatime` with an event that was before the one above it
    text = "\n".join(
        f"dd 500 [000] {time}: block:{ISSUE}"
        for time in ("0.000000", "0.000100", "18446744073.709548", "0.000020", "0.000300")
    )
    # WHEN it is read / THEN the option is named
    with pytest.raises(LogFormatError, match="--deltatime"):
        events_of_text(text.encode() + b"\n")


def test_names_and_statuses_in_fields_by_name() -> None:
    # GIVEN names that look like fields, quoted in the layout of pairs
    for name in ("a b", "x=1", "dev=3", "a]"):
        body = PAIRS_ISSUE.replace("comm=dd", f"comm={name}")
        # WHEN it is read / THEN sector and device are right, and so is the name
        events = events_of_text(f"dd-500   [000]    10.000000: {body}\n".encode())
        assert events.fields(Kind.D, events.rows(Kind.D))["sector"].tolist() == [1000]
        task = events.take(events.rows(Kind.TASK)).raw[:, 2:4].tobytes().rstrip(b"\0")
        assert task == name.encode()
    # GIVEN a completion with an error
    body = PAIRS_COMPLETE.replace("error=0", "error=-5")
    # WHEN it is read / THEN it is an I/O error
    events = events_of_text(f"dd-500   [000]    10.000000: {body}\n".encode())
    assert events.fields(Kind.C, events.rows(Kind.C))["status"].tolist() == [10]


# Text that holds the same events twice, and times that go back on a CPU.


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
    events = everything(source)
    return source, events


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("block", [1 << 20, 5000])
def test_a_real_text_several_times_is_the_text_once(
    times: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a text of 560 events several times, read in blocks of any size
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block)
    once = (DATA / "small.trace.txt").read_text()
    # WHEN it is read
    _, expected = read(once)
    source, events = read(once * times)
    # THEN its events are there once, in their order, and the number of the others is told
    assert (events.raw == expected.raw).all()
    assert f"{560 * (times - 1)} lines of events are repetitions" in str(source.remarks)
    assert not source.problems


def test_copies_of_a_ring_count_once() -> None:
    # GIVEN a text with a ring that began late, twice
    once = (DATA / "lossy.trace.txt").read_text()
    # WHEN it is read / THEN its loss is there once
    source, _ = read(once * 2)
    assert source.losses == read(once)[0].losses
    # GIVEN copies of a ring that moved on: the second lacks the first events and has newer ones
    text = io_at(10, 1000) + io_at(11, 2000) + io_at(11, 2000) + io_at(12, 3000)
    # WHEN it is read / THEN each event is there once
    source, events = read(text)
    assert len(events.rows(Kind.C)) == 3
    assert "3 lines" in str(source.remarks)
    # GIVEN a second copy in which ftrace does not know the thread's name any more
    again = io_at(10, 1000).replace("    dd-500", " <...>-500")
    # WHEN it is read / THEN its events are repetitions
    source, events = read(io_at(10, 1000) + again)
    assert len(events.rows(Kind.C)) == 1
    assert "3 lines" in str(source.remarks)
    # GIVEN text of perf's, which sometimes writes the last records of a ring twice
    lines = io_at(10, 1000, digits=9).splitlines(keepends=True)
    # WHEN it is read / THEN the second ones are left out
    source, events = read("".join([lines[0], lines[0], lines[1], lines[2], lines[2]]))
    assert len(events.rows(Kind.Q)) == len(events.rows(Kind.C)) == 1
    assert "2 lines of events are repetitions" in str(source.remarks)


def test_what_is_no_repetition_is_kept() -> None:
    # GIVEN two plugs of a thread in one microsecond
    plug = "              dd-500     [000] .....    10.000000: block_plug: [dd]\n"
    # WHEN they are read / THEN both are there
    source, events = read(plug + plug + io_at(11, 1000))
    assert len(events.rows(Kind.P)) == 2
    assert "repetitions" not in str(source.remarks)
    # GIVEN per_cpu/cpu0/trace, then per_cpu/cpu1/trace, of the same time
    text = io_at(10, 1000) + io_at(11, 2000) + io_at(10, 1000, cpu=1) + io_at(11, 2000, cpu=1)
    # WHEN they are read / THEN each event counts
    source, events = read(text)
    assert len(events.rows(Kind.C)) == 4
    assert not source.problems
    # GIVEN an earlier recording behind a later one
    text = io_at(20, 1000) + io_at(10, 2000) + io_at(30, 3000)
    # WHEN it is read / THEN all events are there, and that times go back is told, with the place
    source, events = read(text)
    assert len(events.rows(Kind.C)) == 3
    [said] = source.problems
    assert "3 events are older than events of their CPU before them, by up to 10.000200 s" in said
    assert "the first in line 4" in said


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for few events, and a text that is longer, twice
    monkeypatch.setattr(ftrace_text, "_MOST_KEPT", 64)
    monkeypatch.setattr(ftrace_text, "_MOST_IN_RUN", 16)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 2000)
    once = "".join(io_at(second, 8 * second) for second in range(10, 110))
    # WHEN it is read / THEN what is too far back to be compared is kept, and told
    source, events = read(once * 2)
    assert len(events.rows(Kind.Q, Kind.D, Kind.C)) == 600
    assert "are older than events of their CPU" in str(source.problems)


def test_two_buffers_are_one_or_both() -> None:
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
    # GIVEN what trace-cmd prints of two instances, each of a device of its own
    other = io_at(10, 1000).replace("8,0", "8,16")
    both = zip(io_at(10, 1000).splitlines(True), other.splitlines(True), strict=True)
    # WHEN it is read / THEN both are there
    source, events = read("".join(f"one: {one}other: {two}" for one, two in both))
    assert len(events.rows(Kind.C)) == 2
    assert not source.problems


# Damage of text: pages of zeros, and fewer events than ftrace's header counts.

WHOLE = (DATA / "small.trace.txt").read_bytes()
EVENTS = 560
TIME = re.compile(rb" (\d+)\.(\d{6}): ")


def with_zeros(data: bytes, at: int, size: int) -> bytes:
    return data[:at] + bytes(size) + data[at + size :]


def read_text(data: bytes) -> tuple[Source, Events]:
    source = open_source(io.BytesIO(data))
    events = everything(source)
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
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block)
    data = with_zeros(WHOLE, 16384, 8192)
    # WHEN it is read
    source, events = read_text(gzip.compress(data) if packed else data)
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
    # WHEN a page of it is zeros / THEN they are told
    source, _ = read_text(with_zeros(data, 8192, 4096))
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
        # WHEN it is opened by its path / THEN it is read, and the zeros are told
        source = open_source(path)
        list(source.parts())
        assert f"{size:,} bytes" in str(source.problems) or "has no end" in str(source.problems)
        assert source.unreadable_bytes >= size


def test_a_text_that_was_cut_in_its_middle_is_told_with_the_place() -> None:
    # GIVEN a text whose middle is missing
    data = WHOLE[:20000] + WHOLE[-20000:]
    # WHEN it is read / THEN the number of what is missing is told, and between which events
    source, events = read_text(data)
    start, end = around(data, 20000, 20000)
    missing = EVENTS - len(events) - 1  # one line is of two halves
    [short] = [problem for problem in source.problems if "counts 560 entries" in problem]
    assert (
        f"{missing} are missing, between events at {start / 1e9:.6f} and {end / 1e9:.6f}" in short
    )
    assert source.damaged == [{"offset": source.damaged[0]["offset"], "start": start, "end": end}]


def test_what_headers_count_and_is_missing_is_told() -> None:
    # GIVEN a text out of which somebody has taken 10 lines
    lines = WHOLE.splitlines(keepends=True)
    # WHEN it is read / THEN their number is told; when it was is not known
    source, events = read_text(b"".join(lines[:100] + lines[110:]))
    assert len(events) == EVENTS - 10
    [short] = source.problems
    assert "10 are missing, where is not known" in short
    assert not source.damaged
    # GIVEN a header that counts 10 entries more, and a line that says where these were lost
    text = WHOLE.replace(b"560/560", b"570/570").splitlines(keepends=True)
    text.insert(100, b"CPU:1 [LOST 10 EVENTS]\n")
    # WHEN it is read / THEN they are a loss, and nothing else is missing
    source, _ = read_text(b"".join(text))
    assert [loss["count"] for loss in source.losses] == [10]
    assert not source.problems
    # GIVEN a whole text behind one of which 3 lines are missing
    lines = WHOLE.splitlines(keepends=True)
    # WHEN it is read / THEN the first one alone is short
    source, events = read_text(b"".join(lines[:100] + lines[103:]) + WHOLE)
    assert len([p for p in source.problems if "counts 560 entries, and 557" in p]) == 1
    assert len(events) == EVENTS
    # GIVEN zeros within a line, where what is before and behind would make a whole one
    data = WHOLE.replace(b" + 8 [", b" + 8\0\0\0\0 [", 1)
    # WHEN it is read / THEN the line is no event
    source, events = read_text(data)
    assert len(events) == EVENTS - 1
    assert "4 bytes of zeros" in str(source.problems)
