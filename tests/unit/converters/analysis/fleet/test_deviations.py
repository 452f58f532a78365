# SPDX-License-Identifier: Apache-2.0
"""Which hosts differ from their peers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from biotrail.converters.analysis.diff.figures import Estimate
from biotrail.converters.analysis.fleet.closing import (
    LEAST_PEERS,
    deviations,
    far_of,
    medians_of_others,
    spreads_of,
)
from biotrail.converters.analysis.fleet.tree import HostReport

NAME = ("read", "Q2C", "p99")
DRAWS = 400


def host(name: str, value: float, noise: float, seed: int) -> HostReport:
    draws = value * (1 + noise * np.random.default_rng(seed).standard_normal(DRAWS))
    found = {NAME: Estimate(value, draws, 30)}
    return HostReport(name, [], [], {}, 1, 1, 1, 1, 0, found)


@given(
    arrays(np.float64, st.tuples(st.integers(2, 9), st.integers(1, 3)), elements=st.floats(0, 9))
)
def test_medians_of_others_are_those_of_numpy(values: np.ndarray) -> None:
    # GIVEN any values WHEN each row is left out THEN the median is that of the other rows
    found = medians_of_others(values)
    for row in range(len(values)):
        np.testing.assert_allclose(found[row], np.median(np.delete(values, row, axis=0), axis=0))


def test_a_slow_host_is_an_outlier_and_the_others_are_not() -> None:
    # GIVEN eleven hosts with 1 % of noise around values that differ by 2 %, and one twice as slow
    values = [100_000 * (1 + 0.02 * np.sin(n)) for n in range(11)]
    hosts = [host(f"h{n:02}", value, 0.01, n) for n, value in enumerate(values)]
    hosts.append(host("slow", 200_000, 0.01, 99))
    # WHEN they are compared
    found = deviations(hosts, 0.95)
    # THEN the slow one is the outlier, with its difference and an interval around that
    (outlier,) = [one for one in found if one.outlier]
    assert found[0] is outlier
    assert (outlier.host, outlier.peers) == ("slow", 11)
    figure = outlier.figure
    assert figure.relative_low is not None and figure.relative_high is not None
    assert figure.relative_low < 1.0 < figure.relative_high < 1.2


def test_a_noisy_host_is_no_outlier() -> None:
    # GIVEN alike hosts, one with a higher value whose draws are all over the place
    hosts = [host(f"h{n}", 100_000 + n, 0.01, n) for n in range(9)]
    hosts.append(host("noisy", 130_000, 0.5, 77))
    # WHEN they are compared THEN its interval includes no difference
    assert not [one for one in deviations(hosts, 0.95) if one.outlier]


def test_few_hosts_and_hosts_without_draws_are_not_compared() -> None:
    # GIVEN as many hosts as one needs for peers, and another whose recording is too short
    hosts = [host(f"h{n}", 100_000, 0.01, n) for n in range(LEAST_PEERS)]
    short = HostReport("short", [], [], {}, 1, 1, 1, 1, 0, {NAME: Estimate(5.0)})
    # WHEN they are compared THEN no figure is
    assert deviations([*hosts, short], 0.95) == []


def test_spreads_are_not_known_where_half_of_the_hosts_are_equal() -> None:
    # GIVEN equal hosts but one WHEN spreads are asked for THEN the one has none, the others 0
    assert spreads_of(np.array([5.0, 5.0, 5.0, 9.0])) == [0.0, 0.0, 0.0, None]


@pytest.mark.parametrize("count", [4, 5, 8, 9, 20, 60, 200])
def test_equal_hosts_are_seldom_far(count: int) -> None:
    # GIVEN figures of many fleets of equal hosts, whose logarithms are normal
    draw = np.random.default_rng(count)
    values = np.exp(10 + 0.1 * draw.standard_normal((40_000 // count, count)))
    # WHEN their spreads are asked for / THEN at most two of 1000 are as far as outliers are
    far = [abs(one) >= far_of(count) for fleet in values for one in spreads_of(fleet) if one]
    assert sum(far) / len(far) < 0.002
