# SPDX-License-Identifier: Apache-2.0
"""Figures as Prometheus' metric families; prometheus_client writes them as OpenMetrics or text."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar

from biotrail.cli.measuring.figures import OTHER, Blame, Figures, Reading, Times
from biotrail.cli.measuring.flight_logs import Exemplars, TriggerIO
from biotrail.cli.measuring.kernel import Counts
from biotrail.recorder.schema.limits import MEASURE_BUCKETS
from biotrail.recorder.schema.measure_structs import FIRST_BOUND

_NS = 1e9
_PLACE = ("device", "operation")
LES = (*(repr(2 ** ((FIRST_BOUND + at) / 2)) for at in range(MEASURE_BUCKETS - 1)), "+Inf")
"""Label `le` of each bucket: its end in seconds."""
_MOST_EXEMPLAR = 128
"""Characters that OpenMetrics allows in an exemplar's labels, names and values together."""


Values = Mapping[tuple[str, ...], float]
"""Values of labels → value of a sample."""


class Exposition:
    """A collector for a registry of prometheus_client: figures, when they are asked for."""

    def __init__(
        self,
        read: Callable[[], Reading] | None,
        info: dict[str, str],
        counts: Callable[[Iterable[str]], list[Counts]],
        exemplars: Callable[[], Exemplars] | None = None,
        labels: tuple[str, ...] = (),
    ) -> None:
        """counts: of the kernel, by devices' names. labels: beside device and operation."""
        self._labels = (*_PLACE, *labels)
        self.read, self._info, self._counts = read, info, counts
        self._exemplars = exemplars

    def registry(self) -> CollectorRegistry:
        """Return a registry with this collector and that of the process."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry

    def describe(self) -> list[Metric]:
        """Return no families: registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        assert self.read is not None
        reading = self.read()
        exemplars = self._exemplars() if self._exemplars else None
        yield InfoMetricFamily("biotrail", "Version, and where figures come from.", self._info)
        yield from _io(reading.io, exemplars, self._labels)
        kernel = self._counts({one.device for one in reading.io} - {OTHER})
        yield _family(
            GaugeMetricFamily,
            "in_flight_ios",
            "I/Os in flight, as the kernel counts them: reads, and all else as write.",
            _PLACE,
            {(one.device, op): number for one in kernel for op, number in one.in_flight.items()},
        )
        yield _family(
            CounterMetricFamily,
            "kernel_ios",
            "I/Os that completed since boot, as the kernel counts them (/sys/block/*/stat).",
            _PLACE,
            {(one.device, op): number for one in kernel for op, number in one.done.items()},
        )
        if reading.blame is not None:
            yield from _blame(reading.blame)
        if reading.verdict is not None:
            yield _family(
                GaugeMetricFamily,
                "verdict",
                "Whether a rule of the report's first sentences held in the last minute.",
                ("rule",),
                {(rule,): float(held) for rule, held in reading.verdict.items()},
            )
        yield _family(
            CounterMetricFamily,
            "lost_events",
            "Events that were not recorded: no room in the rings, or the program was running.",
            ("reason",),
            {(reason,): number for reason, number in reading.lost.items()},
        )
        if reading.unseen is not None:
            yield _family(
                CounterMetricFamily,
                "unseen_completions",
                "I/Os of which the model knows that their completion was not recorded.",
                (),
                {(): reading.unseen},
            )
            yield _family(
                CounterMetricFamily,
                "skipped_seconds",
                "Time left out because the model could not keep up.",
                (),
                {(): reading.skipped_ns / _NS},
            )
        yield _family(
            CounterMetricFamily,
            "cpu_seconds",
            "CPU time of biotrail's processes, without the programs in the kernel.",
            ("process",),
            {(process,): seconds for process, seconds in reading.cpu_seconds.items()},
        )
        if reading.runs:
            yield _family(
                CounterMetricFamily,
                "program_sampled_runs",
                "Runs of the program in the kernel that were timed: a sample, 1 % of the time.",
                (),
                {(): reading.runs},
            )
            yield _family(
                CounterMetricFamily,
                "program_sampled_run_seconds",
                "Time that the program took in these runs.",
                (),
                {(): reading.run_ns / _NS},
            )
        if reading.behind_ns is not None:
            yield _family(
                GaugeMetricFamily,
                "behind_seconds",
                "Age of the newest I/O in the figures.",
                (),
                {(): reading.behind_ns / _NS},
            )
        if exemplars is not None:
            name, what = "biotrail_flight_recorder_logs", "Logs written by the flight recorder."
            logs = CounterMetricFamily(name, what, labels=("trigger",))
            for trigger, number in exemplars.logs.items():
                newest = exemplars.newest.get(trigger)
                logs.add_metric((trigger,), number, exemplar=_exemplar(newest, 1.0))
            yield logs


def _io(io: list[Figures], exemplars: Exemplars | None, names: tuple[str, ...]) -> Iterator[Metric]:
    ios = CounterMetricFamily("biotrail_ios", "I/Os that completed.", labels=names)
    size = CounterMetricFamily(
        "biotrail_io_bytes", "Bytes of these I/Os.", labels=names, unit="bytes"
    )
    errors = CounterMetricFamily("biotrail_io_errors", "I/Os that failed.", labels=names)
    doubtful = CounterMetricFamily(
        "biotrail_io_doubtful",
        "I/Os that completed, but are in no histogram: several I/Os fit one completion.",
        labels=names,
    )
    latency = HistogramMetricFamily(
        "biotrail_io_duration_seconds",
        "From the I/O's beginning to its completion (Q2C).",
        labels=names,
        unit="seconds",
    )
    stages = HistogramMetricFamily(
        "biotrail_io_stage_duration_seconds",
        "Time of an I/O in one stage, such as D2C: with the driver and device.",
        labels=(*names, "stage"),
        unit="seconds",
    )
    known = exemplars or Exemplars()
    for one in io:
        slow = {at: io for (*name, at), io in known.slow.items() if tuple(name) == one.name}
        failed = known.failed.get((one.device, one.operation))
        ios.add_metric(one.name, one.ios)
        size.add_metric(one.name, one.bytes)
        errors.add_metric(one.name, one.failed, exemplar=_exemplar(failed, 1.0))
        doubtful.add_metric(one.name, one.doubtful)
        _add_times(latency, one.name, one.latency, {})
        for stage, times in one.stages.items():
            marked = slow if stage == "D2C" else {}
            _add_times(stages, (*one.name, stage), times, marked)
    yield from (ios, size, errors, doubtful, latency, stages)


def _add_times(
    family: HistogramMetricFamily, labels: tuple[str, ...], times: Times, slow: dict[int, TriggerIO]
) -> None:
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    for bucket, (le, total) in enumerate(zip(LES, accumulate(times.counts), strict=True)):
        io = slow.get(bucket)
        mark = _exemplar(io, io.value / _NS) if io else None
        buckets.append((le, total, mark) if mark else (le, total))
    family.add_metric(labels, buckets, times.sum_ns / _NS)


def _exemplar(io: TriggerIO | None, value: float) -> Exemplar | None:
    """Return an exemplar that names an I/O's log and sector; None where they are too long."""
    if io is None:
        return None
    labels = {"log": io.log, "sector": str(io.sector)}
    if sum(map(len, (*labels, *labels.values()))) > _MOST_EXEMPLAR:
        return None
    return Exemplar(labels, value, io.realtime / _NS)


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    what: str,
    labels: tuple[str, ...],
    values: Values,
) -> Metric:
    """Return a family by its name without prefix and ending. values: by those of its labels."""
    counts_seconds = kind is CounterMetricFamily and name.endswith("_seconds")
    unit = "seconds" if counts_seconds else ""
    family = kind(f"biotrail_{name}", what, labels=labels, unit=unit)
    for place, value in values.items():
        family.add_metric(place, value)
    return family


def _blame(blame: Blame) -> Iterator[Metric]:
    yield _family(
        CounterMetricFamily,
        "blame_seconds",
        "Time that a victim's I/Os waited behind a culprit's.",
        ("victim", "culprit"),
        {both: ns / _NS for both, ns in sorted(blame.behind.items())},
    )
    for name, what, found in (
        ("waited", "Time of a victim's I/Os (Q2C).", blame.waited),
        ("untold", "Of it that of I/Os of which blame cannot tell who slowed them.", blame.untold),
    ):
        times: Values = {(victim,): ns / _NS for victim, ns in sorted(found.items())}
        yield _family(CounterMetricFamily, f"blame_{name}_seconds", what, ("victim",), times)
