# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: io_uring and aio, on a disk and on a file of ext4."""

from tests.vm.guest_case import Case, disk
from tests.vm.guest_cgroups import MOUNT, mounted
from tests.vm.guest_repeats import until_whole

INLINE, WORKERS, POLLED, AIO = 64, 32, 16, 48
"""Reads of 16, 8, 32 and 4 KiB: of io_uring's own thread, its workers, its polling thread; aio."""
_FIO = "fio --minimal --output=/dev/null --direct=1 --rw=randread --iodepth=16 --size=1M"
LOAD = f"""set -e
dd status=none if=/dev/zero of={MOUNT}/file bs=64k count=16 conv=fsync
cd {MOUNT}
ring="{_FIO} --filename=file --ioengine=io_uring"
$ring --name=a --bs=16k --number_ios={INLINE}
$ring --name=b --bs=8k --number_ios={WORKERS} --force_async=1
$ring --name=c --bs=32k --number_ios={POLLED} --sqthread_poll=1
{_FIO} --filename=file --ioengine=libaio --name=d --bs=4k --number_ios={AIO}
"""


def uring(case: Case) -> None:
    """A file is read by fio through io_uring and libaio, with all parts of the path."""
    name = disk("scsi1")
    script = case.directory / "load.sh"
    script.write_text(LOAD, encoding="utf-8")
    with mounted(name):
        until_whole(
            case,
            lambda: case.record([name], ["bash", str(script)], more=["--path=call,time,uring"]),
        )
    case.told["devices"] = [name]


CASES = (uring,)
