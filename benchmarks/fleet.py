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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.enlarged_logs import HOUR_NS, clock_later, end_later, extent, host_name, later, make
from biotrail.recorder.log import LogReader, LogWriter

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
            whole = folder / "whole.biotrail"
            concatenate(given.logs, given.archives, whole)
            biotrail = str(Path(sys.executable).with_name("biotrail"))
            text = subprocess.check_output([biotrail, "report", "--json", str(whole)])
            number, different = compared(json.loads(reports[0]), json.loads(text))
            print(
                f"{number} figures compared with report on one log of all, {len(different)} differ"
            )
            print("\n".join(different[:20]))
            equal &= not different
    sys.exit(0 if equal else 1)


_OF_TIME = frozenset({"ios_per_s", "bytes_per_s", "depth"})


def concatenate(logs: Sequence[Path], number: int, out: Path) -> None:
    """Write `number` recordings, `logs` in turn, each an hour later than the one before, as one.

    The header is that of the first, and its notes are those of all. Raises what the reader raises,
    and ValueError for recordings of different devices.
    """
    with out.open("wb") as stream, LogReader(logs[0]) as first:
        writer = LogWriter(stream, first.header)
        rings = []
        for log in logs:
            with LogReader(log) as reader:
                if reader.header["devices"] != first.header["devices"]:
                    raise ValueError(f"{log} is of other devices than {logs[0]}: record it again")
                rings.append(extent(reader)[1])
                for name, payload in reader.notes:
                    writer.write_note(name, payload)
        further = 0
        for at in range(number):
            shift = at * HOUR_NS
            with LogReader(logs[at % len(logs)]) as reader:
                for chunk in reader.chunks():
                    moved = [later(one, shift, further, 0) for one in chunk.segments]
                    writer.write_chunk(moved, clock_later(chunk.clock, shift))
                end = end_later(reader.end or {}, shift)
            further += rings[at % len(logs)]
        writer.close(end)


def figures(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each figure of a report with its name, without those of times between I/Os."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in _OF_TIME:
                yield from figures(one, f"{name}.{key}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from figures(one, f"{name}[{at}]")
    else:
        yield name, value


def compared(fleet: dict[str, Any], whole: dict[str, Any]) -> tuple[int, list[str]]:
    """Return how many figures were compared, and those that differ, with both values.

    fleet, whole: reports as JSON has them; `whole` of one device.
    """
    (device,) = whole["devices"]
    total = fleet["total"]
    operations = {one["operation"]: one for one in device["operations"]}
    theirs = {
        "total": whole["total"],
        "operations": {
            name: {key: one for key, one in found.items() if key != "device"}
            for name, found in operations.items()
        },
        "flushes": device["flushes"],
        "events": device["events"],
        "certainty": whole["certainty"],
    }
    ours = {
        "total": total["total"],
        "operations": {one["operation"]: one for one in total["operations"]},
        "flushes": total["flushes"],
        "events": total["events"],
        "certainty": fleet["certainty"],
    }
    mine, others = dict(figures(ours)), dict(figures(theirs))
    names = sorted(mine.keys() | others.keys())
    different = [
        f"{name.lstrip('.')}: {mine.get(name)} in the fleet's, {others.get(name)} in the whole's"
        for name in names
        if mine.get(name) != others.get(name)
    ]
    return len(names), different


if __name__ == "__main__":
    main()
