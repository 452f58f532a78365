# SPDX-License-Identifier: Apache-2.0
"""Logs that were recorded on other kernels, kept so that readers never break on old ones."""

from pathlib import Path

import pytest

from biotrail.converters.events.tables import NEVER, Bios
from biotrail.converters.pipeline import Trace
from tests.support import paths, perfetto_check
from tests.support.cli_runner import Cli

DATA = paths.DATA / "kernels"
LOGS = sorted(DATA.glob("*.biotrail"))
LARGEST = 100 << 10
WRITE_BYTES = 65536


def test_there_are_logs_of_four_kernels() -> None:
    # GIVEN the logs  THEN none went missing, and none is large
    assert [path.stem for path in LOGS] == ["5.10", "6.1", "6.12", "7.2"]
    assert all(path.stat().st_size <= LARGEST for path in LOGS)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_tells_its_kernel_and_converts(path: Path, cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of a write to a file on a volume on a mirror on two partitions
    # WHEN it is opened  THEN it is whole and says which kernel wrote it
    trace = Trace(path)
    reader = trace.reader
    assert reader.header["kernel"]["release"].startswith(f"{path.stem}.")
    assert not reader.interrupted
    assert (reader.losses, reader.problems) == ([], [])
    # WHEN it is converted
    out = tmp_path / "log.pftrace"
    done = cli("convert", path, "-o", out)
    # THEN the trace is sound and has every bio of the tables, with one family of four for the write
    assert done.status == 0, done.err
    bios = Bios.concatenate([window.bios for window in trace.lifecycles()])
    drawn = perfetto_check.read(out.read_bytes()).slices("bio")
    assert len(drawn) == len(bios) > 0
    assert (bios.complete != NEVER).all()
    (top,) = [
        bio
        for bio in drawn
        if bio.args["device"].startswith("vmtest-data (")
        and bio.args["bytes"] == WRITE_BYTES
        and bio.args["process"] == "dd"
    ]
    assert len([bio for bio in drawn if bio.correlation == top.correlation]) == 4
