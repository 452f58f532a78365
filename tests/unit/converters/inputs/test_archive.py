# SPDX-License-Identifier: Apache-2.0
"""Archives: what a log gives, from Parquet."""

import base64
import io
import json
import zlib
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard

from biotrail.converters.events import arrow
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet import source as archive_module
from biotrail.converters.inputs.parquet.account import PREFIX, _unpack_chunks, unpack
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.lifecycles.arrow.events import EVENT_SCHEMA
from biotrail.converters.outputs.parquet import archive
from biotrail.recorder.log import LogWriter
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import RECORDS, Kind
from tests.support import crafted_archives, log_samples
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT, SAMPLE

BLKTRACE = ROOT / "tests" / "data" / "blktrace"


def archived(source: Source, path: Path) -> Path:
    with open(path, "wb") as out:
        archive.write(source, out)
    return path


def same(one: Source, other: Source) -> int:
    """Both give the same, chunk by chunk; how many events."""
    events = 0
    for a, b in zip_longest(one.parts(), other.parts()):
        assert (a.complete_to, a.clock) == (b.complete_to, b.clock)
        assert np.array_equal(a.events.ts, b.events.ts)
        assert np.array_equal(a.events.cpu, b.events.cpu)
        assert np.array_equal(a.events.raw[:, 0], b.events.raw[:, 0])
        for record in RECORDS:
            rows = a.events.rows(record.kind)
            fields = [a.events.fields(record.kind, rows), b.events.fields(record.kind, rows)]
            for name in record.dtype.names or ():
                assert name == "reserved" or np.array_equal(*(f[name] for f in fields)), name
        assert one.damaged == other.damaged
        assert one.losses == other.losses
        assert one.notes == other.notes
        events += len(a.events)
    for what in ("header", "end", "interrupted", "problems", "remarks", "unknown"):
        assert getattr(one, what) == getattr(other, what), what
    assert one.unreadable_bytes == other.unreadable_bytes
    return events


@pytest.mark.parametrize("group", [1, 500, 1 << 20])
def test_row_groups_of_any_size(
    group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN row groups of a chunk each, of some, of all  WHEN the sample is archived
    monkeypatch.setattr(archive, "GROUP_EVENTS", group)
    path = archived(open_source(SAMPLE), tmp_path / "x.parquet")
    # THEN all of it comes back, in the log's order, ties of one time too
    assert same(open_source(SAMPLE), open_source(path)) == pq.ParquetFile(path).metadata.num_rows


def test_a_table_of_events_has_no_column_twice() -> None:
    # GIVEN a record's field with the name of another column of events: a call's number
    # THEN its column has a name of its own
    numbered = {int(kind) for kind in (Kind.CALL, Kind.RETURN, Kind.WAIT_CALL)}
    assert arrow.COLUMNS["call_number"].offsets.keys() == numbered
    assert len(set(EVENT_SCHEMA.names)) == len(EVENT_SCHEMA.names)


def test_every_kind_with_every_field_set(tmp_path: Path) -> None:
    # GIVEN a log of all kinds, all words set, several at one time, in no order of kinds
    kinds = [r.kind for r in RECORDS if r.kind != Kind.PAD]
    times = [log_samples.START + 10 + i // 4 for i in range(len(kinds))]
    records = [
        log_samples.record(kind, time, (0x0102030405060708 * (i + 1)) & ((1 << 62) - 1))
        for i, (kind, time) in enumerate(zip(reversed(kinds), times, strict=True))
    ]
    out = io.BytesIO()
    writer = LogWriter(out, log_samples.HEADER)
    segment = log_samples.Segment(0, 0, 0, log_samples.ring(records, 0))
    writer.write_chunk([segment], log_samples.clock(log_samples.START + 1_000))
    writer.close({})
    # WHEN it is archived  THEN nothing is lost
    path = archived(open_source(io.BytesIO(out.getvalue())), tmp_path / "x.parquet")
    assert same(open_source(io.BytesIO(out.getvalue())), open_source(path)) == len(kinds)


def test_a_damaged_interrupted_log_with_losses(tmp_path: Path) -> None:
    # GIVEN a log with losses and a note, a chunk damaged, no end
    sample = log_samples.sample(5, end=False)
    data = bytearray(sample.data)
    data[sample.chunks[2][1] - 3] ^= 1
    log = tmp_path / "log"
    log.write_bytes(data)
    # WHEN it is archived  THEN the archive tells of it when and as the log does
    path = archived(open_source(log), tmp_path / "x.parquet")
    assert same(open_source(log), open_source(path)) == 16
    assert ArchiveSource(path).interrupted


def test_a_log_without_events(tmp_path: Path) -> None:
    # GIVEN a log that ended before anything happened  WHEN it is archived
    out = io.BytesIO()
    writer = LogWriter(out, log_samples.HEADER)
    writer.write_chunk([], log_samples.clock(log_samples.START))
    writer.close({"reason": "stopped"})
    path = archived(open_source(io.BytesIO(out.getvalue())), tmp_path / "x.parquet")
    # THEN it reads back as one
    assert same(open_source(io.BytesIO(out.getvalue())), open_source(path)) == 0


def test_blktraces_data_can_be_archived(tmp_path: Path) -> None:
    # GIVEN blktrace's data  WHEN it is archived  THEN the archive gives what it gives
    path = archived(open_source(BLKTRACE / "stream.bin"), tmp_path / "x.parquet")
    assert same(open_source(BLKTRACE / "stream.bin"), open_source(path)) > 0


def test_an_archive_of_an_archive_is_the_same(tmp_path: Path) -> None:
    # GIVEN an archive  WHEN it is archived again  THEN that gives what the log gives
    first = archived(open_source(SAMPLE), tmp_path / "1.parquet")
    second = archived(open_source(first), tmp_path / "2.parquet")
    assert same(open_source(SAMPLE), open_source(second)) > 0


COMMANDS = (
    ("info", "--json"),
    ("report", "--json"),
    ("slow", "--json"),
    ("hist",),
    ("dump",),
    ("report", "--csv"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_say_the_same_of_log_and_archive(
    command: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    # GIVEN the sample and its archive  WHEN a command reads either
    path = archived(open_source(SAMPLE), tmp_path / "demo.parquet")
    of_log, of_archive = (without_size(cli(*command, p).out) for p in (SAMPLE, path))
    # THEN it says the same, but for the file's size
    assert of_log == of_archive
    assert len(of_log) > 100


def without_size(text: str) -> str:
    if not text.startswith("{"):
        return text
    facts: dict[str, Any] = json.loads(text)
    facts.pop("size", None)
    return json.dumps(facts)


# What it costs to read an archive is bounded by its size: its columns share no bytes.


def test_row_groups_that_share_their_bytes_are_refused() -> None:
    # GIVEN an archive in which 200 row groups are the same bytes, as its account says
    data = crafted_archives.repeated(200)
    # WHEN it is opened / THEN it is refused, with the place
    with pytest.raises(LogFormatError) as error:
        ArchiveSource(io.BytesIO(data))
    assert "columns share the bytes from offset" in str(error.value)
    assert "make it again from the log" in str(error.value)


def test_the_same_archive_with_one_row_group_is_read() -> None:
    # GIVEN an archive made in the same way, whose row group stands there once
    source = ArchiveSource(io.BytesIO(crafted_archives.repeated(1)))
    # WHEN it is read / THEN all of it is there
    events = sum(len(part.events) for part in source.parts())
    assert events == source.metadata.account.events > 0
    assert not source.problems


def test_more_events_than_the_bytes_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an archive whose row group has more events for its bytes than one may
    monkeypatch.setattr(archive_module, "MOST_EVENTS_A_BYTE", 0)
    # WHEN it is opened
    with pytest.raises(LogFormatError, match=r"row group 0 has \d+ events in \d+ bytes"):
        ArchiveSource(io.BytesIO(crafted_archives.plain()))


def test_a_table_of_chunks_beyond_belief_is_refused() -> None:
    # GIVEN a table of a million chunks, all the same, in a few bytes
    packed = base64.b64encode(zstandard.compress(np.zeros(6_000_000, "<i8").tobytes()))
    assert len(packed) < 10_000
    # WHEN it is read / THEN it is refused
    with pytest.raises(LogFormatError, match="its table of chunks cannot be read"):
        _unpack_chunks("it", packed)


# Archives made up by somebody: the checksum of their metadata is right, what it covers is not.

PARTS = ("header", "notes", "losses", "end", "account", "chunks")


@pytest.fixture(scope="module")
def genuine() -> dict[str, bytes]:
    """The metadata of a small archive, by name."""
    out = io.BytesIO()
    archive.write(open_source(io.BytesIO(log_samples.sample().data)), out)
    stored = pq.ParquetFile(io.BytesIO(out.getvalue())).metadata.metadata
    ours = {k.decode(): v for k, v in stored.items() if k.startswith(PREFIX.encode())}
    return {key.removeprefix(PREFIX): value for key, value in ours.items()}


def crafted(parts: dict[str, bytes]) -> dict[bytes, bytes]:
    """The metadata of a file with these parts, and the checksum that they need."""
    crc = zlib.crc32(b"".join(parts.get(key, b"") for key in PARTS))
    parts = {**parts, "crc32": f"{crc:08x}".encode()}
    return {(PREFIX + key).encode(): value for key, value in parts.items()}


@pytest.mark.parametrize("missing", PARTS)
def test_a_missing_part_is_named(missing: str, genuine: dict[str, bytes]) -> None:
    # GIVEN metadata without one of its parts, with a right checksum
    stored = crafted({key: value for key, value in genuine.items() if key != missing})
    # WHEN it is unpacked THEN one message names file, part and remedy
    with pytest.raises(LogFormatError) as error:
        unpack("x.parquet", stored)
    expected = f"x.parquet: the log's {missing} is missing; make it again from the log"
    assert str(error.value) == expected


def test_a_key_that_is_no_text_is_ignored(genuine: dict[str, bytes]) -> None:
    # GIVEN metadata with one key more, which begins as ours do and is no UTF-8
    stored = crafted(genuine)
    # WHEN it is unpacked THEN it is as without
    more = unpack("x.parquet", {**stored, PREFIX.encode() + b"\xff": b"?"})
    assert more.account == unpack("x.parquet", stored).account


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_no_text_is_refused(part: str, genuine: dict[str, bytes]) -> None:
    # GIVEN metadata with a part that is no UTF-8, which the checksum counts as U+FFFD
    replaced = crafted({**genuine, part: "\ufffd".encode()})
    stored = {**replaced, (PREFIX + part).encode(): b"\xff"}
    # WHEN it is unpacked THEN that is one message
    with pytest.raises(LogFormatError, match=r"^x.parquet: .*make it again from the log$"):
        unpack("x.parquet", stored)
