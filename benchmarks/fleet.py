# SPDX-License-Identifier: Apache-2.0
"""`biotrail fleet report` over many hosts: time by workers, memory of each, and equal results.

    python -m benchmarks.fleet --archives 200 a.biotrail b.biotrail

makes archives of the recordings in turn, each of another host, and reports them with 1 and with 2
workers of this machine. Two CPUs may be two threads of one core, which share its units: then two
workers are less than twice as fast, and `lscpu -e` says which it is.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from benchmarks.fleet_logs import host_name, make

_EVERY = 0.1
"""Seconds between two looks at the memory of the workers."""


def peak_memory(pid: int, stop: threading.Event) -> dict[int, int]:
    """Return pid → most resident bytes of each process below `pid`, until `stop` is set."""
    peak: dict[int, int] = {}
    while not stop.wait(_EVERY):
        try:
            for child in psutil.Process(pid).children(recursive=True):
                peak[child.pid] = max(peak.get(child.pid, 0), child.memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return peak


def report(folder: Path, workers: int) -> tuple[float, str, list[int]]:
    """Return (seconds, digest of the JSON, peak memory of each process in bytes, descending)."""
    biotrail = str(Path(sys.executable).with_name("biotrail"))
    command = [biotrail, "fleet", "report", "--json", "--workers", str(workers), str(folder)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        running = subprocess.Popen(command, stdout=out)
        stop, found = threading.Event(), dict[int, int]()
        watching = threading.Thread(target=lambda: found.update(peak_memory(running.pid, stop)))
        watching.start()
        status = running.wait()
        seconds = time.monotonic() - began
        stop.set()
        watching.join()
        if status:
            raise SystemExit(f"{' '.join(command)}: exit status {status}")
        out.seek(0)
        return seconds, hashlib.sha256(out.read()).hexdigest(), sorted(found.values(), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path, help="recordings of about 1 M events")
    parser.add_argument("--archives", type=int, default=200)
    parser.add_argument(
        "--folder", type=Path, help="kept, and used again; default: a temporary one"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        for number in range(given.archives):
            if not (folder / f"{host_name(number)}.parquet").exists():
                make(given.logs[number % len(given.logs)], number, folder)
        size = sum(one.stat().st_size for one in folder.glob("*.parquet"))
        print(f"{given.archives} archives, {size / (1 << 20):.0f} MiB")
        digests = set()
        for workers in given.workers:
            seconds, digest, peaks = report(folder, workers)
            digests.add(digest)
            most = ", ".join(f"{one / (1 << 20):.0f}" for one in peaks[: workers + 1])
            print(f"{workers} workers: {seconds:.1f} s; largest processes (MiB): {most}")
        print("the reports are equal" if len(digests) == 1 else "THE REPORTS DIFFER")


if __name__ == "__main__":
    main()
