# SPDX-License-Identifier: Apache-2.0
"""perf.data that is cut off, damaged or made to do harm: one message, or what can be read."""

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.perf.source import PerfSource
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support import perf_files as perf
from tests.support import record_command
from tests.support.cli_runner import Cli
from tests.support.perf_files import COMPRESSED, SAMPLE, START, USUAL, Perf
from tests.support.sources import everything

DATA_SIZE_AT, FEATURES_AT = 48, 72


def read(data: bytes) -> tuple[PerfSource, Events]:
    """Return the source of a file, read to its end, and its events but for names."""
    source = open_source(io.BytesIO(data))
    assert isinstance(source, PerfSource)
    events = everything(source)
    return source, events.take(events.rows(Kind.Q, Kind.D, Kind.C))


def refused(data: bytes) -> str:
    """Return the message with which data are refused."""
    with pytest.raises(LogFormatError) as error:
        read(data)
    return str(error.value)


def with_number(data: bytes, at: int, number: int) -> bytes:
    """Return the data with another u64 at an offset."""
    return data[:at] + struct.pack("<Q", number) + data[at + 8 :]


def test_a_file_cut_off_anywhere_is_refused_or_read() -> None:
    """GIVEN a file that ends early, at each byte; THEN it is refused with a message."""
    made = Perf()
    data = made.file(made.reads(3))
    for end in range(8, len(data), 7):
        try:
            read(data[:end])
        except LogFormatError as error:
            assert len(str(error)) > 20


def test_what_comes_before_damage_is_read() -> None:
    """GIVEN a pipe that ends within a record; THEN those before are read, and the rest counted."""
    made = Perf()
    data = made.pipe(made.reads(3))
    source, events = read(data[:-20])
    assert len(events) == 8
    assert source.unreadable_bytes == len(made.reads(3)[-1]) - 20
    assert any("cut off" in problem for problem in source.problems)
    # GIVEN a record with a size of 0 / THEN those before are read, what follows is counted
    source, events = read(made.file([*made.reads(2), bytes(16), *made.reads(3)]))
    assert len(events) == 6
    assert source.unreadable_bytes == 16 + sum(map(len, made.reads(3)))
    assert any("no record of perf at offset" in problem for problem in source.problems)
    # GIVEN a sample at 2^63 / THEN it is left out, and said
    source, events = read(made.file([*made.io(1 << 63, 0), *made.reads(1)]))
    assert len(events) == 3
    assert any("146 years" in problem for problem in source.problems)


def test_what_cannot_be_read_is_refused_with_the_reason() -> None:
    """GIVEN a recording of the scheduler; THEN the message names the event, and what to record."""
    made = Perf(names=("sched_switch",))
    message = refused(made.file([made.sample("sched_switch", START)]))
    assert "sched_switch" in message
    assert "perf record -a -e 'block:*'" in message
    # GIVEN samples without TIME / THEN the message says so
    made = Perf(sample_type=perf.IDENTIFIER | perf.TID | perf.RAW)
    assert "have no time" in refused(made.file(made.reads(3)))
    # GIVEN formats that are damaged / THEN the message says what they begin with
    made = Perf()
    data = made.file(made.reads(3))
    assert "the file is damaged" in refused(
        data.replace(b"\x17\x08\x44tracing", b"\x17\x08\x44tracked")
    )
    assert "cannot be understood" in refused(data.replace(b"ID: 100", b"IT: 100"))


def test_samples_of_unknown_events_and_short_ones_are_counted() -> None:
    """GIVEN samples with a wrong id, without fields, and with a record cut off; THEN all count."""
    made = Perf()
    good = made.reads(1)
    wrong = good[0][:8] + struct.pack("<Q", 1) + good[0][16:]
    empty = made.record(perf.SAMPLE, b"")
    short = made.record(perf.SAMPLE, good[0][8:32])
    raw = made.record(perf.SAMPLE, good[0][8:-8])
    source, events = read(made.file([wrong, empty, short, raw, *good]))
    assert len(events) == 3
    assert source.unreadable_bytes == sum(map(len, (wrong, empty, short, raw)))
    assert any("samples without a known event" in problem for problem in source.problems)


def test_call_chains_beyond_the_sample() -> None:
    """GIVEN a sample whose call chain claims 2^60 functions; THEN it is counted as unreadable."""
    made = Perf(sample_type=perf.USUAL | perf.CALLCHAIN)
    good = made.reads(1)
    at = 8 + 8 * 6
    for claimed in (1 << 60, (1 << 64) - 1, 1000):
        bad = good[0][:at] + struct.pack("<Q", claimed) + good[0][at + 8 :]
        source, events = read(made.file([bad, *good]))
        assert len(events) == 3
        assert source.unreadable_bytes == len(bad)


def test_compressed_data_that_are_none() -> None:
    """GIVEN compressed records that zstd cannot read, or that hold no records; THEN a message."""
    made = Perf()
    begun = b"\x28\xb5\x2f\xfd".ljust(64, b"x")
    assert "cannot be decompressed" in refused(made.file([made.record(perf.COMPRESSED, begun)]))
    # AND one that is none from its first byte on is left out alone
    source, events = read(made.file([made.record(perf.COMPRESSED, b"x" * 64), *made.reads(3)]))
    assert len(events) == 9
    assert any("do not add up" in problem for problem in source.problems)
    assert "hold no record of perf" in refused(made.file(made.compressed([bytes(64)])))


@pytest.mark.parametrize("at", [16, 24, 32, 40, 48, 72])
@pytest.mark.parametrize("number", [0, 1, 7, 1 << 32, (1 << 64) - 1])
def test_headers_that_lie(at: int, number: int) -> None:
    """GIVEN a header with a wrong offset, size or bit; THEN a message, or what can be read."""
    made = Perf()
    data = with_number(made.file(made.reads(3)), at, number)
    try:
        source, events = read(data)
    except LogFormatError as error:
        assert len(str(error)) > 20
    else:
        assert len(events) <= 9
        assert source.unreadable_bytes <= len(data)


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    """GIVEN a file that perf did not finish; THEN the command says so, with status 1."""
    made = Perf()
    path = tmp_path / "perf.data"
    path.write_bytes(with_number(made.file(made.reads(3)), DATA_SIZE_AT, 0))
    said = record_command.biotrail("report", path, status=1).stderr
    assert said.startswith(f"biotrail: error: {path}: perf did not finish")
    assert "Traceback" not in said


def test_a_directory_of_threads_is_refused(tmp_path: Path) -> None:
    """GIVEN what `perf record --threads` makes; THEN the message says what to do."""
    (tmp_path / "data").write_bytes(Perf().file([]))
    with pytest.raises(LogFormatError, match="without --threads"):
        open_source(tmp_path)


# perf.data whose records do not add up: what is lost by it is told, and dated where it can be.

VALUES = (0, 1, 2, 3, 5, 11, 13, 17, 64, 66, 67, 68, 69, 71, 73, 78, 80, 81, 82, 83, 255)
STEP = 10_000


def reads_of(made: Perf, count: int = 4) -> list[bytes]:
    """Return the records of `count` reads, each in a round of its own."""
    return [
        record
        for i in range(count)
        for record in [*made.io(START + STEP * i, 64 * i), made.round()]
    ]


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
    file = bytearray(made.file(reads_of(made)))
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
    records = reads_of(made, 20)
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
    file = made.file(reads_of(made, 1))
    whole = len(read(file)[1])
    assert whole == len(made.names)
    end = data_at(file) + struct.unpack_from("<Q", file, 48)[0]
    for start, _, _ in list(starts(file[:end], data_at(file))):
        for byte in (0, 1, 2, 3, 6, 7):
            for value in VALUES:
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
    file = made.file(reads_of(made, 3))
    whole = len(read(file)[1])
    for at in range(8, data_at(file)):
        if FEATURES_AT <= at < 104:
            continue  # which sections there are: without the formats it is refused
        changed = bytearray(file)
        changed[at] ^= 1 << at % 8
        damage_is_said(bytes(changed), whole)


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
    records = reads_of(made, 2)
    record = bytearray(records[1])
    struct.pack_into("<Q", record, 8, made.sample_id("block_rq_complete"))
    source, events = read(made.file([records[0], bytes(record), *records[2:]]))
    assert len(events) == 5
    assert any("another event's" in problem for problem in source.problems)
