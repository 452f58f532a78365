# SPDX-License-Identifier: Apache-2.0
"""The pure part of `offered.py`: what a run's log accounts for, medians, the table."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.cost_figures import number
from benchmarks.offered_load import Offer
from biotrail.recorder.log import LogReader
from biotrail.recorder.log.columns import record_starts
from biotrail.recorder.schema.records import Kind

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
        """All events."""
        return sum(self.offer.events.values())

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

    def as_json(self) -> dict[str, object]:
        """For json.dump."""
        return asdict(self)


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
    """The runs of one setting, at least one."""

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
        written=sum(_written(run) for run in runs),
        lost=sum(_lost(run) for run in runs),
        runs_that_lost=sum(_lost(run) > 0 for run in runs),
        unexplained=dict(unexplained),
        bytes_per_event=median(lambda run: run.log.size / max(_written(run), 1)),
        cpu=median(lambda run: 100 * run.log.cpu_seconds * 1e9 / run.offer.ns),
        cpu_ns=median(lambda run: run.log.cpu_seconds * 1e9 / max(_written(run), 1)),
        fullest=max(100 * run.offer.fullest / setting.ring_bytes for run in runs),
    )


def _written(run: Run) -> int:
    return sum(run.log.written.values())


def _lost(run: Run) -> int:
    return sum(run.log.lost.values())


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
