# SPDX-License-Identifier: Apache-2.0
"""`biotrail demo`, for real."""

import subprocess
import sys
from pathlib import Path

import pytest

from biotrail.cli.children import demo_loads
from biotrail.cli.children.demo_loads import FILE_BYTES, JOURNAL_ENTRIES, LOADS, RANDOM_READS, held
from tests.support.record_command import ROOT, biotrail, in_json, read

pytestmark = pytest.mark.usefixtures("needs_bpf")

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
MOST_BYTES = 300_000


@pytest.mark.alone  # it records all devices, and lists the processes with the most I/O
def test_the_demo_shows_real_io(tmp_path: Path) -> None:
    # GIVEN a machine that can record WHEN the demo runs, twice
    biotrail("demo", "--output", tmp_path / "out")
    done = biotrail("demo", "--output", tmp_path / "out")
    # THEN a log and a trace are there, and the summary names what was done
    assert "Recorded" in done.stdout
    assert "biotrail view" in done.stdout
    said = done.stdout.splitlines()
    assert f"Log:   {tmp_path / 'out' / 'demo.biotrail'}" in said
    assert any(line.startswith(f"Trace: {tmp_path / 'out' / 'demo.pftrace'} ") for line in said)
    assert (tmp_path / "out" / "demo.pftrace").stat().st_size > 100_000
    found = read(tmp_path / "out" / "demo.biotrail")
    assert found.account.total > 1000
    # AND the processes did what they are for, unless no disk is below this directory
    seen = set(found.comms.tolist())
    if "little of the I/O" in done.stdout:
        return
    assert set(LOADS) <= seen
    for name in LOADS:
        assert name in done.stdout
    reads = found.by("demo-database")
    _, names = found.context.op_codes(reads.opf)
    assert {"read", "write"} <= set(names)
    assert len(reads) >= RANDOM_READS
    assert int(found.by("demo-backup").bytes.sum()) >= FILE_BYTES


def test_the_sample_is_a_small_real_log() -> None:
    # GIVEN the log that is shipped WHEN it is looked at
    facts = in_json("info", SAMPLE)
    # THEN it is small, complete, and holds every process of the demo
    assert SAMPLE.stat().st_size <= MOST_BYTES
    assert not facts["interrupted"]
    assert not facts["lost"]
    assert facts["problems"] == []
    assert set(LOADS) <= set(read(SAMPLE).comms.tolist())


def test_the_load_names_its_failures(tmp_path: Path) -> None:
    # GIVEN a directory that is not there WHEN a load runs in it THEN its status says so
    for name in LOADS:
        command = [sys.executable, demo_loads.__file__]
        done = subprocess.run([*command, str(tmp_path / "none"), name], capture_output=True)
        assert done.returncode == 1
        assert b"FileNotFoundError" in done.stderr


def test_the_loads_wait_until_they_are_released(tmp_path: Path) -> None:
    # GIVEN all loads, prepared
    with held(tmp_path) as (release, processes):
        # WHEN nobody has released them THEN files that need no reading are not begun
        assert (tmp_path / "journal").stat().st_size == 0
        assert (tmp_path / "table").stat().st_size == FILE_BYTES
        # WHEN the command runs that releases them THEN it lasts until they have done their work
        subprocess.run(release, check=True, timeout=120)
        assert all(one.wait(120) == 0 for one in processes)
        assert len((tmp_path / "journal").read_text().split("entry ")) == 20 * JOURNAL_ENTRIES + 1


def test_a_load_that_cannot_begin_is_told_and_the_others_end(tmp_path: Path) -> None:
    # GIVEN a place where one of the loads cannot write its file
    (tmp_path / "movie").mkdir()
    # WHEN all are prepared THEN that is an error, and none is left
    with pytest.raises(OSError, match="did not start"), held(tmp_path):
        pass
    assert [path.name for path in Path("/proc").glob("[0-9]*") if str(tmp_path) in told(path)] == []


def told(process: Path) -> str:
    """A process's command line; empty when it has gone."""
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""
