# SPDX-License-Identifier: Apache-2.0
"""How often `diff` and `fleet report` mark equal loads, and how often `diff` finds a real change.

    python -m benchmarks.equal_loads [--comparisons 100] [--tries 20] [--slower 10]
        [--seconds 0.5] [--folder DIR] [--seed N]

A load of fio at fixed rates is recorded again and again, each time for less than a second:

- comparisons of equal loads, three runs a side, in pairs whose order is drawn at random, as
  `diff --record 3` makes them; no run is in two of them. How many have marks? They are on a loop
  device over memory, whose threads feel all that the machine does beside.
- the same runs by eights as eight hosts of a fleet: how many of their figures are outliers?
- tries with five runs a side, those of B slower by --slower per cent: so large a share of their
  I/Os is of 8 instead of 4 KiB. The share is computed from runs made before; what it came to is
  measured, too. In how many is the change found? They are on zram, where an I/O is done by the
  thread that queues it, so that runs differ by little also on a machine that is not quiet.

--folder keeps the logs, and those that are there are not recorded again. Needs root and fio.
"""

import argparse
import math
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.enlarged_logs import move
from biotrail.cli import cluster
from biotrail.cli.diff import order
from biotrail.cli.main import main as biotrail
from biotrail.converters.analysis.diff.diff import CONFIDENCE, make_diff, pooled
from biotrail.converters.analysis.diff.tree import Diff, Figure
from biotrail.converters.analysis.distributions.slots import Recording, read_slots
from biotrail.converters.analysis.fleet.closing import make_report
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from tests.support.devices import MEBIBYTE, fio_arguments, loop, run, zram

SIZE = 128 * MEBIBYTE
RATES = {"read": 2200, "write": 1800}
"""I/Os a second."""
LARGE = "8k"
RUNS, RUNS_FOR_POWER, PILOTS = 3, 5, 8
HOSTS = 8
OPERATIONS = tuple(RATES)
Shares = dict[str, int]
"""Of each operation's I/Os, per cent that are of LARGE bytes."""
SMALL: Shares = dict.fromkeys(OPERATIONS, 0)


class Loads:
    """Records runs of the load on a device, each into a log of its own."""

    def __init__(self, device: str, folder: Path, seconds: float) -> None:
        """Fill the device, so that all of it can be read. device: its name, as loop3."""
        self._device, self._folder, self._seconds = device, folder, seconds
        folder.mkdir(parents=True, exist_ok=True)
        run("fio", *fio_arguments(f"/dev/{device}", rw="write", bs="1m"))

    def run(self, name: str, shares: Shares) -> Path:
        """Record one run, unless its log is there; return the log. RuntimeError if it fails."""
        log = self._folder / f"{name}.biotrail"
        if log.exists():
            return log
        part = log.with_suffix(".part")
        words = ["record", "-q", "-f", "-d", self._device, "-o", str(part), "--"]
        status = _in_a_process([*words, "fio", "--output=/dev/null", *self._job(shares)])
        if status:
            raise RuntimeError(f"{name}: the recorder ended with status {status}")
        part.rename(log)
        return log

    def _job(self, shares: Shares) -> list[str]:
        sizes = [
            f"4k/{100 - shares[operation]}:{LARGE}/{shares[operation]}" for operation in OPERATIONS
        ]
        return fio_arguments(
            f"/dev/{self._device}",
            rw="randrw",
            rwmixread=round(100 * RATES["read"] / sum(RATES.values())),
            bssplit=",".join(sizes),
            rate_iops=",".join(map(str, RATES.values())),
            ioengine="io_uring",
            iodepth=4,
            time_based=True,
            runtime=f"{round(1000 * self._seconds)}ms",
            size="100m",
        )


def _in_a_process(words: Sequence[str]) -> int:
    """Run biotrail in a child of this process, which spares the start of Python; its status."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        biotrail(list(words))
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(status)


def figures_of(log: Path) -> Recording:
    trace = Trace(open_source(str(log)))
    return read_slots(trace, trace.lifecycles())


def mean_of(recording: Recording, operation: str) -> float:
    """Return a run's mean Q2C in ns."""
    one = make_diff(recording, recording, draws=0)  # no draws: values alone
    return next(f.a for name, f in leading(one) if name == operation and f.a is not None)


def leading(diff: Diff) -> Iterator[tuple[str, Figure]]:
    """Yield (operation, figure) of the figures that are judged by themselves."""
    for device in diff.devices:
        for operation in device.operations:
            yield from ((operation.operation, f) for f in operation.figures if f.leading)


Sides = dict[str, list[Recording]]


def compared(
    loads: Loads, name: str, runs: int, draw: random.Random, slower: Shares
) -> tuple[Diff, Sides]:
    """Record runs of A and of B in turn, and compare them; B has that share of large I/Os."""
    sides: Sides = {"A": [], "B": []}
    for number, side in enumerate(order(runs, draw)):
        shares = slower if side == "B" else SMALL
        sides[side].append(figures_of(loads.run(f"{name}-{number}{side}", shares)))
    a, b = (pooled(side, False) for side in sides.values())
    return make_diff(a, b), sides


def spread(sides: Sides, operation: str) -> float:
    """Return the standard deviation of the logarithms of the runs' means, within the sides."""
    logs = [[math.log(mean_of(run, operation)) for run in side] for side in sides.values()]
    return math.sqrt(statistics.fmean(statistics.variance(side) for side in logs))


def calibrated(loads: Loads, per_cent: float, draw: random.Random) -> Shares:
    """Return the share of large I/Os that makes the mean latency longer by per_cent."""
    means: dict[tuple[str, int], list[float]] = {}
    for number, side in enumerate(order(PILOTS, draw)):
        share = 100 if side == "B" else 0
        run = figures_of(loads.run(f"pilot-{number}{side}", dict.fromkeys(OPERATIONS, share)))
        for operation in OPERATIONS:
            means.setdefault((operation, share), []).append(mean_of(run, operation))
    found = {}
    for operation in OPERATIONS:
        small, large = (statistics.median(means[operation, share]) for share in (0, 100))
        if large <= small:
            raise RuntimeError(f"I/O of {LARGE} is not slower than of 4 KiB: {operation}s")
        found[operation] = min(max(round(per_cent * small / (large - small)), 1), 100)
    return found


def equal_loads(loads: Loads, count: int, draw: random.Random) -> None:
    """Compare equal loads `count` times, and print how many marks there are."""
    with_mark = marks = figures = leading_marks = leading_all = 0
    found: list[float] = []
    for number in range(count):
        diff, _ = compared(loads, f"equal-{number:03}", RUNS, draw, SMALL)
        others = [one for one in diff.figures() if one.p is not None and not one.leading]
        judged = [one for _, one in leading(diff) if one.p is not None]
        figures += len(others)
        marked = sum(bool(one.changed) for one in others)
        marks, with_mark = marks + marked, with_mark + bool(marked)
        leading_all += len(judged)
        leading_marks += sum(bool(one.changed) for one in judged)
        found += [one.detectable for one in judged if one.detectable is not None]
        progress(f"{number + 1} of {count} comparisons, {with_mark} with a mark")
    print(
        f"{count} comparisons of equal loads, {RUNS} runs a side: {with_mark} have a mark of the "
        f"corrected figures ({marks} of {figures} figures); of the leading ones {leading_marks} of "
        f"{leading_all} are marked (by chance {leading_all * (1 - CONFIDENCE):.0f}, at most "
        f"{most_by_chance(leading_all, 1 - CONFIDENCE)} in 95 of 100 series)"
    )
    print(f"median of the changes that would be found: {statistics.median(found):.0%}")


def equal_hosts(folder: Path) -> None:
    """Report the equal runs by eights as hosts of fleets; print how many figures are outliers."""
    logs = sorted(folder.glob("equal-*.biotrail"))
    fleets = outliers = differing = figures = with_one = 0
    asked = cluster.ReadOptions("host")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        for begin in range(0, len(logs) - HOSTS + 1, HOSTS):
            closed = []
            for number, log in enumerate(logs[begin : begin + HOSTS]):
                of_host = Path(temporary) / "host.biotrail"
                move(log, number, of_host)
                closed.append(cluster.close([cluster.read([str(of_host)], {}, asked)], asked))
            found = make_report(cluster.merged(closed), "host", CONFIDENCE).deviations
            figures += len(found)
            differing += sum(bool(one.figure.differs) for one in found)
            those = sum(one.outlier for one in found)
            fleets, outliers, with_one = fleets + 1, outliers + those, with_one + bool(those)
            progress(f"{fleets} fleets, {outliers} of {figures} figures are outliers")
    print(
        f"{fleets} fleets of {HOSTS} equal hosts: {outliers} of {figures} figures are outliers, in "
        f"{with_one} fleets ({differing} have an interval that excludes their peers' median)"
    )


def real_changes(loads: Loads, count: int, per_cent: float, draw: random.Random) -> None:
    """Compare loads that differ `count` times, and print how often that is found."""
    shares = calibrated(loads, per_cent, draw)
    found = dict.fromkeys(OPERATIONS, 0)
    wrong = 0
    changes: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    sizes: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    spreads: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    for number in range(count):
        diff, sides = compared(loads, f"slower-{number:02}", RUNS_FOR_POWER, draw, shares)
        for operation, one in leading(diff):
            found[operation] += bool(one.changed and (one.difference or 0) > 0)
            wrong += bool(one.changed and (one.difference or 0) < 0)
            if one.a and one.b:
                changes[operation].append(math.log(one.b / one.a))
            spreads[operation].append(spread(sides, operation))
            if one.detectable is not None:
                sizes[operation].append(one.detectable)
        progress(f"{number + 1} of {count} tries")
    for operation in OPERATIONS:
        change = math.expm1(statistics.fmean(changes[operation]))
        print(
            f"{operation}s slower by {per_cent:g} % ({shares[operation]} % of {LARGE}; over all "
            f"runs {change:.1%}): found in {found[operation]} of {count} tries of {RUNS_FOR_POWER} "
            f"runs a side, which differ by {statistics.median(spreads[operation]):.1%} (standard "
            f"deviation, median); median of the changes that would be found in nine of ten: "
            f"{statistics.median(sizes[operation]):.0%}"
        )
    if wrong:
        print(f"{wrong} are marked as faster")


def most_by_chance(count: int, share: float) -> int:
    """Return the 95th percentile of the binomial distribution: marks that chance explains."""
    below, number = 0.0, -1
    while below < 0.95:
        number += 1
        below += math.comb(count, number) * share**number * (1 - share) ** (count - number)
    return number


def progress(text: str) -> None:
    print(f"\r\x1b[K{text}", end="\n" if not sys.stderr.isatty() else "", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=100, help="of equal loads")
    parser.add_argument("--tries", type=int, default=20, help="comparisons of loads that differ")
    parser.add_argument("--slower", type=float, default=10, help="by how many per cent they do")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a run is")
    parser.add_argument("--folder", type=Path, help="for the logs, which are kept")
    parser.add_argument("--seed", type=int, default=1, help="of the order of runs")
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    if os.geteuid() != 0:
        sys.exit("equal_loads.py: recording needs root")
    if not shutil.which("fio"):
        sys.exit("equal_loads.py: needs fio: install it")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # devices go then, too
    began, draw = time.monotonic(), random.Random(given.seed)
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if given.tries:
            with zram(str(SIZE)) as name:
                loads = Loads(name, folder, given.seconds)
                real_changes(loads, given.tries, given.slower, draw)
        if given.comparisons:
            with loop(SIZE) as device:
                equal_loads(Loads(device.name, folder, given.seconds), given.comparisons, draw)
            equal_hosts(folder)
    print(f"in {(time.monotonic() - began) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
