# SPDX-License-Identifier: Apache-2.0
"""How many events a second the recorder takes without loss.

    python -m benchmarks.offered [--rates 1,2,3,5,8] [--levels 1,0] [--rings 16,8,…]
        [--seconds 5] [--rounds 3] [--cpu 0] [--directory DIR] [--json FILE]

No device at hand makes millions of I/Os a second, so a BPF program makes their events: it runs on
one CPU and writes Q, s, D and C into the rings of `biotrail record`, which runs on the others and
writes its log to memory, or to --directory. The log is then read, and each event that was offered
has to be in it, or among those that it says were lost: by kind, exactly. A row gives medians over
the rounds, how many of them lost anything, and how full the ring was at most. --rings tries
smaller rings. Needs root, clang and taskset.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cost_figures import number
from benchmarks.cost_loads import SkippedError
from benchmarks.cost_tools import BIOTRAIL, ROOT, Biotrail
from benchmarks.offered_load import Generator, Offer, build, maps_of, on_cpu
from benchmarks.record_cost import describe, write_json
from biotrail.recorder.log import LogReader
from biotrail.recorder.log.columns import record_starts
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.records import Kind
from tests.support.devices import SHM, LoopDevice, loop

MILLION = 1_000_000
MEBIBYTE = 1 << 20
RATES = [1.0, 2.0, 3.0, 5.0, 8.0]
STANDING_SECONDS = 2.0
"""Without events before the first: the recorder then sleeps for as long as it ever does."""
RECORD_BYTES = 60
"""At most what Q, s, D and C take on an average, with what pads the blocks."""


_NO_EVENTS = (Kind.PAD, Kind.TASK, Kind.CGROUP)


@dataclass(frozen=True)
class Written:
    """What a log says of itself: records written and lost, by kind; its size in bytes.

    cpu_seconds: the recorder's, to the log's end.
    """

    written: dict[int, int]
    lost: dict[int, int]
    size: int
    cpu_seconds: float


@dataclass(frozen=True)
class Run:
    """One recording of events that were offered."""

    offer: Offer
    log: Written

    @property
    def offered(self) -> int:
        return sum(self.offer.events.values())

    @property
    def written(self) -> int:
        return sum(self.log.written.values())

    @property
    def lost(self) -> int:
        return sum(self.log.lost.values())

    @property
    def unexplained(self) -> dict[int, int]:
        """By kind: events offered that are neither written nor counted as lost (or too many)."""
        left = Counter(self.offer.events)
        left.subtract(self.log.written)
        left.subtract(self.log.lost)
        return {kind: count for kind, count in left.items() if count}


@dataclass(frozen=True)
class Setting:
    """What is asked for: events a second, zstd's level, bytes of a CPU's ring."""

    rate: float
    level: int
    ring_bytes: int


@dataclass(frozen=True)
class Row:
    """All runs of one setting: medians, but for what was offered, written and lost in all.

    unexplained: events of all runs that the logs do not account for, by kind; to be none.
    cpu: per cent of a core; cpu_ns: per event written; fullest: per cent, the most of all runs.
    """

    rate: float
    level: int
    ring_bytes: int
    runs: int
    reached: float
    offered: int
    written: int
    lost: int
    runs_that_lost: int
    unexplained: dict[int, int]
    bytes_per_event: float
    cpu: float
    cpu_ns: float
    fullest: float


def read_log(path: Path) -> Written:
    """Counts a log's records, one by one. Raises RuntimeError where it is not whole."""
    counts = np.zeros(256, dtype=np.int64)
    with LogReader(path) as log:
        for chunk in log.chunks():
            for segment in chunk.segments:
                tops = np.frombuffer(segment.data, dtype=np.uint8)[7::8]
                kinds = tops[record_starts(tops, segment.position // 8)]
                counts += np.bincount(kinds, minlength=256)
        if log.problems or log.end is None:
            raise RuntimeError(f"{path}: {'; '.join(log.problems) or 'has no end'}")
        lost = {int(kind): count for kind, count in log.end["lost"].items()}
        windows: Counter[int] = Counter()
        for window in log.losses:
            windows[window["kind"]] += window["count"]
        if windows != lost:
            raise RuntimeError(f"{path}: its windows lost {dict(windows)}, its end says {lost}")
        counts[list(_NO_EVENTS)] = 0
        written = {int(kind): int(counts[kind]) for kind in np.flatnonzero(counts)}
        return Written(written, lost, log.size, log.end["recorder"]["cpu_seconds"])


def summarize(setting: Setting, runs: Sequence[Run]) -> Row:
    def median(figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, runs))

    unexplained: Counter[int] = Counter()
    for run in runs:
        unexplained.update({kind: abs(count) for kind, count in run.unexplained.items()})
    return Row(
        setting.rate,
        setting.level,
        setting.ring_bytes,
        runs=len(runs),
        reached=median(lambda run: run.offered * 1e9 / run.offer.ns),
        offered=sum(run.offered for run in runs),
        written=sum(run.written for run in runs),
        lost=sum(run.lost for run in runs),
        runs_that_lost=sum(run.lost > 0 for run in runs),
        unexplained=dict(unexplained),
        bytes_per_event=median(lambda run: run.log.size / max(run.written, 1)),
        cpu=median(lambda run: 100 * run.log.cpu_seconds * 1e9 / run.offer.ns),
        cpu_ns=median(lambda run: run.log.cpu_seconds * 1e9 / max(run.written, 1)),
        fullest=max(100 * run.offer.fullest / setting.ring_bytes for run in runs),
    )


HEAD = (
    f"{'level':>5}{'ring':>7}{'offered/s':>11}{'reached/s':>11}{'offered':>13}{'written':>13}"
    f"{'lost':>12}{'lost %':>8}{'runs':>6}{'B/ev':>6}{'ns/ev':>7}{'core %':>8}{'fullest %':>10}"
)


def line(row: Row) -> str:
    """One line of the table below HEAD; `runs`: those that lost something, of all."""
    runs = f"{row.runs_that_lost}/{row.runs}"
    return (
        f"{row.level:>5}{row.ring_bytes >> 10:>6}K{number(row.rate, 11, 0)}"
        f"{number(row.reached, 11, 0)}{number(row.offered, 13, 0)}{number(row.written, 13, 0)}"
        f"{number(row.lost, 12, 0)}{number(100 * row.lost / max(row.offered, 1), 8, 2)}{runs:>6}"
        f"{number(row.bytes_per_event, 6, 1)}{number(row.cpu_ns, 7, 0)}{number(row.cpu, 8, 1)}"
        f"{number(row.fullest, 10, 1)}"
    )


def complaints(rows: Sequence[Row]) -> Iterator[str]:
    """Rows whose logs do not account for every event: to be none."""
    for row in rows:
        if row.unexplained:
            kinds = ", ".join(f"{n} of kind {kind}" for kind, n in sorted(row.unexplained.items()))
            yield f"level {row.level}, {row.rate:,.0f}/s: not accounted for: {kinds}"


class Recorder(Biotrail):
    """`biotrail record` on all CPUs but one."""

    def __init__(self, without_cpu: int, *options: str) -> None:
        super().__init__("", *options)
        others = sorted(os.sched_getaffinity(0) - {without_cpu}) or [without_cpu]
        self._cpus = ",".join(map(str, others))

    def _begin(self, device: str) -> None:
        command = ["taskset", "-c", self._cpus, *BIOTRAIL, "record", "-d", device]
        command += ["-o", str(self._out), *self._options]
        self._run(command, lambda: b" recording " in self._said.read_bytes(), cwd=ROOT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


def main() -> None:
    arguments = _arguments()
    if os.geteuid() != 0:
        sys.exit("offered.py: recording needs root")
    if not shutil.which("taskset"):
        sys.exit("offered.py: needs taskset: install util-linux")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the recorder goes then too
    print(describe(), HEAD, sep="\n", flush=True)
    try:
        rows = measure(arguments)
    except (RuntimeError, SkippedError) as error:
        sys.exit(f"offered.py: {error}")
    if arguments.json is not None:
        write_json(arguments, ("seconds", "rounds"), rows)
    if problems := list(complaints(rows)):
        sys.exit("\n".join(problems))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", type=_numbers, default=RATES, help="million events a second")
    parser.add_argument("--levels", type=_numbers, default=[1, 0], help="of zstd; 0: none")
    parser.add_argument("--rings", type=_numbers, default=[None], help="MiB; default: as record")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each run is")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each setting")
    parser.add_argument("--cpu", type=int, default=0, help="the core that makes the events")
    parser.add_argument("--directory", type=Path, help="where logs are written; default: memory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0 or min(arguments.rates) <= 0:
        parser.error("--rounds, --seconds and --rates are to be greater than 0")
    if arguments.directory is None and SHM.is_dir():
        arguments.directory = SHM
    return arguments


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def measure(arguments: argparse.Namespace) -> list[Row]:
    """All settings in turn, round after round; prints their lines."""
    settings = [
        Setting(
            rate * MILLION,
            int(level),
            RingSizes.choose(os.cpu_count() or 1, ring and round(ring * MEBIBYTE)).ring_bytes,
        )
        for ring in arguments.rings
        for level in arguments.levels
        for rate in arguments.rates
    ]
    runs: dict[Setting, list[Run]] = {setting: [] for setting in settings}
    try:
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.directory))
            program = build(Path(directory))
            device = stack.enter_context(loop(size=MEBIBYTE))
            for number in range(arguments.rounds):
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
                for setting, found in runs.items():
                    out = Path(directory) / "out.biotrail"
                    found.append(record(setting, arguments, device, program, out))
                    out.unlink()
    except KeyboardInterrupt:
        print("interrupted: the table has what was measured")
    rows = [summarize(setting, found) for setting, found in runs.items() if found]
    for row in rows:
        print(line(row), flush=True)
    return rows


def record(
    setting: Setting, arguments: argparse.Namespace, device: LoopDevice, program: Path, out: Path
) -> Run:
    """One recording, to `out`. Raises RuntimeError, or SkippedError where it cannot begin."""
    need = round(setting.rate * arguments.seconds * RECORD_BYTES)
    if shutil.disk_usage(out.parent).free < 2 * need:
        raise RuntimeError(f"{out.parent} may have no room for {need >> 20} MiB: see --directory")
    sizes = RingSizes.choose(os.cpu_count() or 1, setting.ring_bytes)
    options = ("--level", str(setting.level), "--buffer-size", str(setting.ring_bytes))
    recorder = Recorder(arguments.cpu, *options)
    with ExitStack() as stack:
        stack.callback(recorder.abandon)
        recorder.start(device.name, out)
        maps, area_bytes = stack.enter_context(maps_of(recorder.pid))
        if area_bytes != sizes.area_bytes:
            raise RuntimeError(f"the kernel has no memory for rings of {setting.ring_bytes} bytes")
        generator = Generator(program, maps, sizes, device.dev)
        stack.callback(generator.close)
        time.sleep(STANDING_SECONDS)
        with on_cpu(arguments.cpu):
            offer = generator.offer(setting.rate, arguments.seconds)
        recorder.stop()
    return Run(offer, read_log(out))


if __name__ == "__main__":
    main()
