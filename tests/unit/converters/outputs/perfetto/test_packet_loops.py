# SPDX-License-Identifier: Apache-2.0
"""The compiled passes write what numpy writes, to the byte, compiled or not."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.events.tables import Stages
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import ARGUMENTS, BIO, Detail
from biotrail.converters.outputs.perfetto.packets.columns import Flows, Slices, StageColumns
from biotrail.converters.outputs.perfetto.packets.encode import Rows, tag, varint, widths
from biotrail.converters.outputs.perfetto.slices import times
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER
from biotrail.converters.outputs.perfetto.writing import encoding
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.both_ways import uncompiled
from tests.support.paths import ROOT

PATH_LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
PACKETS = "converters/outputs/perfetto/writing/packet_loops.py"
STAGES = "converters/outputs/perfetto/slices/stage_loops.py"


@pytest.fixture(params=["compiled", "uncompiled"])
def loops(request):
    """packet_loops and stage_loops."""
    found = encoding.loops, times.loops
    if request.param == "uncompiled":
        found = uncompiled(PACKETS), uncompiled(STAGES)
        assert not (found[0].COMPILED or found[1].COMPILED)
    elif None in found:
        pytest.skip("the loops are not compiled here")
    return found


def large(rng, n, most=64):
    """Numbers of all lengths."""
    return rng.integers(0, 2**63, n, dtype=np.uint64) * np.uint64(2) >> rng.integers(
        64 - most, 64, n, dtype=np.uint64
    )


def groups(rng, n, most):
    """(first, count) of up to `most` rows for each of n slices, and how many rows that are."""
    count = rng.integers(0, most + 1, n)
    return np.cumsum(count) - count, count, int(count.sum())


def made_up(rng, n):
    """Slices that have everything, some of it."""
    start = np.cumsum(rng.integers(0, 3_000, n))
    first, count, total = groups(rng, n, 4)
    begins = np.repeat(start, count) + rng.integers(-10, 400, total)
    stages = StageColumns(
        first,
        count,
        rng.integers(1, 1000, total).astype(np.uint16),
        begins,
        begins + rng.integers(0, 500, total),
        large(rng, total) * rng.integers(0, 2, total).astype(np.uint64),
    )
    whole = start + 2_000 + rng.integers(0, 1 << 20, n)
    slices = Slices(
        BIO,
        np.arange(n),
        np.zeros(n, np.int64),
        start,
        np.where(rng.random(n) < 0.1, FOREVER, whole),
        large(rng, n, 20) + np.uint64(1),
        large(rng, n),
        rng.random(n) < 0.5,
        large(rng, n, 20) * (rng.random(n) < 0.5).astype(np.uint64),
        stages=stages,
    )
    names = [argument.name for argument in ARGUMENTS[BIO]]
    slices.uint(names[0], large(rng, n))
    slices.text(names[1], large(rng, n, 14) * (rng.random(n) < 0.5).astype(np.uint64))
    slices.true(names[2], rng.random(n) < 0.3)
    slices.sint(names[6], large(rng, n).view(np.int64), rng.random(n) < 0.3)
    at = np.flatnonzero(rng.random(n) < 0.3)
    part = Slices(BIO, at, at, start[at], start[at], slices.name[at], None)
    part.uint(names[3], np.arange(len(at)) + 2**32)
    part.text(names[4], large(rng, len(at), 30))
    part.true(names[5], rng.random(len(at)) < 0.5)
    slices.adopt(part, at)
    first, count, total = groups(rng, n, 3)
    slices.flows = Flows(first, count, large(rng, total))
    return slices


@pytest.mark.parametrize("seed", range(6))
def test_slices_have_the_same_bytes(loops, monkeypatch, seed):
    # GIVEN slices with all that they can have, on several lanes
    rng = np.random.default_rng(seed)
    slices = made_up(rng, 150)
    if seed == 1:
        slices.stages = slices.flows = slices.family = slices.callstack = slices.in_family = None
    if seed == 2:
        slices.columns, slices.in_family = [], None
        slices.stages.flow = None
    # A lane's slices do not overlap.
    stream = np.arange(150) if seed % 2 else np.arange(150)[::-1].copy()
    sequences = rng.integers(1, 1 << 21, 150).astype(np.uint64)
    before = np.zeros(150, np.int64)
    monkeypatch.setattr(encoding, "BLOCK", 64)
    monkeypatch.setattr(encoding, "loops", None)
    mine, numpys = before.copy(), before.copy()
    # WHEN they are encoded both ways
    expected = b"".join(encoding.encode(slices, stream, sequences, numpys))
    found = b"".join(encoding.by_loops(loops[0], slices, stream, sequences, mine))
    # THEN the bytes are the same, and so is what each lane ends with
    assert found == expected
    assert mine.tolist() == numpys.tolist()


def test_several_slices_on_a_lane_follow_each_other(loops, monkeypatch):
    # GIVEN slices that alternate between two lanes
    n = 40
    start = np.arange(n) * 100
    names = np.ones(n, np.uint64)
    slices = Slices(BIO, np.arange(n), start * 0, start, start + 90, names, None)
    stream, sequences = np.arange(n) % 2, np.array([5000, 20_000], np.uint64)
    monkeypatch.setattr(encoding, "loops", None)
    lasts = np.zeros((2, 2), np.int64)
    # WHEN they are encoded both ways THEN the bytes are the same, and times are those since then
    expected = b"".join(encoding.encode(slices, stream, sequences, lasts[0]))
    assert b"".join(encoding.by_loops(loops[0], slices, stream, sequences, lasts[1])) == expected
    assert lasts.tolist() == [[3890, 3990]] * 2


@pytest.mark.parametrize("shape", ["all", "some", "others", "mixed", "slices mixed"])
def test_stages_find_their_slices(loops, shape):
    # GIVEN slices by number, and stages of them, of some, of others too, or not in order
    rng = np.random.default_rng(3)
    number = np.sort(rng.choice(1000, 80, replace=False))
    owner = np.repeat(number, rng.integers(0, 4, 80))
    if shape == "some":
        owner = owner[rng.random(len(owner)) < 0.4]
    if shape == "others":
        owner = np.sort(np.concatenate([owner, rng.integers(-5, 1010, 60)]))
    if shape == "mixed":
        owner = rng.permutation(owner)
    if shape == "slices mixed":  # where no stage belongs to a later slice
        number[-2:] = number[-2:][::-1].copy()
        owner = owner[owner < number[-1]]
    start = rng.integers(0, 5_000, len(owner))
    stages = Stages(
        owner,
        rng.integers(0, 4, len(owner)).astype(np.uint8),
        start,
        start + rng.integers(0, 90, len(owner)),
    )
    start = rng.integers(0, 500, 80)
    names = np.ones(80, np.uint64)
    slices = Slices(BIO, number, number, start, start + 3_000, names, None)
    # WHEN each looks for its slice
    rows = times.ascending_rows(loops[1], number, owner)
    # THEN it has it if the slice is there; if they are not in order, the other way is taken
    if "mixed" in shape:
        assert rows is None
        return
    places = {one: row for row, one in enumerate(number.tolist())}
    assert rows.tolist() == [places.get(one, -1) for one in owner.tolist()]
    # AND the slices have the same stages
    found = times.laid(loops[1], slices, stages, rows)
    kept = np.flatnonzero(rows >= 0)
    at = rows[kept]
    begin = np.maximum(stages.start[kept], slices.start[at])
    end = np.minimum(np.maximum(stages.end[kept], begin), slices.end[at])
    lasts = end > begin
    assert found.start.tolist() == begin[lasts].tolist()
    assert found.end.tolist() == end[lasts].tolist()
    assert found.name.tolist() == (stages.stage[kept][lasts] + 1).tolist()
    assert found.count.tolist() == np.bincount(at[lasts], minlength=80).tolist()


def converted(log, detail, window):
    trace, out = Trace(log), io.BytesIO()
    convert(trace.lifecycles(window), trace.context, out, detail=detail)
    return out.getvalue()


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("name", ["kyber-loop-and-virtio", "plugged-merge-loop"])
def test_traces_are_the_same(loops, monkeypatch, tmp_path, name, detail):
    # GIVEN a log / WHEN it is converted by numpy and by the loops THEN not a byte differs
    log = captures.write_log(tmp_path / "log", captures.load(name))
    monkeypatch.setattr(encoding, "loops", None)
    monkeypatch.setattr(times, "loops", None)
    expected = converted(log, detail, 50)
    monkeypatch.setattr(encoding, "loops", loops[0])
    monkeypatch.setattr(times, "loops", loops[1])
    assert converted(log, detail, 50) == expected


def test_a_trace_with_calls_and_arrows_is_the_same(loops, monkeypatch):
    # GIVEN a log of the path / WHEN it is converted by numpy and by the loops
    monkeypatch.setattr(encoding, "loops", None)
    monkeypatch.setattr(times, "loops", None)
    expected = converted(PATH_LOG, Detail.FULL, 5_000)
    monkeypatch.setattr(encoding, "loops", loops[0])
    monkeypatch.setattr(times, "loops", loops[1])
    # THEN not a byte differs
    assert converted(PATH_LOG, Detail.FULL, 5_000) == expected


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
    # GIVEN rows with optional fields, nested messages and an annotation
    times, has_event, values, has_value = (list(c) for c in zip(*entries, strict=True))
    event, value = np.array(has_event), np.array(has_event) & np.array(has_value)
    rows = Rows(len(entries))
    with rows.message(tag(1, 2)):
        rows.varint(tag(8, 0), np.array(times, dtype=np.uint64))
        rows.const(tag(13, 0) + b"\x02")
        with rows.message(tag(11, 2), event):
            rows.const(tag(9, 0) + b"\x01", event)
            head = b"\x22\x00\x08\x07\x18"
            rows.annotation(head, np.array(values, dtype=np.uint64), value)

    # WHEN the bytes are parsed
    trace = TraceMessage()
    trace.ParseFromString(rows.finish())

    # THEN every message has what its row was given, and nothing else
    expected = []
    for at, has, number, valued in entries:
        packet = TracePacket(timestamp=at, sequence_flags=2)
        if has:
            packet.track_event.type = 1
            if valued:
                packet.track_event.debug_annotations.add(name_iid=7, uint_value=number)
        expected.append(packet)
    assert list(trace.packet) == expected


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_doubles_keep_every_bit(values):
    # GIVEN doubles / WHEN they are written as a fixed64 field / THEN they read back the same
    rows = Rows(len(values))
    with rows.message(tag(1, 2)), rows.message(tag(11, 2)):
        rows.fixed64(tag(44, 1), np.array(values))
    trace = TraceMessage()
    trace.ParseFromString(rows.finish())
    assert [p.track_event.double_counter_value for p in trace.packet] == values


def test_a_field_that_no_row_has_takes_no_bytes():
    # GIVEN a field with an empty mask / WHEN the rows are written / THEN it leaves no trace
    rows = Rows(3)
    nobody = np.zeros(3, dtype=np.bool_)
    rows.const(b"\x68\x02")
    rows.const(b"\xff", nobody)
    rows.varint(b"\xff", np.ones(3, dtype=np.uint64), nobody)
    rows.annotation(b"\xff\x00", np.ones(3, dtype=np.uint64), nobody)
    assert rows.finish() == b"\x68\x02" * 3
