# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

from biotrail.converters.outputs.perfetto.packets.encode import Rows, tag, varint, widths

U64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (2**64 - 1, b"\xff" * 9 + b"\x01")],
)
def test_a_varint_takes_its_shortest_form(value, expected):
    # GIVEN a value at an edge / WHEN it is encoded / THEN protobuf's bytes come out
    assert varint(value) == expected


@given(st.lists(U64, min_size=1, max_size=30))
def test_widths_are_those_of_the_varints(values):
    # GIVEN any values / WHEN their widths are asked for / THEN they are the varints' lengths
    assert widths(np.array(values, dtype=np.uint64)).tolist() == [len(varint(v)) for v in values]


@given(
    st.lists(
        st.tuples(U64, st.booleans(), st.integers(0, 2**32 - 1), st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_rows_parse_as_the_messages_that_were_meant(entries):
    # GIVEN rows with optional fields and nested messages
    times, has_event, values, has_value = (list(c) for c in zip(*entries, strict=True))
    event, value = np.array(has_event), np.array(has_event) & np.array(has_value)
    rows = Rows(len(entries))
    with rows.message(tag(1, 2)):
        rows.varint(tag(8, 0), np.array(times, dtype=np.uint64))
        rows.const(tag(13, 0) + b"\x02")
        with rows.message(tag(11, 2), event):
            rows.varint(tag(9, 0), np.ones(len(entries), np.uint8), event)
            rows.varint(tag(10, 0), np.array(values, dtype=np.uint64), value)

    # WHEN the bytes are parsed
    trace = Trace()
    trace.ParseFromString(rows.finish())

    # THEN every message has what its row was given, and nothing else
    expected = []
    for at, has, number, valued in entries:
        packet = TracePacket(timestamp=at, sequence_flags=2)
        if has:
            packet.track_event.type = 1
            if valued:
                packet.track_event.name_iid = number
        expected.append(packet)
    assert list(trace.packet) == expected


def test_a_field_that_no_row_has_takes_no_bytes():
    # GIVEN a field with an empty mask / WHEN the rows are written / THEN it leaves no trace
    rows = Rows(3)
    nobody = np.zeros(3, dtype=np.bool_)
    rows.const(b"\x68\x02")
    rows.varint(b"\xff", np.ones(3, dtype=np.uint64), nobody)
    assert rows.finish() == b"\x68\x02" * 3
