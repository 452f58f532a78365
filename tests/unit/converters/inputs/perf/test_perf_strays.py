# SPDX-License-Identifier: Apache-2.0
"""perf.data whose records do not add up: what is lost by it is told, and dated where it can be."""

import io
import struct
from collections.abc import Iterator

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.perf.source import PerfSource
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support.cli_runner import Cli
from tests.support.perf_files import COMPRESSED, SAMPLE, USUAL, Perf

START = 5_000_000_000
VALUES = (0, 1, 2, 3, 5, 11, 13, 17, 64, 66, 67, 68, 69, 71, 73, 78, 80, 81, 82, 83, 255)
STEP = 10_000


def reads(made: Perf, count: int = 4) -> list[bytes]:
    """Return the records of `count` reads, each in a round of its own."""
    return [
        record
        for i in range(count)
        for record in [*made.io(START + STEP * i, 64 * i), made.round()]
    ]


def read(data: bytes) -> tuple[PerfSource, Events]:
    """Return the source of a file, read to its end, and its events but for names."""
    source = open_source(io.BytesIO(data))
    assert isinstance(source, PerfSource)
    events = Events.join([part.events for part in source.parts()])
    return source, events.take(events.rows(Kind.Q, Kind.D, Kind.C))


def starts(data: bytes, first: int) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, type, size) of each record from an offset on."""
    while first + 8 <= len(data):
        kind, _, size = struct.unpack_from("<IHH", data, first)
        if not size:
            return
        yield first, kind, size
        first += size


def damage_is_said(data: bytes, whole: int) -> None:
    """Assert that a recording with fewer events than `whole` says that, or is refused."""
    try:
        source, events = read(data)
    except LogFormatError as error:
        assert len(str(error)) > 20
        return
    assert len(events) == whole or source.problems


def data_at(file: bytes) -> int:
    """Return where a file's records begin."""
    return int(struct.unpack_from("<Q", file, 40)[0])


@pytest.mark.parametrize("byte", [0, 3])
def test_a_sample_s_type_that_is_wrong(byte: int) -> None:
    """GIVEN a file of which a sample's type has another byte; THEN the loss of the event is told,
    and dated: its record is a sample in all but the type, or between the ones beside it."""
    made = Perf()
    file = bytearray(made.file(reads(made)))
    at = [start for start, found, _ in starts(file, data_at(file)) if found == SAMPLE][4]
    for kind in set(range(256)) - {file[at + byte]}:
        changed = file.copy()
        changed[at + byte] = kind
        source, events = read(bytes(changed))
        assert len(events) == 11, kind
        assert any("do not add up" in problem for problem in source.problems), kind
        # The fifth event is the second read's issue.
        window = (START + STEP, START + STEP + 2000)
        assert [(d["start"], d["end"]) for d in source.damaged] == [window], kind


def test_many_wrong_types_are_one_window(cli: Cli, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """GIVEN a bit of the type of 6 samples that follow each other is wrong; THEN they are told with
    number and bytes, `info` says that the file is damaged, and the window reaches over them."""
    made = Perf()
    file = bytearray(made.file([r for i in range(4) for r in made.io(START + STEP * i, 64 * i)]))
    samples = [start for start, _, _ in starts(file[: data_at(file) + 1248], data_at(file))]
    for at in samples[3:9]:
        file[at + 3] ^= 1
    source, events = read(bytes(file))
    assert len(events) == 6
    assert any(
        "left out: 6 records that do not add up (types 16777225)" in p for p in source.problems
    )
    assert [(d["start"], d["end"]) for d in source.damaged] == [(START + 2000, START + 3 * STEP)]
    path = tmp_path / "a.data"
    path.write_bytes(bytes(file))
    told = cli("info", path).out
    assert ", damaged\n" in told
    assert "6 records that do not add up" in told


@pytest.mark.parametrize("at", [*range(0, 400, 23)])
def test_a_byte_that_is_missing(at: int) -> None:
    """GIVEN a pipe that lacks one byte; THEN events are lost, and that is told and dated."""
    made = Perf()
    records = reads(made, 20)
    data = made.pipe(records)
    first = len(data) - sum(map(len, records[2:]))
    cut = data[: first + at] + data[first + at + 1 :]
    source, events = read(cut)
    assert 0 < len(events) < 60
    assert source.problems and source.unreadable_bytes
    assert source.damaged


@pytest.mark.parametrize("sample_type", [USUAL, USUAL & ~(1 << 16)])
def test_any_byte_of_the_records_heads(sample_type: int) -> None:
    """GIVEN a file, each byte of whose records' types and sizes takes other values; THEN whenever
    fewer events are read, damage is said, or the file is refused."""
    names = ("block_bio_queue", "block_rq_issue", "block_rq_complete")
    made = Perf(sample_type=sample_type, names=names if sample_type == USUAL else names[1:2])
    file = made.file(reads(made, 1))
    whole = len(read(file)[1])
    assert whole == len(made.names)
    end = data_at(file) + struct.unpack_from("<Q", file, 48)[0]
    for start, _, _ in list(starts(file[:end], data_at(file))):
        for byte in (0, 1, 2, 3, 6, 7):
            for value in (
                0,
                1,
                2,
                3,
                5,
                11,
                13,
                17,
                64,
                66,
                67,
                68,
                69,
                71,
                73,
                78,
                80,
                81,
                82,
                255,
            ):
                changed = bytearray(file)
                changed[start + byte] = value
                damage_is_said(bytes(changed), whole)
            for bit in range(8):
                changed = bytearray(file)
                changed[start + byte] ^= 1 << bit
                damage_is_said(bytes(changed), whole)


def test_any_byte_of_the_ids_and_sizes_of_a_file() -> None:
    """GIVEN a file, each byte of whose header, ids and attrs has a wrong bit; THEN whenever
    fewer events are read, damage is said, or the file is refused."""
    made = Perf()
    file = made.file(reads(made, 3))
    whole = len(read(file)[1])
    for at in range(8, data_at(file)):
        if FEATURES_AT <= at < 104:
            continue  # which sections there are: without the formats it is refused
        changed = bytearray(file)
        changed[at] ^= 1 << at % 8
        damage_is_said(bytes(changed), whole)


FEATURES_AT = 72


def test_packed_records_under_another_type() -> None:
    """GIVEN a compressed file, of whose packed records each has another type; THEN that is said."""
    made = Perf()
    chunks = [b"".join(made.io(START + STEP * i, 64 * i)) for i in range(4)]
    file = made.file(made.compressed(chunks))
    whole = len(read(file)[1])
    assert whole == 12
    end = data_at(file) + struct.unpack_from("<Q", file, 48)[0]
    for start, found, _ in list(starts(file[:end], data_at(file))):
        if found != COMPRESSED:
            continue
        for kind in VALUES:
            changed = bytearray(file)
            changed[start] = kind
            if kind != COMPRESSED:
                damage_is_said(bytes(changed), whole)


def test_a_sample_that_holds_another_event() -> None:
    """GIVEN an issue with the id of a completion; THEN it is no completion: left out, and told."""
    made = Perf()
    records = reads(made, 2)
    record = bytearray(records[1])
    struct.pack_into("<Q", record, 8, made.sample_id("block_rq_complete"))
    source, events = read(made.file([records[0], bytes(record), *records[2:]]))
    assert len(events) == 5
    assert any("another event's" in problem for problem in source.problems)
