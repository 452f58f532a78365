# SPDX-License-Identifier: Apache-2.0
"""Real devices and real loads, for live tests and benchmarks."""

import errno
import json
import mmap
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEBIBYTE = 1 << 20
SHM = Path("/dev/shm")
ZRAM = Path("/sys/class/zram-control")
"""There if the kernel has zram."""
EXT4 = ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")
"""Options of mkfs: as it makes a file system otherwise, a kernel thread (ext4lazyinit) zeroes its
inode tables from a few seconds after the mount on, which is no test's I/O."""
COMMAND_SECONDS = 120
BUSY_SECONDS = 30
made: set[int] = set()
"""dev_t of every loop device that was made here, in this process."""


Fio = Callable[..., dict[str, Any]]
"""The fixture `fio`."""


@dataclass(frozen=True)
class LoopDevice:
    """A loop device over a fresh file.

    path: "/dev/loop3"; name: "loop3"; dev: the kernel's dev_t (major << 20 | minor);
    size: bytes; backing: the file behind it.
    """

    path: str
    name: str
    dev: int
    size: int
    backing: Path


MakeLoop = Callable[..., LoopDevice]
"""The fixture `make_loop`."""


def run(*command: str | Path) -> str:
    """Return the command's standard output; RuntimeError with what it said if it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise RuntimeError(f"{words}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def when_free(act: Callable[[], object]) -> None:
    """Do what fails while others use a device or mount, again until they do not any more.

    Its error (EBUSY, of a command or a system call) after BUSY_SECONDS. udev opens a device for a
    moment after every change; a loop device that is open keeps its file, and the mount below.
    """
    last = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            act()
        except (RuntimeError, OSError) as error:
            busy = getattr(error, "errno", None) == errno.EBUSY or " busy" in str(error)
            if not busy or time.monotonic() > last:
                raise
            time.sleep(0.1)
        else:
            return


def unmount(where: Path | str) -> None:
    """Unmount it; RuntimeError if something still uses it after BUSY_SECONDS."""
    when_free(lambda: run("umount", where))


@contextmanager
def mounted(source: str, where: Path, *options: str) -> Iterator[Path]:
    """Mount something on a directory, which is made where it is missing; options: of mount."""
    where.mkdir(exist_ok=True)
    run("mount", *options, source, where)
    try:
        yield where
    finally:
        unmount(where)


@contextmanager
def zram(size: str = "16M") -> Iterator[str]:
    """Make a zram device, which takes no requests; gives its name. It is gone afterwards."""
    number = (ZRAM / "hot_add").read_text().strip()
    sysfs = Path(f"/sys/class/block/zram{number}")
    try:
        (sysfs / "disksize").write_text(size)
        yield f"zram{number}"
    finally:
        when_free(lambda: (sysfs / "reset").write_text("1"))
        when_free(lambda: (ZRAM / "hot_remove").write_text(number))


@contextmanager
def loop(
    size: int = 64 * MEBIBYTE, direct_io: bool = False, directory: Path = SHM
) -> Iterator[LoopDevice]:
    """Make a loop device of size bytes over a file in directory; both are gone afterwards."""
    backing = directory / f"biotrail-test-{uuid.uuid4().hex}.img"
    try:
        # Allocated, not sparse: the backing file system shall have nothing to do in a test.
        run("fallocate", "-l", str(size), backing)
        with loop_over(backing, direct_io) as device:
            yield device
    finally:
        backing.unlink(missing_ok=True)


@contextmanager
def loop_over(backing: Path | str, direct_io: bool = False, *options: str) -> Iterator[LoopDevice]:
    """Make a loop device over a file or device that is there; options: more of losetup's."""
    mode = "on" if direct_io else "off"
    command = ("losetup", "--find", "--show", f"--direct-io={mode}", *options, backing)
    path = run(*command).strip()
    try:
        queue = Path("/sys/block") / Path(path).name / "queue"
        _as_new(queue)
        made.add(dev_of(path))
        size = int((queue.parent / "size").read_text()) * 512
        yield LoopDevice(path, Path(path).name, dev_of(path), size, Path(backing))
    finally:
        run("losetup", "--detach", path)


def without_merges(device: LoopDevice) -> None:
    """Each bio becomes a request of its own."""
    Path(f"/sys/block/{device.name}/queue/nomerges").write_text("2")


def read_block(path: str | Path, offset: int = 0) -> None:
    """Read 4 KiB around the page cache."""
    with open(path, "rb", buffering=0, opener=_around_the_cache) as file:
        os.preadv(file.fileno(), [mmap.mmap(-1, 4096)], offset)


def _around_the_cache(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_DIRECT)


def dev_of(path: str | Path) -> int:
    """Return a device node's dev_t (major << 20 | minor)."""
    number = os.stat(path).st_rdev
    return os.major(number) << 20 | os.minor(number)


def _as_new(queue: Path) -> None:
    """Undo what an earlier user of a loop device set: the kernel keeps it when it is detached."""
    most = min(int((queue / "max_hw_sectors_kb").read_text()), 1280)
    for name, value in (
        # A change of scheduler resets the number, not the tags that a smaller one left: 4 first.
        *(("scheduler", "none"), ("nr_requests", "4")),
        ("nr_requests", (queue.parent / "mq/0/nr_tags").read_text()),
        *(("nomerges", "0"), ("max_sectors_kb", str(most))),
    ):
        (queue / name).write_text(value)


def make_ext4(path: str | Path, *options: str) -> None:
    """Make an ext4 file system to which the kernel writes nothing by itself; options: of mkfs."""
    run("mkfs.ext4", *EXT4, *options, path)


def fio_arguments(path: str | Path, **options: object) -> list[str]:
    """Arguments of one fio job on path; direct I/O unless told otherwise."""
    job = {"name": "job", "filename": path, "direct": True, **options}
    return [f"--{k}={int(v) if isinstance(v, bool) else v}" for k, v in job.items()]


def read_fio_report(path: Path) -> dict[str, Any]:
    """Return fio's JSON; fio may put warnings before it into the same file."""
    text = path.read_text(encoding="utf-8")
    report: dict[str, Any] = json.loads(text[text.index("{") :])
    return report


def fio(path: str | Path, **options: object) -> dict[str, Any]:
    """Run one fio job and return fio's own JSON; RuntimeError if fio fails."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run("fio", "--output-format=json", f"--output={out.name}", *fio_arguments(path, **options))
        return read_fio_report(Path(out.name))
