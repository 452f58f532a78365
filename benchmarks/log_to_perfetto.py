# SPDX-License-Identifier: Apache-2.0
"""Bytes per event and events per second, from log to Perfetto and OTF2, beside blktrace's.

    python -m benchmarks.log_to_perfetto [LOG] [--seconds 5]

Without LOG it records fio's 4 KiB random reads at depth 32 on a loop device in memory
(needs root), and where blktrace is installed traces the same load with it. With LOG it
only converts. Figures hold for the machine and the load that are printed with them.
"""

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.cost_tools import BIOTRAIL, ROOT
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.outputs.otf2 import convert as otf2
from biotrail.converters.outputs.parquet import archive
from biotrail.converters.outputs.perfetto import convert as perfetto
from biotrail.converters.pipeline import Trace
from tests.support.devices import LoopDevice, fio_arguments, loop

BLKTRACE = """
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
blktrace -d {path} -o {base} -b 4096 -n 8 & tracer=$!
until [ -e /sys/kernel/debug/block/{name}/trace0 ]; do kill -0 $tracer && sleep 0.05 || exit; done
"$@"
kill -INT $tracer || exit
wait $tracer
"""
"""Run the load in the arguments under blktrace, in a mount namespace that has debugfs."""


@dataclass
class Figure:
    """One row: what was done with how many events, in how much CPU time, to what size."""

    what: str
    events: int
    size: int
    cpu_seconds: float | None = None

    def __str__(self) -> str:
        speed = f"{self.events / self.cpu_seconds / 1e6:10.2f}" if self.cpu_seconds else ""
        return f"{self.what:42}{self.events:12,}{self.size / self.events:10.1f}{speed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?", type=Path, help="an existing log")
    parser.add_argument("--seconds", type=int, default=5, help="how long to record")
    arguments = parser.parse_args()
    print(f"{platform.node()}, Linux {platform.release()}, {os.cpu_count()} CPUs")
    print(f"{'':42}{'events':>12}{'B/event':>10}{'M/s/core':>9}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        if arguments.log is not None:
            print(*convert(arguments.log, directory), sep="\n")
            return
        if os.geteuid() != 0:
            sys.exit("recording needs root; give a LOG to convert")
        device = stack.enter_context(loop(size=256 << 20))
        print(*convert(record(device, arguments.seconds, directory), directory), sep="\n")
        if shutil.which("blktrace"):
            print(blktrace(device, arguments.seconds, directory))


def load(device: LoopDevice, seconds: int) -> list[str]:
    options = {"rw": "randread", "bs": "4k", "ioengine": "io_uring", "iodepth": 32}
    timed = {"time_based": True, "runtime": seconds}
    return ["fio", "--output=/dev/null", *fio_arguments(device.path, **options, **timed)]


def record(device: LoopDevice, seconds: int, directory: Path, *options: str) -> Path:
    log = directory / "bench.biotrail"
    command = [*BIOTRAIL, "record", "-q", "-d", device.name, "-o", str(log), *options]
    subprocess.run([*command, "--", *load(device, seconds)], check=True, cwd=ROOT)
    return log


def cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def convert(log: Path, directory: Path) -> list[Figure]:
    """Associate alone, then convert; the log's size counts per event, then the output's."""
    times = [cpu_seconds(resource.RUSAGE_SELF)]

    def used() -> float:
        times.append(cpu_seconds(resource.RUSAGE_SELF))
        return times[-1] - times[-2]

    trace = Trace(log)
    for _ in trace.lifecycles():
        pass
    events = trace.account.total
    figures = [Figure("log; events to lifecycles", events, log.stat().st_size, used())]
    out, trace = directory / "bench.pftrace", Trace(log)
    with out.open("wb") as stream:
        perfetto.convert(trace.lifecycles(), trace.context, stream)
    figures.append(Figure("log to Perfetto trace", events, out.stat().st_size, used()))
    out = directory / "bench.parquet"
    with out.open("wb") as stream:
        archive.write(open_source(log), stream)
    figures.insert(0, Figure("log to Parquet archive", events, out.stat().st_size, used()))
    if find_spec("_otf2"):
        out, trace = directory / "bench.otf2", Trace(log)
        otf2.convert(trace.lifecycles(), trace.context, out)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        figures.append(Figure("log to OTF2 archive", events, size, used()))
    return figures


def blktrace(device: LoopDevice, seconds: int, directory: Path) -> Figure | str:
    """Trace the same load with blktrace and turn it into text, or return why that failed."""
    base = str(directory / "blk")
    script = BLKTRACE.format(name=device.name, path=device.path, base=base)
    command = ["unshare", "--mount", "bash", "-c", script, "load", *load(device, seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"blktrace cannot trace here: {done.stderr.strip().splitlines()[:1]}"
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    subprocess.run(["blkparse", "-q", "-i", base, "-o", "/dev/null"], check=True)
    used = cpu_seconds(resource.RUSAGE_CHILDREN) - before
    # One line for each entry.
    lines = subprocess.run(
        ["blkparse", "-q", "-i", base, "-f", "\n"], check=True, capture_output=True
    ).stdout.count(b"\n")
    size = sum(path.stat().st_size for path in directory.glob("blk.blktrace.*"))
    return Figure("blktrace; blkparse to text", lines, size, used)


if __name__ == "__main__":
    main()
