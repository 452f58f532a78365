# SPDX-License-Identifier: Apache-2.0
"""Ring-buffer pages: events, times and losses of pages laid out by hand."""

import struct

import numpy as np
import pytest

from biotrail.converters.inputs.ftrace.pages import find_events, page_layout
from tests.support import trace_dat as made


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
        [made.time_stamp(stamp, order), made.event(7, b"ijkl", order)],
        5 << 59,
        order,
        long_bytes,
    )
    # WHEN they are walked together
    events = found(first, second, order=order, long_bytes=long_bytes)
    # THEN each event has its data and time, in the order of the pages
    assert data_of(events, [first, second]) == [b"abcd", b"x" * 200, b"efgh", b"ijkl"]
    assert events.time.tolist() == [1010, 1033, 1033 + far, stamp + 7]
    assert events.page.tolist() == [0, 0, 0, 1]
    assert events.unreadable == 0


def test_lost_events_before_a_page_are_counted():
    # GIVEN pages before which none, three and an unknown number of events were lost
    event = made.event(0, b"abcd")
    pages = [made.page([event]), made.page([event], lost=3), made.page([event], lost=-1)]
    # WHEN they are read
    events = found(*pages)
    # THEN the counts are there, -1 for the unknown one
    assert events.lost.tolist() == [0, 3, -1]
    assert len(events.at) == 3


def test_a_count_without_room_behind_the_events_is_unknown():
    # GIVEN a full page that says a count is stored
    full = made.page([made.event(0, bytes(100))] * 39 + [made.event(0, bytes(20))])
    commit = struct.unpack_from("<Q", full, 8)[0]
    assert commit == 4080
    marked = full[:8] + struct.pack("<Q", commit | 3 << 30) + full[16:]
    # WHEN it is read
    events = found(marked)
    # THEN events were lost, and nobody knows how many
    assert events.lost.tolist() == [-1]
    assert len(events.at) == 40


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
    # WHEN they are read
    events = found(*pages)
    # THEN the rest of the first page is counted, the other one is read
    assert len(events.at) == good + 1
    assert data_of(events, pages)[-1] == b"good"
    assert events.unreadable == len(data) - 8 * good
    assert events.bad_page == 0


def test_a_page_that_declares_more_than_it_has_is_read_and_reported():
    # GIVEN a page that says that 5000 bytes were committed
    page = made.page([made.event(1, b"abcd")])
    page = page[:8] + struct.pack("<Q", 5000) + page[16:]
    # WHEN it is read
    events = found(page)
    # THEN its event is there, and the page counts as damaged
    assert data_of(events, [page])[0] == b"abcd"
    assert events.unreadable > 0


def test_the_kernel_says_how_long_its_longs_are():
    # GIVEN a 64-bit kernel traced by a 32-bit trace-cmd
    text = made.HEADER_PAGE.format(long=8, data=16, rest=4080)
    # WHEN the layout is asked for
    layout = page_layout("little", 4096, 4, text)
    # THEN the kernel's is taken
    assert (layout.commit_bytes, layout.data_at) == (8, 16)


def test_random_bytes_end():
    # GIVEN pages of random bytes
    pages = np.random.default_rng(1).integers(0, 256, 64 * 4096, dtype=np.uint8)
    # WHEN they are read
    events = find_events(pages, page_layout("little", 4096, 8, ""))
    # THEN every event lies in its page
    assert (events.at % 4096 + events.size <= 4096).all()
