# SPDX-License-Identifier: Apache-2.0
"""Student's t distribution, exact for few degrees of freedom, too."""

import math
from functools import lru_cache

_MOST_TERMS = 300
_TINY = 1e-300


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (Lentz's method)."""
    c, d = 1.0, 1.0 / max(abs(1.0 - (a + b) * x / (a + 1.0)), _TINY)
    product = d
    for m in range(1, _MOST_TERMS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 + step * d, 1.0 + step / c
            d, c = 1.0 / (d or _TINY), c or _TINY
            product *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return product


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b); 0 <= x <= 1."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1.0 - _beta(b, a, 1.0 - x)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log += a * math.log(x) + b * math.log1p(-x)
    return math.exp(log) * _beta_fraction(a, b, x) / a


def t_beyond(t: float, freedom: int) -> float:
    """Return the probability of a t at least as far from 0; freedom: at least 1."""
    return _beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=1024)
def student_t(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution. probability: above 0 and below 1."""
    if probability < 0.5:
        return -student_t(1 - probability, freedom)
    wanted, low, high = 2 * (1 - probability), 0.0, 2.0
    while t_beyond(high, freedom) > wanted:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_beyond(middle, freedom) > wanted else (low, middle)
    return high
