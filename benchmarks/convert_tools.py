# SPDX-License-Identifier: Apache-2.0
"""The conversions of `convert_cost.py`, biotrail's and its peers', each a process that is measured.

btt reads what `blkparse -d` made of the same files, and nothing else: alone, without what that
takes, and as both together.
"""

import json
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cost_figures import count_perf_data
from benchmarks.cost_tools import BIOTRAIL, ROOT

_TABLES = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from biotrail.converters.pipeline import Trace
for _ in Trace(sys.argv[1]).lifecycles():
    pass
"""
"""As the commands, it starts no threads of numpy's BLAS, which biotrail does not use."""


_MEASURED = """
import json, os, resource, sys
status = os.spawnvp(os.P_WAIT, sys.argv[2], sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as out:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss << 10], out)
sys.exit(status)
"""
"""Run a command and write its CPU time (s) and greatest memory (bytes) to a file.

The kernel counts a process's memory from before it executed its program on: that of whoever
started it. This one is small.
"""


@dataclass(frozen=True)
class Given:
    """What a load's tools read. events: of log and blktrace; perf_events: of perf_data."""

    log: Path
    events: int
    blktrace: Path | None = None
    merged: Path | None = None
    perf_data: Path | None = None
    perf_events: int = 0


@dataclass(frozen=True)
class Used:
    """What one run used: CPU time (s) of the process, its greatest memory, bytes it wrote."""

    cpu: float
    max_rss: int
    size: int


Words = Callable[[Given, Path], Sequence[str | Path] | None]
"""Returns a tool's command line for what is given and a path that it may write; None: not here."""


@dataclass(frozen=True)
class Tool:
    """One conversion. peer: not of biotrail."""

    name: str
    words: Words
    peer: bool = False

    def events(self, given: Given) -> int:
        return given.perf_events if self.name == "perf script" else given.events


def _ours(*words: str, ending: str = "") -> Words:
    """Return the command line of `biotrail WORDS LOG`; with an ending of a file, `-o` that."""

    def command(given: Given, out: Path) -> Sequence[str | Path]:
        target = ["-o", f"{out}{ending}"] if ending else []
        return [*BIOTRAIL, *words, given.log, *target]

    return command


_MERGED_BTT = ("sh", "-ec", 'blkparse -q -i "$0" -O -d "$1" && btt -i "$1" -o "$2"')
"""Makes what btt reads of blktrace's files, and runs btt."""
TOOLS = (
    Tool("tables", lambda given, out: [sys.executable, "-c", _TABLES, given.log]),
    Tool("info", _ours("info")),
    Tool("report", _ours("report")),
    Tool("perfetto", _ours("convert", ending=".pftrace")),
    Tool("archive", _ours("archive", ending=".parquet")),
    Tool("otf2", _ours("convert", ending=".otf2")),
    Tool(
        "btt", lambda given, out: given.merged and ["btt", "-i", given.merged, "-o", out], peer=True
    ),
    Tool(
        "blkparse -d + btt",
        lambda given, out: (
            [*_MERGED_BTT, given.blktrace, f"{out}.merged", out]
            if given.blktrace and given.merged
            else None
        ),
        peer=True,
    ),
    Tool(
        "blkparse",
        lambda given, out: given.blktrace and ["blkparse", "-q", "-i", given.blktrace, "-o", out],
        peer=True,
    ),
    Tool(
        "perf script",
        lambda given, out: given.perf_data and ["perf", "script", "-i", given.perf_data],
        peer=True,
    ),
)


def run(tool: Tool, given: Given, directory: Path) -> Used | None:
    """Run a tool once, its files in a directory that is emptied afterwards.

    None where the tool has nothing to read here. Raises RuntimeError with the end of what it said
    if it fails. Memory below that of a bare Python, some 10 MiB, is not seen.
    """
    words = tool.words(given, directory / "out")
    if not words:
        return None
    directory.mkdir()
    usage = directory.with_suffix(".usage")
    try:
        with (directory / "said").open("wb") as said, (directory / "errors").open("w+b") as errors:
            command = [sys.executable, "-S", "-E", "-c", _MEASURED, usage, *words]
            # Python keeps compiled sources, as it does for users.
            env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
            # btt leaves files where it runs.
            done = subprocess.run(
                command, stdout=said, stderr=errors, cwd=directory, env=env, check=False
            )
            if done.returncode:
                errors.seek(0)
                raise RuntimeError(f"{tool.name}: {errors.read()[-500:].decode(errors='replace')}")
        size = sum(p.stat().st_size for p in directory.rglob("*") if p.is_file())
        cpu, max_rss = json.loads(usage.read_text(encoding="ascii"))
    finally:
        shutil.rmtree(directory)
        usage.unlink(missing_ok=True)
    return Used(cpu, max_rss, size)


def blktrace_of(log: Path) -> tuple[Path | None, Path | None]:
    """Return (prefix of blktrace's files, the same merged for btt) of a log, made if not there.

    None for what cannot be made: blkparse is not installed.
    """
    if shutil.which("blkparse") is None:
        return None, None
    directory = log.with_suffix(".blktrace")
    merged = log.with_suffix(".merged")
    if not directory.exists():
        subprocess.run(
            [*BIOTRAIL, "convert", log, "-o", directory],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
    first = min(directory.glob("*.blktrace.*"))
    prefix = directory / first.name.partition(".blktrace.")[0]
    if not merged.exists():
        part = merged.with_suffix(".part")
        subprocess.run(
            ["blkparse", "-q", "-i", prefix, "-O", "-d", part],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        part.replace(merged)
    return prefix, merged if shutil.which("btt") else None


def events_of_perf(data: Path) -> int:
    with (
        data.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        return count_perf_data(mapped).events
