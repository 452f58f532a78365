# SPDX-License-Identifier: Apache-2.0
"""Lists of groups: their time and its share, reads beside writes, operations below a group."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.csv import lines
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import FLAGS as FLAG_BITS
from biotrail.recorder.schema.records import Q_FLAG_DEVICE, Q_FLAG_FILE, Q_FLAG_SWAP, Kind
from biotrail.text.report.cells import FIELDS, NOT_KNOWN, name_cells
from tests.support.cli_runner import Cli
from tests.support.path_logs import MS, PathLog
from tests.support.stack_logs import DEV

WRITE, FLUSH = 1, 1 | 1 << 18
KIB = 1024
LOG = 1 << FLAG_BITS["META"] | 1 << FLAG_BITS["SYNC"] | 1 << FLAG_BITS["IDLE"]
KWORKER = b"kworker/u8:1"
EARLIER = (None, "dirtied before the recording, or not kept")
UNKNOWN = (None, "not known")


def log(tmp_path: Path) -> Path:
    """A process with one long read and a write, and one with three short writes."""
    made = PathLog()
    made.task(42, b"scan")
    made.task(43, b"sync")
    made.bio(MS, 8 * MS, tid=42, size=256 * KIB)
    made.bio(2 * MS, 3 * MS, tid=42, opf=WRITE, size=4 * KIB)
    for at in (4, 5, 6):
        made.bio(at * MS, at * MS + MS // 2, tid=43, opf=WRITE, size=8 * KIB)
    return made.write(tmp_path / "log.biotrail")


def test_groups_have_their_time_its_share_and_their_operations(tmp_path: Path) -> None:
    # GIVEN a log WHEN it is reported on by process
    report = make_report(Trace(log(tmp_path)), by="process")
    told = as_json(report)
    # THEN the one with most time is first, though it has fewer I/Os, with its share
    for groups in (told["processes"], told["groups"]):
        scan, sync = groups
        assert (scan["process"], scan["latency"]["sum_ns"]) == ("scan", 8 * MS)
        assert (sync["process"], sync["latency"]["sum_ns"]) == ("sync", 3 * MS // 2)
        assert scan["time_share"] == pytest.approx(8 / 9.5, abs=1e-6)
        assert scan["time_share"] + sync["time_share"] == pytest.approx(1)
        # THEN each operation has figures of its own
        found = [
            (one["operation"], one["ios"], one["bytes"], one["latency"]["p99_ns"] >= 6 * MS)
            for one in scan["by_operation"]
        ]
        assert found == [("read", 1, 256 * KIB, True), ("write", 1, 4 * KIB, False)]
    by_operation = [
        (line["process"], line["operation"], line["sum_ns"], line["share"])
        for line in lines(report)
        if line["section"] == "groups by operation"
    ]
    assert by_operation == [
        ("scan", "read", 7 * MS, 0.875),
        ("scan", "write", MS, 0.125),
        ("sync", "write", 3 * MS // 2, 1),
    ]


def test_tables_have_reads_beside_writes(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log WHEN its report by process is printed
    text = cli("report", str(log(tmp_path)), "--by", "process").out
    table = text.split("By process")[1].split("\n\n")[0].splitlines()
    # THEN a group of several operations has a row of each below its own, with its share in it
    rows = [line.split() for line in table[3:]]
    assert [row[0] for row in rows] == ["scan", "read", "write", "sync"]
    assert rows[0][4:8] == ["256.0", "KiB", "4.0", "KiB"]
    assert "(87.5" in rows[1] and "(12.5" in rows[2]
    assert "84.2" in rows[0] and "15.8" in rows[3]


@pytest.mark.parametrize(
    ("bio", "expected"),
    [
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE}, EARLIER),
        ({"opf": WRITE, "tid": 42, "flags": Q_FLAG_FILE}, EARLIER),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_DEVICE}, EARLIER),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE, "dirtied": (9, 77, b"db")}, ("db", None)),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE, "dirtied": (9, 42, b"t")}, ("scan", None)),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE, "dirtied": (9, 8, KWORKER)}, UNKNOWN),
        ({"opf": WRITE, "tid": 42, "flags": Q_FLAG_SWAP}, UNKNOWN),
        ({"opf": WRITE, "tid": 8}, UNKNOWN),
        ({"opf": 0, "tid": 8}, UNKNOWN),
        ({"opf": 0, "tid": 42, "flags": Q_FLAG_FILE}, ("scan", None)),
        ({"opf": WRITE, "tid": 42}, ("scan", None)),
    ],
)
def test_a_writer_is_known_or_said_not_to_be(
    tmp_path: Path, bio: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    # GIVEN a bio of a page cache, of swap, of direct I/O, by a worker or by a program
    made = PathLog()
    made.task(42, b"scan")
    made.task(8, KWORKER)
    made.bio(100, 200, **bio)
    # WHEN it is grouped by writer THEN only who wrote or read for itself is named
    report = make_report(Trace(made.write(tmp_path / "log")), by="writer")
    [group] = as_json(report)["groups"]
    assert (group["process"], group.get("writer")) == expected
    [cell, *_] = name_cells(report.groups[0], FIELDS["writer"])
    process, why = expected
    assert cell == (process or f"({why})")


@pytest.mark.parametrize(
    ("bio", "kind", "cell"),
    [
        ({"opf": WRITE, "flags": Q_FLAG_SWAP}, "swap", "(swap)"),
        ({"opf": WRITE | LOG}, "journal", "(journal)"),
        ({"opf": 1 << 12}, "metadata", "(metadata)"),
        ({"opf": 3}, "no data", "(no data)"),
        ({"opf": WRITE}, "not known", NOT_KNOWN),
    ],
)
def test_io_without_a_file_is_called_what_it_is(
    tmp_path: Path, bio: dict[str, Any], kind: str, cell: str
) -> None:
    # GIVEN a bio that no file is known of, and whose purpose may be
    made = PathLog()
    made.bio(100, 200, **bio)
    path = made.write(tmp_path / "log", files={})
    for by in ("file", "inode", "dir"):
        # WHEN it is grouped by file THEN the purpose is its name
        [group] = make_report(Trace(path), by=by).groups
        assert group.name["file_kind"] == kind
        assert name_cells(group, FIELDS[by])[0] == cell


def test_calls_that_queued_nothing_have_no_file(tmp_path: Path) -> None:
    # GIVEN a timed call that waited without a bio, and one that queued one of no known file
    made = PathLog()
    made.task(42, b"cat")
    made.returns(100, 5 * MS, blocked=4 * MS, queued=0, waits=1)
    made.bio(6 * MS, 7 * MS, entry=6 * MS - 100)
    made.returns(6 * MS - 100, 8 * MS, blocked=MS, queued=1)
    # WHEN calls are grouped by file THEN each is called what it is
    report = make_report(Trace(made.write(tmp_path / "log", files={})), by="file")
    cells = {name_cells(one, FIELDS["file"])[0] for one in report.call_groups}
    assert cells == {"(no file: queued no I/O)", NOT_KNOWN}


def test_many_devices_are_the_busiest_and_the_sum_of_the_rest(cli: Cli, tmp_path: Path) -> None:
    # GIVEN 20 devices with an I/O of 4 KiB each, of which later ones take longer
    made = PathLog()
    devices = [{"dev": DEV + place, "name": f"loop{place:02}"} for place in range(20)]
    for place in range(20):
        at, bio = place * 100 * MS, {"bio": (place + 1) << 6, "sector": 0, "dev": DEV + place}
        made.add(Kind.Q, at, **bio, bytes=4 * KIB, part=DEV + place, tid=42)
        made.add(Kind.BIO_COMPLETE, at + (place + 1) * MS, **bio)
    path = made.write(tmp_path / "log", devices=devices)
    # WHEN they are reported on
    text = cli("report", path).out
    table = text.split("(Q2C)")[1].split("\n\n")[0].splitlines()[3:]
    # THEN the 15 with most time have a row, most first, and the others one row and no tables
    assert [row.split()[0] for row in table[:-1]] == [f"loop{n:02}" for n in range(19, 4, -1)]
    assert table[-1].startswith("(5 other devices)   all ")
    assert [x for x in table[-1].split() if x in ("5", "20.0", "KiB")][:3] == ["5", "20.0", "KiB"]
    assert "Where the time goes: loop04" not in text
    assert "5 more devices with 7.1 % of the time of all: --limit 0 shows all" in text
    # THEN all are shown on request, and JSON has all
    assert "Where the time goes: loop04" in cli("report", "--limit", "0", path).out
    assert [one["device"] for one in as_json(make_report(Trace(path)))["devices"]] == [
        f"loop{n:02}" for n in range(19, -1, -1)
    ]
