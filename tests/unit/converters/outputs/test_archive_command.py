# SPDX-License-Identifier: Apache-2.0
"""The command `archive`: files, series, datasets, and what stands in the way."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.outputs.parquet import archive, tables
from biotrail.converters.outputs.parquet.tables import Partitions
from biotrail.converters.pipeline import Trace
from tests.support import captures, driver_logs, log_samples
from tests.support.blktrace_records import READ, Q, record, write_set
from tests.support.cli_runner import Cli
from tests.support.paths import SAMPLE

CAPTURE = "plugged-merge-loop"


def part(path: Path, number: int, run: str = "r1") -> Path:
    """A file of a rotated recording; its events are 1 s behind those of the one before."""
    events = [{**event, "ns": event["ns"] + number * 10**9} for event in captures.load(CAPTURE)]
    facts = {"series": {"run": run, "number": number}, "log_id": f"{number:032x}"}
    captures.write_log(path, events, header_overrides=facts)
    return path


def test_an_archive_is_private_and_never_overwrites(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log that was archived
    target = tmp_path / "x.parquet"
    assert cli("archive", SAMPLE, "-o", target).status == 0
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_bytes()
    # WHEN it is archived there again  THEN that takes --force
    done = cli("archive", SAMPLE, "-o", target)
    assert (done.status, "--force" in done.err) == (1, True)
    assert target.read_bytes() == before
    assert cli("archive", "--level", "19", "-f", SAMPLE, "-o", target).status == 0
    assert len(target.read_bytes()) < len(before)
    # AND another reader that counts kinds finds those of the log
    kinds = pq.read_table(target, columns=["kind"])["kind"].value_counts().to_pylist()
    counted = {row["values"]: row["counts"] for row in kinds}
    trace = Trace(SAMPLE)
    for _ in trace.lifecycles():
        pass
    assert counted == trace.account.by_letter()


def test_the_files_of_a_rotated_recording_become_one(cli: Cli, tmp_path: Path) -> None:
    # GIVEN three files of a recording  WHEN they are archived together, in any order
    files = [part(tmp_path / f"{n}.biotrail", n) for n in (2, 1, 3)]
    target = tmp_path / "all.parquet"
    assert cli("archive", *files, "-o", target).status == 0
    # THEN the archive has all their bios, in the order of time
    each = [sum(len(w.bios) for w in Trace(file).lifecycles()) for file in files]
    trace = Trace(target)
    queued = [t for w in trace.lifecycles() for t in w.bios.queue.tolist()]
    assert len(queued) == sum(each)
    assert max(queued) - min(queued) > 2 * 10**9
    assert trace.reader.header["series"] == {"run": "r1", "number": 1, "last": 3}
    assert "numbers 1 to 3 of run r1" in cli("info", target).out
    assert not trace.reader.problems


def test_a_file_that_is_missing_between_two_is_told(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the first and the third file of a recording  WHEN they are archived
    files = [part(tmp_path / f"{n}.biotrail", n) for n in (1, 3)]
    target = tmp_path / "all.parquet"
    done = cli("archive", *files, "-o", target)
    # THEN that is said, now and whenever it is read
    assert "damaged: file 2 of the recording" in done.out
    assert "damaged: file 2 of the recording" in " ".join(cli("info", target).out.split())
    assert len(open_source(target).problems) == 1


@pytest.mark.parametrize(
    ("run", "number", "said"), [("r2", 2, "two recordings"), ("r1", 1, "the same log")]
)
def test_files_that_do_not_belong_together(
    run: str, number: int, said: str, cli: Cli, tmp_path: Path
) -> None:
    # GIVEN files of two recordings, or one twice  WHEN one archive shall hold them
    files = [part(tmp_path / "a.biotrail", 1), part(tmp_path / "b.biotrail", number, run)]
    done = cli("archive", *files, "-o", tmp_path / "x.parquet")
    # THEN it is refused, and nothing is left
    assert (done.status, said in done.err) == (1, True)
    assert not (tmp_path / "x.parquet").exists()


def test_a_dataset_takes_recordings_one_after_the_other(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a dataset of one recording
    data = tmp_path / "set"
    assert cli("archive", SAMPLE, "-o", data).status == 0
    # WHEN another is added  THEN both are in it, by host, date and device
    log = tmp_path / "other.biotrail"
    captures.write_log(log, captures.load(CAPTURE))
    assert cli("archive", log, "-o", data).status == 0
    files = sorted(str(p.relative_to(data)) for p in data.rglob("*.parquet"))
    assert len([f for f in files if f.startswith("events/host=")]) == 2
    assert any(f.startswith("bios/host=testhost/date=2026-09-21/device=loop1/") for f in files)
    assert any(f.startswith("requests/host=demo/") for f in files)
    assert all((data / f).stat().st_mode & 0o777 == 0o600 for f in files)
    # AND all of it verifies
    assert cli("verify", data).status == 0
    # AND a recording that is in it already is refused
    done = cli("archive", log, "-o", data)
    assert (done.status, "--force writes it again" in done.err) == (1, True)


def test_recordings_of_one_name_do_not_replace_each_other(cli: Cli, tmp_path: Path) -> None:
    # GIVEN sets of blktrace of two hosts, which have no log id, for one device name
    sets = [tmp_path / host / "sda" for host in ("db1", "db2")]
    for path in sets:
        path.parent.mkdir()
        write_set(path.parent, path.name, {0: record(Q | READ, 10, 8, 512)})
    # WHEN they are archived at once, by force too  THEN both are refused, and nothing is written
    data = tmp_path / "set"
    for force in ((), ("--force",)):
        done = cli("archive", *force, *sets, "-o", data)
        assert (done.status, "rename one of them" in done.err) == (1, True)
        assert all(str(path) in done.err for path in sets)
        assert not data.exists()


def test_a_dataset_has_the_steps_of_drivers(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of several drivers, and of none  WHEN it is archived as a dataset
    path, target = driver_logs.sample().write(tmp_path / "log.biotrail"), tmp_path / "data"
    assert cli("archive", "-o", target, path).status == 0
    # THEN each request has its driver
    drivers = pq.read_table(target / "requests", columns=["driver"])["driver"]
    assert drivers.to_pylist() == ["nvme", "scsi", "loop", None]


def test_which_tables_and_directories_archives_take(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a wish for bios alone  WHEN a dataset is made  THEN it has these
    assert cli("archive", "--tables", "bios", SAMPLE, "-o", tmp_path / "set").status == 0
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["bios"]
    # AND other names are refused
    assert cli("archive", "--tables", "bio", SAMPLE, "-o", tmp_path / "b").status == 2
    # GIVEN a directory of something else  WHEN a dataset shall be there  THEN it is refused
    other = tmp_path / "home"
    other.mkdir()
    (other / "precious").write_text("x")
    done = cli("archive", SAMPLE, "-o", other)
    assert done.status == 1
    assert [p.name for p in other.iterdir()] == ["precious"]


# verify, and what damaged or foreign archives end in.


@pytest.fixture
def archived(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample, in several row groups."""
    monkeypatch.setattr(archive, "GROUP_EVENTS", 1000)
    path = tmp_path / "demo.parquet"
    assert cli("archive", SAMPLE, "-o", path).status == 0
    return path


def verified(cli: Cli, path: Path, status: int) -> dict[str, Any]:
    done = cli("verify", "--json", path)
    assert done.status == status, done.out + done.err
    found: dict[str, Any] = json.loads(done.out)
    assert found["intact"] == (status == 0)
    return found


def test_whole_files_have_a_line_each(cli: Cli, archived: Path) -> None:
    # GIVEN a log and an archive that are whole  WHEN they are checked
    done = cli("verify", SAMPLE, archived)
    # THEN each has its line, and the status is 0
    lines = done.out.splitlines()
    assert done.status == 0
    assert [line.split(": ")[1] for line in lines] == ["whole", "whole"]
    assert "13,746 events in 3 chunks" in lines[0]
    assert "13,746 events in 3 chunks" in lines[1]


@pytest.mark.parametrize("at", range(40, 62_000, 3_100))
def test_a_flipped_bit_anywhere_in_a_log_is_found(at: int, cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with one bit changed  WHEN it is checked
    data = bytearray(SAMPLE.read_bytes())
    data[at] ^= 4
    log = tmp_path / "log"
    log.write_bytes(data)
    found = verified(cli, log, 1)
    # THEN what and where is said, and how much is left
    assert found["problems"]
    assert "offset" in found["problems"][0]
    assert found["events"] <= 13_746


@pytest.mark.parametrize("share", np.linspace(0.001, 0.999, 20))
def test_a_flipped_bit_anywhere_in_an_archives_events_is_found(
    share: float, cli: Cli, archived: Path
) -> None:
    # GIVEN an archive with one bit changed, before its metadata  WHEN it is checked
    account = ArchiveSource(archived).metadata.account
    data = bytearray(archived.read_bytes())
    data[int(account.checked_bytes * share)] ^= 4
    archived.write_bytes(data)
    # THEN it is damaged, and where is said
    assert "offset" in verified(cli, archived, 1)["problems"][0]


@pytest.mark.parametrize("share", np.linspace(0.001, 0.999, 20))
def test_a_flipped_bit_in_an_archives_metadata_harms_nothing(
    share: float, cli: Cli, archived: Path
) -> None:
    # GIVEN an archive with one bit changed in its end  WHEN it is checked
    before = ArchiveSource(archived).metadata
    data = bytearray(archived.read_bytes())
    first = before.account.checked_bytes
    data[first + int((len(data) - first) * share)] ^= 4
    archived.write_bytes(data)
    done = cli("verify", "--json", archived)
    # THEN it is damaged, or what biotrail uses of it is as it was
    found = json.loads(done.out)
    assert done.status in (0, 1)
    assert found["problems"] or found["events"] == before.account.events
    if not found["problems"]:
        assert ArchiveSource(archived).metadata.facts == before.facts


def test_damage_costs_one_row_group_and_is_shown(cli: Cli, archived: Path, tmp_path: Path) -> None:
    # GIVEN an archive whose second row group is damaged
    meta = pq.ParquetFile(archived).metadata
    column = meta.row_group(1).column(5)
    data = bytearray(archived.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 4] ^= 1
    archived.write_bytes(data)
    # WHEN it is checked  THEN what is left, and the window that is missing, are told
    found = verified(cli, archived, 1)
    gone = meta.row_group(1).num_rows
    assert found["events"] == meta.num_rows - gone
    assert f"{gone} events left out" in found["problems"][0]
    [window] = found["damaged"]
    assert str(window["offset"]) in found["problems"][0]
    # AND everything made of it says so
    told = cli("convert", archived, "-o", tmp_path / "x.pftrace")
    assert told.status == 0
    assert "damaged: row group 1" in told.out


def test_what_is_missing_or_interrupted_is_not_called_damaged(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a name without a file, beside a log  WHEN both are checked
    missing = tmp_path / "none.biotrail"
    done = cli("verify", missing, SAMPLE)
    # THEN it is said to be missing, and the status is 1
    assert done.status == 1
    assert done.out.splitlines()[0] == f"{missing}: NO SUCH FILE"
    assert verified(cli, missing, 1)["missing"] is True
    # GIVEN a log without an end  WHEN it is checked  THEN that is a note
    log = tmp_path / "log"
    log.write_bytes(log_samples.sample(end=False).data)
    assert "interrupted" in verified(cli, log, 0)["notes"][0]
    # GIVEN a log whose index was cut away with one of its chunks' worth of frames
    sample = log_samples.sample(4)
    begin, end = sample.chunks[2]
    log = tmp_path / "log"
    log.write_bytes(sample.data[:begin] + sample.data[end:])
    # WHEN it is checked  THEN the missing chunk is found
    assert verified(cli, log, 1)["chunks"] == 3


def test_a_terminal_shows_how_far_it_is(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a directory of tables  WHEN it is checked with a terminal, and without
    assert cli("archive", SAMPLE, "-o", tmp_path / "all").status == 0
    quiet = cli("verify", tmp_path / "all")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = cli("verify", tmp_path / "all")
    # THEN standard error says which of how many, and ends clean; the lines are the same
    assert quiet.err == ""
    count = len(quiet.out.splitlines())
    assert f"verifying {count} of {count}: " in shown.err
    assert "looking for files in " in shown.err
    assert shown.err.endswith("\r\x1b[K")
    assert shown.out == quiet.out


BAD = {
    "half": "is a part of an archive only",
    "empty": "is empty",
    "foreign": "is a Parquet file, but no archive of events",
    "newer": "is an archive of format 3",
    "account": "fails its checksum",
    "rewritten": "row groups",
}


def spoil(path: Path, how: str) -> None:
    if how == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        pq.write_table(pa.table({"x": [1]}), path)
    else:
        file = pq.ParquetFile(path)
        facts = dict(file.metadata.metadata)
        if how == "newer":
            facts[b"biotrail.format"] = b"3"
        elif how == "account":
            facts[b"biotrail.account"] += b" "
        table = file.read()
        pq.write_table(table.replace_schema_metadata(facts), path, row_group_size=10_000)


@pytest.mark.parametrize("how", BAD)
def test_bad_archives_end_in_one_message(how: str, cli: Cli, archived: Path) -> None:
    # GIVEN an archive that is none any more  WHEN it is read or checked
    spoil(archived, how)
    done, found = cli("info", archived), verified(cli, archived, 1)
    # THEN one message says what and where, status 1, no traceback
    assert done.status == 1
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"biotrail: error: {archived}")
    assert BAD[how] in done.err
    assert found["events"] == 0


def test_directories_that_are_no_single_archive(cli: Cli, archived: Path, tmp_path: Path) -> None:
    # GIVEN a dataset of two  WHEN it is given as a log  THEN one is to be chosen
    folder = tmp_path / "set" / "events" / "host=h"
    folder.mkdir(parents=True)
    for name in ("a.parquet", "b.parquet"):
        shutil.copy(archived, folder / name)
    done = cli("info", tmp_path / "set")
    assert done.status == 1
    assert "holds 2 recordings" in done.err
    assert str(folder / "a.parquet") in done.err
    # AND each can be
    assert cli("info", folder / "b.parquet").status == 0
    # GIVEN some directory  WHEN it is given as a log  THEN the message says what would be one
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    done = cli("convert", tmp_path / "other", "-o", tmp_path / "x.pftrace")
    assert done.status == 1
    assert "is a directory and no archive" in done.err
    assert not (tmp_path / "x.pftrace").exists()


def test_an_archive_from_a_pipe_is_refused(
    cli: Cli, archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an archive at a pipe's end  WHEN it is read  THEN the message says why not
    with log_samples.pipe_of(archived.read_bytes()) as stream:
        monkeypatch.setattr(
            "sys.stdin", type("In", (), {"buffer": stream, "isatty": lambda _: 0})()
        )
        done = cli("info", "-")
    assert done.status == 1
    assert "cannot be read from a pipe" in done.err


# A table's files by date and device.

SCHEMA = pa.schema(
    [("time", pa.int64()), ("device", pa.dictionary(pa.int32(), pa.string())), ("row", pa.int64())]
)


def rows(device: str, *numbers: int) -> pa.Table:
    columns = [[0] * len(numbers), pa.array([device] * len(numbers)).dictionary_encode(), numbers]
    return pa.table(columns, schema=SCHEMA)


def test_a_second_file_has_no_other_recordings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN room for one open file, and recordings of which one has the other's name with a number
    monkeypatch.setattr(tables, "_MOST_OPEN", 1)
    monkeypatch.setattr(tables, "ROW_GROUP", 1)
    for first, stem in ((0, "sda"), (10, "sda-2")):
        one = Partitions(tmp_path, SCHEMA, "time", host="h", stem=stem, level=1, day="1970-01-01")
        # WHEN each writes two devices by turns
        for number in range(3):
            one.write(rows("sda", first + number))
            one.write(rows("sdb", 100 + first + number))
        one.close({})
    # THEN every row is in the dataset once
    files = list(tmp_path.rglob("*.parquet"))
    found = [row for file in files for row in pq.ParquetFile(file).read()["row"].to_pylist()]
    assert len(files) == 12
    assert sorted(found) == [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112]
