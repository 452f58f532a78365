# SPDX-License-Identifier: Apache-2.0
"""What `biotrail metrics` serves, as plain data: the same from the kernel's sums and the model."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from biotrail.recorder.schema.limits import MEASURE_BUCKETS

OTHER = "other"
"""Device or operation of the I/O that has no figures of its own."""


@dataclass(frozen=True)
class Times:
    """A histogram of times. counts: (MEASURE_BUCKETS,), as measure_structs.BOUNDS_NS divides."""

    sum_ns: int
    counts: tuple[int, ...]

    def __add__(self, other: "Times") -> "Times":
        counts = zip(self.counts, other.counts, strict=True)
        return Times(self.sum_ns + other.sum_ns, tuple(a + b for a, b in counts))


NO_TIMES = Times(0, (0,) * MEASURE_BUCKETS)


@dataclass(frozen=True)
class Figures:
    """Sums over the I/O of one device and operation since `metrics` began."""

    device: str
    operation: str
    ios: int = 0
    bytes: int = 0
    failed: int = 0
    latency: Times = NO_TIMES
    """From Q, or the request's start, to the completion."""
    stages: dict[str, Times] = field(default_factory=dict)
    doubtful: int = 0
    """I/Os that completed and are in no times, as their latency is in doubt."""
    labels: tuple[str, ...] = ()

    @property
    def name(self) -> tuple[str, ...]:
        """(device, operation, further labels…)."""
        return self.device, self.operation, *self.labels

    def __add__(self, other: "Figures") -> "Figures":
        names = [*self.stages, *(name for name in other.stages if name not in self.stages)]
        stages = {
            name: self.stages.get(name, NO_TIMES) + other.stages.get(name, NO_TIMES)
            for name in names
        }
        return Figures(
            self.device,
            self.operation,
            self.ios + other.ios,
            self.bytes + other.bytes,
            self.failed + other.failed,
            self.latency + other.latency,
            stages,
            self.doubtful + other.doubtful,
            self.labels,
        )


def by_name(found: Iterable[Figures]) -> list[Figures]:
    """Return figures with one name added up: a device may have taken that of one that is gone."""
    added: dict[tuple[str, ...], Figures] = {}
    for one in found:
        added[one.name] = added[one.name] + one if one.name in added else one
    return [added[name] for name in sorted(added)]


@dataclass(frozen=True)
class Blame:
    """Who waited for whom, ns since `metrics` began."""

    behind: dict[tuple[str, str], int]
    """(victim, culprit) → time that the victim's I/Os waited behind the culprit's."""
    waited: dict[str, int]
    """Victim → time of its I/Os."""
    untold: dict[str, int]
    """Victim → time of its I/Os of which it cannot be told who slowed them."""


@dataclass(frozen=True)
class Reading:
    io: list[Figures]
    lost: dict[str, int]
    """Reason → events that were lost: `ring_full`, or `recursion` of the program."""
    cpu_seconds: dict[str, float]
    """Process (`metrics`, `recorder`) → CPU seconds, without the BPF programs."""
    runs: int = 0
    """Runs of the kernel's program that were timed."""
    run_ns: int = 0
    unseen: int | None = None
    """Completions that the model knows to be missing; None: not known to a sum in the kernel."""
    skipped_ns: int = 0
    """Time that the model has left out because it could not keep up."""
    behind_ns: int | None = None
    """How far the model is behind; None: no model."""
    blame: Blame | None = None
    verdict: dict[str, bool] | None = None
    """Rule of a report's sentences → whether it held in the last minute; None: none is over."""
