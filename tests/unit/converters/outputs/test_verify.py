# SPDX-License-Identifier: Apache-2.0
"""verify, and what damaged or foreign archives end in."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.outputs.parquet import archive
from tests.support import log_samples
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


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


def test_a_missing_file_is_not_called_damaged(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a name without a file, beside a log  WHEN both are checked
    missing = tmp_path / "none.biotrail"
    done = cli("verify", missing, SAMPLE)
    # THEN it is said to be missing, and the status is 1
    assert done.status == 1
    assert done.out.splitlines()[0] == f"{missing}: NO SUCH FILE"
    assert verified(cli, missing, 1)["missing"] is True


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


def test_a_log_that_was_interrupted_is_whole_up_to_there(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log without an end  WHEN it is checked  THEN that is a note
    log = tmp_path / "log"
    log.write_bytes(log_samples.sample(end=False).data)
    assert "interrupted" in verified(cli, log, 0)["notes"][0]


def test_counts_of_the_end_are_held_against_the_chunks(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log whose index was cut away with one of its chunks' worth of frames
    sample = log_samples.sample(4)
    begin, end = sample.chunks[2]
    log = tmp_path / "log"
    log.write_bytes(sample.data[:begin] + sample.data[end:])
    # WHEN it is checked  THEN the missing chunk is found
    assert verified(cli, log, 1)["chunks"] == 3


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


def test_a_directory_that_is_no_archive(cli: Cli, tmp_path: Path) -> None:
    # GIVEN some directory  WHEN it is given as a log  THEN the message says what would be one
    (tmp_path / "other").write_text("x")
    done = cli("convert", tmp_path, "-o", tmp_path / "x.pftrace")
    assert done.status == 1
    assert "is a directory and no archive" in done.err
    assert not (tmp_path / "x.pftrace").exists()


def test_a_directory_with_several_recordings(cli: Cli, archived: Path, tmp_path: Path) -> None:
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
