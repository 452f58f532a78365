# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: ftrace and perf beside biotrail, all three of the same loads.

ftrace is attached first, then perf, then biotrail; they end in the opposite order, so each
recording has all events of those that were attached later.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.ftrace_setup import NoTracerError, enable_block_events, instance
from tests.vm.guest_blktrace import BATCHES, SYSFS, WAIT_SECONDS, loads
from tests.vm.guest_case import Case, Unavailable, disk, dm, fio, module, put, run, scheduler, tool
from tests.vm.guest_repeats import until_whole
from tests.vm.guest_stack import partition

BUFFER_KIB = 32 << 10
BEGUN = "begun\n"
PERF = ("perf", "record", "-q", "-a", "-m", "8M", "-k", "CLOCK_MONOTONIC", "-e", "block:*")
SMALL = {"rw": "randrw", "bs": "4k", "size": "4m"}
OVERLAP = "128k"
"""What several threads read at once, so that some read the same sectors."""
LINEAR_SECTORS = 65536
LINEAR_START = 4096
"""Where on the lower disk the dm-linear begins, in sectors: what is remapped moves."""


@contextmanager
def ftrace(case: Case) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(instance(BUFFER_KIB))
        except NoTracerError as reason:
            raise Unavailable(str(reason)) from reason
        enable_block_events(made)
        yield
        (made / "tracing_on").write_text("0")
        (case.directory / "trace").write_bytes((made / "trace").read_bytes())
        if shutil.which("trace-cmd") is None:
            case.told["missing"]["trace.dat"] = "trace-cmd is not installed"
            return
        with tempfile.TemporaryDirectory() as place:
            run("trace-cmd", "extract", "-B", made.name, "-o", f"{place}/trace.dat")
            shutil.copy(f"{place}/trace.dat", case.directory)


@contextmanager
def perf(case: Case) -> Iterator[None]:
    """Record all block events with perf; its file into the case, or why there is none."""
    if shutil.which("perf") is None:
        case.told["missing"]["perf.data"] = "perf is not installed"
        yield
        return
    with tempfile.TemporaryDirectory() as place:
        # perf starts its command once it records.
        command = [*PERF, "-o", f"{place}/perf.data", "--"]
        process = subprocess.Popen(
            [*command, "sh", "-c", "echo begun; exec sleep 100000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        try:
            assert process.stdout is not None
            begun = process.stdout.readline() == BEGUN
            yield
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=WAIT_SECONDS)
        if begun:
            shutil.copy(f"{place}/perf.data", case.directory)
        else:
            case.told["missing"]["perf.data"] = f"perf does not record here: {said.strip()[-200:]}"


@contextmanager
def partitioned(name: str) -> Iterator[str]:
    yield partition(name)
    run("delpart", f"/dev/{name}", 1)


@contextmanager
def limited(name: str, kib: int) -> Iterator[None]:
    """The disk takes so much at once, and then again what it took."""
    limit = SYSFS / name / "queue/max_sectors_kb"
    before = limit.read_text().strip()
    put(limit, kib)
    try:
        yield
    finally:
        put(limit, before)


@contextmanager
def schedulers(names: Sequence[str], values: Sequence[str]) -> Iterator[None]:
    """These disks have these schedulers, and then none."""
    for name, value in zip(names, values, strict=True):
        scheduler(name, value)
    try:
        yield
    finally:
        for name in names:
            scheduler(name, "none")


def recorded_by_all(case: Case, names: list[str], script: Path) -> None:
    """Run the script while all three record; only biotrail chooses devices."""
    case.told["missing"] = {}
    with ftrace(case), perf(case):
        case.record(names, ["bash", str(script)], more=["--events", "all"])


def inputs_beside(case: Case) -> None:
    """Disks plain, merging and splitting 16 KiB; a dm-linear over one, a partition of one."""
    tool("addpart")
    for needed in ("mq-deadline", "dm-mod"):
        module(needed)
    names = [disk("nvme0"), disk("scsi0"), disk("scsi1")]
    below, whole = disk("nvme1"), disk("virtio")
    with ExitStack() as stack:
        stack.enter_context(limited(names[2], 16))
        stack.enter_context(schedulers(names, ("none", "mq-deadline", "mq-deadline")))
        table = f"0 {LINEAR_SECTORS} linear /dev/{below} {LINEAR_START}"
        mapped = stack.enter_context(dm("inputs-linear", table))
        part = stack.enter_context(partitioned(whole))
        devices = [*names, mapped, below, whole]
        for name in devices:
            Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
        small = [
            " ".join(fio(filename=f"/dev/{name}", output=case.directory / f"{name}.json", **SMALL))
            for name in (mapped, part)
        ]
        script = case.directory / "loads.sh"
        script.write_text(loads(case, names) + "\n".join([*small, ""]), encoding="utf-8")
        until_whole(case, lambda: recorded_by_all(case, devices, script))
    case.told["devices"] = devices


def hard_loads(case: Case, mapped: str, below: str) -> str:
    """A script: merges and splits below dm; then reads of the same sectors from both devices."""
    upper = {"filename": f"/dev/{mapped}"}
    same = {**SMALL, "rw": "randread", "ioengine": "psync", "size": OVERLAP, "loops": 20}
    jobs = {
        "batches": fio(**upper, rw="write", size="2m", **BATCHES),
        "large": fio(**upper, rw="randrw", bs="256k", size="8m"),
        "mapped": fio(**upper, **same, numjobs=3),
        "below": fio(
            **same, filename=f"/dev/{below}", offset=LINEAR_START << 9, numjobs=3, randseed=8
        ),
    }
    lines = [
        " ".join([*job, f"--output={case.directory}/{name}.json"]) for name, job in jobs.items()
    ]
    return "\n".join(["set -e", *lines[:2], f"{lines[2]} &", lines[3], "wait", ""])


def inputs_beside_hard(case: Case) -> None:
    """A dm-linear over a disk that merges and splits 64 KiB, both read at the same sectors."""
    for needed in ("mq-deadline", "dm-mod"):
        module(needed)
    below = disk("ata0")
    table = f"0 {LINEAR_SECTORS} linear /dev/{below} {LINEAR_START}"
    with ExitStack() as stack:
        stack.enter_context(schedulers([below], ["mq-deadline"]))
        mapped = stack.enter_context(dm("inputs-hard", table))
        stack.enter_context(limited(below, 64))  # after dm took its own limit from the disk's
        for name in (mapped, below):
            Path(f"/dev/{name}").open("rb").close()
        script = case.directory / "loads.sh"
        script.write_text(hard_loads(case, mapped, below), encoding="utf-8")
        until_whole(case, lambda: recorded_by_all(case, [mapped, below], script))
    case.told["devices"] = [mapped, below]


CASES = (inputs_beside, inputs_beside_hard)
