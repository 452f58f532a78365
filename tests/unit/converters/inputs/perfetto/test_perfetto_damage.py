# SPDX-License-Identifier: Apache-2.0
"""Perfetto's traces whose packets are not where they belong: what is lost by it is told."""

import io
import zlib
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.perfetto.source import PerfettoSource
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support.paths import DATA
from tests.support.system_traces import SystemTrace
from tests.support.traced_events import makedev

T = 1_000_000_000_000
WHERE = {"dev": makedev(7, 2), "nr_sector": 8, "rwbs": "R"}
CLOCKS = {"boottime": T, "monotonic": T - 5, "realtime": 1_700_000_000_000_000_000}
BUNDLE = b"\x0a"
"""Tag of TracePacket.ftrace_events."""


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
    events = Events.join([part.events for part in source.parts()])
    return source, len(events.rows(Kind.D))


def field(number: int, data: bytes) -> bytes:
    """Return a field of bytes, of less than 2 MiB."""
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    size = len(data)
    return head + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + data


def test_a_whole_trace_adds_up() -> None:
    """GIVEN Perfetto's own trace, plain, packed, and made ones; THEN nothing is said of damage."""
    for data in (
        (DATA / "perfetto" / "ext4-on-loop.pftrace").read_bytes(),
        trace().bytes(),
        trace().compressed().bytes(),
    ):
        source, _ = read(data)
        assert (source.problems, source.damaged) == ([], [])


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


def test_packets_compressed_in_compressed_packets() -> None:
    """GIVEN packets that are compressed twice; THEN that they are left out is told."""
    inner = trace(2).compressed()
    outer = SystemTrace([*trace(1).packets, *inner.compressed().packets])
    source, events = read(outer.bytes())
    assert events == 2
    assert any("1 packets are compressed within compressed ones" in t for t in source.problems)


def test_compressed_packets_that_go_on_in_none() -> None:
    """GIVEN compressed packets with no field between two; THEN that the rest is lost is told."""
    found, packed = trace(1), trace(2)
    first = Trace(packet=packed.packets[:3]).SerializeToString()
    rest = Trace(packet=packed.packets[3:]).SerializeToString()
    found.add(compressed_packets=zlib.compress(first + b"\x0b" + rest))
    source, events = read(found.bytes())
    assert events == 4
    assert any("cannot be decompressed" in text for text in source.problems)


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


def test_a_bundle_that_ends_in_no_field() -> None:
    """GIVEN a bundle that is damaged behind its first event; THEN what is lost is told."""
    whole = trace(1, 3)
    bundle = whole.packets[2].ftrace_events.SerializeToString()
    third = bundle.rindex(b"\x12")
    damaged = bundle[:third] + b"\x0b" + bundle[third + 1 :]
    data = Trace(packet=whole.packets[:2]).SerializeToString() + field(1, field(1, damaged))
    source, events = read(data)
    assert events < 3
    assert any("damaged" in text for text in source.problems)


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
