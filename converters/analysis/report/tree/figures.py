# SPDX-License-Identifier: Apache-2.0
"""Figures that all parts of a report are made of: a distribution's, and the times of stages."""

from dataclasses import dataclass

from biotrail.converters.analysis.distributions.sketch import Distribution

SHARES = (0.5, 0.9, 0.99, 0.999)
"""Shares of the percentiles p50, p90, p99 and p99.9."""


@dataclass
class Summary:
    """A distribution's figures, exact except the percentiles; all 0 without values."""

    count: int
    sum: int
    mean: float
    min: int
    p50: int
    p90: int
    p99: int
    p99_9: int
    max: int

    @classmethod
    def of(cls, values: Distribution, *, low: bool = False) -> "Summary":
        """Return the summary of a distribution. low: as in Distribution.percentiles."""
        p50, p90, p99, p99_9 = values.percentiles(SHARES, low=low)
        return cls(
            values.count, values.sum, values.mean, values.min, p50, p90, p99, p99_9, values.max
        )


def with_doubtful(known: Distribution, doubtful: Distribution) -> Summary | None:
    """Return the summary of known latencies with those in doubt in; None where none is."""
    if not doubtful.count:
        return None
    every = Distribution()
    every.merge(known)
    every.merge(doubtful)
    return Summary.of(every)


@dataclass
class StageTimes:
    """Time that the bios or requests of a group spent in one stage."""

    stage: str
    """Name of the stage, as in STAGE_NAMES."""
    share: float
    """Share of the time of all the group's stages, 0 to 1."""
    time: Summary
    """ns."""
    recorder_ns: float | None = None
    """ns of each time that the recorder's own programs took, on average; None: not known."""

    @property
    def recorder_share(self) -> float:
        """Share of the time that the recorder's own programs had, 0 to 1; 0: not known."""
        if self.recorder_ns is None or not self.time.sum:
            return 0.0
        return min(self.recorder_ns * self.time.count / self.time.sum, 1.0)
