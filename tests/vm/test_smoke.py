# SPDX-License-Identifier: Apache-2.0
"""biotrail under other kernels than this machine's, in virtual machines.

VMTEST_KERNELS names the branches, "6.1" by default: Debian 12's own kernel, which has
neither block_io_start nor block_io_done.
"""

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.model.tables import Bios, Certainty, Lifecycles, Requests
from converters.model.trace import Trace
from recorder.records import Kind

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNELS = os.environ.get("VMTEST_KERNELS", "6.1").split()
DISKS = ("nvme0n1", "sda", "vda")
BOOT_AND_RUN_SECONDS = 400
MISSING_PREREQUISITES = 77


@dataclass
class Outcome:
    """What the virtual machine left: tracepoints, fio's and info's JSON, the log, the trace."""

    directory: Path

    def __post_init__(self) -> None:
        self.tracepoints = self._text("tracepoints").split()
        self.info: dict[str, Any] = json.loads(self._text("info.json"))
        jobs = json.loads(self._text("fio.json"))["jobs"]
        self.fio: dict[str, dict[str, Any]] = {job["jobname"]: job for job in jobs}
        self.trace = Trace(self.directory / "smoke.biotrail")
        self.windows: list[Lifecycles] = list(self.trace.lifecycles())
        self.bios = Bios.concatenate([window.bios for window in self.windows])
        self.requests = Requests.concatenate([window.requests for window in self.windows])

    def _text(self, name: str) -> str:
        return (self.directory / name).read_text(encoding="utf-8")

    def dev(self, disk: str) -> int:
        devices = self.trace.reader.header["devices"]
        return int(next(device["dev"] for device in devices if device["name"] == disk))

    def events(self) -> Counter[tuple[str, int]]:
        """Counts of (kind, dev), straight from the log."""
        counts: Counter[tuple[str, int]] = Counter()
        for events, _ in Trace(self.directory / "smoke.biotrail").events():
            for kind in (Kind.Q, Kind.D):
                devices, numbers = np.unique(events.dev[events.rows(kind)], return_counts=True)
                for dev, number in zip(devices.tolist(), numbers.tolist(), strict=True):
                    counts[kind.name, dev] += number
        return counts


@pytest.fixture(scope="module", params=KERNELS)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    directory = tmp_path_factory.mktemp(f"linux-{request.param}")
    command = [HERE / "run", "-k", request.param, "-o", directory]
    done = subprocess.run(
        [*command, "-t", str(BOOT_AND_RUN_SECONDS), HERE / "smoke.sh"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    print(done.stdout)
    if done.returncode == MISSING_PREREQUISITES:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    if done.returncode != 0:
        pytest.fail(f"the virtual machine's script ended with {done.returncode}:\n{done.stdout}")
    return Outcome(directory)


@pytest.mark.parametrize("disk", DISKS)
def test_counts_equal_fios(outcome: Outcome, disk: str) -> None:
    # GIVEN a recording of direct 4 KiB I/O that fits in one request each
    job, dev = outcome.fio[disk], outcome.dev(disk)
    total = job["read"]["total_ios"] + job["write"]["total_ios"]
    # WHEN events and bios are counted
    events = outcome.events()
    bios = outcome.bios.take(outcome.bios.dev == dev)
    # THEN every queue and every issue that fio caused is there, once, with its bytes
    assert total == 512
    assert events["Q", dev] == total
    assert events["D", dev] == total
    assert len(bios) == total
    assert int(bios.bytes.sum()) == job["read"]["io_bytes"] + job["write"]["io_bytes"]


def test_every_bio_has_its_request(outcome: Outcome) -> None:
    # GIVEN the same recording  WHEN it is associated
    bios, requests = outcome.bios, outcome.requests
    # THEN identity settles everything: each bio has one request, known exactly, and its times rise
    assert Counter(bios.certainty.tolist()) == {Certainty.EXACT: len(bios)}
    assert np.isin(bios.request, requests.number).all()
    assert len(np.unique(bios.request)) == len(bios)
    assert (bios.queue <= bios.issue).all()
    assert (bios.issue < bios.complete).all()
    assert (bios.status == 0).all()


def test_nothing_was_lost(outcome: Outcome) -> None:
    # GIVEN the same recording  THEN it has its end, and no loss window
    reader = outcome.trace.reader
    assert not reader.interrupted
    assert reader.losses == []
    assert reader.problems == []


def test_what_the_kernel_lacks_is_named(outcome: Outcome) -> None:
    # GIVEN the tracepoints of that kernel
    missing = {entry["tracepoint"] for entry in outcome.trace.reader.header["events"]["missing"]}
    # THEN the header names what this set of events wants and the kernel has not, and only that
    assert ("block_io_start" in missing) == ("block_io_start" not in outcome.tracepoints)
    assert missing.isdisjoint(outcome.tracepoints)


def test_the_trace_was_written(outcome: Outcome) -> None:
    # GIVEN the conversion in the machine  THEN it wrote a trace with something in it
    assert (outcome.directory / "smoke.pftrace").stat().st_size > 512 * 48 // 2


def test_every_bio_has_its_call_stack(outcome: Outcome) -> None:
    # GIVEN a recording with call stacks of a program that reads a disk directly
    made = json.loads((outcome.directory / "stacks.json").read_text(encoding="utf-8"))
    job = json.loads((outcome.directory / "stacks-fio.json").read_text(encoding="utf-8"))["jobs"][0]
    # WHEN its reads are added up by stack
    reads = [
        entry
        for entry in made["stacks"]
        if entry["comm"] == "fio" and any("read" in frame["name"] for frame in entry["kernel"])
    ]
    # THEN all of fio's are there, from the block layer's first function on
    assert sum(entry["bytes"] for entry in reads) >= job["read"]["io_bytes"]
    assert all(entry["kernel"][0]["name"].startswith("submit_bio") for entry in reads)
    assert not any(entry["missing"] for entry in made["stacks"])
    # AND they come from functions of the program, by name
    assert any(frame["name"] for entry in reads for frame in entry["user"])
    assert made["notes"] == []
