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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.guests.disk_requests import FLUSHES, READ, WRITE
from biotrail.converters.analysis.guests.guest import Disk, Guest, Unlinked, join
from biotrail.converters.events.tables import Certainty
from biotrail.converters.pipeline import Trace
from tests.support import devices
from tests.support import kernel_matrix as matrix
from tests.support.devices import MEBIBYTE, LoopDevice, read_fio_report
from tests.support.holding import frozen, in_flight, on_a_file_system
from tests.support.record_command import wait_until
from tests.support.throttling import limiting, throttled
from tests.vm.boots import CONSOLE, HERE, ROOT
from tests.vm.conftest import KERNELS, MATRIX
from tests.vm.guest_host import LOADS
from tests.vm.machine import CHOSEN, SECONDS, Machine

CASE = "guest_of_host"
PROCESS = "qemu-system-x86"
SYNCED_BEGAN = 4
"""Flushes after which the load with fsync is under way."""
HELD_NS = 300_000_000
READS_DONE, FLUSHES_DONE = 0, 15
"""Fields of /sys/block/DISK/stat."""
SINGLE_BEGAN = 200
"""Reads of the device after which the load of single ones is under way."""
THROTTLED, A_SECOND = 30, 20
"""Reads that the host lets through at a limited rate."""
BOUND_NS = 50_000
"""Of the clocks. It is half of the quickest ways to the host and back, which a busy machine makes
slower: 20 to 40 µs were measured."""


@dataclass
class Both:
    """What a guest and its host recorded."""

    guest: Path
    host: Path
    loads: dict[str, dict[str, object]]
    joined: Guest
    throttled: bool
    """Whether reads were limited for a while: the host can."""

    @property
    def disk(self) -> Disk:
        (disk,) = self.joined.disks
        return disk


def done_so_far(device: str, field: int) -> int:
    return int(Path(f"/sys/block/{device}/stat").read_text().split()[field])


def wait_while_runs(machine: subprocess.Popen[bytes], done: Callable[[], bool]) -> bool:
    """Wait for `done`; False if the machine ended before."""
    while machine.poll() is None:
        if done():
            return True
        time.sleep(0.01)
    return False


def below(process: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from below(child)


def throttle_some(loop: LoopDevice, machine: subprocess.Popen[bytes]) -> None:
    begun = done_so_far(loop.name, READS_DONE)
    if not wait_while_runs(
        machine, lambda: done_so_far(loop.name, READS_DONE) > begun + SINGLE_BEGAN
    ):
        return
    mine = [
        one for one in below(machine.pid) if Path(f"/proc/{one}/comm").read_text() == f"{PROCESS}\n"
    ]
    with throttled(mine, loop.dev, A_SECOND):
        begun = done_so_far(loop.name, READS_DONE)
        wait_while_runs(machine, lambda: done_so_far(loop.name, READS_DONE) > begun + THROTTLED)


def hold_one(where: Path, loop: LoopDevice, machine: subprocess.Popen[bytes]) -> None:
    """Freeze the file system below the device while the guest writes with fsync."""
    begun = done_so_far(loop.name, FLUSHES_DONE)
    if wait_while_runs(
        machine, lambda: done_so_far(loop.name, FLUSHES_DONE) >= begun + SYNCED_BEGAN
    ):
        with frozen(where):
            wait_until(lambda: in_flight(loop.name) > 0, "no write is in flight")
            time.sleep(HELD_NS / 1e9)  # what the test shall find again


def disturb(where: Path, loop: LoopDevice, machine: subprocess.Popen[bytes]) -> None:
    """Delay some of the guest's I/O, as only the host can know: reads, then a write."""
    if limiting() is not None:
        throttle_some(loop, machine)
    hold_one(where, loop, machine)


def run_machine(kernel: str, loop: LoopDevice, where: Path, out: Path) -> Path:
    """Boot the kernel with the device as a disk, record both sides; return the host's log."""
    host = out / "host.biotrail"
    biotrail = Path(sys.executable).with_name("biotrail")
    run = [HERE / "run", "-k", kernel, "-d", loop.path, "-o", out, "-t", str(SECONDS)]
    command = [biotrail, "record", "-q", "-d", loop.name, "-o", host, "--", *run,
               HERE / "cases.sh", CASE]  # fmt: skip
    with (out / CONSOLE).open("wb") as console:
        machine = subprocess.Popen(command, stdout=console, stderr=console, cwd=ROOT)
        holding = threading.Thread(target=disturb, args=(where, loop, machine))
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
        booted = Machine(request.param, out)
        if booted.missing:
            pytest.skip(booted.missing)
        request.config.stash[MATRIX].note(matrix.PACKAGE, request.param, booted.version)
        told = json.loads((out / CASE / "case.json").read_text(encoding="utf-8"))
        assert told["ended"] == "done", told
        guest = out / CASE / "log.biotrail"
        joined = join(Trace(guest), Trace(host), PROCESS)
        loads = {name: read_fio_report(out / CASE / f"{name}.json")["jobs"][0] for name in LOADS}
        yield Both(guest, host, loads, joined, limiting() is not None)


def test_each_request_of_the_guest_has_its_bios(both: Both) -> None:
    # GIVEN both logs of the loads
    disk = both.disk
    links, moves = disk.links, np.isin(disk.requests.op, (READ, WRITE, FLUSHES))
    # WHEN the guest's requests are linked
    linked = links.unlinked == Unlinked.LINKED
    # THEN each that moves data, and each flush, has its bios, for certain
    assert (linked == moves).all()
    assert (links.certainty[linked] == Certainty.EXACT).all()
    # AND they are as many bytes as fio wrote and read
    for op, name in ((READ, "read"), (WRITE, "write")):
        moved = links.edges.sectors[disk.requests.op[links.edges.request] == op].sum() * 512
        assert moved == sum(load[name]["io_bytes"] for load in both.loads.values())


def test_sectors_of_the_guest_are_those_of_the_device(both: Both) -> None:
    # GIVEN the links of requests with data
    disk = both.disk
    edges = disk.links.edges
    edges = edges.take(edges.sectors > 0)
    asked, served = disk.requests.take(edges.request), disk.served.take(edges.bio)
    # THEN a raw image's sectors are the virtual disk's: each range lies in both
    begin = np.maximum(asked.sector, served.sector)
    assert (begin + edges.sectors <= asked.sector + asked.sectors).all()
    assert (begin + edges.sectors <= served.sector + served.sectors).all()
    assert both.joined.host.device_name(disk.part).startswith("loop")


def test_the_clocks_are_within_a_stated_bound(both: Both) -> None:
    # GIVEN the line through the requests' bounds
    found = both.joined.fit
    line, links = found.line, both.disk.links
    count, ppm = len(found.kept), line.rate * 1e6
    print(f"clocks within {line.within} ns by {count} requests, {ppm:.3f} ppm")
    # THEN no request contradicts it, and the bound is small
    assert found.kept.all()
    assert line.within <= BOUND_NS
    # AND no bio is queued before its request's issue, nor completed after it, beyond the bound
    assert links.stages[links.timed].min() >= -line.within


def test_a_delay_of_the_host_is_in_the_hosts_stage(both: Both) -> None:
    # GIVEN a write that waited for the frozen file system below the host's device
    disk = both.disk
    stages = disk.links.stages[disk.links.timed & (disk.requests.op == WRITE)]
    # WHEN the slowest write of the guest is looked at
    slowest = stages[stages.sum(axis=1).argmax()]
    # THEN it is as slow as that, and its time is with the host's device
    assert slowest.sum() > HELD_NS
    assert slowest[2] > HELD_NS
    assert slowest[2] > slowest.sum() / 2


def test_a_limit_of_the_host_is_in_the_way_to_it(both: Both) -> None:
    if not both.throttled:
        pytest.skip("virtual machine: the host has no cgroups that limit I/O")
    # GIVEN reads, one at a time, that a limit of the process's cgroup held on the host
    disk = both.disk
    stages = disk.links.stages[disk.links.timed & (disk.requests.op == READ)]
    # WHEN those with a long way to the host are looked at
    slow = stages[stages[:, 0] > 1_000_000_000 // A_SECOND // 2]
    # THEN they are about as many as were let through at that rate, and their time is on that way:
    # the kernel throttles a bio before it is queued
    assert len(slow) >= THROTTLED // 2
    assert (np.median(slow, axis=0)[0]) > 0.8 * np.median(slow.sum(axis=1))
