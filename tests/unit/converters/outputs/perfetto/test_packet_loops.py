# SPDX-License-Identifier: Apache-2.0
"""The loops write the same bytes compiled and uncompiled, and as protobuf reads them."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.events.tables import Stages
from biotrail.converters.outputs.perfetto import columns, writing
from biotrail.converters.outputs.perfetto.columns import BOOL, FOREVER, Flows, Slices, StageColumns
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import ARGUMENTS, BIO, Detail, Options
from biotrail.converters.pipeline import Trace
from tests.support.both_ways import uncompiled
from tests.support.paths import ROOT

PATH_LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
COMPILED, UNCOMPILED = (writing.loops, uncompiled("converters/outputs/perfetto/loops.py"))


def use(monkeypatch, loops):
    monkeypatch.setattr(writing, "loops", loops)
    monkeypatch.setattr(columns, "loops", loops)


def large(rng, n, most=64):
    """Numbers of all lengths."""
    return rng.integers(0, 2**63, n, dtype=np.uint64) * np.uint64(2) >> rng.integers(
        64 - most, 64, n, dtype=np.uint64
    )


def groups(rng, n, most):
    """Count of up to `most` rows for each of n slices, and how many rows that are."""
    count = rng.integers(0, most + 1, n)
    return count, int(count.sum())


def made_up(rng, n):
    """Slices that have everything, some of it."""
    start = np.cumsum(rng.integers(0, 3_000, n))
    count, total = groups(rng, n, 4)
    begins = np.repeat(start, count) + rng.integers(-10, 400, total)
    stages = StageColumns(
        count,
        rng.integers(1, 1000, total).astype(np.uint16),
        begins,
        begins + rng.integers(0, 500, total),
        large(rng, total) * rng.integers(0, 2, total).astype(np.uint64),
    )
    whole = start + 2_000 + rng.integers(0, 1 << 20, n)
    slices = Slices(
        BIO,
        np.zeros(n, np.int64),
        start,
        np.where(rng.random(n) < 0.1, FOREVER, whole),
        large(rng, n, 20) + np.uint64(1),
        np.arange(n),
        np.arange(n),
        large(rng, n),
        rng.random(n) < 0.5,
        large(rng, n, 20) * (rng.random(n) < 0.5).astype(np.uint64),
        stages=stages,
    )
    names = [argument.name for argument in ARGUMENTS[BIO]]
    slices.put(names[0], large(rng, n))
    slices.text(names[1], large(rng, n, 14) * (rng.random(n) < 0.5).astype(np.uint64))
    some = rng.random(n) < 0.3
    slices.put(names[2], some, some, BOOL)
    slices.put(names[6], large(rng, n).view(np.int64), rng.random(n) < 0.3, columns.INT)
    at = np.flatnonzero(rng.random(n) < 0.3)
    part = slices.part(at)
    part.put(names[3], np.arange(len(at)) + 2**32)
    part.text(names[4], large(rng, len(at), 30))
    some = rng.random(len(at)) < 0.5
    part.put(names[5], some, some, BOOL)
    slices.adopt(part, at)
    count, total = groups(rng, n, 3)
    slices.flows = Flows(count, large(rng, total))
    return slices


def encoded(monkeypatch, loops, slices, stream, sequences):
    """The packets' bytes, and the times that lanes end with."""
    use(monkeypatch, loops)
    last = np.zeros(len(sequences), np.int64)
    return b"".join(writing.encode(slices, stream, sequences, last)), last.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_slices_have_the_same_bytes(monkeypatch, seed):
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
    monkeypatch.setattr(writing, "BLOCK", 64)
    # WHEN they are encoded both ways
    data, last = encoded(monkeypatch, COMPILED, slices, stream, sequences)
    # THEN the bytes are the same, and so is what each lane ends with
    assert encoded(monkeypatch, UNCOMPILED, slices, stream, sequences) == (data, last)
    assert last == writing.last_packet(slices)[np.argsort(stream)].tolist()
    # AND protobuf reads the slices of them, with their arguments, flows and stages
    trace = TraceMessage()
    trace.ParseFromString(data)
    assert told(trace.packet) == wanted(slices, sequences[stream])


def told(packets):
    """Per slice: sequence, begin, end (None: open), name, family, call stack, flows, arguments,
    stages. Packets of one slice follow each other."""
    found = []
    for packet in packets:
        event, sequence = packet.track_event, packet.trusted_packet_sequence_id
        if not found or found[-1][0] != sequence:
            found.append([sequence, 0, None, 0, 0, 0, [], {}, []])
            depth, at, slice_ = 0, 0, found[-1]
        at += packet.timestamp
        if event.type == event.TYPE_SLICE_BEGIN and depth == 0:
            slice_[1], slice_[3], slice_[4] = at, event.name_iid, event.correlation_id
            slice_[5], slice_[6] = event.callstack_iid, list(event.flow_ids)
            for argument in event.debug_annotations:
                (value,) = [value for field, value in argument.ListFields()[1:]]
                slice_[7][argument.name_iid] = value
        elif event.type == event.TYPE_SLICE_BEGIN:
            slice_[8].append((event.name_iid, at, list(event.flow_ids)))
        elif depth == 1:
            slice_[2] = at
        else:
            slice_[8][-1] += (at,)
        depth += 1 if event.type == event.TYPE_SLICE_BEGIN else -1
    return found


def wanted(slices, sequences):
    """What `told` finds: stages neither overlap nor begin before what is before them."""
    found = []
    for row in range(len(slices)):
        arguments = {}
        for column in slices.columns:
            rows = range(len(slices)) if column.at is None else column.at.tolist()
            if row in rows:
                value = column.values[rows.index(row)]
                value = value.view(np.int64) if column.tag == 0x20 else value
                arguments[column.iid] = bool(value) if column.tag == 0x10 else int(value)
        stages, at, parts = [], int(slices.start[row]), slices.stages
        for one in range(*span(parts, row)):
            begin = max(int(parts.start[one]), at)
            at = max(int(parts.end[one]), begin)
            flow = [int(parts.flow[one])] if parts.flow is not None and parts.flow[one] else []
            stages.append((int(parts.name[one]), begin, flow, at))
        has_family = slices.family is not None and (
            slices.in_family is None or slices.in_family[row]
        )
        found.append(
            [
                int(sequences[row]),
                int(slices.start[row]),
                None if slices.end[row] == FOREVER else int(slices.end[row]),
                int(slices.name[row]),
                int(slices.family[row]) if has_family else 0,
                0 if slices.callstack is None else int(slices.callstack[row]),
                [int(slices.flows.id[one]) for one in range(*span(slices.flows, row))],
                arguments,
                stages,
            ]
        )
    return found


def span(parts, row):
    """Where the parts of a slice are."""
    if parts is None:
        return 0, 0
    first = int(parts.count[:row].sum())
    return first, first + int(parts.count[row])


def test_several_slices_on_a_lane_follow_each_other(monkeypatch):
    # GIVEN slices that alternate between two lanes
    n = 40
    start = np.arange(n) * 100
    names = np.ones(n, np.uint64)
    slices = Slices.of_rows(BIO, start * 0, start, start + 90, names)
    stream, sequences = np.arange(n) % 2, np.array([5000, 20_000], np.uint64)
    # WHEN they are encoded both ways
    data, last = encoded(monkeypatch, COMPILED, slices, stream, sequences)
    # THEN the bytes are the same, and times are those since the lane's packet before
    assert encoded(monkeypatch, UNCOMPILED, slices, stream, sequences) == (data, last)
    assert last == [3890, 3990]
    trace = TraceMessage()
    trace.ParseFromString(data)
    since = [packet.timestamp for packet in trace.packet]
    assert since == [0, 90, 100, 90, *[110, 90] * (n - 2)]


@pytest.mark.parametrize("shape", ["all", "some", "others", "mixed", "slices mixed"])
@pytest.mark.parametrize("loops", [COMPILED, UNCOMPILED], ids=["compiled", "uncompiled"])
def test_stages_find_their_slices(monkeypatch, loops, shape):
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
    slices = Slices(BIO, number, start, start + 3_000, names, number, number)
    # WHEN each looks for its slice / THEN each slice has those that last, in their order
    use(monkeypatch, loops)
    columns.add_stages(slices, stages)
    found = slices.stages
    places = {one: row for row, one in enumerate(number.tolist())}
    rows = np.array([places.get(one, -1) for one in owner.tolist()])
    kept = np.argsort(rows, kind="stable")
    kept = kept[rows[kept] >= 0]
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
    convert(trace.lifecycles(window), trace.context, out, options=Options(detail=detail))
    return out.getvalue()


def test_a_trace_with_calls_and_arrows_is_the_same(monkeypatch):
    # GIVEN a log of the path / WHEN it is converted by the loops compiled and not
    expected = converted(PATH_LOG, Detail.FULL, 5_000)
    use(monkeypatch, UNCOMPILED)
    # THEN not a byte differs
    assert converted(PATH_LOG, Detail.FULL, 5_000) == expected


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=30))
def test_ends_and_samples_parse_as_what_was_meant(entries):
    # GIVEN times since the packet before, and values of all lengths
    since, values = np.array(entries, dtype=np.int64).reshape(-1, 2).T.copy()
    sequences = np.arange(5000, 5000 + len(since), dtype=np.uint64)
    ends, samples = np.empty((2, 48 * len(since)), dtype=np.uint8)
    for loops in (COMPILED, UNCOMPILED):
        # WHEN they are encoded
        trace, counted = TraceMessage(), TraceMessage()
        trace.ParseFromString(ends[: loops.encode_ends(since, sequences, ends)].tobytes())
        used = loops.encode_samples(since, 70, values.view(np.uint64), samples)
        counted.ParseFromString(samples[:used].tobytes())
        # THEN protobuf reads them
        for at, packet in enumerate(trace.packet):
            event = TracePacket(timestamp=since[at], trusted_packet_sequence_id=5000 + at)
            event.track_event.type = event.track_event.TYPE_SLICE_END
            assert packet == event
        for at, packet in enumerate(counted.packet):
            event = TracePacket(timestamp=since[at], trusted_packet_sequence_id=70)
            event.track_event.type = event.track_event.TYPE_COUNTER
            event.track_event.counter_value = values[at]
            assert packet == event
        assert len(trace.packet) == len(counted.packet) == len(entries)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62), st.booleans(), st.integers(0, 2**32 - 1),
            st.integers(0, 2**63), st.integers(0, 2**32 - 1),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_block_io_parses_as_the_events_that_were_meant(entries):
    # GIVEN times, devices, sectors and sizes of all lengths
    columns = zip(*entries, strict=True) if entries else [()] * 5
    dtypes = np.int64, np.uint8, np.uint64, np.uint64, np.uint64
    given_ = [np.array(one, dtype) for one, dtype in zip(columns, dtypes, strict=True)]
    out = np.empty(64 * len(entries), dtype=np.uint8)
    for loops in (COMPILED, UNCOMPILED):
        # WHEN they are encoded / THEN protobuf reads each event
        packet = TracePacket()
        packet.ftrace_events.MergeFromString(out[: loops.encode_block_io(*given_, out)].tobytes())
        found = []
        for event in packet.ftrace_events.event:
            done = event.HasField("block_io_done")
            block = event.block_io_done if done else event.block_io_start
            assert block.nr_sector == block.bytes >> 9
            found.append((event.timestamp, done, block.dev, block.sector, block.bytes))
        assert found == entries
