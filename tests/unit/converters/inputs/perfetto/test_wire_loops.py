# SPDX-License-Identifier: Apache-2.0
"""The loops over the wire format give the same uncompiled."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.perfetto import ftrace, packets, survey, wire
from biotrail.converters.inputs.perfetto.source import PerfettoSource
from tests.support.both_ways import uncompiled
from tests.support.paths import DATA

SAMPLE = DATA / "perfetto" / "ext4-on-loop.pftrace"
UNCOMPILED = uncompiled("converters/inputs/perfetto/wire_loops.py")


@pytest.fixture
def plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops as Python, in the place of those that are compiled."""
    for user in (wire, ftrace, packets, survey):
        monkeypatch.setattr(user, "loops", UNCOMPILED)


def _read(path: Path) -> tuple[Events, list[str]]:
    source = PerfettoSource(path)
    return Events.join([part.events for part in source.parts()]), source.remarks


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


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


@pytest.mark.parametrize("value", [0, 127, 128, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_of_64_bits(value: int, plain_loops: None) -> None:
    # GIVEN a message with a number as varint and as fixed 64 bits
    data = memoryview(b"\x08" + _varint(value) + b"\x11" + value.to_bytes(8, "little"))
    message = wire.Messages(data, np.array([0]), np.array([len(data)]))
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
    messages = wire.Messages(buffer, np.concatenate([[0], ends[:-1]]), ends)
    # WHEN all are read / THEN it is counted, and each has the field before that
    fields = messages.fields([1, 2])
    assert fields.broken == 1
    assert fields.values(2).tolist() == [7, 7, 7]
