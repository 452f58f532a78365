# SPDX-License-Identifier: Apache-2.0
"""Figures of `biotrail metrics` by hand, and the registry that serves them."""

from prometheus_client import CollectorRegistry

from biotrail.cli.measuring.exposition import Exposition
from biotrail.cli.measuring.figures import OTHER, Blame, Cost, Figures, Losses, Reading, Times
from biotrail.cli.measuring.flight_logs import Exemplars, bucket_of
from biotrail.cli.measuring.kernel import Counts
from biotrail.recorder.schema.limits import MEASURE_BUCKETS

SLOW_NS = 5_000_000


def spread(*ns: int) -> Times:
    """A histogram of these times."""
    found = [0] * MEASURE_BUCKETS
    for one in ns:
        found[bucket_of(one)] += 1
    return Times(sum(ns), tuple(found))


READ = Figures("sda", "read", 3, 12288, 1, spread(500, 2000, SLOW_NS), {"D2C": spread(SLOW_NS)})
READING = Reading(
    [READ, Figures(OTHER, OTHER, 7)],
    Losses({"recursion": 2}, 4, 1_500_000_000),
    Cost({"metrics": 0.5}, 10, 2000),
    250_000_000,
    Blame({("db", "backup"): 1_500_000_000, ("db", OTHER): 0}, {"db": 4_000_000_000}, {"db": 0}),
    {"waits": True, "failed": False},
)


class Known:
    """A Source of one reading."""

    def read(self) -> Reading:
        return READING


def exposed(exemplars: Exemplars | None = None) -> CollectorRegistry:
    def of_kernel(names: object) -> list[Counts]:
        return [Counts("sda", {"read": 1, "write": 0}, {"read": 9})]

    found = (lambda: exemplars) if exemplars else None
    return Exposition(Known(), {"version": "1"}, of_kernel, found).registry()
