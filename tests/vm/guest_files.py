# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: files on ext4, through the page cache and directly."""

from tests.vm.guest_case import Case, disk
from tests.vm.guest_cgroups import MOUNT, mounted
from tests.vm.guest_repeats import until_whole

LOAD = f"""set -e
dd status=none if=/dev/zero of={MOUNT}/cached bs=64k count=16 conv=fsync
dd status=none if=/dev/zero of={MOUNT}/direct bs=64k count=8 oflag=direct
echo 3 >/proc/sys/vm/drop_caches
dd status=none if={MOUNT}/cached of=/dev/null bs=64k
dd status=none if={MOUNT}/direct of=/dev/null bs=16k iflag=direct
"""


def files(case: Case) -> None:
    """One file is written and read through the page cache, another one directly."""
    name = disk("scsi1")
    script = case.directory / "load.sh"
    script.write_text(LOAD, encoding="utf-8")
    with mounted(name):
        until_whole(case, lambda: case.record([name], ["bash", str(script)], more=["--files"]))
    case.told |= {"devices": [name], "cached": 16 << 16, "direct": 8 << 16}


CASES = (files,)
