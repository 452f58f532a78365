# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: files through the page cache and directly, and filters by directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vm.guest_case import Case, disk, module, run, tool
from tests.vm.guest_cgroups import MOUNT, mounted
from tests.vm.guest_repeats import until_whole

LOAD = f"""set -e
dd status=none if=/dev/zero of={MOUNT}/cached bs=64k count=16 conv=fsync
dd status=none if=/dev/zero of={MOUNT}/direct bs=64k count=8 oflag=direct
echo 3 >/proc/sys/vm/drop_caches
dd status=none if={MOUNT}/cached of=/dev/null bs=64k
dd status=none if={MOUNT}/direct of=/dev/null bs=16k iflag=direct
"""
BELOW_LOAD = f"""set -e
mkdir -p {MOUNT}/a/b
dd status=none if=/dev/zero of={MOUNT}/outside bs=64k count=3 conv=fsync
dd status=none if=/dev/zero of={MOUNT}/a/cached bs=64k count=2 conv=fsync
dd status=none if=/dev/zero of={MOUNT}/a/b/direct bs=64k count=1 oflag=direct
"""
IMAGE = Path("/run/files.img")
IMAGE_BYTES = 400 << 20
"""mkfs.xfs wants 300 MiB; the image is sparse."""


def files(case: Case) -> None:
    """One file is written and read through the page cache, another one directly."""
    name = disk("scsi1")
    with mounted(name):
        _both(case, name)


@contextmanager
def _on_loop(kind: str) -> Iterator[str]:
    tool(f"mkfs.{kind}")
    module(kind)
    module("loop")
    IMAGE.unlink(missing_ok=True)
    with IMAGE.open("wb") as image:
        image.truncate(IMAGE_BYTES)
    device = run("losetup", "--find", "--show", IMAGE).strip()
    try:
        run(f"mkfs.{kind}", "-q", "-f", device)
        run("mount", device, MOUNT)
        try:
            yield device.removeprefix("/dev/")
        finally:
            run("umount", MOUNT)
    finally:
        run("losetup", "--detach", device)
        IMAGE.unlink()


def files_xfs(case: Case) -> None:
    with _on_loop("xfs") as name:
        _both(case, name)


def files_btrfs(case: Case) -> None:
    with _on_loop("btrfs") as name:
        _both(case, name)


def _both(case: Case, name: str) -> None:
    """Record the load, and one of which a directory alone is chosen."""
    script = case.directory / "load.sh"
    script.write_text(LOAD, encoding="utf-8")
    case.told |= {"devices": [name], "cached": 16 << 16, "direct": 8 << 16}
    until_whole(case, lambda: case.record([name], ["bash", str(script)], more=["--files"]))
    script.write_text(BELOW_LOAD, encoding="utf-8")
    Path(MOUNT, "a").mkdir()
    only = ["--files", "--dir", f"{MOUNT}/a", "--op", "write"]
    case.told["below"] = {"/mnt/a/cached": 2 << 16, "/mnt/a/b/direct": 1 << 16}
    try:
        case.record([name], ["bash", str(script)], "below", only)
    except RuntimeError as refusal:
        case.told["refused"] = str(refusal)


CASES = (files, files_xfs, files_btrfs)
