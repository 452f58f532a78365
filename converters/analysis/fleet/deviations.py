# SPDX-License-Identifier: Apache-2.0
"""Which hosts differ from their peers, and by how much, with the intervals of `diff`.

Each figure of a host is compared with the median of the other hosts' by `diff`'s own comparison:
their draws are resampled blocks of each recording's time. That alone says whether a difference is
more than the noise of a recording. Hosts of a fleet differ from each other, however, and after
days of recording each does so surely; so an outlier must be far away as well, compared with how
far hosts are apart from each other: by Iglewicz and Hoaglin's modified z-score, of logarithms.
"""

from collections.abc import Sequence

import numpy as np

from biotrail.converters.analysis.diff.bootstrap import F64
from biotrail.converters.analysis.diff.figures import Estimate, compare
from biotrail.converters.analysis.fleet.tree import Deviation, HostReport

LEAST_PEERS = 3
"""Other hosts that a host must have to be compared."""
_FAR = {
    **{5: 29.0, 7: 13.4, 9: 9.1, 11: 7.3, 13: 6.4, 17: 5.3, 20: 4.9, 32: 4.2, 50: 3.8, 100: 3.5},
    **{4: 29.0, 6: 13.4, 8: 9.1, 10: 7.3, 12: 6.4, 16: 5.3},
}
"""Hosts → spreads from the median which one of 1000 values of equal hosts is beyond.

Of normal values, by simulation. Iglewicz and Hoaglin's 3.5 is that of a hundred: of eight, whose
median absolute deviation may be small by chance, one of 43 values is beyond 3.5.
"""
_MAD = 1.4826
"""Standard deviation of normal values by their median absolute deviation."""


def deviations(hosts: Sequence[HostReport], confidence: float) -> list[Deviation]:
    """Return each figure of each host beside the median of its peers; outliers first.

    Only hosts with draws are compared: recordings that are too short, or have too few I/Os, have
    none. Figures of fewer than LEAST_PEERS + 1 such hosts are left out. Sorted by
    `outlier`, then by the relative difference, the largest first. confidence: of the intervals,
    0 to 1.
    """
    names = sorted({name for host in hosts for name in host.estimates})
    found = [one for name in names for one in _of_figure(name, hosts, confidence)]
    return sorted(
        found,
        key=lambda d: (not d.outlier, -abs(d.figure.relative or 0.0), d.host, d.operation),
    )


def _of_figure(
    name: tuple[str, str, str], hosts: Sequence[HostReport], confidence: float
) -> list[Deviation]:
    """Return the comparison of one figure for all hosts that have it with draws.

    name: (operation, stage, figure).
    """
    operation, stage, figure = name
    given = [
        (host, one) for host in hosts if (one := host.estimates.get(name)) and one.draws is not None
    ]
    if len(given) <= LEAST_PEERS:
        return []
    values = np.array([one.value for _, one in given], dtype=np.float64)
    medians = medians_of_others(values[:, None])[:, 0].tolist()
    draws = medians_of_others(np.stack([np.asarray(one.draws, np.float64) for _, one in given]))
    blocks = min(one.blocks for _, one in given)
    spreads = spreads_of(values)
    found = []
    for row, (host, own) in enumerate(given):
        peers = Estimate(medians[row], draws[row], blocks, own.error)
        compared = compare(("bios", stage, figure, "ns"), peers, own, confidence)
        far = spreads[row]
        compared.changed = compared.differs  # hosts, not runs: being far is the second test
        outlier = compared.changed is True and (far is None or abs(far) >= far_of(len(given)))
        found.append(Deviation(host.host, operation, len(given) - 1, far, compared, outlier))
    return found


def medians_of_others(values: F64) -> F64:
    """Return for each row and column the median of that column's other rows: (n, k).

    values: float64 (n, k), n at least 2. NaN counts as the largest value. Each column is sorted
    once, so that it takes n log n.
    """
    n = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(n)[:, None], axis=0)
    low, high = (n - 2) // 2, (n - 1) // 2  # of the n - 1 others

    def without(place: int) -> F64:
        """Return the value at a place among the others, for each row."""
        at = np.where(rank <= place, place + 1, place)
        return np.asarray(np.take_along_axis(ordered, at, axis=0))

    return (without(low) + without(high)) / 2


def far_of(hosts: int) -> float:
    """Return the spreads from which on a figure of one of so many hosts is an outlier."""
    return float(np.interp(hosts, sorted(_FAR), [_FAR[one] for one in sorted(_FAR)]))


def spreads_of(values: F64) -> list[float | None]:
    """Return how far each host is from the median of all, in spreads of their logarithms: (n,).

    values: ns (n,); 0 counts as 1. None: no spread is known, because half of the hosts or more
    have the same value, and this one has another.
    """
    logs = np.log(np.maximum(values, 1.0))
    away = logs - np.median(logs)
    spread = _MAD * float(np.median(np.abs(away)))
    if spread > 0:
        return [float(one) for one in away / spread]
    return [None if one else 0.0 for one in away.tolist()]
