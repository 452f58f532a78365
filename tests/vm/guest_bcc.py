# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: what bcc compiles there, with headers that match the kernel.

The kernel skips an ordinary tracepoint's program where another one runs on that CPU, which before
6.7 nobody counts. The loads here leave no room for that: one I/O at a time, or a device that
completes each request before the next one is issued.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biotrail.recorder.probes.bcc import child as bcc_child
from tests.vm.guest_case import Case, Unavailable, disk, fio, module, run, scheduler, tool
from tests.vm.guest_devices import null_blk

ONE_AT_A_TIME = {"ioengine": "psync", "iodepth": 1, "rw": "randrw", "bsrange": "4k-64k"}
BATCHES = {"rw": "write", "iodepth": 16, "iodepth_batch_submit": 8, "iodepth_batch_complete_min": 8}
WAIT_SECONDS = 120
MARK_SECTOR = 262144
"""Of a block that no load touches."""


def needs_bcc() -> None:
    if bcc_child.find_bcc() is None:
        raise Unavailable("python3-bpfcc is not installed")
    if not Path(f"/lib/modules/{platform.release()}/build").exists():
        raise Unavailable("the kernel's headers cannot be had")


def biotrail(*words: object) -> list[str]:
    """The command, to be run by another one."""
    return [str(Path(sys.executable).with_name("biotrail")), *map(str, words)]


def bcc_beside_core(case: Case) -> None:
    """Core records how bcc records: a disk, one I/O at a time, and batches that merge."""
    needs_bcc()
    module("mq-deadline")
    with null_blk("nullb_bcc", irqmode=0) as merging:
        scheduler(merging, "mq-deadline")
        names = [disk("nvme1"), merging]
        for name in names:
            Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
        jobs = [
            fio(filename=f"/dev/{names[0]}", size="16m", **ONE_AT_A_TIME),
            fio(filename=f"/dev/{names[1]}", size="4m", **BATCHES),
        ]
        script = case.directory / "loads.sh"
        lines = (
            " ".join([*job, f"--output={case.directory}/{which}.json"])
            for job, which in zip(jobs, ("plain", "merging"), strict=True)
        )
        script.write_text("\n".join(["set -e", *lines]) + "\n", encoding="utf-8")
        devices = [word for name in names for word in ("-d", name)]
        out = case.directory / "bcc.biotrail"
        inner = biotrail("record", "-q", "--backend", "bcc", "--events", "all", *devices,
                         "-o", out, "--", "bash", script)  # fmt: skip
        case.record(names, inner, more=["--backend", "core", "--events", "all"])
        case.told["devices"] = names


def read_mark(name: str) -> None:
    run("dd", f"if=/dev/{name}", "of=/dev/null", "bs=4k", "count=1",
        f"skip={MARK_SECTOR // 8}", "iflag=direct")  # fmt: skip


def lines_of(path: Path) -> int:
    """Whole lines, of I/Os that are not the mark."""
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return sum(f" {MARK_SECTOR} " not in line for line in lines[1:])


def why(said: str) -> str:
    """The compiler's first error, or what a Python program ends with."""
    lines = said.splitlines() or ["it said nothing"]
    return next((line for line in lines if " error: " in line), lines[-1])


@contextmanager
def biosnoop(path: Path, name: str) -> Iterator[None]:
    """bcc's biosnoop of a disk, from the first I/O that it tells on."""
    with path.open("w") as out:
        snoop = subprocess.Popen(["biosnoop", "-d", name], stdout=out, stderr=subprocess.STDOUT)
        try:
            while f" {MARK_SECTOR} " not in path.read_text():
                if snoop.poll() is not None:
                    raise Unavailable(f"biosnoop cannot run: {why(path.read_text())}")
                if "TIME(s)" in path.read_text():
                    read_mark(name)
                time.sleep(0.2)
            yield
        finally:
            snoop.kill()  # its output is not buffered, and it may sleep through an interrupt
            snoop.wait()


def wait_for_lines(path: Path, wanted: int) -> None:
    """Until all I/Os are told; it prints by CPU, so the last I/O is not the last line."""
    end = time.monotonic() + WAIT_SECONDS
    while lines_of(path) < wanted and time.monotonic() < end:
        time.sleep(0.5)  # the test tells what is missing in the end


def biosnoop_beside_core(case: Case) -> None:
    """A peer on kprobes, which emulated kernels have: one I/O at a time."""
    needs_bcc()
    tool("biosnoop")
    functions = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    for wanted in ("blk_account_io_start", "blk_account_io_done"):
        if not functions & {wanted, f"__{wanted}"}:
            raise Unavailable(f"biosnoop probes {wanted}, which this kernel has inlined")
    name = disk("nvme0")
    case.told |= {"devices": [name], "mark": MARK_SECTOR}
    load = fio(filename=f"/dev/{name}", size="8m", **ONE_AT_A_TIME)
    told, account = case.directory / "biosnoop.txt", case.directory / "log.json"
    with biosnoop(told, name):
        case.record([name], [*load, f"--output={account}"])
        (job,) = json.loads(account.read_text())["jobs"]
        wait_for_lines(told, job["read"]["total_ios"] + job["write"]["total_ios"])


CASES = (bcc_beside_core, biosnoop_beside_core)
