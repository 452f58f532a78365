# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: scsi_debug with injected errors, retries and a busy host."""

import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vm.guest_case import Case, fio, module, put, scheduler, virtio_disk, wait_for
from tests.vm.guest_repeats import until_whole

MEDIUM_ERROR = 0x2
TIMEOUT = 0x4
TRANSPORT_ERROR = 0x10
HOST_BUSY = 0x8000
BAD_SECTOR = 0x1234 & ~7
"""scsi_debug's bad sectors are 0x1234 to 0x123d."""
DRIVER = Path("/sys/bus/pseudo/drivers/scsi_debug")
TRACEFS = Path("/sys/kernel/tracing")
REQUEUE = TRACEFS / "events/block/block_rq_requeue/enable"


def scsi_debug(beside: Collection[str] = ()) -> str:
    """The kernel name of scsi_debug's disk, or of one `beside` these; loads it the first time."""
    module("scsi_debug", "dev_size_mb=64", "ndelay=20000", "statistics=1", "max_luns=1")
    for _ in range(600):
        for model in Path("/sys/block").glob("sd*/device/model"):
            name = model.parent.parent.name
            if model.read_text().strip() == "scsi_debug" and name not in beside:
                wait_for(Path(f"/dev/{name}"))
                scheduler(name, "none")
                return name
        time.sleep(0.1)
    raise RuntimeError("scsi_debug has no disk")


@contextmanager
def second_path() -> Iterator[tuple[str, str]]:
    """scsi_debug's disk by another host, too: the names of both, the later one last."""
    first = scsi_debug()
    others = {path.name for path in Path("/sys/block").glob("sd*")}
    put(DRIVER / "add_host", 1)
    try:
        yield first, scsi_debug(beside=others)
    finally:
        put(DRIVER / "add_host", -1)


def inject(options: int, every: int) -> None:
    """Has scsi_debug, where it is loaded, fail every so many commands in this way."""
    if not DRIVER.exists():
        return
    put(DRIVER / "every_nth", 0)
    put(DRIVER / "opts", hex(options))
    put(DRIVER / "every_nth", every)


def injected() -> tuple[int, int]:
    """What `inject` was told last."""
    if not DRIVER.exists():
        return 0, 0
    return int((DRIVER / "opts").read_text(), 0), int((DRIVER / "every_nth").read_text(), 0)


def record(case: Case, name: str, load: list[str]) -> None:
    """Records a load, with what was injected; the kernel's own text tracer counts requeues."""
    wanted = injected()

    def once() -> None:
        inject(*wanted)
        put(TRACEFS / "trace", "")
        put(REQUEUE, 1)
        try:
            case.record([name], load)
        finally:
            put(REQUEUE, 0)
            inject(0, 0)
        case.told["requeues"] = requeues(name)

    put(TRACEFS / "buffer_size_kb", 16384)
    until_whole(case, once)
    case.told["devices"] = [name]


def reads(case: Case, name: str, **options: object) -> list[str]:
    """fio, going on after errors."""
    output = case.directory / "log.json"
    return fio(filename=f"/dev/{name}", output=output, continue_on_error="all", **options)


def requeues(name: str) -> int:
    """How many requeues of this disk the kernel's text tracer saw."""
    number = os.stat(f"/dev/{name}").st_rdev
    mark = f"block_rq_requeue: {os.major(number)},{os.minor(number)} "
    with (TRACEFS / "trace").open(encoding="utf-8") as lines:
        return sum(mark in line for line in lines)


def retried(case: Case) -> None:
    """Every third command fails in transport and is sent again: over 10,000 requeues."""
    name = scsi_debug()
    inject(TRANSPORT_ERROR, 3)
    many = {"size": "32m", "io_size": "84m", "norandommap": 1}
    record(case, name, reads(case, name, rw="randread", iodepth=16, **many))


def host_busy(case: Case) -> None:
    """The host refuses every seventh command."""
    name = scsi_debug()
    inject(HOST_BUSY, 7)
    record(case, name, reads(case, name, rw="randread", size="2m", iodepth=16))


def medium_errors(case: Case) -> None:
    """1,000 reads of two blocks with bad sectors."""
    name = scsi_debug()
    inject(MEDIUM_ERROR, 0)
    bad = Path(__file__).with_name("guest_bad_reads.py")
    record(case, name, [sys.executable, str(bad), f"/dev/{name}", str(BAD_SECTOR * 512)])


def timed_out(case: Case) -> None:
    """Every 25th command is never answered: it is aborted after two seconds, and sent again."""
    name, seconds = scsi_debug(), 2
    limit = Path(f"/sys/block/{name}/device/timeout")
    usual = limit.read_text()
    put(limit, seconds)
    inject(TIMEOUT, 25)
    try:
        record(case, name, reads(case, name, rw="randread", size="400k", iodepth=16))
    finally:
        put(limit, usual.strip())
    case.told["timeout_ns"] = seconds * 1_000_000_000


def ring_full(case: Case) -> None:
    """virtio-blk whose ring has room for fewer requests than it has tags."""
    name = virtio_disk("1")
    scheduler(name, "none")
    record(case, name, reads(case, name, rw="randread", size="4m", bs="16k", iodepth=64))


CASES = (medium_errors, host_busy, retried, timed_out, ring_full)
