# SPDX-License-Identifier: Apache-2.0
"""The command `archive`: files, series, datasets, and what stands in the way."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.blktrace_records import READ, Q, record, write_set
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
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


def test_tables_can_be_chosen(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a wish for bios alone  WHEN a dataset is made  THEN it has these
    assert cli("archive", "--tables", "bios", SAMPLE, "-o", tmp_path / "set").status == 0
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["bios"]
    # AND other names are refused
    assert cli("archive", "--tables", "bio", SAMPLE, "-o", tmp_path / "b").status == 2


def test_another_directory_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a directory of something else  WHEN a dataset shall be there  THEN it is refused
    other = tmp_path / "home"
    other.mkdir()
    (other / "precious").write_text("x")
    done = cli("archive", SAMPLE, "-o", other)
    assert done.status == 1
    assert [p.name for p in other.iterdir()] == ["precious"]


@pytest.mark.parametrize("target", ["x.parquet", "set"])
def test_a_full_disk_leaves_nothing_but_a_message(target: str, tmp_path: Path) -> None:
    # GIVEN room for 20 KB  WHEN an archive of more is written
    done = subprocess.run(
        [sys.executable, "-m", "biotrail.cli.main", "archive", SAMPLE, "-o", tmp_path / target],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
    )
    # THEN one message says so, and no part stays
    assert done.returncode == 1
    assert done.stderr.startswith("biotrail: error: cannot write ")
    assert done.stderr.count("\n") == 1
    assert "too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_columns_are_read_by_others(cli: Cli, tmp_path: Path) -> None:
    # GIVEN an archive  WHEN another reader counts kinds  THEN they are the log's
    target = tmp_path / "x.parquet"
    cli("archive", SAMPLE, "-o", target)
    kinds = pq.read_table(target, columns=["kind"])["kind"].value_counts().to_pylist()
    counted = {row["values"]: row["counts"] for row in kinds}
    trace = Trace(SAMPLE)
    for _ in trace.lifecycles():
        pass
    assert counted == trace.account.by_letter()
