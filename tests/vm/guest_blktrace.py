# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: blktrace beside biotrail, both of the same load on three disks.

blktrace is attached first and ends last, so what it saw is all, and its programs run first
at each event. Its files are kept where it can map them, and copied.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biotrail.recorder.probes.kernel.btf import KernelBtf
from tests.vm.guest_case import Case, Unavailable, disk, fio, module, put, scheduler, tool

RANDOM = {"bsrange": "4k-64k", "iodepth": 8}
BATCHES = {"iodepth": 16, "iodepth_batch_submit": 8, "iodepth_batch_complete_min": 8}
SYSFS = Path("/sys/block")
WAIT_SECONDS = 60


def tracing(name: str) -> bool:
    try:
        return (SYSFS / name / "trace/enable").read_text().strip() == "1"
    except OSError:
        return False  # 5.10 cannot tell of a disk that nobody has open


def wait_until_tracing(blktrace: subprocess.Popen[str], names: list[str]) -> None:
    """blktrace does not tell when it begins; the kernel does."""
    end = time.monotonic() + WAIT_SECONDS
    while not all(map(tracing, names)):
        if blktrace.poll() is not None or time.monotonic() > end:
            blktrace.kill()
            raise RuntimeError(f"blktrace did not begin: {blktrace.communicate()}")
        time.sleep(0.05)


@contextmanager
def blktrace(case: Case, names: list[str]) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as place:
        words = [word for name in names for word in ("-d", f"/dev/{name}")]
        process = subprocess.Popen(
            ["blktrace", *words, "-D", place],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            wait_until_tracing(process, names)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=WAIT_SECONDS)
        case.told["blktrace"] = said
        if process.returncode != 0:
            raise RuntimeError(f"blktrace: exit {process.returncode}: {said}")
        for path in Path(place).iterdir():
            shutil.copy(path, case.directory)


def loads(case: Case, names: list[str]) -> str:
    """A script: reads and writes of many sizes, neighbours that merge, and what is hard for btt."""
    plain, merging, hard = (f"/dev/{name}" for name in names)
    jobs = {
        "plain": fio(filename=plain, rw="randrw", size="32m", **RANDOM),
        "merging": fio(filename=merging, rw="randrw", size="16m", **RANDOM),
        "batches": fio(filename=merging, rw="write", size="4m", offset="32m", **BATCHES),
        "splits": fio(filename=hard, rw="randrw", size="4m", **RANDOM),
        "cached": fio(filename=hard, rw="write", size="1m", offset="32m", direct=0,
                      ioengine="psync", fsync=32),
    }  # fmt: skip
    commands = [" ".join([*job, f"--output={case.directory}/{n}.json"]) for n, job in jobs.items()]
    return "set -e\n" + "\n".join(commands) + "\n"


def blktrace_beside(case: Case) -> None:
    """A disk without a scheduler, one whose scheduler merges, one that takes 16 KiB at once."""
    tool("blktrace")
    names = [disk("nvme0"), disk("scsi0"), disk("scsi1")]
    if not all((SYSFS / name / "trace").is_dir() for name in names):
        raise Unavailable("the kernel has no blktrace")
    module("mq-deadline")
    limit = SYSFS / names[2] / "queue/max_sectors_kb"
    limited = limit.read_text().strip()
    put(limit, 16)
    for name, value in zip(names, ("none", "mq-deadline", "mq-deadline"), strict=True):
        scheduler(name, value)
        Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
    script = case.directory / "loads.sh"
    script.write_text(loads(case, names), encoding="utf-8")
    try:
        with blktrace(case, names):
            case.record(names, ["bash", str(script)], more=["--events", "all"])
    finally:
        put(limit, limited)
        for name in names:
            scheduler(name, "none")
    with KernelBtf() as btf:
        case.told["queue_tells_disk"] = btf.has_member("request_queue", "disk")
    case.told["devices"] = names


CASES = (blktrace_beside,)
