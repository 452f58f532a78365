# SPDX-License-Identifier: Apache-2.0
"""Perfetto's traces as a source: the events, clocks, losses and names in them."""

import gzip
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import FtraceEvent, Trace

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.perfetto import ftrace, packets, survey
from biotrail.converters.inputs.perfetto.ftrace import MESSAGES, kernel_dev
from biotrail.converters.inputs.perfetto.source import PerfettoSource
from biotrail.converters.pipeline import Trace as Lifecycle
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support.both_ways import uncompiled
from tests.support.paths import DATA
from tests.support.sources import Pipe, everything
from tests.support.system_traces import Event, SystemTrace, varint
from tests.support.traced_events import makedev

SAMPLE = DATA / "perfetto" / "ext4-on-loop.pftrace"
LOOP = makedev(7, 2)
T = 1_000_000_000_000
CLOCKS = {"boottime": T, "monotonic": T - 5, "realtime": 1_700_000_000_000_000_000}


def place(sector: int, **more: Any) -> dict[str, Any]:
    return {"dev": LOOP, "sector": sector, "nr_sector": 8, "rwbs": "RS", **more}


def read_of(at: int, sector: int, tid: int = 42) -> list[tuple[int, Event]]:
    """(CPU, event) of a read that is completed on another CPU."""
    named = {"comm": "reader"}
    return [
        (0, (at, tid, "block_bio_queue", place(sector, **named))),
        (0, (at + 1000, tid, "block_getrq", place(sector, **named))),
        (0, (at + 3000, tid, "block_rq_issue", place(sector, bytes=4096, **named))),
        (1, (at + 90_000, 0, "block_rq_complete", place(sector, error=0))),
    ]


def trace_of(found: list[tuple[int, Event]], more: int = 0) -> SystemTrace:
    """A trace with a bundle for each CPU, in the order of CPUs."""
    trace = SystemTrace()
    trace.clocks(CLOCKS)
    for cpu in (0, 1):
        trace.events(cpu, [event for of, event in found if of == cpu])
    for _ in range(more):
        trace.add()
    return trace


def bios_of(given: Any) -> list[tuple[int, int, int, int, str]]:
    """Queue, issue, completion, sector and thread's name of each bio."""
    trace = Lifecycle(given)
    found = []
    for window in trace.lifecycles():
        names = {int(t): str(c) for t, c in zip(window.tasks.tid, window.tasks.comm, strict=True)}
        bios = window.bios
        columns = (bios.queue, bios.issue, bios.complete, bios.sector, bios.tid)
        for row in zip(*(c.tolist() for c in columns), strict=True):
            found.append((*row[:4], names.get(row[4], "")))
    return sorted(found)


def wanted(at: int, sector: int) -> tuple[int, int, int, int, str]:
    return at, at + 3000, at + 90_000, sector, "reader"


def test_fields_are_those_of_the_published_messages() -> None:
    # GIVEN Perfetto's descriptors / THEN each number that is read is the field of that name
    for number, (name, fields) in MESSAGES.items():
        event = FtraceEvent.DESCRIPTOR.fields_by_number[number]
        assert event.name == name
        known = {field.name: field.number for field in event.message_type.fields}
        assert {n: f for n, f in fields.items() if f}.items() <= known.items()


@pytest.mark.parametrize("major, minor", [(8, 0), (259, 3), (7, 300), (4095, 1048575), (1, 255)])
def test_device_numbers_become_the_kernels(major: int, minor: int) -> None:
    # GIVEN a device's number as userspace has it / THEN it is the kernel's
    assert kernel_dev(np.array([makedev(major, minor)]))[0] == major << 20 | minor


def test_reads_become_bios_with_names_and_clocks(tmp_path: Path) -> None:
    # GIVEN a trace of two reads whose completions another CPU's bundle has
    path = trace_of(read_of(T + 10, 8) + read_of(T + 5000, 800)).write(tmp_path / "t.pftrace")
    # WHEN it is opened by its content
    source = open_source(path)
    # THEN both are bios, at BOOTTIME, and the header has the clocks
    assert isinstance(source, PerfettoSource)
    assert source.header["clocks"]["boottime"] == source.header["clocks"]["monotonic"] == T
    assert source.header["clocks"]["realtime"] == CLOCKS["realtime"]
    assert bios_of(path) == [wanted(T + 10, 8), wanted(T + 5000, 800)]


@pytest.mark.parametrize("form", ["gz", "zst", "compressed", "pipe", "stream"])
def test_every_form_of_a_trace_is_the_same(form: str, tmp_path: Path) -> None:
    # GIVEN a trace in another form
    trace = trace_of(read_of(T + 10, 8))
    data = trace.bytes()
    given: Any = tmp_path / "trace"

    forms = {"gz": gzip.compress(data), "zst": zstandard.compress(data)}
    forms["compressed"] = trace.compressed().bytes()
    given.write_bytes(forms.get(form, data))
    if form in ("pipe", "stream"):
        given = Pipe(data) if form == "pipe" else io.BytesIO(data)
    # WHEN it is read / THEN it has the same bio
    assert bios_of(given) == [wanted(T + 10, 8)]


def test_a_block_is_complete_up_to_what_follows(tmp_path: Path) -> None:
    # GIVEN a trace whose second CPU's events come in a later block of packets
    trace = trace_of([e for e in read_of(T + 10, 8) if e[0] == 0], more=70_000)
    trace.events(1, [e for _, e in read_of(T + 10, 8)[3:]])
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN its batches are read / THEN the first says that it is complete only up to the later event
    batches = list(source.batches())
    assert len(batches) > 2
    assert batches[0].complete_to == T + 10 + 90_000 - 1
    assert bios_of(io.BytesIO(trace.bytes())) == [wanted(T + 10, 8)]


def test_what_the_kernel_lost_is_dated(tmp_path: Path) -> None:
    # GIVEN a bundle before which the kernel overwrote events, and counts of another CPU
    trace = trace_of(read_of(T + 10, 8))
    trace.overruns(False, {0: (5, 0), 1: (0, 0), 2: (7, 0)})
    trace.events(1, [(T + 200_000, 0, "block_rq_complete", place(8, error=0))], lost=True)
    trace.overruns(True, {0: (5, 0), 1: (30, 1), 2: (9, 0)})
    trace.clocks({**CLOCKS, "boottime": T + 300_000})
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN it is read
    list(source.parts())
    # THEN the loss is between the events around it, and the other one within the trace
    found = [(w["start"], w["end"], w["cpu"], w["count"]) for w in source.losses]
    assert found == [(T + 90_010, T + 200_000, 1, -1), (T, T + 300_000, 2, 2)]
    assert any("CPU 1 lost 31 events in all" in remark for remark in source.remarks)


def test_dropped_packets_are_a_loss() -> None:
    # GIVEN a packet before which others were dropped
    trace = trace_of(read_of(T + 10, 8))
    trace.events(0, [(T + 200_000, 42, "block_bio_queue", place(80, comm="reader"))])
    trace.packets[-1].previous_packet_dropped = 1
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN it is read / THEN any CPU's events may be missing
    list(source.parts())
    assert [(w["end"], w["cpu"], w["count"]) for w in source.losses] == [(T + 200_000, -1, -1)]


def test_events_without_a_message_of_their_own() -> None:
    # GIVEN events that Perfetto writes with the names of their fields
    found = [
        (T + 1, 42, "block_rq_merge", place(8, bytes=4096, comm="reader")),
        (T + 2, 42, "block_rq_error", place(8, error=-5)),
        (T + 3, 42, "vendor_event", {"len": 3}),
    ]
    trace = SystemTrace()
    trace.events(0, found)
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN they are read / THEN those of the block layer are events, and the other is counted
    events = everything(source)
    assert events.ts.tolist() == [T + 1, T + 1, T + 2]
    assert source.header["events"]["letters"] == ["m", "E"]
    assert any("generic 1" in remark for remark in source.remarks)


def test_what_the_trace_describes_and_the_tree_names() -> None:
    # GIVEN a trace of Perfetto 50 or later: descriptors of events that it has no message for
    merge = {"dev": 1, "sector": 2, "nr_sector": 3, "rwbs": 4, "bytes": 5}
    trace = trace_of(read_of(1000, 8))
    trace.describe(70_000, "block_rq_merge", merge)
    trace.describe(70_001, "vendor_event", {"len": 1})
    trace.described(T + 5, 42, 70_000, {1: 8 << 8, 2: 2000, 3: 8, 4: "WS", 5: 4096})
    trace.described(T + 6, 42, 70_001, {1: 3})
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN it is read / THEN those of the block layer are events, with their fields
    events = everything(source)
    (row,) = np.flatnonzero(events.kind == Kind.RQ_MERGE)
    assert (events.ts[row], events.dev[row], events.sector[row]) == (T + 5, 8 << 20, 2000)
    assert events.bytes[row] == 4096
    # AND others are counted by their names
    assert any("vendor_event 1" in remark for remark in source.remarks)
    # GIVEN a thread of another process
    trace = trace_of(read_of(T + 10, 8, tid=43))
    trace.threads({43: (40, "reader")})
    # WHEN it is read / THEN the thread is of that process
    tasks = [w.tasks for w in Lifecycle(io.BytesIO(trace.bytes())).lifecycles()]
    assert (43, 40) in {
        pair for t in tasks for pair in zip(t.tid.tolist(), t.tgid.tolist(), strict=True)
    }


@pytest.mark.parametrize("damage", [b"\xff\xff", b"\x0a\x7fx"])
def test_descriptors_that_are_damaged_are_passed_over(damage: bytes) -> None:
    # GIVEN a descriptor that is none, one of Perfetto's own numbers, and one of far fields
    trace = trace_of(read_of(1000, 8))
    trace.describe(70_000, "block_rq_merge", {}, damage)
    trace.describe(45, "block_rq_merge", {"dev": 1})
    trace.describe(70_002, "block_rq_merge", {"dev": 1, "sector": 500_000_000})
    trace.described(T + 5, 42, 70_000, {1: 3})
    trace.described(T + 6, 42, 70_002, {1: 3})
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN it is read / THEN the trace's other events are there, and these are counted
    whole = PerfettoSource(io.BytesIO(trace_of(read_of(1000, 8)).bytes()))
    assert len(everything(source)) == len(everything(whole))
    assert any("event 70000 1" in remark for remark in source.remarks)
    assert any("without the field" in problem for problem in source.problems)


def test_another_clock_of_ftrace_is_moved() -> None:
    # GIVEN bundles whose ftrace clock is another, with a reading of both
    trace = trace_of(read_of(1000, 8))
    for packet in trace.packets:
        if packet.HasField("ftrace_events"):
            bundle = packet.ftrace_events
            bundle.ftrace_clock, bundle.ftrace_timestamp, bundle.boot_timestamp = 2, 500, T + 500
    # WHEN it is read / THEN times are BOOTTIME
    assert bios_of(io.BytesIO(trace.bytes())) == [wanted(T + 1000, 8)]


def test_events_of_another_machine_are_counted_and_passed_over() -> None:
    # GIVEN a trace that a guest's recorder sent its packets to: clocks, kernel and the same reads
    host = trace_of(read_of(T, 64))
    host.kernel("6.1.0")
    guest = trace_of(read_of(T + 5, 64) + read_of(T + 200_000, 640))
    guest.kernel("5.4.0-guest")
    for packet in guest.packets:
        packet.machine_id = 77
    # WHEN both are read, in either order
    for mixed in ([*host.packets, *guest.packets], [*guest.packets, *host.packets]):
        data = SystemTrace(mixed).bytes()
        source = PerfettoSource(io.BytesIO(data))
        # THEN the host's events alone are there, and how many packets are not is said
        assert len(everything(source)) == len(everything(PerfettoSource(io.BytesIO(host.bytes()))))
        assert source.header["kernel"]["release"] == "6.1.0"
        assert any(f"{len(guest.packets)} packets are of other" in r for r in source.remarks)
        assert bios_of(io.BytesIO(data)) == [wanted(T, 64)]
    # AND a trace in which only the guest has block events is refused
    with pytest.raises(LogFormatError, match="has no block events"):
        PerfettoSource(io.BytesIO(guest.bytes()))


def test_what_was_not_enabled_is_said() -> None:
    # GIVEN a trace whose configuration has two block events
    trace = trace_of([e for e in read_of(T + 10, 8) if e[1][2].startswith("block_rq")])
    config = trace.add().trace_config.data_sources.add().config.ftrace_config
    config.ftrace_events.extend(["block/block_rq_issue", "block/block_rq_complete", "sched/*"])
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    # WHEN it is read / THEN bios are said to be missing, and the request has its times
    list(source.parts())
    assert any("block_bio_queue was not recorded" in remark for remark in source.remarks)
    requests = [w.requests for w in Lifecycle(io.BytesIO(trace.bytes())).lifecycles()]
    assert [(int(r.issue[0]), int(r.complete[0])) for r in requests if len(r)] == [
        (T + 3010, T + 90_010)
    ]


@pytest.mark.parametrize(
    "data", [b"\n", b"\nabc", b"\n# tracer: nop\n#\n", b"\x0a\x00", b"\x1f\x8bxx", b"\x0a\xff\xff"]
)
def test_other_files_are_not_taken_for_a_trace(data: bytes) -> None:
    # GIVEN bytes that begin a little as a trace does / THEN no trace is seen in them
    with pytest.raises(LogFormatError):
        source = open_source(io.BytesIO(data))
        assert not isinstance(source, PerfettoSource)
        list(source.parts())


@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.93, 0.999])
def test_a_cut_trace_is_read_as_far_as_it_goes(share: float) -> None:
    # GIVEN a trace that ends within a packet
    data = SAMPLE.read_bytes()
    cut = data[: int(len(data) * share)]
    # WHEN it is read
    try:
        source = PerfettoSource(io.BytesIO(cut))
    except LogFormatError as error:
        assert "block events" in str(error)
        return
    list(source.parts())
    # THEN it says so
    assert any("cut off" in problem for problem in source.problems)


def test_hostile_lengths_take_no_memory() -> None:
    # GIVEN a packet that claims to have 2^60 bytes, and fields that claim more than there is
    whole = Trace.FromString(SAMPLE.read_bytes()[:0]).SerializeToString()
    good = trace_of(read_of(T + 10, 8)).bytes()
    for tail in (b"\x0a" + b"\xff" * 8 + b"\x0f", b"\x0a\x0b\x0a" + b"\xff" * 9 + b"\x7f"):
        # WHEN it stands behind others / THEN these are read
        assert bios_of(io.BytesIO(whole + good + tail)) == [wanted(T + 10, 8)]


@pytest.mark.parametrize("packed", [b"no zlib", zlib.compress(b"\n\x00" * (9 << 20))[:-9]])
def test_packets_that_do_not_inflate_are_counted(packed: bytes) -> None:
    # GIVEN a packet whose compressed packets are damaged, or more than is held
    trace = trace_of(read_of(T + 10, 8))
    trace.add(compressed_packets=packed)
    # WHEN it is read / THEN the others are, and it is counted
    assert bios_of(io.BytesIO(trace.bytes())) == [wanted(T + 10, 8)]
    source = PerfettoSource(io.BytesIO(trace.bytes()))
    assert any("1 compressed packets cannot be decompressed" in p for p in source.problems)


def test_a_damaged_packet_is_said() -> None:
    # GIVEN a packet that ends in something that is no field
    data = trace_of(read_of(T + 10, 8)).bytes() + b"\x0a\x03\x50\x01\x0b"
    # WHEN it is read / THEN the others are, and it is counted
    source = PerfettoSource(io.BytesIO(data))
    assert any("1 packets are damaged" in problem for problem in source.problems)
    assert bios_of(io.BytesIO(data)) == [wanted(T + 10, 8)]


# Perfetto's traces whose packets are not where they belong: what is lost by it is told.

WHERE = {"dev": makedev(7, 2), "nr_sector": 8, "rwbs": "R"}


def reads(first: int, count: int) -> list[Any]:
    """Return issues of reads, a microsecond apart."""
    issued = {"bytes": 4096, "comm": "dd"}
    return [
        (T + 1000 * i, 42, "block_rq_issue", WHERE | issued | {"sector": 8 * i})
        for i in range(first, first + count)
    ]


def trace(bundles: int = 3, each: int = 2) -> SystemTrace:
    """Return a trace with clocks, and bundles of reads of one CPU."""
    found = SystemTrace()
    found.clocks(CLOCKS)
    found.kernel("6.1.0")
    for number in range(bundles):
        found.events(0, reads(number * each, each))
    return found


def read(data: bytes) -> tuple[PerfettoSource, int]:
    """Return the source of a trace, read to its end, and the number of its block events."""
    source = open_source(io.BytesIO(data))
    assert isinstance(source, PerfettoSource)
    events = everything(source)
    return source, len(events.rows(Kind.D))


def field(number: int, data: bytes) -> bytes:
    """Return a field of bytes, of less than 2 MiB."""
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    size = len(data)
    return head + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + data


@pytest.mark.parametrize("place", ["first", "between", "last"])
def test_packets_below_another_field_of_the_trace(place: str) -> None:
    """GIVEN a field beside the packets, with packets in it; THEN its bytes are told."""
    before, after = trace(1).bytes(), SystemTrace([*trace(2).packets[2:]]).bytes()
    other = field(2, trace(2).bytes())
    data = {"between": before + other + after, "last": before + after + other}
    if place == "first":
        with pytest.raises(LogFormatError):
            open_source(io.BytesIO(other + before))
        return
    source, events = read(data[place])
    assert events == 6
    assert any(f"{len(other)} bytes lie beside the packets" in text for text in source.problems)


def test_compressed_packets_in_each_other_and_without_an_end() -> None:
    """GIVEN packets that are compressed twice; THEN that they are left out is told."""
    inner = trace(2).compressed()
    outer = SystemTrace([*trace(1).packets, *inner.compressed().packets])
    source, events = read(outer.bytes())
    assert events == 2
    assert any("1 packets are compressed within compressed ones" in t for t in source.problems)
    # GIVEN compressed packets with no field between two; THEN that the rest is lost is told.
    found, packed = trace(1), trace(2)
    first = Trace(packet=packed.packets[:3]).SerializeToString()
    rest = Trace(packet=packed.packets[3:]).SerializeToString()
    found.add(compressed_packets=zlib.compress(first + b"\x0b" + rest))
    source, events = read(found.bytes())
    assert events == 4
    assert any("cannot be decompressed" in text for text in source.problems)
    # GIVEN a bundle that is damaged behind its first event; THEN what is lost is told.
    whole = trace(1, 3)
    bundle = whole.packets[2].ftrace_events.SerializeToString()
    third = bundle.rindex(b"\x12")
    damaged = bundle[:third] + b"\x0b" + bundle[third + 1 :]
    data = Trace(packet=whole.packets[:2]).SerializeToString() + field(1, field(1, damaged))
    source, events = read(data)
    assert events < 3
    assert any("damaged" in text for text in source.problems)


@pytest.mark.parametrize("number", [2, 9, 11, 12, 33, 45, 60, 90, 99, 500])
def test_a_bundle_in_another_field_of_its_packet(number: int) -> None:
    """GIVEN a bundle of events in a field of another kind; THEN it is told, and dated."""
    whole = trace()
    bundle = whole.packets[3].ftrace_events.SerializeToString()
    packets = Trace(packet=whole.packets[:3]).SerializeToString()
    packets += field(1, field(number, bundle))
    packets += Trace(packet=whole.packets[4:]).SerializeToString()
    source, events = read(packets)
    assert events == 4
    assert any("1 bundles of ftrace events stand in fields" in text for text in source.problems)
    assert [(w["start"], w["end"]) for w in source.damaged] == [(T + 2000, T + 3000)]


def test_any_byte_of_a_trace() -> None:
    """GIVEN a trace, one bit of each of its bytes being wrong in turn; THEN whenever fewer events
    are read, that is told (damage, or events of another kind), or the trace is refused."""
    whole = trace(2).bytes()
    wanted = read(whole)[1]
    for at in range(len(whole)):
        for bit in (0, 1, 3, 4, 6, 7):
            data = bytearray(whole)
            data[at] ^= 1 << bit
            try:
                source, events = read(bytes(data))
            except LogFormatError as error:
                assert len(str(error)) > 20
                continue
            told = source.problems or source.passed_over or source.remarks
            assert events >= wanted or told, (at, bit)


# The loops over the wire format give the same uncompiled, with Cython's module and without it.


UNCOMPILED = uncompiled("converters/inputs/perfetto/wire_loops.py")


@pytest.fixture
def plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops as Python, in the place of those that are compiled."""
    for user in (ftrace, packets, survey):
        monkeypatch.setattr(user, "loops", UNCOMPILED)


def _read(path: Path) -> tuple[Events, list[str]]:
    source = PerfettoSource(path)
    return everything(source), source.remarks


@pytest.fixture(scope="module")
def expected() -> tuple[Events, list[str]]:
    return _read(SAMPLE)


def test_a_trace_is_the_same(expected: tuple[Events, list[str]], plain_loops: None) -> None:
    # GIVEN a trace that was read / WHEN it is read by loops that are not compiled
    events, remarks = _read(SAMPLE)
    # THEN nothing differs
    assert remarks == expected[1]
    assert np.array_equal(events.ts, expected[0].ts)
    assert np.array_equal(events.raw, expected[0].raw)


@pytest.mark.parametrize("value", [0, 127, 128, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_of_64_bits(value: int, plain_loops: None) -> None:
    # GIVEN a message with a number as varint and as fixed 64 bits
    data = memoryview(b"\x08" + varint(value) + b"\x11" + value.to_bytes(8, "little"))
    message = packets.Messages(data, np.array([0]), np.array([len(data)]))
    # WHEN both are read / THEN they are that number, signed
    fields = message.fields([1, 2])
    signed = value - 2**64 if value >= 2**63 else value
    assert [fields.values(n).tolist() for n in (1, 2)] == [[signed], [signed]]
    assert fields.broken == 0


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x08", b"\x08\x80", b"\x0a\x05abc", b"\x0a" + b"\xff" * 9 + b"\x01", b"\x09abc"),
        *(b"\x0b", b"\x00\x01", b"\xff" * 12, b"\x0c"),
    ],
)
def test_what_is_no_field_breaks_its_message_alone(data: bytes, plain_loops: None) -> None:
    # GIVEN a message that ends in no field, between two others
    whole = b"\x10\x07"
    ends = np.cumsum([len(whole), len(whole + data), len(whole)])
    buffer = memoryview(whole + whole + data + whole)
    messages = packets.Messages(buffer, np.concatenate([[0], ends[:-1]]), ends)
    # WHEN all are read / THEN it is counted, and each has the field before that
    fields = messages.fields([1, 2])
    assert fields.broken == 1
    assert fields.values(2).tolist() == [7, 7, 7]
