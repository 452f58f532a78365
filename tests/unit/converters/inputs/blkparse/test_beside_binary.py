# SPDX-License-Identifier: Apache-2.0
"""blkparse's text gives what the binary files give that it was printed from."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from biotrail.cli import convert, dump, report
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.records import Kind
from tests.support import captures, paths
from tests.support.both_ways import uncompiled
from tests.unit.converters.inputs.blkparse.texts import DATA, all_events, contents, events_of

SETS = ("loop1", "vda", "zram1")
CAPTURES = sorted(p.stem for p in (paths.DATA / "captures").glob("*.txt"))


def run(command: object, *arguments: object) -> str:
    done = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)  # type: ignore[arg-type]
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", SETS)
def test_a_text_has_the_records_of_its_set(name: str) -> None:
    # GIVEN a set, and what blkparse printed of it
    text, binary = open_source(DATA / f"{name}.txt"), open_source(DATA / name)
    # WHEN both are read
    printed, recorded = events_of(text), events_of(binary)
    # THEN every word of every record is the same: what no line says was found by the others
    assert contents(printed) == contents(recorded)
    assert (text.problems, text.losses) == ([], [])


@pytest.mark.parametrize("name", SETS)
def test_a_text_has_the_figures_of_its_set(name: str) -> None:
    # GIVEN the same
    # WHEN both are reported
    found = [
        re.sub(r'"\d+:\d+"', f'"{name}"', run(report.command, "--json", path))
        for path in (DATA / f"{name}.txt", DATA / name)
    ]
    # THEN bios, requests and latencies are the same
    printed, recorded = map(json.loads, found)
    assert printed["total"]["ios"]
    for part in ("total", "devices", "cpus", "certainty"):
        assert printed[part] == recorded[part]


@pytest.mark.parametrize("name", CAPTURES)
def test_a_log_s_lines_have_the_records_of_its_files(name: str, tmp_path: Path) -> None:
    # GIVEN a log, written as blktrace's files and as blkparse's lines
    log, files = tmp_path / "a.biotrail", tmp_path / "a.blktrace"
    captures.write_log(log, captures.load(name))
    run(convert.command, log, "-o", files)
    for device in {path.name.partition(".blktrace.")[0] for path in files.iterdir()}:
        binary = events_of(open_source(files / device))
        if not len(binary):
            continue
        # WHEN each device's lines are read
        lines = tmp_path / f"{device}.txt"
        lines.write_text(run(dump.command, "--format", "blkparse", files / device))
        source = open_source(lines)
        # THEN they have the same records
        assert contents(events_of(source)) == contents(binary)
        assert source.problems == []


def test_thread_names_are_those_of_the_set() -> None:
    # GIVEN a set whose process notes name its threads
    # WHEN the text and the set are read
    printed, recorded = (named(open_source(DATA / name)) for name in ("vda.txt", "vda"))
    # THEN the threads of its records have the same names
    assert len(printed) == 3
    assert printed < recorded


def named(source: Source) -> set[tuple[int, bytes]]:
    """The threads with names: id, name."""
    events = all_events(source)
    rows = events.raw[events.kind == Kind.TASK]
    return {(int(row[1]) & 0xFFFFFFFF, row[2:4].tobytes().rstrip(b"\0")) for row in rows}


def test_uncompiled_and_compiled_loops_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a text, and the loops uncompiled
    from biotrail.converters.inputs.blkparse import lines

    expected = all_events(open_source(DATA / "loop1.txt"))
    loops = uncompiled("converters/inputs/blkparse/line_loops.py")
    monkeypatch.setattr(lines, "loops", loops)
    # WHEN it is read
    found = all_events(open_source(DATA / "loop1.txt"))
    # THEN the events are the same
    assert (found.raw == expected.raw).all()
