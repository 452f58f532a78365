# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: loads on a disk that is a device of the host, which records them, too."""

from tests.vm.guest_case import Case, Unavailable, fio_script, virtio_disks
from tests.vm.guest_repeats import until_whole

LOADS = {
    "single": {"ioengine": "psync", "iodepth": 1, "rw": "randread", "size": "16m", "io_size": "4m"},
    "deep": {"iodepth": 8, "rw": "randrw", "bsrange": "4k-64k", "size": "16m", "io_size": "16m"},
    "synced": {"ioengine": "psync", "iodepth": 1, "rw": "randwrite", "size": "1m", "fsync": 4},
}
"""Random reads one by one; 8 reads and writes of 4 to 64 KiB at once; writes with fsync."""


def guest_of_host(case: Case) -> None:
    """The loads one after the other, in one log."""
    found = virtio_disks("hostdisk")
    if not found:
        raise Unavailable("the machine has no disk that is a device of the host")
    (name,) = found
    script = fio_script(case, name, LOADS)
    case.told["devices"] = [name]
    until_whole(case, lambda: case.record([name], ["bash", str(script)]))


CASES = (guest_of_host,)
