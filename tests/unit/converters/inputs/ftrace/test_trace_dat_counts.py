# SPDX-License-Identifier: Apache-2.0
"""trace.dat files whose own sizes and counts do not add up: what is lost by it is told."""

import io
import struct
from dataclasses import replace

import numpy as np
import pytest

from biotrail.converters.inputs.ftrace.trace_dat import TraceDatSource
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import trace_dat as made
from tests.support.paths import DATA
from tests.support.sources import everything
from tests.support.trace_dat import FORMAT, issue

PER_PAGE, PAGES = 3, 4


def cpu_pages(first: int) -> bytes:
    """Return a CPU's pages, each with some issues."""
    pages = []
    for number in range(PAGES):
        time = first + 1000 * number
        pages.append(
            made.page([made.event(0, issue(time)), *[made.event(100, issue(8))] * 2], time)
        )
    return b"".join(pages)


def contents(version: int = 7, codec: str = "none", *, counted: bool = False) -> made.Contents:
    """Return two CPUs' data of an instance; counted: with the kernel's counts of their events."""
    found = made.Contents(
        {"block": [FORMAT]},
        [made.Pages("disk", "mono", {0: cpu_pages(10_000), 1: cpu_pages(10_050)})],
        version=version,
        codec=codec,
    )
    if not counted:
        return found
    number = PER_PAGE * PAGES
    return replace(found, options=made.counts({("disk", 0): number, ("disk", 1): number}))


WHOLE = 2 * PER_PAGE * PAGES


def read(data: bytes) -> tuple[TraceDatSource, int]:
    """Return the source of a file, read to its end, and the number of its block events."""
    source = open_source(io.BytesIO(data))
    assert isinstance(source, TraceDatSource)
    events = everything(source)
    return source, len(events)


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("codec", ["none", "zlib", "zstd"])
@pytest.mark.parametrize("counted", [False, True])
def test_a_whole_file_adds_up(version: int, codec: str, counted: bool) -> None:
    """GIVEN files of all kinds; THEN every event is read, and nothing is said to be damaged."""
    codec = "none" if version == 6 else codec
    source, events = read(made.trace_dat(contents(version, codec, counted=counted)))
    assert (events, source.problems, source.damaged) == (WHOLE, [], [])


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
@pytest.mark.parametrize("count", [0, 1, 3, 255, 1 << 31])
def test_a_count_of_chunks_that_is_not_theirs(codec: str, count: int) -> None:
    """GIVEN a file whose first CPU has 2 chunks, and another count of them; THEN both are read, as
    the CPU's size says, and that the two differ is told."""
    data = bytearray(made.trace_dat(contents(codec=codec)))
    at = data.index(struct.pack("<I", 2), 4096)
    assert at % 4096 == 0
    struct.pack_into("<I", data, at, count)
    source, events = read(bytes(data))
    assert events == WHOLE
    [problem] = source.problems
    assert f"has {count} chunks by its count at offset {at}, 2 by its size" in problem


def test_a_recording_of_trace_cmd_with_a_count_of_zero() -> None:
    """GIVEN trace-cmd's own recording with the count of a CPU's chunks zeroed; THEN all is read."""
    data = bytearray(made.trace_dat(made.contents_of(DATA / "ftrace" / "small.dat")))
    whole = read(bytes(data))[1]
    data[4096:4100] = bytes(4)
    source, events = read(bytes(data))
    assert events == whole
    assert any("has 0 chunks by its count at offset 4096" in text for text in source.problems)


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("cpu", [0, 1])
def test_a_size_that_leaves_data_out(version: int, cpu: int) -> None:
    """GIVEN a CPU's size that is a page less than its data; THEN the rest is told."""
    data = bytearray(made.trace_dat(contents(version)))
    sizes = [at for at in range(len(data) - 8) if data[at : at + 8] == struct.pack("<Q", 4 * 4096)]
    struct.pack_into("<Q", data, sizes[cpu], 3 * 4096)
    source, events = read(bytes(data))
    assert events == WHOLE - PER_PAGE
    assert any("are no CPU's by the file's table" in text for text in source.problems)


@pytest.mark.parametrize("version", [6, 7])
def test_fewer_events_than_the_kernel_counted(version: int) -> None:
    """GIVEN a page whose commit ends before its last event, in a file with the kernel's counts;
    THEN the event that is not read is told, with its CPU and buffer."""
    data = bytearray(made.trace_dat(contents(version, counted=True)))
    page = made.page([made.event(0, issue(12_000)), *[made.event(100, issue(8))] * 2], 12_000)
    (commit,) = struct.unpack_from("<Q", page, 8)
    at = data.index(page[:48])
    struct.pack_into("<Q", data, at + 8, commit // 3 * 2)
    source, events = read(bytes(data))
    assert events == WHOLE - 1
    assert any(
        "of 12 events of CPU 0 of instance 'disk' that the kernel gave out 11" in text
        for text in source.problems
    )


def test_damage_within_a_cpu_is_dated() -> None:
    """GIVEN a chunk that does not decompress; THEN a window of damage is where its events were."""
    data = bytearray(made.trace_dat(contents(codec="zstd")))
    chunk = data.index(b"\x28\xb5\x2f\xfd", data.index(struct.pack("<I", 2), 4096))
    second = data.index(b"\x28\xb5\x2f\xfd", chunk + 4)
    data[second + 6 : second + 12] = b"\xff" * 6
    source, events = read(bytes(data))
    assert events == WHOLE - 2 * PER_PAGE
    [window] = source.damaged
    assert 10_000 <= window["start"] <= 12_000 <= window["end"]


@pytest.mark.parametrize(("version", "codec"), [(6, "none"), (7, "none"), (7, "zstd")])
def test_any_byte_of_a_file(version: int, codec: str) -> None:
    """GIVEN a file with the kernel's counts, one bit of each of its bytes being wrong in turn; THEN
    whenever fewer events are read, that is told, or the file is refused."""
    whole = made.trace_dat(contents(version, codec, counted=True))
    for at in np.flatnonzero(np.frombuffer(whole, np.uint8)).tolist():
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        try:
            source, events = read(bytes(data))
        except LogFormatError as error:
            assert len(str(error)) > 20
            continue
        assert events >= WHOLE or source.problems or source.passed_over, at


def test_options_that_are_damaged_cost_themselves() -> None:
    """GIVEN a date, an offset and a kernel's name that are none; THEN the events are there."""
    odd = [
        (made.DATE, b"9" * 5000),
        (made.OFFSET, b"0x" + b"f" * 5000),
        (made.UNAME, b"\xff" * 9),
        (made.CPUSTAT, b"CPU: x\nread events: 12\0"),
        (made.CPUCOUNT, b"\1"),
    ]
    for option in odd:
        source, events = read(made.trace_dat(replace(contents(), options=[option])))
        assert (events, source.problems) == (WHOLE, [])


def test_a_section_of_the_pages_layout_costs_itself() -> None:
    """GIVEN a file whose section HEADER_INFO does not decompress; THEN all is read, and it says."""
    data = bytearray(made.trace_dat(contents(codec="zstd")))
    frame = data.index(b"\x28\xb5\x2f\xfd")
    data[frame : frame + 4] = bytes(4)
    source, events = read(bytes(data))
    assert events == WHOLE
    assert any("the layout of pages is taken to be the usual one" in t for t in source.problems)


def test_a_format_that_is_damaged_costs_its_event() -> None:
    """GIVEN a second event whose format is damaged; THEN the first is read, and that is told."""
    other = FORMAT.replace("block_rq_issue", "block_rq_insert").replace("ID: 7", "ID: 8")
    other = other.replace("offset:8", "offset:x")
    found = replace(contents(), formats={"block": [FORMAT, other]})
    source, events = read(made.trace_dat(found))
    assert events == WHOLE
    assert source.problems == [] or any("block_rq_insert" in text for text in source.problems)
