# SPDX-License-Identifier: Apache-2.0
"""What recording costs: the same fio loads without tracing, with biotrail, and with its peers.

    python -m benchmarks.record_cost [--slices 10] [--seconds 1] [--quick] [--json FILE]
        [--loads ram-qd32,...] [--tools biotrail,perf,...]

fio runs throughout on one core; each traced slice lies between two untraced ones, tool after
tool, round after round, so that what else the machine does meets all of them. A row gives
medians: how much less work was done than in the two slices around (with quartiles), how much
more CPU time fio needed per unit of work, the tool's own CPU time, and what it lost. A tool
that cannot run here is skipped, and the row says why. Needs root and fio.

ram-*: a loop device over memory, its kernel threads on fio's core, so that one core is saturated:
4 KiB random reads at depth 32 in batches of 16 (ram-qd32), at depth 32 one by one (ram-single),
at depth 1, and 4 KiB buffered writes in order (their rate is that of the writes to the page
cache); disk-qd32: random reads of a file in the temporary directory. There too, through the page
cache: file-mix, random reads and writes of 16 KiB of one file of 1 GiB with an fsync every 100, as
sysbench's fileio; cached-reads, 4 KiB reads that do no I/O.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cost_figures import HEAD, Pair, Row, Slice, line, summarize, words
from benchmarks.cost_loads import LOADS, Load, Running, SkippedError, running
from benchmarks.cost_tools import BUFFER_MIB, Program, all_tools

PAUSE = 0.2
"""Seconds that the load is given to settle before a slice."""
QUICK = {"slices": 2, "seconds": 0.3}


def main() -> None:
    arguments = _arguments()
    if os.geteuid() != 0:
        sys.exit("record_cost.py: recording needs root")
    if not shutil.which("fio") or not shutil.which("taskset"):
        sys.exit("record_cost.py: needs fio and taskset: install them")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # devices and tracers go then too
    print(describe(), HEAD, sep="\n", flush=True)
    rows: list[Row] = []
    for load in [known for known in LOADS if known.name in arguments.loads]:
        measured, interrupted = measure(load, arguments)
        rows += measured
        if interrupted:
            print("interrupted: the table ends here")
            break
    if arguments.json is not None:
        write_json(arguments, ("slices", "seconds"), rows)


def _arguments() -> argparse.Namespace:
    names = [load.name for load in LOADS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slices", type=int, default=10, help="traced slices per tool and load")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a slice is")
    parser.add_argument("--quick", action="store_true", help="few and short slices: only a check")
    parser.add_argument("--loads", type=words, default=names, help=", ".join(names))
    parser.add_argument("--tools", type=words, default=[""], help="words that their names have")
    parser.add_argument("--cpu", type=int, default=0, help="the core that fio runs on")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    unknown = set(arguments.loads) - set(names)
    if unknown:
        parser.error(f"there is no load {', '.join(sorted(unknown))}: choose of {', '.join(names)}")
    if arguments.slices < 1 or arguments.seconds <= 0:
        parser.error("--slices and --seconds are to be greater than 0")
    if arguments.quick:
        vars(arguments).update(QUICK)
    return arguments


def describe() -> str:
    model = next(
        (
            x.partition(": ")[2]
            for x in Path("/proc/cpuinfo").read_text().splitlines()
            if "model n" in x
        ),
        platform.machine(),
    )
    busy = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} CPUs ({model}), Linux {platform.release()}, "
        f"load average {busy:.1f}, buffers of {BUFFER_MIB} MiB per CPU"
    )


def measure(load: Load, arguments: argparse.Namespace) -> tuple[list[Row], bool]:
    """All tools at one load, in turn; prints their lines. Also: whether it was interrupted."""
    tools = [t for t in all_tools() if any(word in t.name for word in arguments.tools)]
    print(load.name, flush=True)
    pairs: dict[str, list[Pair]] = {tool.name: [] for tool in tools}
    skipped: dict[str, str] = {}
    interrupted = False
    try:
        with running(load, arguments.cpu) as run:
            for _ in range(arguments.slices):
                for tool in [t for t in tools if t.name not in skipped]:
                    try:
                        pairs[tool.name].append(pair(run, tool, arguments.seconds))
                    except SkippedError as why:
                        skipped[tool.name] = str(why)
    except SkippedError as why:
        skipped = {tool.name: str(why) for tool in tools}
    except KeyboardInterrupt:
        interrupted = True
    rows = []
    for tool in tools:
        name = tool.name
        why = skipped.get(name, "")
        rows.append(Row(load.name, name, why) if why else summarize(load.name, name, pairs[name]))
        print(line(rows[-1]), flush=True)
    return rows, interrupted


def pair(run: Running, tool: Program, seconds: float) -> Pair:
    """A slice without, one with, one without the tool."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        before = cut(run, seconds)
        stack.callback(tool.abandon)
        tool.start(run.device, Path(directory) / "out")
        began = time.monotonic_ns()
        time.sleep(tool.settle)
        traced = cut(run, seconds, tool)
        ran = time.monotonic_ns() - began
        account = tool.stop()
    time.sleep(PAUSE)
    return Pair(before, traced, cut(run, seconds), account, ran)


def cut(run: Running, seconds: float, tool: Program | None = None) -> Slice:
    """What is done from now on in so many seconds."""
    began, work, load = time.monotonic_ns(), run.work(), run.cpu_ns()
    beside = tool.cpu_ns() if tool else 0
    time.sleep(seconds)
    ended, done, used = time.monotonic_ns(), run.work(), run.cpu_ns()
    after = tool.cpu_ns() if tool else 0
    return Slice(done - work, ended - began, used - load, after - beside)


def write_json(arguments: argparse.Namespace, how: Sequence[str], rows: Sequence[Any]) -> None:
    """The same figures, and how they were measured. how: names of the arguments that say it."""
    report = {
        "machine": describe(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: getattr(arguments, name) for name in how},
        "rows": [asdict(row) for row in rows],
    }
    arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
