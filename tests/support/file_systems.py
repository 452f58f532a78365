# SPDX-License-Identifier: Apache-2.0
"""File systems on loop devices, mounted while a test runs, and the bytes that a log gives files."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import devices
from tests.support.record_command import read

MAKERS = {
    "ext4": ("mkfs.ext4", *devices.EXT4),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
BYTES = 400 << 20
"""Of a device: mkfs.xfs wants 300 MiB."""


def require(kind: str) -> None:
    """Skip unless this machine can make and mount a file system of this kind."""
    if shutil.which(MAKERS[kind][0]) is None:
        pytest.skip(f"needs {MAKERS[kind][0]}")
    if shutil.which("modprobe") is not None:
        subprocess.run(["modprobe", "--quiet", kind], check=False)
    kinds = Path("/proc/filesystems").read_text(encoding="ascii").split()
    if kind not in kinds:
        pytest.skip(f"needs a kernel with {kind}")


@contextmanager
def mounted(
    kind: str, paths: Sequence[str], mount: Path, made: Sequence[str] = (), how: str = "defaults"
) -> Iterator[Path]:
    """A new file system on these devices, at `mount`. made: options of mkfs; how: of mount."""
    require(kind)
    devices.run(*MAKERS[kind], *made, *paths)
    mount.mkdir(exist_ok=True)
    devices.run("mount", "-o", how, paths[0], mount)
    try:
        yield mount
    finally:
        devices.run("umount", "--lazy", mount)  # a failed test holds files open


@contextmanager
def small_disk(where: Path, size: str) -> Iterator[Path]:
    """A file system in memory, of that size, on a new directory."""
    with devices.mounted("none", where, "-t", "tmpfs", "-o", f"size={size}"):
        yield where


def remount(path: str, mount: Path) -> None:
    """Have what is read next read from the disk, metadata too."""
    devices.unmount(mount)
    devices.run("mount", path, mount)


def named(found: Mapping[tuple[str, str], int], mount: Path) -> dict[tuple[str, str], int]:
    """What belongs to files with a name, by their name below the mount."""
    return {
        (path.removeprefix(f"{mount}/"), op): size
        for (path, op), size in found.items()
        if path.startswith(f"{mount}/")
    }


def bytes_by_file(log: Path) -> Counter[tuple[str, str]]:
    """Bytes of the log's bios by (path, operation); of no file: by the device, "metadata" or ""."""
    whole = read(log)
    found = Counter[tuple[str, str]]()
    columns = (whole.bios.file.tolist(), whole.bios.bytes.tolist(), whole.bios.opf.tolist())
    meta = whole.context.flag_mask("META")
    for row, size, opf in zip(*columns, strict=True):
        path = whole.context.files[row].path if row >= 0 else "metadata" if opf & meta else ""
        found[path, whole.context.op_name(opf)] += size
    return found
