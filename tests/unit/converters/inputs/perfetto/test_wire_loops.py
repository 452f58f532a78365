# SPDX-License-Identifier: Apache-2.0
"""The loops over the wire format give the same uncompiled, with Cython's module and without it."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from biotrail.converters.events import uncompiled
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.perfetto import ftrace, packets, survey, wire
from biotrail.converters.inputs.perfetto.source import PerfettoSource
from tests.support.paths import DATA, ROOT

SAMPLE = DATA / "perfetto" / "ext4-on-loop.pftrace"
SOURCE = ROOT / "converters" / "inputs" / "perfetto" / "wire_loops.py"


def _from_source(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["cython", "stand-in"])
def plain_loops(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The loops as Python, in the place of those that may be compiled."""
    if request.param == "stand-in":
        monkeypatch.setitem(sys.modules, "cython", uncompiled.StandIn("cython"))
    loops = _from_source(f"plain_wire_loops_{request.param.replace('-', '_')}")
    assert not loops.COMPILED
    for user in (wire, ftrace, packets, survey):
        monkeypatch.setattr(user, "loops", loops)
    yield loops


def _read(path: Path) -> tuple[Events, list[str]]:
    source = PerfettoSource(path)
    return Events.join([part.events for part in source.parts()]), source.remarks


@pytest.fixture(scope="module")
def expected() -> tuple[Events, list[str]]:
    return _read(SAMPLE)


def test_a_trace_is_the_same(expected: tuple[Events, list[str]], plain_loops: ModuleType) -> None:
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
def test_numbers_of_64_bits(value: int, plain_loops: ModuleType) -> None:
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
def test_what_is_no_field_breaks_its_message_alone(data: bytes, plain_loops: ModuleType) -> None:
    # GIVEN a message that ends in no field, between two others
    whole = b"\x10\x07"
    ends = np.cumsum([len(whole), len(whole + data), len(whole)])
    buffer = memoryview(whole + whole + data + whole)
    messages = wire.Messages(buffer, np.concatenate([[0], ends[:-1]]), ends)
    # WHEN all are read / THEN it is counted, and each has the field before that
    fields = messages.fields([1, 2])
    assert fields.broken == 1
    assert fields.values(2).tolist() == [7, 7, 7]


def test_without_cython_the_source_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN neither the compiled module nor Cython
    name = "biotrail.converters.inputs.perfetto.wire_loops"
    asked: list[str] = []

    def imported(module: str) -> ModuleType:
        asked.append(module)
        if len(asked) == 1:
            raise ModuleNotFoundError("No module named 'cython'", name="cython")
        assert isinstance(sys.modules["cython"], uncompiled.StandIn)
        return _from_source("plain_wire_loops_alone")

    monkeypatch.setattr(uncompiled.importlib, "import_module", imported)
    monkeypatch.delitem(sys.modules, "cython", raising=False)
    # WHEN the loops are imported / THEN a stand-in serves, and is gone afterwards
    assert not uncompiled.loops_of(name).COMPILED
    assert asked == [name, name]
    assert "cython" not in sys.modules
