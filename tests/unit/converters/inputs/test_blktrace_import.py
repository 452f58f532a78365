# SPDX-License-Identifier: Apache-2.0
"""blktrace's files and streams become events: real data, and records made by hand."""

import os
import struct
import threading
from collections import Counter

import numpy as np
import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.blktrace import source as blktrace_source
from biotrail.converters.inputs.blktrace.source import BlktraceSource
from biotrail.recorder.schema.records import BY_KIND, NO_SECTOR, Kind
from tests.support.blktrace_records import (
    CGROUP,
    COMPLETE,
    DATA,
    FS,
    MESSAGE,
    PC,
    PROCESS,
    QUEUE,
    READ,
    TIMESTAMP,
    WRITE,
    ZONE_APPEND,
    ZONE_RESET,
    C,
    D,
    Q,
    record,
    record_2,
    stream,
    write_set,
)
from tests.support.sources import everything

LETTERS = {int(kind): record.letter for kind, record in BY_KIND.items()}


def counts(events: Events) -> Counter:
    return Counter(LETTERS[kind] for kind in events.kind.tolist())


# What blkparse prints as C or M does not say whether it was a bio's or a request's.


def test_a_set_knows_its_device():
    # GIVEN a set named after its device
    source = BlktraceSource(DATA / "loop1")
    # THEN the header names it, and says where the data is from
    assert Context(source.header).device_label(7 << 20 | 1) == "loop1 (7:1)"
    assert source.header["backend"] == "blktrace"


def test_a_pipe_is_no_set_even_beside_one(tmp_path):
    # GIVEN a named pipe with data of one device, and a set of the same name beside it
    data = record(Q | READ, 10, 8, 512)
    write_set(tmp_path, "sda", {0: data, 1: data})
    pipe = tmp_path / "sda"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    # WHEN it is read
    source = BlktraceSource(pipe)
    events = everything(source)
    writer.join()
    # THEN the pipe's data is there alone, and its name is not taken for the device's
    assert len(events) == 1
    assert source.header["devices"] == []


def test_a_file_of_a_set_stands_for_the_set_however_it_is_written(tmp_path, monkeypatch):
    # GIVEN a set of two files in the current directory
    write_set(tmp_path, "sda", {0: record(Q | READ, 10, 8, 512), 1: record(Q | READ, 20, 8, 512)})
    monkeypatch.chdir(tmp_path)
    # WHEN one of them is read by different spellings THEN all of the set is there
    for spelling in ("sda.blktrace.0", "./sda.blktrace.0", f"{tmp_path}//sda.blktrace.0"):
        source = BlktraceSource(spelling)
        assert len(everything(source)) == 2
        assert [device["name"] for device in source.header["devices"]] == ["sda"]


def test_a_stream_of_the_ftrace_tracer_has_all_devices():
    # GIVEN the stream that was split into the sets
    parts = BlktraceSource(DATA / "stream.bin")
    # WHEN all are read
    together = everything(parts)
    loop, zram = (everything(BlktraceSource(DATA / name)) for name in ("loop1", "zram1"))
    # THEN the stream holds what the sets hold, in order of time
    assert counts(together) == counts(loop) + counts(zram)
    assert (np.diff(together.ts) >= 0).all()
    assert set(together.dev.tolist()) == {7 << 20 | 1, 253 << 20 | 1}


def test_completions_remaps_and_errors_are_those_of_the_device():
    # GIVEN a bio-based device's data, and a request-based one's
    zram = everything(BlktraceSource(DATA / "zram1"))
    loop = everything(BlktraceSource(DATA / "loop1"))
    # THEN the one's completions are bios', the other's requests'
    assert counts(zram) == Counter(Q=8, c=8)
    assert "c" not in counts(loop)
    # GIVEN I/O on a partition that starts at sector 2048
    # WHEN the remaps are taken
    remaps = loop.fields(Kind.A, loop.rows(Kind.A))
    # THEN each has the partition and the sector within it
    assert (remaps["sector"] - remaps["from_sector"] == 2048).all()
    assert set(remaps["from_dev"].tolist()) == {259 << 20}
    assert set(remaps["part"].tolist()) == {7 << 20 | 1}
    # GIVEN a read past the end of a loop device's file
    source = BlktraceSource(DATA / "loop1")
    # THEN its completion has the I/O error, and no other one has
    status = loop.status[loop.rows(Kind.C)]
    assert [Context(source.header).status_name(int(s)) for s in status if s] == ["IOERR"]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("make", [record, record_2])
def test_both_byte_orders_and_both_versions_read_alike(order, make):
    # GIVEN the same I/O written by machines of either byte order, in either version
    def whole(order, make):
        return stream(
            make(PROCESS, 90, pdu=b"dd\0xxxxxxxxxxxxx", order=order),
            make(TIMESTAMP, 95, pdu=struct.pack(f"{order}II", 1_700_000_000, 5), order=order),
            make(Q | READ, 100, 64, 4096, sequence=1, order=order),
            make(13 | READ, 110, 64, 2048, sequence=2, order=order, pdu=struct.pack(">Q", 68)),
            make(10 | QUEUE | READ, 120, sequence=3, order=order, pdu=struct.pack(">Q", 7)),
            make(D | READ, 130, 64, 4096, sequence=4, order=order, cpu=3),
            make(C | READ, 140, 64, 4096, sequence=5, order=order, error=-5),
        )

    # WHEN they are read
    source, plain = whole(order, make), whole("<", record)
    events, wanted = everything(source), everything(plain)
    # THEN they are the same events
    assert (events.raw == wanted.raw).all()
    assert events.cpu.tolist() == [0, 0, 0, 0, 3, 0]
    assert source.header["clocks"] == plain.header["clocks"]
    assert counts(events) == Counter(T=1, Q=1, X=1, U=1, D=1, C=1)
    assert events.fields(Kind.X, events.rows(Kind.X))["new_sector"].tolist() == [68]
    unplug = events.fields(Kind.U, events.rows(Kind.U))
    assert (unplug["depth"].tolist(), unplug["explicit"].tolist()) == ([7], [1])


def test_a_process_note_names_its_thread():
    # GIVEN a note, which the kernel writes before a thread's first event
    source = stream(
        record(PROCESS, 90, pid=77, pdu=b"kworker/u8:3\0\0\0\0"),
        record(Q | READ, 100, 64, 4096, sequence=1, pid=77),
    )
    # WHEN it is read
    events = everything(source)
    # THEN it is a TASK record at the event's time
    task = events.fields(Kind.TASK, events.rows(Kind.TASK))
    assert (task["tid"].tolist(), task["comm"].tolist()) == ([77], [b"kworker/u8:3"])
    assert events.ts.tolist() == [100, 100]
    assert events.kind.tolist() == [Kind.TASK, Kind.Q]
    # GIVEN a stream of `blkparse -d`: events' times count from the first, notes' do not
    source = stream(
        record(TIMESTAMP, 5_000_000, pdu=struct.pack("<II", 1_700_000_000, 0)),
        record(PROCESS, 5_000_100, pid=77, pdu=b"fio".ljust(16, b"\0")),
        record(Q | READ, 0, 64, 4096, sequence=1, pid=77),
        record(C | READ, 900, 64, 4096, sequence=2),
    )
    # WHEN it is read
    events = everything(source)
    # THEN the note stands before its event, and the clock's doubt is told
    assert events.ts.tolist() == [0, 0, 900]
    assert source.header["clocks"]["monotonic"] == 0
    assert source.header["clocks"]["realtime"] == 1_700_000_000 * 10**9
    assert "blkparse -d" in " ".join(source.remarks)


def test_messages_are_kept_as_notes_and_counted(monkeypatch):
    # GIVEN more messages than are kept
    monkeypatch.setattr(blktrace_source, "MESSAGES_KEPT", 2)
    messages = (record(MESSAGE, t, pdu=f"bfq{t}".encode()) for t in range(3))
    source = stream(*messages, record(Q | READ, 3, 8, 512))
    # WHEN they are read
    everything(source)
    # THEN two are there, and three were met
    assert [note["text"] for _, note in source.notes] == ["bfq0", "bfq1"]
    assert source.messages_met == 3
    assert "3 messages" in " ".join(source.remarks)
    # GIVEN a message that begins with a cgroup's id
    message = record(MESSAGE | CGROUP, 5, pdu=struct.pack("<Q", 9) + b"throttled")
    source = stream(message, record(Q | READ, 6, 8, 512))
    # WHEN it is read
    everything(source)
    # THEN the id is not part of the text
    assert source.messages[0].text == "throttled"


@pytest.mark.parametrize("order", "<>")
def test_a_cgroup_before_the_payload_is_taken(order):
    # GIVEN records with a cgroup's id, which stands before other payload
    source = stream(
        record(Q | READ | CGROUP, 1, 8, 512, pdu=struct.pack(f"{order}Q", 1234), order=order),
        record(
            13 | READ | CGROUP,
            2,
            8,
            512,
            pdu=struct.pack(f"{order}Q", 1234) + struct.pack(">Q", 12),
            order=order,
        ),
    )
    # WHEN they are read
    events = everything(source)
    # THEN both are found
    assert events.fields(Kind.Q, events.rows(Kind.Q))["cgroup"].tolist() == [1234]
    assert events.fields(Kind.X, events.rows(Kind.X))["new_sector"].tolist() == [12]


def op_and_flags(category: int, make=record) -> tuple[str, str]:
    source = stream(make(Q | category, 1, 0, 512))
    opf = int(everything(source).opf[0])
    context = Context(source.header)
    return context.op_name(opf), context.flag_names(opf)


@pytest.mark.parametrize(
    ("bits", "op", "flags"),
    [
        ((0,), "read", ""),
        ((1,), "write", ""),
        ((1, 3), "write", "SYNC"),
        ((1, 2, 3), "write", "SYNC|PREFLUSH"),
        ((0, 2), "flush", "PREFLUSH"),
        ((1, 15), "write", "FUA"),
        ((0, 11), "read", "RAHEAD"),
        ((0, 12), "read", "META"),
        ((1, 13), "discard", ""),
    ],
)
def test_categories_become_operation_and_flags(bits, op, flags):
    # GIVEN the categories that the kernel makes of an operation and its flags
    category = sum(1 << 16 + bit for bit in bits)
    # THEN they lead back to them
    assert op_and_flags(category) == (op, flags)


@pytest.mark.parametrize(
    ("bit", "op"),
    [
        (16, "zone_append"),
        (17, "zone_reset"),
        (18, "zone_reset_all"),
        (19, "zone_finish"),
        (20, "zone_open"),
        (21, "zone_close"),
        (22, "write_zeroes"),
    ],
)
def test_version_2_has_zone_operations(bit, op):
    # GIVEN a record of version 2 with a category of its own
    # THEN the operation is named
    assert op_and_flags(WRITE | 1 << 16 + bit, record_2) == (op, "")


def test_where_a_zone_append_went_is_no_completion():
    # GIVEN version 2's two COMPLETE records of one zone append: one tells the place
    told = 8 | FS | WRITE | ZONE_APPEND
    source = stream(
        record_2(told, 5, 800, 4096, sequence=1),
        record_2(told | COMPLETE, 6, 800, 4096, sequence=2),
        record_2(Q | WRITE | ZONE_RESET, 7, 0, 0, sequence=3),
    )
    # WHEN they are read
    events = everything(source)
    # THEN there is one completion, and the other is accounted for
    assert counts(events) == Counter(C=1, Q=1)
    assert source.left_out == Counter({"zone append's place": 1})


def test_requests_of_drivers_and_flushes_are_known():
    # GIVEN a passthrough request, a flush request, and two requests merging
    source = stream(
        record(7 | PC | WRITE, 1, 0, 36),
        record(7 | FS | READ | 4 << 16, 2, 0, 0),
        record(2 | QUEUE | FS | WRITE, 3, 8, 4096),
        record(2 | QUEUE | WRITE, 4, 8, 4096),
    )
    # WHEN they are read
    events = everything(source)
    names = [Context(source.header).op_name(int(opf)) for opf in events.opf]
    # THEN they are told apart from ordinary I/O
    assert names == ["drv_out", "flush", "write", "write"]
    assert [LETTERS[k] for k in events.kind] == ["D", "D", "m", "M"]
    assert events.sector.tolist() == [0, NO_SECTOR, 8, 8]


def test_what_a_log_has_no_record_for_is_counted():
    # GIVEN actions that other kernels or drivers write
    source = stream(
        record(5 | QUEUE | READ, 1, 8, 512, sequence=1),
        record(17 | 1 << 30, 2, 8, 512, sequence=2, pdu=b"driver"),
        record(99 | QUEUE, 3, sequence=3),
        record(Q | READ, 4, 8, 512, sequence=4),
    )
    # WHEN they are read
    events = everything(source)
    # THEN each is counted and told
    assert len(events) == 1
    assert source.left_out == Counter({"sleeprq": 1, "drv_data": 1, "action 99": 1})
    assert "action 99 1, drv_data 1, sleeprq 1" in " ".join(source.remarks)


def test_a_gap_in_the_numbers_is_a_loss(tmp_path):
    # GIVEN a set in which CPU 1 lost five events, and numbers differ by CPU
    prefix = write_set(
        tmp_path,
        "sda",
        {
            0: record(Q | READ, 10, 8, 512, sequence=1) + record(C | READ, 90, 8, 512, sequence=2),
            1: record(Q | READ, 20, 16, 512, sequence=3, cpu=1)
            + record(C | READ, 70, 16, 512, sequence=9, cpu=1),
        },
    )
    source = BlktraceSource(prefix)
    # WHEN it is read
    everything(source)
    # THEN the window and the count are known
    assert source.losses == [{"start": 20, "end": 70, "cpu": 1, "level": 0, "kind": 0, "count": 5}]


def test_a_real_zoned_device_in_version_2():
    # GIVEN what Linux 7.2 writes of a zoned device: each zone operation once
    source = BlktraceSource(DATA / "zoned")
    # WHEN it is read
    events = everything(source)
    # THEN each is there by its name, from its queueing to its end
    context = Context(source.header)
    found = Counter(
        (LETTERS[kind], context.op_name(int(opf)))
        for kind, opf in zip(events.kind.tolist(), events.opf.tolist(), strict=True)
        if kind != Kind.TASK
    )
    zoned = {f"zone_{op}" for op in ("open", "close", "finish", "reset", "reset_all")}
    assert found == Counter(
        {(letter, op): 1 for letter in "QGDC" for op in zoned}
        | {(letter, "write"): 8 for letter in "QGDC"}
        | {(letter, "read"): 4 for letter in "QGDC"}
    )
    assert not source.problems
    assert not source.losses
