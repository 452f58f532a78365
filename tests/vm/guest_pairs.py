# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: pairs of events, while the kernel's own tracer has the same events."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.ftrace_setup import TRACEFS
from tests.vm.guest_case import Case, Unavailable, disk, fio, run
from tests.vm.guest_tracer import module_path, traced_events

FAULTS = 200
"""Of each process address space."""
ONE_AT_A_TIME = {"rw": "randrw", "size": "1m", "iodepth": 1}
"""256 direct reads and writes: no completion interrupts an issue's program."""
FAULTS_FILE = Path("/sys/module/smmu_fake/parameters/faults")


def _recorded(case: Case, words: Sequence[str], load: list[str], *events: str) -> None:
    with traced_events(case, *events):
        case.record_sites(["pairs", *words], load)


def _disk_load(case: Case, by: str) -> list[str]:
    """fio on a disk of the machine, which the test shall know."""
    name = disk(by)
    case.told["disk"] = name
    Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
    return fio(filename=f"/dev/{name}", output=case.directory / "log.json", **ONE_AT_A_TIME)


def pairs_nvme(case: Case) -> None:
    """Commands of an NVMe disk, by queue and command id."""
    begin, end = "nvme:nvme_setup_cmd", "nvme:nvme_complete_rq"
    load = _disk_load(case, "nvme0")
    events = [event.replace(":", "/") for event in (begin, end)]
    _recorded(case, [begin, end, "--key", "qid,cid:12"], load, *events)


def pairs_nvme_declared(case: Case) -> None:
    """The same as declared: by request, where the types of the tracepoint are known."""
    load = _disk_load(case, "nvme0")
    _recorded(case, ["nvme"], load, "nvme/nvme_setup_cmd", "nvme/nvme_complete_rq")


def pairs_scsi(case: Case) -> None:
    """Commands of a virtio-scsi disk, as declared."""
    load = _disk_load(case, "scsi0")
    place = TRACEFS / "events/scsi/scsi_dispatch_cmd_start/format"
    if not Path("/sys/kernel/btf/scsi_mod").exists() and "driver_tag" not in place.read_text():
        raise Unavailable(
            "this kernel's SCSI tracepoints do not name the command (docs/kernels.md)"
        )
    _recorded(case, ["scsi"], load, "scsi/scsi_dispatch_cmd_start", "scsi/scsi_dispatch_cmd_done")


def pairs_block(case: Case) -> None:
    """Requests of a virtio disk, by device and first sector."""
    begin, end = "block:block_rq_issue", "block:block_rq_complete"
    load = _disk_load(case, "virtio")
    events = [event.replace(":", "/") for event in (begin, end)]
    _recorded(case, [begin, end, "--key", "dev,sector"], load, *events)


def pairs_softirq(case: Case) -> None:
    """All softirqs while a disk is busy."""
    load = _disk_load(case, "virtio")
    _recorded(case, ["softirq"], load, "irq/softirq_entry", "irq/softirq_exit")


def pairs_workqueue(case: Case) -> None:
    """All work items while a file system is made."""
    load = ["mkfs.ext4", "-q", "-F", f"/dev/{disk('scsi1')}"]
    events = ("workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end")
    _recorded(case, ["workqueue"], load, *events)


def smmu(case: Case) -> None:
    """I/O page faults of 1 and 5 ms by process address space, of a module made for it."""
    module = module_path("smmu_fake")
    if not module.exists():
        raise Unavailable("the kernel's headers cannot be had, so smmu_fake is not built")
    with ExitStack() as stack:
        run("insmod", module)
        stack.callback(run, "rmmod", "smmu_fake")
        load = ["sh", "-c", f"echo {FAULTS} >{FAULTS_FILE}"]
        _recorded(case, ["iopf"], load, "smmu/io_fault_entry", "smmu/io_fault_exit")
    case.told["faults"] = FAULTS


CASES = (
    pairs_nvme,
    pairs_nvme_declared,
    pairs_scsi,
    pairs_block,
    pairs_softirq,
    pairs_workqueue,
    smmu,
)
