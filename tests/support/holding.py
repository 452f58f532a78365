# SPDX-License-Identifier: Apache-2.0
"""Loop devices whose I/O is held for as long as a test wants: a file system below is frozen."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support import devices
from tests.support.devices import MEBIBYTE, LoopDevice, MakeLoop
from tests.support.record_command import wait_until


def in_flight(device: str) -> int:
    return sum(map(int, Path(f"/sys/block/{device}/inflight").read_text().split()))


def waits_for_the_disk(process: subprocess.Popen[bytes]) -> bool:
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "D"


@contextmanager
def on_a_file_system(
    make_loop: MakeLoop, where: Path, size: int = 8 * MEBIBYTE
) -> Iterator[LoopDevice]:
    """A loop device on a file system of its own at `where`, which can be frozen."""
    lower = make_loop(size=64 * MEBIBYTE)
    devices.make_ext4(lower.path)
    with devices.mounted(lower.path, where), devices.loop(size, directory=where) as upper:
        yield upper


@contextmanager
def frozen(where: Path) -> Iterator[None]:
    """The file system takes no writes: those of a loop device on it wait."""
    with ExitStack() as stack:
        # Before it is frozen: a command that is ended for its time may have frozen it.
        stack.callback(_unfreeze, where)
        devices.run("fsfreeze", "--freeze", where)
        yield


def _unfreeze(where: Path) -> None:
    """Let the file system go on. Frozen, it could not be unmounted, nor a test that waits end."""
    try:
        devices.run("fsfreeze", "--unfreeze", where)
    except RuntimeError as error:
        if "Invalid argument" not in str(error):  # it is not frozen
            raise


@contextmanager
def held_in_flight(where: Path, device: str, number: int) -> Iterator[None]:
    """What the block writes to a device over the frozen file system waits there.

    Goes on when so many requests are in flight, which a busy machine reaches in no other way:
    there the device's thread may well complete each before the next is sent.
    """
    with frozen(where):
        yield
        wait_until(lambda: in_flight(device) >= number, f"not {number} requests are in flight")


def write(device: str, sector: int = 0) -> subprocess.Popen[bytes]:
    """One 4 KiB block, around the page cache."""
    where = f"of={device}", f"seek={sector // 8}", "oflag=direct"
    return subprocess.Popen(["dd", "if=/dev/zero", *where, "bs=4k", "count=1", "status=none"])
