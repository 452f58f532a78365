# SPDX-License-Identifier: Apache-2.0
"""Recordings without Q: requests stand for their bios."""

import io

import numpy as np

from biotrail.converters.events.tables import NEVER, Certainty, Stage
from biotrail.converters.pipeline import Trace
from tests.support import blktrace_records as blktrace

ISSUE, DONE, INSERT, QUEUE = "rq_issue", "rq_complete", "rq_insert", "bio_queue"


def line(ms, what, sector, sectors=8, letters="R"):
    """One event as ftrace prints it, at a time in ms."""
    size = f"{sectors * 512} " if what in (ISSUE, INSERT) else ""
    place = {
        QUEUE: f"{letters} {sector} + {sectors}",
        DONE: f"{letters} () {sector} + {sectors} be,0,4",
    }.get(what, f"{letters} {size}() {sector} + {sectors} be,0,4")
    end = "[0]" if what == DONE else "[fio]"
    return f"  fio-18214   [001]  {100 + ms / 1000:.6f}: block_{what}: 7,0 {place} {end}"


def tables_of(*lines, window_events=250_000):
    """All windows of a text, and the trace."""
    trace = Trace(io.BytesIO(("\n".join(lines) + "\n").encode()))
    return list(trace.lifecycles(window_events)), trace


def only(*lines):
    """The one window with rows, and the trace."""
    windows, trace = tables_of(*lines)
    (found,) = [w for w in windows if len(w.requests)]
    return found, trace


def test_a_request_stands_for_its_bios():
    # GIVEN issues and completions alone, of two reads that overlap in time
    found, trace = only(line(1, ISSUE, 0), line(2, ISSUE, 64), line(4, DONE, 64), line(7, DONE, 0))
    # THEN each is a row of bios, from its issue to its completion, in the device all the time
    bios = found.bios
    assert bios.sector.tolist() == [0, 64]
    assert bios.bytes.tolist() == [4096, 4096]
    assert ((bios.complete - bios.queue) // 1_000_000).tolist() == [6, 2]
    assert bios.number.tolist() == bios.request.tolist() == found.requests.number.tolist()
    assert bios.getrq.tolist() == [NEVER, NEVER]
    assert found.requests.bios.tolist() == [1, 1]
    assert found.bio_stages.stage.tolist() == [Stage.D2C, Stage.D2C]
    # AND what it is known by is its sectors
    assert set(bios.certainty) == {Certainty.INTERVAL}
    assert trace.account.edges["interval"] == 2


def test_the_time_in_the_scheduler_is_a_stage():
    # GIVEN a request that was inserted 2 ms before its issue
    found, _ = only(line(1, INSERT, 0), line(3, ISSUE, 0), line(7, DONE, 0))
    # THEN its bio's stages are those 2 ms and the 4 ms after them
    stages = found.bio_stages
    lengths = ((stages.end - stages.start) // 1_000_000).tolist()
    assert dict(zip(stages.stage.tolist(), lengths, strict=True)) == {Stage.I2D: 2, Stage.D2C: 4}


def test_a_request_that_grew_in_the_scheduler_is_one():
    # GIVEN an issue of more sectors than were inserted, as merges are not recorded
    found, _ = only(line(1, INSERT, 8), line(3, ISSUE, 0, 32), line(7, DONE, 0, 32))
    # THEN it is one request of all its sectors, since its insert
    assert found.bios.bytes.tolist() == [32 * 512]
    assert ((found.bios.complete - found.bios.queue) // 1_000_000).tolist() == [6]
    assert found.bios.certainty.tolist() == [Certainty.INTERVAL]


def test_of_two_equal_ones_it_is_said():
    # GIVEN two reads of the same sectors in flight at once
    found, _ = only(line(1, ISSUE, 0), line(2, ISSUE, 0), line(4, DONE, 0), line(7, DONE, 0))
    # THEN both are ambiguous
    assert found.bios.certainty.tolist() == [Certainty.AMBIGUOUS] * 2


def test_machinery_has_no_bios():
    # GIVEN a flush request of the flush machinery
    windows, _ = tables_of(line(1, ISSUE, 0, 0, "FF"), line(2, DONE, 18446744073709551615, 0, "FF"))
    # THEN it is a request for which no bio stands
    assert sum(len(w.requests) for w in windows) == 1
    assert sum(len(w.bios) for w in windows) == 0


def test_bios_that_are_recorded_stand_for_themselves():
    # GIVEN a completion alone, and then a read with its bio
    windows, _ = tables_of(
        line(1, DONE, 512),
        line(2, QUEUE, 0),
        line(3, ISSUE, 0),
        line(4, ISSUE, 64),
        line(5, DONE, 0),
        line(6, DONE, 64),
    )
    # THEN there is that bio alone, and a request without a bio stays one
    assert sum(len(w.bios) for w in windows) == 1
    assert sum(len(w.requests) for w in windows) == 3


def test_windows_of_any_size_give_the_same_rows():
    # GIVEN many reads, some in flight for long
    lines = []
    for i in range(200):
        lines += [(i, line(i, ISSUE, i * 8)), (i + (90 if i % 7 == 0 else 3), line(0, DONE, 0))]
    ends = [(t, s) for s, t in enumerate(t for t, _ in lines[1::2])]
    events = [lines[2 * i] for i in range(200)] + [(t, line(t, DONE, s * 8)) for t, s in ends]
    texts = [text for _, text in sorted(events, key=lambda e: e[0])]
    # WHEN they are read in one window and in many
    whole, _ = tables_of(*texts)
    parts, _ = tables_of(*texts, window_events=50)
    # THEN the bios are the same
    for name in ("number", "sector", "queue", "complete", "certainty"):
        one = np.concatenate([getattr(w.bios, name) for w in whole])
        many = np.concatenate([getattr(w.bios, name) for w in parts])
        assert sorted(one.tolist()) == sorted(many.tolist())


def test_blktrace_without_bios_has_them_too():
    # GIVEN what `blktrace -a issue -a complete` records of a read
    read = blktrace.READ
    stream = blktrace.record(blktrace.D | read, 1_000, 64, 4096, sequence=1)
    stream += blktrace.record(blktrace.C | read, 9_000, 64, 4096, sequence=2)
    # WHEN it is read
    trace = Trace(io.BytesIO(stream))
    windows = list(trace.lifecycles())
    # THEN its request stands for its bio, and that is said
    ((queue, complete),) = [
        t
        for w in windows
        for t in zip(w.bios.queue.tolist(), w.bios.complete.tolist(), strict=True)
    ]
    assert complete - queue == 8_000
    assert any("stands for its bios" in remark for remark in trace.reader.remarks)
