# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: a light recording of what a recording of all steps has at the same time.

The light recorder is started by the other one, so its program at a completion runs second.
"""

from pathlib import Path

from tests.vm.guest_bcc import biotrail
from tests.vm.guest_case import Case, disk, fio, module, scheduler
from tests.vm.guest_devices import null_blk
from tests.vm.guest_repeats import until_whole

LOADS = {
    "plain": {"ioengine": "psync", "iodepth": 1, "rw": "randrw", "bsrange": "4k-64k", "size": "8m"},
    "synced": {"ioengine": "psync", "iodepth": 1, "rw": "randwrite", "size": "512k", "fsync": 4},
    "batches": {
        **{"rw": "write", "size": "4m", "iodepth": 16},
        **{"iodepth_batch_submit": 8, "iodepth_batch_complete_min": 8},
    },
}
"""One I/O of 4 to 64 KiB at a time; writes with fsync; neighbours, 8 below one plug."""


def takes_issue_times(name: str) -> bool:
    """Whether the kernel keeps the time of each issue: with write-back throttling's statistics."""
    path = Path(f"/sys/block/{name}/queue/wbt_lat_usec")
    try:
        return int(path.read_text()) > 0
    except (OSError, ValueError):
        return False


def light_beside(case: Case) -> None:
    """A load each on NVMe, virtio-blk, and null_blk with mq-deadline, one after the other."""
    module("mq-deadline")
    with null_blk("nullb_light", irqmode=0) as merging:
        scheduler(merging, "mq-deadline")
        names = [disk("nvme1"), disk("virtio"), merging]
        for name in names:
            Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
        script = case.directory / "loads.sh"
        lines = [
            " ".join(
                fio(filename=f"/dev/{name}", output=case.directory / f"{load}.json", **options)
            )
            for name, (load, options) in zip(names, LOADS.items(), strict=True)
        ]
        script.write_text("\n".join(["set -e", *lines]) + "\n", encoding="utf-8")
        devices = [word for name in names for word in ("-d", name)]
        out = case.directory / "light.biotrail"
        inner = biotrail("record", "-q", "--force", "--events", "light", *devices,
                         "-o", out, "--", "bash", script)  # fmt: skip
        case.told["devices"] = names
        case.told["issue_times"] = [takes_issue_times(name) for name in names]
        until_whole(case, lambda: case.record(names, inner, more=["--events", "lifecycle"]))


CASES = (light_beside,)
