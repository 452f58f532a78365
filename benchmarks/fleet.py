# SPDX-License-Identifier: Apache-2.0
"""`biotrail fleet report` over many hosts: time by workers, memory of each, and equal results.

    python -m benchmarks.fleet --archives 200 a.biotrail b.biotrail

makes archives of the recordings in turn, each of another host, and reports them with 1 and with 2
workers of this machine. With --whole all recordings are written as one log, too, and its report
is compared with the fleet's. Two CPUs may be two threads of one core, which share its units: then
two workers are less than twice as fast, and `lscpu -e` says which it is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from benchmarks.fleet_logs import host_name, make
from benchmarks.fleet_whole import compared, concatenate, reported

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


def report(folder: Path, workers: int) -> tuple[float, bytes, list[int]]:
    """Return (seconds, the JSON, peak memory of each process in bytes, descending)."""
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
        return seconds, out.read(), sorted(found.values(), reverse=True)


def compare(logs: list[Path], archives: int, folder: Path, found: bytes) -> bool:
    """Tell whether the fleet's report `found` is that of all recordings in one log; says so."""
    whole = folder / "whole.biotrail"
    concatenate(logs, archives, whole)
    number, different = compared(json.loads(found), reported(whole))
    print(f"{number} figures compared with report on one log of all, {len(different)} differ")
    print("\n".join(different[:20]))
    return not different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path, help="recordings of about 1 M events")
    parser.add_argument("--archives", type=int, default=200)
    parser.add_argument(
        "--folder", type=Path, help="kept, and used again; default: a temporary one"
    )
    parser.add_argument("--whole", action="store_true", help="compare with report on all as one")
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
        reports = []
        for workers in given.workers:
            seconds, text, peaks = report(folder, workers)
            reports.append(text)
            most = ", ".join(f"{one / (1 << 20):.0f}" for one in peaks[: workers + 1])
            print(f"{workers} workers: {seconds:.1f} s; largest processes (MiB): {most}")
        equal = len(set(reports)) == 1
        print("the reports are equal" if equal else "THE REPORTS DIFFER")
        if given.whole:
            equal &= compare(given.logs, given.archives, folder, reports[0])
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
