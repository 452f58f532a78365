# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: followed objects, while the kernel's own tracer has their functions."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log.reader import LogReader
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import Way, all_ways
from biotrail.recorder.probes.sites.follow import FollowProbes
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites import declarations, following
from biotrail.recorder.sites.following import KernelFunctions
from biotrail.recorder.sites.types import TypeTable
from tests.support.ftrace_setup import TRACEFS
from tests.vm.guest_bcc import biotrail
from tests.vm.guest_case import COMMAND_SECONDS, Case, Unavailable, disk, run, scheduler
from tests.vm.guest_devices import null_blk
from tests.vm.guest_faults import HOST_BUSY, inject, scsi_debug
from tests.vm.guest_repeats import REPEATS
from tests.vm.guest_tracer import functions_of, probes_left, traced_calls

READS = {"virtio": 1001, "nvme0": 2002, "scsi0": 3003}
"""By disk the block of 4 KiB that is read, so that a request is known by its sector."""
BLOCK_SECTORS = 8


def load(name: str, *words: object) -> list[object]:
    return [sys.executable, "-m", "tests.vm.guest_objects", name, *words]


def follow(
    case: Case, type_: str, load: Sequence[object], more: Sequence[object] = (), name: str = "log"
) -> None:
    """Follows all objects of a type while a load runs."""
    case.record_sites(["follow", type_, *map(str, more)], load, name)


def until_complete(case: Case, record: Callable[[], None]) -> None:
    """Records, again while the tracer missed a call, or the recording lost something."""
    for repeats in range(REPEATS + 1):
        record()
        case.told["repeats"] = repeats
        with LogReader(case.directory / "log.biotrail") as log:
            lost = list(log.losses)
        if not lost and not case.told.get("missed"):
            return


def follow_request(case: Case) -> None:
    """A direct read of one block on virtio, nvme and scsi each, beside kprobes of the kernel's."""
    disks = {by: disk(by) for by in READS}
    for name in disks.values():
        Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
    reads = [
        f"dd if=/dev/{disks[by]} of=/dev/null bs=4k count=1 skip={block} iflag=direct status=none"
        for by, block in READS.items()
    ]
    functions = functions_of("request")

    def once() -> None:
        with traced_calls(case, functions):
            follow(case, "request", ["sh", "-c", "; ".join(reads)])

    until_complete(case, once)
    sectors = {by: block * BLOCK_SECTORS for by, block in READS.items()}
    case.told |= {"disks": disks, "sectors": sectors}


def follow_passthrough(case: Case) -> None:
    """SCSI commands of SG_IO, which the block layer queues no bio for."""
    name = disk("scsi0")
    follow(case, "request", load("passthrough", f"/dev/{name}"), ["-d", name])


def follow_requeued(case: Case) -> None:
    """Requests of a SCSI host that refuses every seventh command."""
    name = scsi_debug()
    inject(HOST_BUSY, 7)
    reads = f"dd if=/dev/{name} of=/dev/null bs=4k count=64 iflag=direct status=none"
    try:
        follow(case, "request", ["sh", "-c", reads], ["-d", name])
    finally:
        inject(0, 0)


def follow_merged(case: Case) -> None:
    """Batches of three writes, the last of which joins the two requests before it."""
    with null_blk("nullb_follow", irqmode=0) as name:
        scheduler(name, "mq-deadline")
        follow(case, "request", load("batches", f"/dev/{name}"), ["-d", name])


def way_of_many() -> list[str]:
    """Options for a type with many functions: tracepoints where functions are attached one by one.

    Then 1,400 functions of packets take half an hour of emulation to attach and to detach.
    """
    works = {way.name for way in all_ways() if not way.reason}
    return [] if works & {"session", "multi"} else ["--way", "typed"]


def follow_sk_buff(case: Case) -> None:
    """Messages over TCP on loopback, and back."""
    follow(case, "sk_buff", load("echo"), ["--max", 1000, *way_of_many()])


def follow_task(case: Case) -> None:
    """Threads that wake each other, by tracepoints and stacks.

    Not by functions: patching 800 of them, the scheduler's, under QEMU's emulation with a thread
    per CPU once ended in a trap of the kernel that no patching claimed.
    """
    follow(case, "task_struct", load("wakeups"), ["--max", 1000, "--way", "typed"])


def follow_folio(case: Case) -> None:
    """Pages of a file that are written through a mapping, and written back."""
    try:
        TypeTable.kernel().struct("folio")
    except SiteError as error:
        raise Unavailable("this kernel has no folios") from error
    name = disk("scsi1")
    run("mkfs.ext4", "-q", "-F", f"/dev/{name}")
    place = Path("/tmp/vm-folio")
    place.mkdir()
    run("mount", f"/dev/{name}", place)
    try:
        follow(case, "folio", load("mapped", place / "file"), ["-d", name, *way_of_many()])
    finally:
        run("umount", place)
        place.rmdir()


def _programs() -> int:
    return len(json.loads(run("bpftool", "prog", "show", "--json")))


def follow_killed(case: Case) -> None:
    """A recording that is killed, so that only the kernel can clean up behind it."""
    before = _programs()
    words = biotrail("follow", "request", "--force", "-o", case.directory / "log.biotrail")
    process = subprocess.Popen(words)
    end = time.monotonic() + COMMAND_SECONDS
    during = before
    while during == before and process.poll() is None and time.monotonic() < end:
        time.sleep(0.5)
        during = _programs()
    time.sleep(2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    after = _programs()
    while after > before and time.monotonic() < end:  # the kernel frees them in its own time
        time.sleep(0.5)
        after = _programs()
    case.told |= {"before": before, "during": during, "after": after, "probes": probes_left()}


def _probes(struct: str, way: Way) -> FollowProbes:
    found = KernelFunctions.read(TRACEFS, Path("/sys/kernel/debug/kprobes/blacklist"))
    declared = declarations.load().types[struct]
    made = following.plan(TypeTable.kernel(), declared, way.name, found, 4000)
    return FollowProbes(made, way, FollowOptions(struct), Filters(pids=(1,)))


def follow_attach(case: Case) -> None:
    """How long the kernel takes to attach to every function of sk_buff, and to detach, by way.

    What is compiled and looked up before, by this process, is not in it.
    """
    case.told |= {"seconds_of": {}, "all_seconds_of": {}}
    for way in all_ways():
        if way.reason or way.name not in ("session", "multi"):
            continue
        probes = _probes("sk_buff", way)
        with closing(probes), timed_links() as spent:
            probes.open()
            begin = time.monotonic()
            probes.attach()
            attached = time.monotonic()
            probes.detach()
            end = time.monotonic()
        number = len(probes.functions)
        case.told["seconds_of"][way.name] = [number, round(sum(spent), 2), round(end - attached, 2)]
        case.told["all_seconds_of"][way.name] = round(attached - begin, 2)
    if not case.told["seconds_of"]:
        raise Unavailable("this kernel attaches to one function at a time")


@contextmanager
def timed_links() -> Iterator[list[float]]:
    """Gives the seconds that each call took which attaches to many functions at once."""
    spent: list[float] = []
    usual = attaching.functions

    def timed(*words: Any, **named: Any) -> int:
        begin = time.monotonic()
        try:
            return usual(*words, **named)
        finally:
            spent.append(time.monotonic() - begin)

    attaching.functions = timed
    try:
        yield spent
    finally:
        attaching.functions = usual


CASES = (
    follow_request,
    follow_passthrough,
    follow_requeued,
    follow_merged,
    follow_sk_buff,
    follow_task,
    follow_folio,
    follow_killed,
    follow_attach,
)
