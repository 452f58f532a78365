# SPDX-License-Identifier: Apache-2.0
"""Real processes have the titles that they set, and no other part of their command lines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.support import record_command
from tests.support.devices import LoopDevice
from tests.support.record_command import in_json, recorder, wait_until

pytestmark = [pytest.mark.usefixtures("needs_bpf")]

SECRET = "s3cret-of-biotrail-tests"
READS = """
import os, sys, time
for path in sys.argv[1:2] or [os.environ["DEVICE"]]:
    device = os.open(path, os.O_RDONLY)
while True:
    os.posix_fadvise(device, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(device, 4096, 0)
    time.sleep(0.01)
"""


@contextmanager
def readers(device: LoopDevice, folder: Path) -> Iterator[dict[str, int]]:
    """A script with a secret among its arguments, and a program that set a title: ids by title."""
    script = folder / "backup.py"
    script.write_text(READS)
    source = os.memfd_create("reads")
    os.write(source, READS.encode())
    os.lseek(source, 0, os.SEEK_SET)
    scripted = subprocess.Popen([sys.executable, "-u", script, device.path, f"--token={SECRET}"])
    titled = subprocess.Popen(
        ["bt-test: reading"],
        executable=sys.executable,
        stdin=source,
        env={**os.environ, "DEVICE": device.path},
    )
    os.close(source)
    name = os.path.basename(sys.executable)
    try:
        yield {f"{name} backup.py": scripted.pid, "bt-test: reading": titled.pid}
    finally:
        for one in (scripted, titled):
            one.kill()
            one.wait()


def recorded(device: LoopDevice, log: Path, *options: str) -> dict[int, dict[str, Any]]:
    """The processes of a recording that ends after its log has some chunks, by id."""
    with record_command.recorded("-d", device.name, *options, "-o", log):
        begun = log.stat().st_size
        wait_until(lambda: log.stat().st_size > begun + 3000, "no chunks are written")
    told = in_json("report", log)
    return {one["pid"]: one for one in told["processes"]}


def test_processes_have_their_titles(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a script, and a program with a title, that read
    with readers(loop_device, tmp_path) as titles:
        # WHEN that is recorded
        found = recorded(loop_device, tmp_path / "log")
    # THEN they are called so, and nothing else of the command line is in the log
    assert {title: found[pid]["title"] for title, pid in titles.items()} == {t: t for t in titles}
    with LogReader(tmp_path / "log") as log:
        notes = dict(log.notes)
    assert set(titles) <= {one["title"] for one in notes["titles"].values()}
    assert SECRET not in json.dumps(notes)


def test_whole_command_lines_on_request(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN likewise / WHEN recorded with whole command lines / THEN these are there
    with readers(loop_device, tmp_path) as titles:
        found = recorded(loop_device, tmp_path / "log", "--command-lines")
    pid = next(pid for title, pid in titles.items() if "backup.py" in title)
    assert found[pid]["title"].endswith(f"backup.py {loop_device.path} --token={SECRET}")


def test_later_files_have_titles_too(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a rotated recording of these programs
    with (
        readers(loop_device, tmp_path) as titles,
        recorder("-d", loop_device.name, "--rotate", "1s", "-o", tmp_path / "log") as recording,
    ):
        wait_until(lambda: len(list(tmp_path.glob("log-*.biotrail"))) > 2, "no files are written")
        recording.terminate()
        recording.communicate(timeout=60)
    # WHEN a later file is read alone / THEN it has the titles
    second = sorted(tmp_path.glob("log-*.biotrail"))[1]
    told = in_json("report", second)
    found = {one["pid"]: one["title"] for one in told["processes"]}
    assert {found[pid] for pid in titles.values()} == set(titles)
