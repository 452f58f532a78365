# SPDX-License-Identifier: Apache-2.0
"""The loads of `convert_cost.py`, recorded once and kept: fio on a loop device in memory.

Kept in a directory of the user's cache: `LOAD.biotrail`, `LOAD.perf.data` (another run of the same
load, by `perf record -e 'block:*'`), and the logs that `enlarged_logs` makes of the first.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cost_tools import BIOTRAIL, ROOT
from tests.support.devices import LoopDevice, fio_arguments, loop, make_ext4, run, unmount

_SIZE = "256m"
_PERF_BUFFER_PAGES = 16384


@dataclass(frozen=True)
class Load:
    """What fio does. queue: files of the device's queue/ in sysfs, and what is written there.

    options: of fio, with as many I/Os as make some 200,000 to 300,000 events.
    """

    name: str
    means: str
    options: dict[str, object]
    queue: dict[str, str] = field(default_factory=dict)
    ext4: bool = False


_ASYNC = {"ioengine": "io_uring", "iodepth": 32, "norandommap": True}
_TOGETHER = {**_ASYNC, "iodepth_batch_submit": 32, "iodepth_batch_complete_min": 32}
LOADS = (
    Load(
        "random-reads",
        "random reads of 4 KiB, depth 32",
        {**_ASYNC, "rw": "randread", "bs": "4k", "io_size": "240m"},
    ),
    Load(
        "merged-writes",
        "4 KiB writes in order through the page cache, written back merged",
        {
            **{"rw": "write", "bs": "4k", "ioengine": "psync", "direct": False, "fdatasync": 1024},
            "loops": 2,
        },
        {"scheduler": "mq-deadline"},
    ),
    Load(
        "fsync-mix",
        "ext4: three reads to two writes of 16 KiB, fsync every 16 writes, four tasks",
        {
            **{"rw": "randrw", "rwmixread": 60, "bs": "16k", "ioengine": "psync", "direct": False},
            **{"fsync": 16, "numjobs": 4, "io_size": "300m", "norandommap": True, "size": "32m"},
            "invalidate": 1,
        },
        {"scheduler": "mq-deadline"},
        ext4=True,
    ),
    Load(
        "split-large",
        "direct reads of 4 MiB that the device takes in pieces of 64 KiB",
        {"rw": "randread", "bs": "4m", "ioengine": "io_uring", "iodepth": 8, "io_size": "4g"},
        {"max_sectors_kb": "64"},
    ),
    Load(
        "hot-sector",
        "reads of one block of 4 KiB, depth 32",
        {**_ASYNC, "rw": "randread", "bs": "4k", "size": "4k", "io_size": "240m"},
    ),
    Load(
        "all-merged",
        "direct 4 KiB writes in order, 32 in a batch, which merge under the plug",
        {**_TOGETHER, "rw": "write", "bs": "4k", "loops": 2},
        {"scheduler": "mq-deadline"},
    ),
)


def cache_directory() -> Path:
    """Return where logs are kept unless the user names a directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "biotrail" / "bench-convert"


def recorded(load: Load, directory: Path) -> Path:
    """Return the load's log, recorded now where it is not kept yet. Needs root and fio for that."""
    log = directory / f"{load.name}.biotrail"
    if not log.exists():
        _may_record()
        part = log.with_suffix(".part")
        with _target(load) as (device, command):
            words = [*BIOTRAIL, "record", "-q", "--force", "-d", device.name, "-o", str(part), "--"]
            subprocess.run([*words, *command], check=True, cwd=ROOT)
        part.replace(log)
    return log


def perf_data(load: Load, directory: Path) -> Path | None:
    """Return perf.data of another run of the load, recorded where it is not kept yet.

    None where perf is not installed. Raises subprocess.CalledProcessError where it cannot record.
    """
    data = directory / f"{load.name}.perf.data"
    if shutil.which("perf") is None:
        return None
    if not data.exists():
        _may_record()
        part = data.with_suffix(".part")
        with _target(load) as (device, command):
            only = f"dev == {device.dev}"
            words = ["perf", "record", "-q", "-a", "-m", str(_PERF_BUFFER_PAGES), "-o", str(part)]
            words += ["-e", "block:block_bio_*", "--filter", only]
            words += ["-e", "block:block_rq_*", "--filter", only, "--"]
            subprocess.run([*words, *command], check=True)
        part.replace(data)
    return data


def _may_record() -> None:
    if os.geteuid() != 0:
        sys.exit("convert_cost.py: recording the loads needs root")
    if shutil.which("fio") is None:
        sys.exit("convert_cost.py: needs fio: install it")


@contextmanager
def _target(load: Load) -> Iterator[tuple[LoopDevice, list[str]]]:
    """Yield the load's device, and fio's command line. Device and file system are gone after it."""
    with ExitStack() as stack:
        device = stack.enter_context(loop(size=256 << 20))
        for name, value in load.queue.items():
            (Path("/sys/block") / device.name / "queue" / name).write_text(value)
        path, options = device.path, {"size": _SIZE, **load.options}
        if load.ext4:
            make_ext4(device.path)
            where = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run("mount", device.path, where)
            stack.callback(unmount, where)
            path = str(where / "file")
            options = {**options, "filename_format": f"{path}.$jobnum"}
        yield device, ["fio", "--output=/dev/null", *fio_arguments(path, **options)]
