# SPDX-License-Identifier: Apache-2.0
"""trace.dat files: all versions and compressions alike, losses, instances, damage."""

import io
import itertools
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.ftrace.pages import find_events, page_layout
from biotrail.converters.inputs.ftrace.trace_dat import TraceDatSource
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support import trace_dat as made
from tests.support.sources import Pipe, everything
from tests.support.trace_dat import FORMAT, issue

DATA = Path(__file__).parents[4] / "data" / "ftrace"
SMALL = made.contents_of(DATA / "small.dat")


def opened(contents):
    return open_source(made.stream(contents))


def issues(*times, order="<", long_bytes=8, **options):
    """Return a page with a request issued at each time."""
    deltas = np.diff([times[0], *times]).tolist()
    events = [made.event(d, issue(8 * i, order), order) for i, d in enumerate(deltas)]
    return made.page(events, times[0], order, long_bytes, **options)


def of_issues(*buffers, **changes):
    return made.Contents({"block": [FORMAT]}, list(buffers), **changes)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("long_bytes", [4, 8])
@pytest.mark.parametrize("version", [6, 7])
def test_files_of_other_machines_are_read(order, long_bytes, version):
    # GIVEN a file of a machine with this order of bytes and size of long
    pages = issues(1000, 1500, order=order, long_bytes=long_bytes)
    contents = of_issues(
        made.Pages("", "mono", {1: pages}), order=order, long_bytes=long_bytes, version=version
    )
    # WHEN it is read / THEN times, CPUs and sectors are right
    events = everything(opened(contents))
    assert events.ts.tolist() == [1000, 1500]
    assert events.cpu.tolist() == [1, 1]
    assert events.raw[:, 3].tolist() == [0, 8]


def test_cpus_are_merged_by_time():
    # GIVEN two CPUs with many pages, each of which overlaps the other's
    first = b"".join(issues(t, t + 500) for t in range(1000, 2_000_000, 1000))
    second = b"".join(issues(t + 250, t + 750) for t in range(1000, 2_000_000, 1000))
    contents = of_issues(made.Pages("", "mono", {0: first, 1: second}))
    # WHEN they are read / THEN the parts follow each other in time
    source = opened(contents)
    parts = list(source.parts())
    events = Events.join([part.events for part in parts])
    assert len(events) == 4 * 1999
    for part, later in itertools.pairwise(parts):
        assert later.events.ts.min() >= part.complete_to


def test_losses_are_dated_between_their_cpus_events():
    # GIVEN a CPU of which 3 events were lost after 1500, and an unknown number before it begins
    pages = issues(1000, 1500, lost=-1) + issues(3000, lost=3)
    contents = of_issues(made.Pages("", "mono", {0: issues(500), 1: pages}))
    # WHEN it is read
    source = opened(contents)
    everything(source)
    # THEN the loss windows say so; the first begins where the other CPU's events do
    found = [(loss["start"], loss["end"], loss["cpu"], loss["count"]) for loss in source.losses]
    assert found == [(500, 1000, 1, -1), (1500, 3000, 1, 3)]
    # GIVEN a recording whose ring was too small: 188 of 560 events were left
    source = open_source(DATA / "lossy.dat")
    # WHEN it is read / THEN the other 372 are counted
    events = everything(source)
    assert np.count_nonzero(events.kind != Kind.TASK) == 188
    assert [loss["count"] for loss in source.losses] == [372]


@pytest.mark.parametrize("version", [6, 7])
def test_events_of_two_instances_are_taken_once(version):
    # GIVEN two buffers that recorded the same requests, one of them also another device's
    first = made.Pages("", "mono", {0: issues(1000, 2000)})
    other = made.page([made.event(1, issue(0)), made.event(5, issue(16, dev=8 << 20))], 1000)
    contents = of_issues(first, made.Pages("two", "mono", {0: other}), version=version)
    # WHEN they are read
    source = opened(contents)
    events = everything(source)
    # THEN a device's requests come from one buffer, and what was left out is said
    assert len(events) == 3
    assert any("1 events of buffer 'two' left out" in remark for remark in source.remarks)


def test_an_instance_with_another_clock_is_left_out():
    # GIVEN buffers with two clocks
    contents = of_issues(
        made.Pages("", "mono", {0: issues(1000)}), made.Pages("two", "local", {0: issues(2000)})
    )
    # WHEN they are read / THEN the first one's is taken, and the other one is named
    source = opened(contents)
    assert len(everything(source)) == 1
    assert any("instance 'two' has the clock 'local'" in remark for remark in source.remarks)


def test_counts_of_the_tsc_become_ns_and_others_are_refused():
    # GIVEN a recording by the TSC, with the numbers that convert it
    option = struct.pack("<IIQ", 1 << 31, 32, 0)  # half a ns a count
    pages = made.Pages("", "x86-tsc", {0: issues(1 << 40, (1 << 40) + 3000)})
    # WHEN it is read / THEN times are ns
    events = everything(opened(of_issues(pages, options=[(made.TSC2NSEC, option)])))
    assert events.ts.tolist() == [1 << 39, (1 << 39) + 1500]
    # GIVEN a recording by a counter
    contents = of_issues(made.Pages("", "counter", {0: issues(1, 2)}))
    # WHEN it is opened, THEN the reason and the remedy are said
    with pytest.raises(LogFormatError, match=r"clock 'counter'.*-C mono"):
        opened(contents)


def test_date_and_offset_are_applied():
    # GIVEN a recording with --date (microseconds) and --ts-offset (ns)
    contents = of_issues(
        made.Pages("", "mono", {0: issues(1000)}),
        options=[(made.DATE, b"0x10\0"), (made.OFFSET, b"500\0")],
    )
    # WHEN it is read / THEN times have the offset, and the wall clock is known
    source = opened(contents)
    assert everything(source).ts.tolist() == [1500]
    clocks = source.header["clocks"]
    assert (clocks["monotonic"], clocks["realtime"]) == (1500, 1500 + 16_000)
    # GIVEN an instance alone, in a file with --date
    contents = of_issues(
        made.Pages("one", "mono", {0: issues(1000)}), options=[(made.DATE, b"0x10\0")]
    )
    # WHEN it is opened / THEN the wall clock stays unknown, and that is said
    source = opened(contents)
    assert "clocks" not in source.header
    assert any("--date" in remark for remark in source.remarks)


def test_other_events_are_counted_by_name():
    # GIVEN an event of another system, and one without a format
    other = FORMAT.replace("block_rq_issue", "sched_switch").replace("ID: 7", "ID: 9")
    page = made.page([made.event(0, issue(0, kind=k)) for k in (7, 9, 9, 11)], 1)
    contents = made.Contents(
        {"block": [FORMAT], "sched": [other]}, [made.Pages("", "mono", {0: page})]
    )
    # WHEN it is read / THEN one event is there, and the others are counted
    source = opened(contents)
    assert len(everything(source)) == 1
    assert source.passed_over == {"sched_switch": 2, "event 11": 1}


@pytest.mark.parametrize("version", [6, 7])
def test_any_cut_gives_events_or_one_message(version):
    # GIVEN a file that ends anywhere
    codec = "none" if version == 6 else "zstd"
    whole = made.trace_dat(SMALL.changed(version=version, codec=codec))
    full = len(everything(open_source(io.BytesIO(whole))))
    counts = []
    for size in [*range(20, len(whole), 331), len(whole) - 1]:
        # WHEN it is read
        try:
            source = open_source(io.BytesIO(whole[:size]))
            events = everything(source)
        except LogFormatError as error:
            # THEN there is a message that says so
            assert "the stream" in str(error)
            continue
        # THEN what is there is read, and what is not is said
        counts.append(len(events))
        assert source.problems
    assert all(0 <= count <= full for count in counts)
    # Version 7 has its tables at the end, version 6 in front.
    assert (max(counts, default=0) > 100) == (version == 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.replace(b"tracing7", b"tracing8"), "version 8.*convert"),
        (lambda d: d.replace(b"zstd\0", b"lzma\0", 1), "compressed with 'lzma'"),
        (lambda d: d[:10], "has no end"),
        (lambda d: d.replace(b"ID: 7\n", b"ID: x\n"), "no formats of events"),
    ],
)
def test_foreign_and_newer_files_are_refused_with_the_reason(change, message):
    # GIVEN a file that cannot be read
    contents = of_issues(made.Pages("", "mono", {0: issues(1000)}), codec="zstd")
    whole = made.trace_dat(contents.changed(codec="none"))
    whole = whole.replace(b"none\0", b"zstd\0", 1) if "lzma" in message else whole
    # WHEN it is opened, THEN one message says why
    with pytest.raises(LogFormatError, match=message):
        open_source(io.BytesIO(change(whole)))


def test_cpus_that_share_data_and_pipes_are_refused():
    # GIVEN a table by which 1000 CPUs have the same megabyte
    pages = dict.fromkeys(range(1000), b"")
    contents = of_issues(made.Pages("", "mono", pages), codec="none")
    whole = bytearray(made.trace_dat(contents) + bytes(1 << 20))
    at = whole.index(struct.pack("<II", 4096, 1000)) + 8
    for cpu in range(1000):
        struct.pack_into("<IQQ", whole, at + 20 * cpu, cpu, 4096, 1 << 20)
    # WHEN it is opened, THEN it is refused before any of it is read
    with pytest.raises(LogFormatError, match="damaged"):
        open_source(io.BytesIO(bytes(whole)))

    # GIVEN a stream that cannot seek / WHEN it is opened, THEN the message says to give a path
    with pytest.raises(LogFormatError, match="give its path"):
        TraceDatSource(Pipe(made.trace_dat(SMALL)))


# Ring-buffer pages: events, times and losses of pages laid out by hand.


def found(*pages, order="<", long_bytes=8, page_bytes=4096):
    name = "little" if order == "<" else "big"
    layout = page_layout(name, page_bytes, long_bytes, "")
    return find_events(np.frombuffer(b"".join(pages), np.uint8), layout)


def data_of(events, pages):
    block = b"".join(pages)
    return [block[at : at + size] for at, size in zip(events.at, events.size, strict=True)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("long_bytes", [4, 8])
def test_events_of_all_kinds_have_their_times(order, long_bytes):
    # GIVEN two pages with events by words and by size, time extends, a stamp, and discarded events
    far, stamp = 1 << 40, (5 << 59) | 99
    first = made.page(
        [
            made.event(10, b"abcd", order),
            made.padding(16, 3, order),
            made.event(20, b"x" * 200, order),
            made.time_extend(far, order),
            made.event(0, b"efgh", order),
        ],
        1000,
        order,
        long_bytes,
    )
    second = made.page(
        [made.time_stamp(stamp, order), made.event(7, b"ijkl", order)], 5 << 59, order, long_bytes
    )
    # WHEN they are walked together
    events = found(first, second, order=order, long_bytes=long_bytes)
    # THEN each event has its data and time, in the order of the pages
    assert data_of(events, [first, second]) == [b"abcd", b"x" * 200, b"efgh", b"ijkl"]
    assert events.time.tolist() == [1010, 1033, 1033 + far, stamp + 7]
    assert events.page.tolist() == [0, 0, 0, 1]
    assert events.unreadable == 0


def test_counts_and_random_pages_end():
    # GIVEN a full page that says a count is stored
    full = made.page([made.event(0, bytes(100))] * 39 + [made.event(0, bytes(20))])
    commit = struct.unpack_from("<Q", full, 8)[0]
    assert commit == 4080
    marked = full[:8] + struct.pack("<Q", commit | 3 << 30) + full[16:]
    # WHEN it is read / THEN events were lost, and nobody knows how many
    events = found(marked)
    assert events.lost.tolist() == [-1]
    assert len(events.at) == 40
    # GIVEN pages before which none, three and an unknown number of events were lost
    event = made.event(0, b"abcd")
    pages = [made.page([event]), made.page([event], lost=3), made.page([event], lost=-1)]
    # WHEN they are read / THEN the counts are there, -1 for the unknown one
    events = found(*pages)
    assert events.lost.tolist() == [0, 3, -1]
    assert len(events.at) == 3
    # GIVEN pages of random bytes
    pages = np.random.default_rng(1).integers(0, 256, 64 * 4096, dtype=np.uint8)
    # WHEN they are read / THEN every event lies in its page
    events = find_events(pages, page_layout("little", 4096, 8, ""))
    assert (events.at % 4096 + events.size <= 4096).all()


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (made.event(1, b"abcd") + struct.pack("<II", 0, 4), 1),  # an event of no bytes
        (made.event(1, b"abcd") + struct.pack("<II", 0, 0), 1),  # shorter than its own size
        (made.event(1, b"abcd") + struct.pack("<II", 0, 1 << 31), 1),  # leaves the page
        (struct.pack("<I", 28), 0),  # longer than what is committed
    ],
)
def test_what_can_be_no_event_ends_its_page_alone(data, good):
    # GIVEN a page with a record that cannot be, and a good page behind it
    pages = [made.page([data]), made.page([made.event(1, b"good")])]
    # WHEN they are read / THEN the rest of the first page is counted, the other one is read
    events = found(*pages)
    assert len(events.at) == good + 1
    assert data_of(events, pages)[-1] == b"good"
    assert events.unreadable == len(data) - 8 * good


def test_a_page_that_declares_more_than_it_has_is_read_and_reported():
    # GIVEN a page that says that 5000 bytes were committed
    page = made.page([made.event(1, b"abcd")])
    page = page[:8] + struct.pack("<Q", 5000) + page[16:]
    # WHEN it is read / THEN its event is there, and the page counts as damaged
    events = found(page)
    assert data_of(events, [page])[0] == b"abcd"
    assert events.unreadable > 0


def test_the_kernel_says_how_long_its_longs_are():
    # GIVEN a 64-bit kernel traced by a 32-bit trace-cmd
    text = made.HEADER_PAGE.format(long=8, data=16, rest=4080)
    # WHEN the layout is asked for / THEN the kernel's is taken
    layout = page_layout("little", 4096, 4, text)
    assert (layout.commit_bytes, layout.data_at) == (8, 16)


# trace.dat files whose own sizes and counts do not add up: what is lost by it is told.

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
    assert "does not decompress" in source.problems[0]
    assert source.unreadable_bytes > 0


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
