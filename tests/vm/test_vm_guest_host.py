# SPDX-License-Identifier: Apache-2.0
"""A guest and its host, recorded at once: a raw image on a loop device, as a virtio-blk disk.

The host's recording runs `run`, so it has all bios of the machine's process on the loop device. The
device's file is on a file system that is frozen for a while, which only the host can know.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.guests.guest import Disk, Guest, join
from biotrail.converters.analysis.guests.image import Mapping
from biotrail.converters.analysis.guests.links import Unlinked
from biotrail.converters.analysis.guests.sides import FLUSHES, READ, WRITE
from biotrail.converters.events.tables import Certainty
from biotrail.converters.pipeline import Trace
from tests.support import devices
from tests.support.devices import MEBIBYTE, LoopDevice, read_fio_report
from tests.support.holding import frozen, in_flight, on_a_file_system
from tests.support.record_command import wait_until
from tests.vm.boots import HERE, ROOT
from tests.vm.conftest import KERNELS
from tests.vm.guest_host import LOADS
from tests.vm.machine import CHOSEN, SECONDS

CASE = "guest_of_host"
PROCESS = "qemu-system-x86"
SYNCED_BEGAN = 4
"""Flushes after which the load with fsync is under way."""
HELD_NS = 300_000_000
FLUSHES_DONE = 15
"""Field of /sys/block/DISK/stat."""
BOUND_NS = 100_000
"""Of the clocks. It is half of the quickest ways to the host and back, which a busy machine makes
slower; docs/guests.md has what was measured."""


@dataclass
class Both:
    """What a guest and its host recorded."""

    guest: Path
    host: Path
    loads: dict[str, dict[str, object]]
    joined: Guest

    @property
    def disk(self) -> Disk:
        (disk,) = self.joined.disks
        return disk


def flushes_done(device: str) -> int:
    return int(Path(f"/sys/block/{device}/stat").read_text().split()[FLUSHES_DONE])


def hold_one(where: Path, loop: LoopDevice, machine: subprocess.Popen[bytes]) -> None:
    """Freeze the file system below the device while the guest writes with fsync."""
    begun = flushes_done(loop.name)
    while machine.poll() is None and flushes_done(loop.name) < begun + SYNCED_BEGAN:
        time.sleep(0.01)
    if machine.poll() is None:
        with frozen(where):
            wait_until(lambda: in_flight(loop.name) > 0, "no write is in flight")
            time.sleep(HELD_NS / 1e9)  # what the test shall find again


def run_machine(kernel: str, loop: LoopDevice, where: Path, out: Path) -> Path:
    """Boot the kernel with the device as a disk, record both sides; return the host's log."""
    host = out / "host.biotrail"
    biotrail = Path(sys.executable).with_name("biotrail")
    run = [HERE / "run", "-k", kernel, "-d", loop.path, "-o", out, "-t", str(SECONDS)]
    command = [biotrail, "record", "-q", "-d", loop.name, "-o", host, "--", *run,
               HERE / "cases.sh", CASE]  # fmt: skip
    with (out / "console.txt").open("wb") as console:
        machine = subprocess.Popen(command, stdout=console, stderr=console, cwd=ROOT)
        holding = threading.Thread(target=hold_one, args=(where, loop, machine))
        holding.start()
        try:
            machine.wait(timeout=SECONDS)
        finally:
            machine.terminate()
            machine.wait()
            holding.join()
    return host


@pytest.fixture(scope="module", params=[one for one in KERNELS if not one.startswith("arm64")])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    if CHOSEN and CASE not in CHOSEN:
        pytest.skip("virtual machine: not among VMTEST_CASES")
    if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("virtual machine: the host's recording needs root and BTF")
    out = tmp_path_factory.mktemp(f"host-of-{request.param}")
    with ExitStack() as stack:
        loop = stack.enter_context(
            on_a_file_system(
                lambda **options: stack.enter_context(devices.loop(**options)),
                out / "below",
                size=32 * MEBIBYTE,
            )
        )
        host = run_machine(request.param, loop, out / "below", out)
        console = (out / "console.txt").read_text(errors="replace")
        last = (console.strip().splitlines() or [""])[-1]
        if last.startswith("virtual machine: "):
            pytest.skip(last)
        told = json.loads((out / CASE / "case.json").read_text(encoding="utf-8"))
        assert told["ended"] == "done", told
        guest = out / CASE / "log.biotrail"
        joined = join(Trace(guest), Trace(host), PROCESS, Mapping())
        loads = {name: read_fio_report(out / CASE / f"{name}.json")["jobs"][0] for name in LOADS}
        yield Both(guest, host, loads, joined)


def test_each_request_of_the_guest_has_its_bios(both: Both) -> None:
    # GIVEN both logs of the loads
    disk = both.disk
    links, moves = disk.links, np.isin(disk.asked.op, (READ, WRITE, FLUSHES))
    # WHEN the guest's requests are linked
    linked = links.unlinked == Unlinked.LINKED
    # THEN each that moves data, and each flush, has its bios, for certain
    assert (linked == moves).all()
    assert (links.certainty[linked] == Certainty.EXACT).all()
    # AND they are as many bytes as fio wrote and read
    for op, name in ((READ, "read"), (WRITE, "write")):
        moved = links.edges.sectors[disk.asked.op[links.edges.request] == op].sum() * 512
        assert moved == sum(load[name]["io_bytes"] for load in both.loads.values())


def test_sectors_of_the_guest_are_those_of_the_device(both: Both) -> None:
    # GIVEN the links of requests with data
    disk = both.disk
    edges = disk.links.edges
    edges = edges.take(edges.sectors > 0)
    asked, served = disk.asked.take(edges.request), disk.served.take(edges.bio)
    # THEN a raw image's sectors are the virtual disk's: each range lies in both
    begin = np.maximum(asked.sector, served.sector)
    assert (begin + edges.sectors <= asked.sector + asked.sectors).all()
    assert (begin + edges.sectors <= served.sector + served.sectors).all()
    assert both.joined.host.device_name(disk.part).startswith("loop")


def test_the_clocks_are_within_a_stated_bound(both: Both) -> None:
    # GIVEN the line through the requests' bounds
    found = both.joined.agreement
    line, links = found.fit.line, both.disk.links
    print(f"clocks within {line.within} ns by {found.requests} requests, {line.rate * 1e6:.3f} ppm")
    # THEN no request contradicts it, and the bound is small
    assert found.contradicting == 0
    assert line.within <= BOUND_NS
    # AND no bio is queued before its request's issue, nor completed after it, beyond the bound
    assert links.stages[links.timed].min() >= -line.within


def test_a_delay_of_the_host_is_in_the_hosts_stage(both: Both) -> None:
    # GIVEN a write that waited for the frozen file system below the host's device
    disk = both.disk
    stages = disk.links.stages[disk.links.timed & (disk.asked.op == WRITE)]
    # WHEN the slowest write of the guest is looked at
    slowest = stages[stages.sum(axis=1).argmax()]
    # THEN it is as slow as that, and its time is with the host's device
    assert slowest.sum() > HELD_NS
    assert slowest[2] > HELD_NS
    assert slowest[2] > slowest.sum() / 2
