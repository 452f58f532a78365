# SPDX-License-Identifier: Apache-2.0
"""Loop devices with a file system, whose I/O is recorded with its path."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import devices, file_systems
from tests.support.record_command import biotrail

LOAD = """
import mmap, os, subprocess, sys
here = sys.argv[1]

def name(text):
    with open("/proc/self/comm", "w") as comm:
        comm.write(text)

"""


@dataclass
class Disk:
    """A loop device with a file system, mounted."""

    device: devices.LoopDevice
    mount: Path

    def record(self, log: Path, command: list[str], *arguments: str) -> None:
        options = list(arguments)
        if any(word.startswith("--path") for word in options):
            options.append("--call-budget=0")  # calls of other processes must not end the timing
        biotrail("record", "-d", self.device.path, "-o", log, *options, "--", *command)

    def program(self, text: str, *arguments: object) -> list[str]:
        return [sys.executable, "-c", LOAD + text, str(self.mount), *map(str, arguments)]

    def prepare(self, name: str, size: int) -> Path:
        """A file on the disk, and nowhere in memory."""
        path = self.mount / name
        with path.open("wb") as stream:
            stream.write(b"x" * size)
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path


SYSTEMS = ("btrfs", "ext4", "xfs")
"""File systems of `mounted`."""


@contextmanager
def mounted(device: devices.LoopDevice, system: str, mount: Path) -> Iterator[Disk]:
    """Make a file system on the device and mount it; skips where its tools are missing."""
    with file_systems.mounted(system, [device.path], mount):
        yield Disk(device, mount)
