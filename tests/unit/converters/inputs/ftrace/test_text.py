# SPDX-License-Identifier: Apache-2.0
"""Printed events: the lines of ftrace, trace-cmd and perf, hostile names, losses, damage."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs import text_file
from biotrail.converters.inputs.ftrace import lines as lines_module
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support.both_ways import uncompiled

DATA = Path(__file__).parents[4] / "data" / "ftrace"
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
    events = Events.join([part.events for part in source.parts()])
    return events.take(np.flatnonzero(events.kind != Kind.TASK))


def line(body, head="ftrace"):
    return HEADS[head].format(body)


@pytest.mark.parametrize("head", HEADS)
def test_lines_of_every_tool_are_the_same_events(head):
    # GIVEN the lines of all events as this tool prints them
    source = source_of(text(*(line(body, head) for body in BODIES)))
    expected = events_of(source_of(text(*(line(body) for body in BODIES))))
    # WHEN they are read
    events = events_of(source)
    # THEN each is an event, the same for all tools
    assert len(events) == len(BODIES)
    assert (events.raw == expected.raw).all()
    assert set(events.ts.tolist()) == {1996_596_531_000}
    assert set(events.cpu.tolist()) == {1}
    assert not source.problems


def test_fields_are_in_their_places():
    # GIVEN a remap and a completion with an error
    lines = [line(BODIES[3]), line(BODIES[10])]
    # WHEN they are read
    remap, complete = events_of(source_of(text(*lines))).raw.tolist()
    # THEN devices are the kernel's numbers, and the error a status
    assert remap[2] == 49032
    assert remap[4] == 7 << 20 | 18214 << 32
    assert remap[5:7] == [11, 259 << 20 | 1 | (7 << 20) << 32]
    assert complete[5] >> 32 == 10


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
    # WHEN its event is read
    source = source_of(text(before.format(body)))
    events = Events.join([part.events for part in source.parts()])
    # THEN thread, CPU and sector are right, and so is the name
    queued = events.take(events.rows(Kind.Q))
    assert queued.raw[:, 2].tolist() == [49032]
    assert (queued.raw[:, 4] >> np.uint64(32)).tolist() == [18214]
    named = events.take(events.rows(Kind.TASK)).raw[:, 2:4].tobytes()
    assert named.rstrip(b"\0") == name.encode()


def test_what_a_program_writes_into_a_trace_is_no_event():
    # GIVEN a marker that looks like an event
    marker = line(f"tracing_mark_write: {line(BODIES[0]).strip()}")
    # WHEN it is read
    source = source_of(text(marker, line(BODIES[0])))
    # THEN it is another event, passed over
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
    # WHEN they are read
    source = source_of(text(first, other, lost, last))
    events_of(source)
    # THEN the loss is from the CPU's last event to its next
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


def test_a_real_overrun_is_a_loss_and_a_remark():
    # GIVEN what ftrace printed of a ring that was too small
    source = open_source(DATA / "lossy.trace.txt")
    # WHEN it is read
    events = events_of(source)
    # THEN the second CPU's beginning is a loss, and the number is said
    assert len(events) == 188
    assert [loss["cpu"] for loss in source.losses] == [1]
    assert source.losses[0]["start"] == events.ts[0]
    assert any("372 older events were overwritten" in remark for remark in source.remarks)


def test_a_real_report_has_its_dropped_events():
    # GIVEN what trace-cmd printed of the same ring
    source = open_source(DATA / "lossy.report.txt")
    # WHEN it is read, THEN the number is the loss's
    assert len(events_of(source)) == 188
    assert [loss["count"] for loss in source.losses] == [372]


def test_the_last_line_without_its_end_is_left_out():
    # GIVEN a text that is cut in its last number
    data = text(line(BODIES[0]), line(BODIES[3]))[:-2]
    # WHEN it is read
    source = source_of(data)
    # THEN the number is not guessed
    assert len(events_of(source)) == 1
    assert "line 2 has no end" in source.problems[0]
    assert source.unreadable_bytes > 0


def test_block_events_that_are_not_understood_are_said():
    # GIVEN a line of an event with other fields
    odd = line("block_rq_issue: dev=7340032 sector=8")
    # WHEN it is read
    source = source_of(text(line(BODIES[0]), odd))
    # THEN there is a problem with its number
    assert len(events_of(source)) == 1
    assert "1 lines of block events" in source.problems[0]
    assert "line 2" in source.problems[0]


def test_other_lines_are_counted():
    # GIVEN call chains between perf's lines
    source = source_of(text(line(BODIES[0], "perf"), "\tffffffff81 submit_bio ([kernel])", ""))
    # WHEN they are read, THEN they are no events, and that is said
    assert len(events_of(source)) == 1
    assert any("1 lines are no events, the first in line 2" in r for r in source.remarks)


def test_gzip_files_are_read_and_cut_ones_as_far_as_they_go(tmp_path):
    # GIVEN a gzip file and one that is cut off
    whole = (DATA / "small.trace.txt").read_bytes()
    packed = gzip.compress(whole)
    good, cut = tmp_path / "good", tmp_path / "cut"
    good.write_bytes(packed)
    cut.write_bytes(packed[: len(packed) // 2])
    # WHEN they are read
    full, part = open_source(good), open_source(cut)
    # THEN the first is whole, and the other one says where it ends
    assert len(events_of(full)) == 560
    assert 0 < len(events_of(part)) < 560
    assert "cannot be read on" in part.problems[0]


def test_a_file_that_unpacks_to_far_more_than_text_does_is_given_up():
    # GIVEN a gzip file of 64 MiB of spaces behind an event
    packed = gzip.compress(text(line(BODIES[0])) + b" " * (64 << 20))
    source = source_of(packed)
    # WHEN it is read
    events = events_of(source)
    # THEN it is given up before all of it is unpacked
    assert len(events) == 1
    assert "unpack to more than" in source.problems[0]


def test_blocks_of_any_size_give_the_same_events(monkeypatch):
    # GIVEN a text, and blocks that end anywhere in its lines
    path = DATA / "small.trace.txt"
    expected = events_of(open_source(path))
    monkeypatch.setattr(text_file, "BLOCK_BYTES", 333)
    # WHEN it is read
    source = open_source(path)
    parts = list(source.parts())
    # THEN it is the same
    events = Events.join([part.events for part in parts])
    events = events.take(np.flatnonzero(events.kind != Kind.TASK))
    assert (events.raw == expected.raw).all()
    assert (events.ts == expected.ts).all()


@pytest.mark.parametrize("name", ["small.trace.txt", "lossy.report.txt"])
def test_without_a_compiler_it_is_the_same(monkeypatch, name):
    # GIVEN a text, and the loops uncompiled
    compiled = events_of(open_source(DATA / name))
    loops = uncompiled("converters/inputs/ftrace/line_loops.py")
    monkeypatch.setattr(lines_module, "loops", loops)
    # WHEN it is read
    events = events_of(open_source(DATA / name))
    # THEN it is the same
    assert (events.raw == compiled.raw).all()
    assert (events.cpu == compiled.cpu).all()


def test_random_changes_never_break_the_loops(monkeypatch):
    # GIVEN lines with random bytes changed, read compiled and uncompiled
    loops = uncompiled("converters/inputs/ftrace/line_loops.py")
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
            read = lines_module.LineReader().read(bytes(data))
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


def test_text_without_events_is_refused_as_unknown():
    # GIVEN a text of something else
    # WHEN it is read, THEN it is none of what is read
    with pytest.raises(LogFormatError, match=r"none of what biotrail reads.*docs/inputs\.md"):
        events_of(source_of(b"hello: world\n" * 100))
