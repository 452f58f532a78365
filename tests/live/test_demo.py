# SPDX-License-Identifier: Apache-2.0
"""`biotrail demo`, for real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from record_helpers import ROOT, biotrail, read

from biotrail.demo_load import FILE_BYTES, LOADS, RANDOM_READS

pytestmark = pytest.mark.usefixtures("needs_bpf")

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
MOST_BYTES = 300_000


def test_the_demo_shows_real_io(tmp_path: Path) -> None:
    # GIVEN a machine that can record WHEN the demo runs, twice
    biotrail("demo", "--output", tmp_path / "out")
    done = biotrail("demo", "--output", tmp_path / "out")
    # THEN a log and a trace are there, and the summary names what was done
    assert "Recorded" in done.stdout
    assert "biotrail view" in done.stdout
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
    facts = json.loads(biotrail("info", "--json", SAMPLE).stdout)
    # THEN it is small, complete, and holds every process of the demo
    assert SAMPLE.stat().st_size <= MOST_BYTES
    assert not facts["interrupted"]
    assert not facts["lost"]
    assert facts["problems"] == []
    assert set(LOADS) <= set(read(SAMPLE).comms.tolist())


def test_the_load_names_its_failures(tmp_path: Path) -> None:
    # GIVEN a directory that is not there WHEN the load runs in it THEN its status says so
    done = subprocess.run(
        [sys.executable, str(ROOT / "biotrail" / "demo_load.py"), str(tmp_path / "none")],
        capture_output=True,
    )
    assert done.returncode == len(LOADS)
