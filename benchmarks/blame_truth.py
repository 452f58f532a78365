# SPDX-License-Identifier: Apache-2.0
"""What blame says of a culprit beside what stopping it gives (`record --pause`); root, with fio.

    .venv/bin/python -m benchmarks.blame_truth DIRECTORY [LOAD ...]

DIRECTORY is on a disk, without an encrypted or stacked device below it; files of 600 MiB are made
there. Loads called ram-… use a loop device over /dev/shm, journal-… a file system with a journal on
a loop device over a file of DIRECTORY (/dev/shm: over memory). Prints a row for
each load: the truth with its interval, blame's answer, and the error in points; logs stay in
/dev/shm until the next run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cost_loads import disk_below
from benchmarks.cost_tools import BIOTRAIL
from tests.support.devices import MEBIBYTE, loop, mounted, run

_RAM = Path("/dev/shm")

READER = "--rw=randread --bs=4k --direct=1 --ioengine=psync --thinktime=100"
SYNCER = "--rw=randwrite --bs=4k --ioengine=psync --fsync=1 --thinktime=500"
STREAM = "--rw=write --bs=1m --direct=1 --ioengine=libaio --iodepth=8 --overwrite=1"
BURSTS = f"{STREAM} --thinktime=25000 --thinktime_blocks=8"
DEEP = "--rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32"
DEEP_BURSTS = (
    "--rw=randread --bs=16k --direct=1 --ioengine=libaio --iodepth=8 "
    "--thinktime=1000 --thinktime_blocks=8"
)
SYNCERS = "--rw=randwrite --bs=8k --ioengine=psync --fsync=1 --numjobs=4"
SPILL = (
    "--rw=write --bs=1m --ioengine=psync --overwrite=1 --fsync=64 "
    "--thinktime=200000 --thinktime_blocks=64"
)
LIGHT = "--rw=randread --bs=4k --direct=1 --ioengine=psync --thinktime=50000"
BURN = "--ioengine=cpuio --cpuload=100 --numjobs=2"
APPEND = """
import os, sys, time
open("/proc/self/comm", "w").write(sys.argv[2])
with open(sys.argv[1], "wb", buffering=0) as file:
    for at in range(1 << 30):
        file.write(bytes(4096))
        os.fsync(file.fileno())
        if at % 4000 == 3999:
            file.truncate(0)
            file.seek(0)
        time.sleep(0.0005)
"""


@dataclass(frozen=True)
class Load:
    """A victim, `app`, and the culprits: the one that is stopped, and maybe another."""

    victim: str
    suspect: str
    beside: str = ""
    scheduler: str = ""
    requests: int = 0
    """nr_requests of the queue; 0: as it is."""


LOADS = {
    "disk-bursts": Load(READER, BURSTS),
    "disk-stream": Load(READER, STREAM),
    "disk-deep": Load(READER, DEEP),
    "disk-deep-bursts": Load(READER, DEEP_BURSTS),
    "disk-syncers": Load(READER, SYNCERS),
    "disk-light": Load(READER, LIGHT),
    "disk-cpu": Load(READER, BURN),
    "disk-both-1": Load(READER, BURSTS, DEEP_BURSTS),
    "disk-both-2": Load(READER, DEEP_BURSTS, BURSTS),
    "disk-sync-bursts": Load(SYNCER, BURSTS),
    "disk-sync-syncers": Load(SYNCER, SYNCERS),
    "disk-append-bursts": Load("append", BURSTS),
    "disk-append-spill": Load("append", SPILL),
    "disk-append-syncers": Load("append", SYNCERS),
    "disk-mq-deadline": Load(READER, BURSTS, scheduler="mq-deadline"),
    "disk-none": Load(READER, BURSTS, scheduler="none"),
    "disk-kyber": Load(READER, BURSTS, scheduler="kyber"),
    "disk-bfq": Load(READER, BURSTS, scheduler="bfq"),
    "journal-append-bursts": Load("append", BURSTS),
    "journal-append-spill": Load("append", SPILL),
    "journal-append-syncers": Load("append", f"{SYNCERS} --rw=write --file_append=1"),
    "journal-append-append": Load("append", "append"),
    "ram-none": Load(READER, BURSTS, scheduler="none"),
    "ram-mq-deadline": Load(READER, BURSTS, scheduler="mq-deadline", requests=4),
    "ram-kyber": Load(READER, DEEP, scheduler="kyber"),
    "ram-bfq": Load(READER, STREAM, scheduler="bfq"),
}


def _fio(binaries: Path, name: str, options: str, target: list[str]) -> list[str]:
    """Return a command whose process is called `name`: fio's binary has that name."""
    if not (binaries / name).exists():
        shutil.copy(shutil.which("fio") or "fio", binaries / name)
    fixed = "--thread --time_based --runtime=600 --norandommap --randrepeat=0 --name=j"
    target = [] if "cpuio" in options else target
    return [str(binaries / name), *fixed.split(), *target, *options.split()]


@contextmanager
def _set(path: Path, value: str) -> Iterator[None]:
    """Give an attribute of a queue a value, and its former one back."""
    old = path.read_text()
    former = old.split("[")[1].split("]")[0] if "[" in old else old.strip()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(former)


def recorded(name: str, directory: Path, periods: str = "8x1s") -> Path:
    """Record a load with the experiment; return the log's path."""
    load, log = LOADS[name], _RAM / f"blame-{name}.biotrail"
    with ExitStack() as stack:
        binaries = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_RAM)))
        over_disk = os.major(os.stat(directory).st_dev) and not name.startswith("ram")
        device = disk_below(directory) if over_disk else ""
        loop_path = ""
        if name.startswith(("ram", "journal")):
            place = _RAM if name.startswith("ram") else directory
            loop_path = stack.enter_context(loop(1600 * MEBIBYTE, True, place)).path
        if name.startswith("journal"):
            run("mkfs.ext4", "-q", "-F", loop_path)
            mount = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_RAM)))
            directory = stack.enter_context(mounted(loop_path, mount))
        device = device or Path(loop_path).name
        devices = ["-d", device, *(["-d", loop_path] if loop_path else [])]
        queue = Path(f"/sys/block/{device}/queue")
        if load.scheduler:
            stack.enter_context(_set(queue / "scheduler", load.scheduler))
        if load.requests:
            stack.enter_context(_set(queue / "nr_requests", str(load.requests)))
        pids = {}
        for place, (party, what) in enumerate(
            (("app", load.victim), ("suspect", load.suspect), ("beside", load.beside))
        ):
            if not what:
                continue
            file = [f"--filename={loop_path}", f"--offset={500 * place}m", "--size=500m"]
            if not name.startswith("ram"):
                path = directory / f"blame-{party}.dat"
                size = 300 if name.startswith("journal") else 600
                if not path.exists():
                    with path.open("wb") as stream:
                        for _ in range(size):
                            stream.write(os.urandom(MEBIBYTE))
                        os.fsync(stream.fileno())
                file = [f"--filename={path}", f"--size={size}m"]
            command = _fio(binaries, party, what, file)
            if what == "append":
                grows = directory / f"blame-{party}-grows.dat"
                command = [sys.executable, "-c", APPEND, str(grows), party]
            none = subprocess.DEVNULL
            started = subprocess.Popen(
                command, stdin=none, stdout=none, stderr=none, start_new_session=True
            )
            stack.callback(_end, started)
            pids[party] = started.pid
        time.sleep(2)
        subprocess.run(
            [*BIOTRAIL, "record", "-q", "-f", "--path", "--call-budget", "0", *devices, "--pause",
             f"{pids['suspect']}={periods}", "-o", str(log)],
            check=True,
        )  # fmt: skip
    return log


def _end(started: subprocess.Popen[bytes]) -> None:
    started.kill()
    started.wait()


def row(name: str, log: Path) -> str:
    """Return the load's row of the table: its I/O, and the calls with most time."""
    command = [*BIOTRAIL, "blame", "--json", "--by", "process", str(log)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)["experiment"]
    cells = [name]
    victims = [one for one in found["victims"] if one["name"] == "app"]
    calls = [one for one in found["calls"] if one["name"] == "app"]
    for one in (*victims[:1], *calls[:1]):
        means = (one[state]["mean_ns"] / 1000 for state in ("standing", "running"))
        cells.append(" → ".join(f"{mean:,.0f}" for mean in means))
        cells += _told(one.get("waits", one), one["blamed"])
        if "cpu" in one:
            cells.append(f"{100 * one['cpu']['share']:.0f}")
    return "| " + " | ".join(cells) + " |"


def _told(truth: dict[str, Any], blamed: float | None) -> list[str]:
    between = truth["share_between"] or [float("nan")] * 2
    low, high = (f"{100 * end:.0f}" for end in between)
    told = f"{100 * truth['share']:.0f} ({low} … {high})"
    if blamed is None:
        return [told, "cannot tell"]
    return [told, f"{100 * blamed:.0f} ({100 * (blamed - truth['share']):+.0f})"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no load outlives this
    for one in sys.argv[2:] or LOADS:
        print(row(one, recorded(one, Path(sys.argv[1]))), flush=True)
