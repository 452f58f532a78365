# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: what bcc compiles there, with headers that match the kernel.

The kernel skips an ordinary tracepoint's program where another one runs on that CPU, which before
6.7 nobody counts. The loads here leave no room for that: one I/O at a time, or a device that
completes each request before the next one is issued.
"""

import platform
import sys
from pathlib import Path

from guest_case import Case, Unavailable, disk, fio, module, scheduler
from guest_devices import null_blk

from recorder.probes import bcc_child

ONE_AT_A_TIME = {"ioengine": "psync", "iodepth": 1, "rw": "randrw", "bsrange": "4k-64k"}
BATCHES = {"rw": "write", "iodepth": 16, "iodepth_batch_submit": 8, "iodepth_batch_complete_min": 8}


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


CASES = (bcc_beside_core,)
