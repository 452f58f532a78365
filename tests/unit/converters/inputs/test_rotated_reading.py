# SPDX-License-Identifier: Apache-2.0
"""The files of a rotated recording, read as the one log that they are."""

import random
from pathlib import Path

import pytest

from biotrail.converters.inputs.log import LogSource
from biotrail.converters.inputs.series import SeriesSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import perfetto_check
from tests.support.hosts_logs import LATENCY, SECOND, Machine

SPAN = (0, SECOND)
EVERY = SECOND // 4
BORDERS = [EVERY, 2 * EVERY, 3 * EVERY]
BIOS = sorted([*range(1000, SECOND, 7_000_000), *(border - LATENCY // 2 for border in BORDERS)])
DB1 = Machine("db1")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The first has no events, the others a quarter of a second each; a bio at each border."""
    return DB1.write_rotated(tmp_path / "r.biotrail", BIOS, span=SPAN)


def slices(path):
    """(start, end, arguments) of all bios."""
    found = perfetto_check.read(path.read_bytes()).slices("bio")
    return [(s.start, s.end, s.args) for s in found]


def test_files_in_any_order_are_one_log(cli, files, tmp_path):
    # GIVEN one log of a recording, and its files, given in another order
    whole = DB1.write(tmp_path / "whole.biotrail", BIOS, span=SPAN)
    shuffled = random.Random(1).sample(files, len(files))
    assert shuffled != files
    # WHEN both are converted
    cli("convert", whole)
    done = cli("convert", *shuffled, "-o", tmp_path / "all.pftrace")
    # THEN the same bios are there, those at borders whole and once, and nothing is missing
    found = slices(tmp_path / "all.pftrace")
    assert found == slices(whole.with_suffix(".pftrace"))
    assert len(found) == len(BIOS)
    assert {args["certainty"] for _, _, args in found} == {"exact"}
    assert f"{len(BIOS)} bios: {len(BIOS)} exact" in done.out
    assert "nothing is missing" in done.out
    # AND each file alone shows those at its borders as cut
    cli("convert", files[2])
    alone = slices(files[2].with_suffix(".pftrace"))
    assert sum(args["certainty"] == "incomplete" for _, _, args in alone) == 2


def test_the_output_is_named_after_the_first_file(cli, files):
    # GIVEN files of a recording / WHEN they are converted without a name / THEN it is the first's
    assert cli("convert", *files[::-1]).status == 0
    assert files[0].with_suffix(".pftrace").exists()


def test_other_formats_take_them_too(cli, files, tmp_path):
    # GIVEN files of a recording / WHEN they are written for blkparse / THEN all events are there
    done = cli("convert", *files, "-o", tmp_path / "r.blktrace")
    assert done.status == 0, done.err
    assert f"{2 * len(BIOS)} records" in done.out


def test_a_missing_file_is_said(cli, files, tmp_path):
    # GIVEN files of which one in the midst is not there / WHEN the others are converted
    left = [files[1], files[4]]
    done = cli("convert", *left, "-o", tmp_path / "gap.pftrace")
    # THEN that is said, the time between is marked, and what was in flight is not called whole
    assert "files 3 to 4 of the recording" in done.out
    trace = perfetto_check.read((tmp_path / "gap.pftrace").read_bytes())
    (loss,) = trace.slices("loss")
    assert loss.start <= DB1.monotonic(EVERY) + 1000
    assert loss.end >= DB1.monotonic(3 * EVERY) - LATENCY
    cut = [s for s in trace.slices("bio") if s.args["certainty"] != "exact"]
    assert len(cut) == 2
    assert len(trace.slices("bio")) == sum(at < EVERY or at + LATENCY >= 3 * EVERY for at in BIOS)


def test_a_rotated_recording_beside_another_host(cli, files, tmp_path):
    # GIVEN a rotated recording, and another host's log / WHEN all files are converted together
    other = Machine("db2", "2" * 32, seed=1).write(tmp_path / "db2.biotrail", BIOS, span=SPAN)
    done = cli("convert", files[3], other, *files[:3], files[4], "-o", tmp_path / "both.pftrace")
    # THEN it is one of two recordings there
    assert "2 recordings on one timeline" in done.out
    trace = perfetto_check.read((tmp_path / "both.pftrace").read_bytes())
    assert [s.args["certainty"] for s in trace.slices("bio")] == ["exact"] * 2 * len(BIOS)


def test_a_file_given_twice_is_refused(cli, files, tmp_path):
    # GIVEN a copy of a file / WHEN it is given beside that / THEN it is said
    copy = tmp_path / "copy.biotrail"
    copy.write_bytes(files[1].read_bytes())
    done = cli("convert", *files, copy, "-o", tmp_path / "x.pftrace")
    assert done.status == 1
    assert "copy.biotrail are the same log: give each once" in done.err


def test_a_series_is_of_one_recording(files, tmp_path):
    # GIVEN files of two recordings / WHEN they are taken as one / THEN they are refused
    other = DB1.write_rotated(tmp_path / "s.biotrail", BIOS, span=SPAN)
    with pytest.raises(LogFormatError, match="two recordings"):
        SeriesSource([(str(path), LogSource(path)) for path in (files[0], other[1])])


def test_its_account_is_that_of_all_files(files):
    # GIVEN files of a recording / WHEN they are read as one
    trace = Trace(SeriesSource([(str(path), LogSource(path)) for path in files]))
    reached: list[int] = []
    windows = list(trace.lifecycles(on_progress=reached.append))
    # THEN events, size, end and progress are those of all
    assert trace.account.total == 2 * len(BIOS)
    assert sum(len(window.bios) for window in windows) == len(BIOS)
    assert trace.reader.size == sum(path.stat().st_size for path in files)
    assert reached == sorted(reached)
    assert reached[-1] > trace.reader.size - files[-1].stat().st_size
    assert trace.reader.end is not None
    assert trace.reader.end["reason"] == "test"
