# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: the path beside the block layer, of files on ext4."""

from contextlib import ExitStack

from tests.vm.guest_case import Case, disk, run
from tests.vm.guest_cgroups import MINE, MOUNT, THEIRS, cgroup, inside, mounted, written
from tests.vm.guest_repeats import until_whole

WRITES, READS = 8, 32
"""Direct ones, of 64 KiB and of 16 KiB."""
CACHED_BYTES = 16 << 16
BLOCKS = 32
"""Of 64 KiB, that each cgroup writes."""
LOAD = f"""set -e
dd status=none if=/dev/zero of={MOUNT}/cached bs=64k count=16 conv=fsync
dd status=none if=/dev/zero of={MOUNT}/direct bs=64k count={WRITES} oflag=direct
echo 3 >/proc/sys/vm/drop_caches
dd status=none if={MOUNT}/cached of=/dev/null bs=64k
dd status=none if={MOUNT}/direct of=/dev/null bs=16k iflag=direct
"""


def path(case: Case) -> None:
    """A file is written and read through the page cache, another one directly, with all parts."""
    name = disk("scsi1")
    script = case.directory / "load.sh"
    script.write_text(LOAD, encoding="utf-8")
    more = ["--path=all", "--files"]
    with mounted(name):
        until_whole(case, lambda: case.record([name], ["bash", str(script)], more=more))
    doctor = run(".venv/bin/biotrail", "doctor", "--json")
    (case.directory / "doctor.json").write_text(doctor, encoding="utf-8")
    case.told["devices"] = [name]


def path_cgroups(case: Case) -> None:
    """Two cgroups write a file each through the page cache; all is recorded, then one's calls."""
    name, script = disk("scsi1"), case.directory / "load.sh"
    with ExitStack() as stack:
        mine, theirs = (stack.enter_context(cgroup(name)) for name in (MINE, THEIRS))
        stack.enter_context(mounted(name))
        pairs = ((mine, MINE), (theirs, THEIRS))
        lines = [inside(place, written(text, BLOCKS)) for place, text in pairs]
        text = "\n".join(["set -e", *lines, f"sync -f {MOUNT}", f"rm {MOUNT}/vm-*", "sync"])
        script.write_text(text + "\n", encoding="utf-8")
        load, more = ["bash", str(script)], ["--path=all", "--files"]
        numbers = {text: place.stat().st_ino for place, text in pairs}
        until_whole(case, lambda: case.record([name], load, more=more))
        chosen = ["--path=all", "--call-over", "1us", "--cgroup", f"/{MINE}"]
        case.record([name], load, name="chosen", more=chosen)
    case.told |= {"devices": [name], "numbers": numbers}


CASES = (path, path_cgroups)
