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
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.cost_loads import SkippedError
from benchmarks.cost_tools import BIOTRAIL, ROOT, Biotrail
from benchmarks.offered_figures import (
    HEAD,
    Row,
    Run,
    Setting,
    complaints,
    line,
    read_log,
    summarize,
)
from benchmarks.offered_load import Generator, build, maps_of, on_cpu
from benchmarks.record_cost import describe, write_json
from biotrail.recorder.probes.rings.ring import RingSizes
from tests.support.devices import SHM, LoopDevice, loop

MILLION = 1_000_000
MEBIBYTE = 1 << 20
RATES = [1.0, 2.0, 3.0, 5.0, 8.0]
STANDING_SECONDS = 2.0
"""Without events before the first: the recorder then sleeps for as long as it ever does."""
RECORD_BYTES = 60
"""At most what Q, s, D and C take on an average, with what pads the blocks."""


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
        """Of the recorder that runs."""
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
        Setting(rate * MILLION, int(level), _ring_bytes(ring))
        for ring in arguments.rings
        for level in arguments.levels
        for rate in arguments.rates
    ]
    runs: dict[Setting, list[Run]] = {setting: [] for setting in settings}
    try:
        run_all(runs, arguments)
    except KeyboardInterrupt:
        print("interrupted: the table has what was measured")
    rows = [summarize(setting, found) for setting, found in runs.items() if found]
    for row in rows:
        print(line(row), flush=True)
    return rows


def run_all(runs: dict[Setting, list[Run]], arguments: argparse.Namespace) -> None:
    """All settings in turn, round after round, each into its list."""
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


def _ring_bytes(mebibytes: float | None) -> int:
    asked = None if mebibytes is None else round(mebibytes * MEBIBYTE)
    return RingSizes.choose(os.cpu_count() or 1, asked).ring_bytes


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
