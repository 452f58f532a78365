# SPDX-License-Identifier: Apache-2.0
"""A CPU that a recording does not tell is shown as not known, in every output."""

import json
import re
from pathlib import Path

import pytest

import biotrail
from tests.support.cli_runner import Cli
from tests.support.text_layouts import READ

[WITHOUT_CPU] = [layout for layout in READ if "CPUs" in layout.lacks]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """What `perf script` prints without CPUs."""
    path = tmp_path / "perf.txt"
    queued = b"              dd   500     9.999999: block:block_bio_queue: 8,0 R 1000 + 8 [dd]\n"
    path.write_bytes(queued + WITHOUT_CPU.text)
    return path


def test_tables_have_null(recording: Path) -> None:
    # GIVEN a recording without CPUs / WHEN it is read as tables / THEN its CPUs are null
    found = biotrail.open(recording)
    assert set(found.events["cpu"].to_pylist()) == {None}
    assert set(found.bios["cpu"].to_pylist()) == {None}


def test_dump_and_slow_have_a_question_mark(recording: Path, cli: Cli) -> None:
    # GIVEN a recording without CPUs / WHEN its events are printed / THEN the CPU is a "?"
    assert all(line.split()[1] == "?" for line in cli("dump", recording).out.splitlines())
    assert len(re.findall(r"µs +\? +[QDC] ", cli("slow", recording).out)) == 3


def test_json_has_null(recording: Path, cli: Cli) -> None:
    # GIVEN a recording without CPUs / WHEN its events are JSON / THEN the CPU is null
    for line in cli("dump", "--json", recording).out.splitlines():
        assert json.loads(line)["cpu"] is None
    assert "65535" not in cli("slow", "--json", recording).out


def test_the_log_says_that_they_are_not_known(recording: Path, cli: Cli) -> None:
    # GIVEN a recording without CPUs / WHEN it is looked at / THEN that is said
    assert "CPUs are not printed" in cli("info", recording).out


def test_records_of_blktrace_have_the_first(recording: Path, cli: Cli, tmp_path: Path) -> None:
    # GIVEN a recording without CPUs / WHEN it becomes blktrace's data, which has a CPU in any case
    out = tmp_path / "out.blktrace"
    assert cli("convert", recording, "-o", out).status == 0
    # THEN it is the first
    assert [path.name.rpartition(".")[2] for path in out.rglob("*.blktrace.*")] == ["0"]
