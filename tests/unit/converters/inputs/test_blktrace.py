# SPDX-License-Identifier: Apache-2.0
"""blktrace's files and streams become events: which belong together, what is wrong with them."""

import io
import os
import random
import shutil
import struct
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.cli.main import main
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs import foreign
from biotrail.converters.inputs.blktrace import source as blktrace
from biotrail.converters.inputs.blktrace import source as blktrace_source
from biotrail.converters.inputs.blktrace.files import RecordFile
from biotrail.converters.inputs.blktrace.source import BlktraceSource, find
from biotrail.converters.inputs.log import LogSource
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
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
    SDA,
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
from tests.support.captures import load, write_log
from tests.support.sources import Pipe, everything

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

    # WHEN they are read / THEN they are the same events
    source, plain = whole(order, make), whole("<", record)
    events, wanted = everything(source), everything(plain)
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
    # WHEN it is read / THEN it is a TASK record at the event's time
    events = everything(source)
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
    # WHEN it is read / THEN the note stands before its event, and the clock's doubt is told
    events = everything(source)
    assert events.ts.tolist() == [0, 0, 900]
    assert source.header["clocks"]["monotonic"] == 0
    assert source.header["clocks"]["realtime"] == 1_700_000_000 * 10**9
    assert "blkparse -d" in " ".join(source.remarks)


def test_messages_are_kept_as_notes_and_counted(monkeypatch):
    # GIVEN more messages than are kept
    monkeypatch.setattr(blktrace_source, "MESSAGES_KEPT", 2)
    messages = (record(MESSAGE, t, pdu=f"bfq{t}".encode()) for t in range(3))
    source = stream(*messages, record(Q | READ, 3, 8, 512))
    # WHEN they are read / THEN two are there, and three were met
    everything(source)
    assert [note["text"] for _, note in source.notes] == ["bfq0", "bfq1"]
    assert source.messages_met == 3
    assert "3 messages" in " ".join(source.remarks)
    # GIVEN a message that begins with a cgroup's id
    message = record(MESSAGE | CGROUP, 5, pdu=struct.pack("<Q", 9) + b"throttled")
    source = stream(message, record(Q | READ, 6, 8, 512))
    # WHEN it is read / THEN the id is not part of the text
    everything(source)
    assert source.notes[0][1]["text"] == "throttled"


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
    # WHEN they are read / THEN both are found
    events = everything(source)
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
    # GIVEN a record of version 2 with a category of its own / THEN the operation is named
    assert op_and_flags(WRITE | 1 << 16 + bit, record_2) == (op, "")


def test_where_a_zone_append_went_is_no_completion():
    # GIVEN version 2's two COMPLETE records of one zone append: one tells the place
    told = 8 | FS | WRITE | ZONE_APPEND
    source = stream(
        record_2(told, 5, 800, 4096, sequence=1),
        record_2(told | COMPLETE, 6, 800, 4096, sequence=2),
        record_2(Q | WRITE | ZONE_RESET, 7, 0, 0, sequence=3),
    )
    # WHEN they are read / THEN there is one completion, and the other is accounted for
    events = everything(source)
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
    # WHEN they are read / THEN they are told apart from ordinary I/O
    events = everything(source)
    names = [Context(source.header).op_name(int(opf)) for opf in events.opf]
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
    # WHEN they are read / THEN each is counted and told
    events = everything(source)
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
    # WHEN it is read / THEN the window and the count are known
    everything(source)
    assert source.losses == [{"start": 20, "end": 70, "cpu": 1, "level": 0, "kind": 0, "count": 5}]


# Which files belong together, where their records are, and what is wrong with them.


@pytest.mark.parametrize("cut", range(0, 30, 7))
def test_what_the_ftrace_stream_says_of_losses_is_heard(cut, monkeypatch):
    # GIVEN a stream with the tracer's own lines about losses, in blocks that cut them anywhere
    monkeypatch.setattr(blktrace, "BLOCK_BYTES", 100 + cut)
    data = [record(Q | READ, t, 8, 512) for t in (10, 20, 30)]
    source = stream(
        b"CPU:0 [LOST 4 EVENTS]\n",
        data[0],
        b"CPU:1 [LOST 1234 EVENTS]\n",
        data[1],
        b"CPU:1 [LOST EVENTS]\nCPU:0 [LOST 7 EVENTS]\n",
        data[2],
    )
    # WHEN it is read / THEN no event is missing, and each loss is known
    events = everything(source)
    assert events.ts.tolist() == [10, 20, 30]
    assert [(w["cpu"], w["count"]) for w in source.losses] == [(0, 4), (1, 1234), (1, -1), (0, 7)]
    assert source.unreadable_bytes == 0


@pytest.mark.parametrize("block", [100, 101, 122, 1 << 20])
@pytest.mark.parametrize("cut_off", [b"", b"\xaa" * 5])
def test_losses_behind_the_last_record_are_counted(block, cut_off, monkeypatch):
    # GIVEN a stream that ends with the tracer's lines about losses, and maybe with garbage
    monkeypatch.setattr(blktrace, "BLOCK_BYTES", block)
    data = [record(Q | READ, t, 8, 512) for t in (10, 20)]
    source = stream(*data, b"CPU:1 [LOST 5 EVENTS]\nCPU:0 [LOST EVENTS]\n", cut_off)
    # WHEN it is read
    events = everything(source)
    # THEN the losses are known, at the time of the last record, and only garbage is unreadable
    assert events.ts.tolist() == [10, 20]
    found = [(w["cpu"], w["count"], w["start"], w["end"]) for w in source.losses]
    assert found == [(1, 5, 20, 20), (0, -1, 20, 20)]
    assert source.unreadable_bytes == len(cut_off)


def test_files_are_merged_by_time_in_small_parts(tmp_path, monkeypatch):
    # GIVEN four CPUs' files of very different density, read in the smallest blocks
    monkeypatch.setattr(blktrace, "BLOCK_BYTES", 480)
    monkeypatch.setattr(blktrace, "_LEAST_BLOCK_BYTES", 480)
    monkeypatch.setattr(foreign, "PART_EVENTS", 40)
    random.seed(5)
    files, times = {}, []
    for cpu, number in enumerate((5, 400, 50, 300)):
        mine = sorted(random.sample(range(10**6), number))
        times += mine
        files[cpu] = b"".join(
            record(Q | READ, t, 8, 512, cpu=cpu, sequence=i) for i, t in enumerate(mine, 1)
        )
    source = BlktraceSource(write_set(tmp_path, "sda", files))
    # WHEN the parts are read
    parts = list(source.parts())
    # THEN nothing comes that is older than an earlier part was complete to
    complete = -1
    for part in parts:
        assert (part.events.ts >= complete).all()
        assert part.complete_to >= complete
        complete = part.complete_to
    assert sorted(times) == sorted(np.concatenate([p.events.ts for p in parts]).tolist())
    assert max(len(p.events) for p in parts) < 100
    assert parts[-1].offset == source.size


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 70), st.booleans(), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 400),
    st.sampled_from("<>"),
)
def test_records_of_any_size_are_found_in_blocks_of_any_size(shapes, block, order):
    # GIVEN records with payloads of any length, some of which look like the start of a record
    parts = [
        (record_2 if second else record)(
            Q | READ, t, 8, 512, order=order, pdu=(record(Q, 0)[:size] if fake else b"\7" * size)
        )
        for t, (size, second, fake) in enumerate(shapes)
    ]
    # WHEN they are read in blocks / THEN all are found, and nothing else
    file = RecordFile(io.BytesIO(b"".join(parts)), block, [])
    found = [t for batch in file.batches() for t in batch.head["time"].tolist()]
    assert found == list(range(len(parts)))
    assert file.unreadable == 0
    assert not file.problems
    assert file.offset == sum(map(len, parts))


@pytest.mark.parametrize("keep", [1, 4, 47, 48, 52])
def test_a_record_cut_off_is_told_and_the_others_are_kept(tmp_path, keep):
    # GIVEN a file of which the last record was not written whole
    whole = record(Q | READ, 10, 8, 512)
    cut = record(10 | QUEUE | READ, 20, pdu=struct.pack(">Q", 1))[:keep]
    path = tmp_path / "sda.blktrace.0"
    path.write_bytes(whole + cut)
    source = BlktraceSource(path)
    # WHEN it is read / THEN the whole ones are there, and what is missing is told
    events = everything(source)
    assert events.ts.tolist() == [10]
    assert source.unreadable_bytes == keep
    assert len(source.problems) == 1
    assert f"offset {len(whole)}" in source.problems[0]


def test_damage_in_the_middle_costs_only_itself():
    # GIVEN garbage between records, of any length
    good = [record(Q | READ, t, 8, 512, sequence=t) for t in (1, 2, 3)]
    for size in (1, 63, 5000, 3 << 20):
        source = stream(good[0], b"\xaa" * size, good[1], good[2])
        # WHEN it is read / THEN it is counted, and reading goes on behind it
        events = everything(source)
        assert events.ts.tolist() == [1, 2, 3]
        assert source.unreadable_bytes == size
        assert source.problems


def test_foreign_empty_and_newer_files_are_refused(tmp_path):
    # GIVEN what is no blktrace data
    newer = bytearray(record(Q, 1))
    newer[0] = 9
    for data, words in (
        (b"MZ" + bytes(100), "no blktrace data"),
        (b"", "empty"),
        (bytes(newer), "version 9"),
    ):
        path = tmp_path / "sda.blktrace.0"
        path.write_bytes(data)
        # WHEN it is opened THEN one message says what is wrong and where
        with pytest.raises(LogFormatError, match=words) as error:
            BlktraceSource(path)
        assert "sda.blktrace.0" in str(error.value)
        assert "\n" not in str(error.value)


def test_one_foreign_file_of_a_set_is_named(tmp_path):
    # GIVEN a set of which one file is something else, and one is empty
    prefix = write_set(tmp_path, "sda", {0: record(Q, 1), 1: b"", 2: b"something else"})
    # WHEN it is opened THEN that file is named
    with pytest.raises(LogFormatError, match=r"sda\.blktrace\.2"):
        BlktraceSource(prefix)


def test_a_missing_cpu_is_told(tmp_path):
    # GIVEN a set without CPUs 1 and 2
    prefix = write_set(tmp_path, "sda", {0: record(Q, 1), 3: record(Q, 2, cpu=3)})
    # WHEN it is read / THEN the rest is there, and the gap is told
    source = BlktraceSource(prefix)
    assert len(everything(source)) == 2
    assert "CPU 1, 2" in source.remarks[0]


def as_cut(whole: bytes, order: str) -> bytes:
    """What the ftrace tracer of Linux 6.19 makes of a `blk_io_trace2` and its payload."""
    payload = len(whole) - 64
    number = struct.pack(f"{order}I", 0x65617407)
    return number + whole[4:48] + whole[48 : 48 + payload]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("block", [64, 100, 1 << 20])
def test_records_that_the_newest_ftrace_tracer_cuts_are_read(order, block, monkeypatch):
    # GIVEN its stream: version 1's number and length, parts of the rest for the payload
    monkeypatch.setattr(blktrace, "BLOCK_BYTES", block)
    parts = [
        record_2(Q | READ, 50, 8, 512, order=order),
        record_2(10 | QUEUE | READ, 60, order=order, pdu=bytes(7) + b"\1"),
        record_2(15 | QUEUE | READ, 65, 16, 512, order=order, pdu=b"somewhere else..", cpu=1),
        record_2(Q | WRITE | ZONE_RESET, 70, 16, 512, order=order, device=7 << 20 | 1),
        record_2(10 | QUEUE | READ, 80, order=order, pdu=bytes(7) + b"\1"),
    ]
    lost = b"CPU:1 [LOST 3 EVENTS]\n"
    cut = [as_cut(part, order) for part in parts]
    source = stream(*cut[:2], lost, *cut[2:])
    # WHEN it is read / THEN all are there, what is missing of them is told, and nothing is damage
    events = everything(source)
    assert events.ts.tolist() == [50, 60, 65, 70, 80]
    assert events.dev.tolist() == [SDA, SDA, SDA, 7 << 20 | 1, SDA]
    assert events.cpu.tolist() == [0, 0, 1, 0, 0]
    assert Context(source.header).op_name(int(events.opf[3])) == "zone_reset"
    assert "errors" in source.remarks[0]
    assert len(source.remarks) == 1
    assert source.unreadable_bytes == 0
    assert [window["count"] for window in source.losses] == [3]


def test_a_real_stream_of_the_newest_ftrace_tracer_is_read():
    # GIVEN a stream recorded on Linux 7.2
    source = BlktraceSource(DATA / "cut.bin")
    # WHEN it is read / THEN its events are there
    events = everything(source)
    assert len(events) == 130
    assert set(events.dev.tolist()) == {254 << 20}
    assert source.unreadable_bytes == 0
    assert len(source.remarks) == 1


def test_sets_are_found_by_prefix_and_by_member(tmp_path, monkeypatch):
    # GIVEN a set among others with similar names
    prefix = write_set(tmp_path, "sda", {0: record(Q, 1), 11: record(Q, 2, cpu=11)})
    write_set(tmp_path, "sda1", {0: record(Q, 1)})
    (tmp_path / "sda.blktrace.txt").write_text("notes")
    wanted = [tmp_path / "sda.blktrace.0", tmp_path / "sda.blktrace.11"]
    # THEN each of its names leads to all of its files
    assert list(find(prefix).values()) == wanted
    assert list(find(tmp_path / "sda.blktrace.11").values()) == wanted
    monkeypatch.chdir(tmp_path)
    assert list(find("sda")) == [0, 11]
    assert find("sdb") == {}
    assert find("nowhere/sda") == {}


def test_opening_tells_logs_from_blktrace_data(tmp_path, monkeypatch):
    # GIVEN a log, a set and a stream, as files and as pipes
    log = tmp_path / "disk.biotrail"
    write_log(log, load("fsync-virtio"))
    shutil.copy(DATA / "stream.bin", tmp_path)
    write_set(tmp_path, "disk.biotrail", {0: record(Q, 1)})
    write_set(tmp_path, "sda", {0: record(Q, 1)})
    monkeypatch.chdir(tmp_path)
    # THEN each is opened as what it is, and a file goes before a set
    assert isinstance(open_source(log), LogSource)
    assert isinstance(open_source("stream.bin"), BlktraceSource)
    assert isinstance(open_source("sda"), BlktraceSource)
    for data, kind in (
        (log.read_bytes(), LogSource),
        ((DATA / "stream.bin").read_bytes(), BlktraceSource),
    ):
        source = open_source(Pipe(data))
        assert isinstance(source, kind)
        assert sum(len(part.events) for part in source.parts()) > 5
    with pytest.raises(LogFormatError, match="cannot be opened"):
        open_source("nothing-here")


# Numbers of blktrace's records that do not go up by one: missing, there before, begun again.


def queued(number: int, time: int, *, cpu: int = 0) -> bytes:
    return record(Q | READ, time, 8 * number, 512, sequence=number, cpu=cpu)


@pytest.mark.parametrize("block", [100, 1 << 20])
@pytest.mark.parametrize("name", ["vda", "zoned"])
def test_a_file_appended_to_itself_is_read_once(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a real set, and the same with each file twice, one behind the other
    monkeypatch.setattr(blktrace, "BLOCK_BYTES", block)
    monkeypatch.setattr(blktrace, "_LEAST_BLOCK_BYTES", block)
    for path in DATA.glob(f"{name}.blktrace.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes() * 2)
    # WHEN both are read
    once, twice = BlktraceSource(DATA / name), BlktraceSource(tmp_path / name)
    expected, found = everything(once), everything(twice)
    # THEN no event is there twice, and what was left out is counted, file by file
    named = found.kind != Kind.TASK  # names have no number
    assert found.ts[named].tolist() == expected.ts[expected.kind != Kind.TASK].tolist()
    assert not once.problems
    counts = [int(text.split(": ")[1].split()[0]) for text in twice.problems]
    assert sum(counts) >= (expected.kind != Kind.TASK).sum()
    assert all("records have numbers and times that were there before" in t for t in twice.problems)
    assert not twice.losses


def test_info_and_convert_say_that_a_part_stands_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a file that was appended to itself
    data = (DATA / "vda.blktrace.1").read_bytes()
    path = write_set(tmp_path, "vda", {0: b"", 1: data + data})
    # WHEN it is asked about, and converted
    said = []
    for words in (["info", str(path)], ["convert", str(path), "-o", str(tmp_path / "x.pftrace")]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
        said.append("".join(capsys.readouterr()))
    # THEN both say it, and no bio is counted twice
    for text in said:
        assert "a part of the file is there twice" in text
        assert "nothing is missing" not in text
    once, twice = Trace(write_set(tmp_path, "one", {0: b"", 1: data})), Trace(path)
    for trace in (once, twice):
        for _ in trace.lifecycles():
            pass
    assert once.account.bios == twice.account.bios


def test_parts_twice_gaps_and_numbers_that_begin_again() -> None:
    # GIVEN records 1, 2, 5, then 2 and 5 again, then 6
    parts = [queued(n, 10 * n) for n in (1, 2, 5, 2, 5, 6)]
    # WHEN they are read / THEN the gap is a loss, and the repeats are left out
    source = stream(*parts)
    events = everything(source)
    assert events.ts.tolist() == [10, 20, 50, 60]
    assert [(w["start"], w["end"], w["count"]) for w in source.losses] == [(20, 50, 2)]
    assert source.problems[0].split(": ")[1].startswith("2 records have numbers")
    # GIVEN one trace behind another: numbers begin at 1 again, at later times
    parts = [queued(n, 10 * n) for n in (1, 2, 3)] + [queued(n, 1000 + 10 * n) for n in (1, 2)]
    # WHEN they are read
    source = stream(*parts)
    events = everything(source)
    # THEN all are there, and what is missing between the two is said not to be known
    assert events.ts.tolist() == [10, 20, 30, 1010, 1020]
    assert [(w["start"], w["end"]) for w in source.damaged] == [(30, 1010)]
    assert "go back 1 times" in source.problems[0]
    assert not source.losses
    # GIVEN a line about lost events behind records of which one is a repeat
    parts = [queued(1, 10), queued(2, 20), queued(1, 10), b"CPU:1 [LOST 7 EVENTS]\n"]
    # WHEN they are read / THEN its window lies between those around it
    source = stream(*parts, queued(3, 30), record(C | READ, 40, 8, 512, sequence=4))
    everything(source)
    assert [(w["start"], w["end"], w["count"]) for w in source.losses] == [(20, 30, 7)]
    # GIVEN a CPU that has written 2^32 records
    top = (1 << 32) - 1
    parts = [queued(top - 1, 10), queued(top, 20), queued(1, 30), queued(2, 40)]
    # WHEN they are read / THEN nothing is there twice; number 0 counts as one that is missing
    source = stream(*parts)
    assert len(everything(source)) == 4
    assert not source.problems
    assert sum(w["count"] for w in source.losses) == 1
