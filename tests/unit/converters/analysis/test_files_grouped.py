# SPDX-License-Identifier: Apache-2.0
"""report --by file, inode and dir: what counts as one."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.file_logs import DEV, bio, names, write
from tests.support.stack_logs import START

AGAIN = 9
"""How often the journal is deleted and made again."""


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """A journal that is deleted and made again, and the database beside it."""
    records = [*names(START, 12, b"db", b"base"), *bio(0, 12)]
    for number in range(1, AGAIN + 1):
        at = START + number * 1_000_000
        records += names(at, 100 + number, b"db", b"base-journal")
        records += bio(number, 100 + number)
    records += [*bio(AGAIN + 1, None), *bio(AGAIN + 2, DEV, dev=0, generation=0)]
    records += [*names(START + (AGAIN + 3) * 1_000_000, 7, b"top"), *bio(AGAIN + 3, 7)]
    return write(tmp_path / "x.biotrail", records)


def groups(cli: Cli, *arguments: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("report", "--json", *arguments).out)["groups"]
    return found


def test_a_path_is_one_group_however_many_inodes_had_it(cli: Cli, journals: Path) -> None:
    # GIVEN a journal that is made again many times WHEN its log is reported by file
    found = groups(cli, "--by", "file", journals)
    # THEN it is one group, which says how many inodes it was
    told = [(g["file"], g["file_kind"], g["inode"], g["inodes"], g["ios"]) for g in found]
    assert told[0] == ("/srv/db/base-journal", "file", None, AGAIN, AGAIN)
    assert sorted(told[1:], key=str) == [
        ("/srv/db/base", "file", 12, 1, 1),
        ("/srv/top", "file", 7, 1, 1),
        (None, "device", None, 0, 1),
        (None, "not known", None, 0, 1),
    ]
    # AND so it is in the list of files, and in the text
    assert json.loads(cli("report", "--json", journals).out)["files"] == found
    assert f"/srv/db/base-journal ({AGAIN} inodes)" in cli("report", journals).out


def test_inodes_are_kept_apart_on_request(cli: Cli, journals: Path) -> None:
    # GIVEN the same log WHEN it is reported by inode
    found = groups(cli, "--by", "inode", journals)
    # THEN each journal is a group of its own
    journal = [g for g in found if g["file"] == "/srv/db/base-journal"]
    assert sorted(g["inode"] for g in journal) == list(range(101, 101 + AGAIN))
    assert len(found) == AGAIN + 4


def test_files_of_a_directory_are_one_group(cli: Cli, journals: Path) -> None:
    # GIVEN the same log WHEN it is reported by directory
    found = groups(cli, "--by", "dir", journals)
    # THEN each directory has what its own files have
    told = {(g["dir"], g["file_kind"]): (g["inodes"], g["ios"]) for g in found}
    assert told == {
        ("/srv/db", "file"): (AGAIN + 1, AGAIN + 1),
        ("/srv", "file"): (1, 1),
        (None, "device"): (0, 1),
        (None, "not known"): (0, 1),
    }
    text = cli("report", "--by", "dir", journals).out
    assert "/srv/db " in text
    assert "(vda: metadata, or the device itself)" in text


@pytest.mark.parametrize("by", ["inode", "dir"])
def test_a_log_without_files_says_so(cli: Cli, tmp_path: Path, by: str) -> None:
    # GIVEN a log that was recorded without files WHEN it is grouped by them
    path = write(tmp_path / "x.biotrail", bio(0, None), {}, files=None)
    # THEN it is said what to do
    done = cli("report", "--by", by, path)
    assert (done.status, "record --files" in done.err) == (1, True)


def by_file(path: Path, window: int, by: str) -> Report:
    trace = Trace(path)
    return make_report(trace, trace.lifecycles(window), by=by)


@pytest.mark.parametrize("by", ["file", "dir"])
def test_a_name_that_comes_late_counts_for_all_of_its_file(tmp_path: Path, by: str) -> None:
    # GIVEN a file whose name is not known at its first I/O, and one that never has a name
    records = [*bio(0, 12), *bio(1, 13), *bio(2, 12)]
    records += [*names(START + 3_000_000, 12, b"db", b"base"), *bio(3, 12)]
    records += [*names(START + 4_000_000, 14, b"db", b"base"), *bio(4, 14)]
    path = write(tmp_path / "x.biotrail", records)
    # WHEN it is read in windows of any size
    for window in (1, 3, 1 << 20):
        report = by_file(path, window, by)
        # THEN all of the file's I/O is one group
        told = [(g.name["file_kind"], g.name["inodes"], g.ios) for g in report.groups]
        assert told == [("file", 2, 4), ("no name", 1, 1)], window
        assert sum(g.latency.count for g in report.groups) == 5
