# SPDX-License-Identifier: Apache-2.0
"""Whether figures differ by more than runs of one load do: a test on each run's own figures.

Blocks of a recording's time show how a figure varies within that recording. From one run to the
next it varies by more: caches, the place of files, write-back, neighbours. So a change is judged
by runs: each has one value of a figure, and the two sides' logarithms are compared by an analysis
of variance, of which Student's two-sample and paired t tests are special cases.

- Hosts are blocks: a run is compared with runs of its own host, and the differences are averaged.
- Where the runs of the sides alternate, two neighbours are a pair, and pairs are blocks in a second
  test. It finds changes beside a drift that is larger than they are, but has half of the degrees of
  freedom. Both are made at shares of the level that add up to it, so that having two costs nothing
  but that. (To choose one by how much the pairs differ would find changes that are none.)
- Runs of neither side (`--equal`) add to what is known of how runs vary.

The variance is each figure's own. One that is shared by figures (limma's moderated t) takes them
for independent, but those of a run are not: all of them are small by chance at once.

The leading figures (mean Q2C of each device and operation) are each judged by themselves, all
others together, by Benjamini and Hochberg's bound on the false discovery rate.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from biotrail.converters.analysis.diff.tree import Figure
from biotrail.converters.analysis.distributions.sketch import RELATIVE_ERROR

# Student's t distribution, exact for few degrees of freedom, too.

_MOST_TERMS = 300
_TINY = 1e-300


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b); 0 <= x <= 1."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1.0 - _beta(b, a, 1.0 - x)
    # Its continued fraction, by Lentz's method.
    c, d = 1.0, 1.0 / max(abs(1.0 - (a + b) * x / (a + 1.0)), _TINY)
    fraction = d
    for m in range(1, _MOST_TERMS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 + step * d, 1.0 + step / c
            d, c = 1.0 / (d or _TINY), c or _TINY
            fraction *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log += a * math.log(x) + b * math.log1p(-x)
    return math.exp(log) * fraction / a


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


LEAST_RUNS = 3
"""Runs that each side needs, or that must be given as equal ones."""
POWER = 0.9
"""Share of tries in which a change of the size `detectable` is found."""
_SHARE_OF_PAIRS = 0.05
"""Of the level, for the test within pairs."""
_LEAST_FREEDOM = 2
_SMALLEST_ERROR = 1e-9
"""Standard error below which there is none but that of the arithmetic."""
A, B, EQUAL = 0, 1, 2
TOO_FEW_RUNS = f"in fewer than {LEAST_RUNS} runs"


@dataclass
class Run:
    side: int
    """A, B or EQUAL."""
    host: str
    begin: str | None
    """ISO 8601 in UTC; None: not known."""
    values: Mapping[tuple[str, ...], float] = field(default_factory=dict)


@dataclass
class Design:
    runs: Sequence[Run]
    hosts: list[str]
    """Per run, the host that it is compared within; "" for all where the sides share no host."""
    pairs: list[int]
    """Per run, its pair within the host; -1: runs of that host do not alternate."""

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Design":
        on = [{run.host for run in runs if run.side == side} for side in (A, B)]
        shared = bool(on[A] & on[B])
        hosts = [run.host if shared else "" for run in runs]
        pairs = [-1] * len(runs)
        for host in set(hosts):
            members = [n for n, run in enumerate(runs) if hosts[n] == host and run.side != EQUAL]
            # Neighbours in time are pairs if all of them are a run of A and one of B.
            order = [n for _, n in sorted((runs[n].begin or "", n) for n in members)]
            known = all(runs[n].begin is not None for n in members)
            if known and len(order) >= 4 and len(order) % 2 == 0:
                both = list(zip(order[::2], order[1::2], strict=True))
                if all(runs[x].side != runs[y].side for x, y in both):
                    for number, (x, y) in enumerate(both):
                        pairs[x] = pairs[y] = number
        return cls(runs, hosts, pairs)

    @property
    def enough(self) -> bool:
        """Whether changes can be told: LEAST_RUNS on each side, or as many equal ones."""
        counts = [sum(run.side == side for run in self.runs) for side in (A, B, EQUAL)]
        return min(counts[A], counts[B]) >= LEAST_RUNS or counts[EQUAL] >= LEAST_RUNS

    @property
    def one_after_other(self) -> bool:
        """Whether on some host several runs of one side are all before all of the other."""
        for host in set(self.hosts):
            times = [
                [
                    r.begin
                    for r, on in zip(self.runs, self.hosts, strict=True)
                    if on == host and r.side == side and r.begin is not None
                ]
                for side in (A, B)
            ]
            if min(map(len, times)) > 1 and (
                max(times[A]) < min(times[B]) or max(times[B]) < min(times[A])
            ):
                return True
        return False

    def judge(
        self, figure: Figure, keys: tuple[tuple[str, ...], tuple[str, ...]], confidence: float
    ) -> None:
        """keys: the figure's key in runs of A (and equal ones) and in those of B."""
        known = [
            (n, value)
            for n, run in enumerate(self.runs)
            if (value := run.values.get(keys[run.side == B])) is not None
        ]
        sides = [[v for n, v in known if self.runs[n].side == side] for side in (A, B)]
        if not sides[A] or not sides[B]:
            return
        ratio = all(value > 0 for _, value in known)
        scaled = {n: math.log(value) if ratio else value for n, value in known}
        # Runs' geometric mean, or their mean where one of all is not above 0.
        means = [math.fsum(map(math.log, of) if ratio else of) / len(of) for of in sides]
        figure.a, figure.b = map(math.exp, means) if ratio else means
        equal = sum(self.runs[n].side == EQUAL for n in scaled)
        spreads = [
            (one, pairs)
            for pairs in (False, True)
            if (one := self._within(scaled, pairs=pairs)) is not None
            and one[2] >= _LEAST_FREEDOM
            and (one[3] >= LEAST_RUNS or equal >= LEAST_RUNS)
        ]
        if not spreads:
            figure.difference = figure.b - figure.a
            figure.relative = figure.difference / figure.a if figure.a else None
            figure.why = TOO_FEW_RUNS
            return
        error = 0.0  # by the buckets of percentiles, of which those up to 256 ns are a ns wide
        if figure.name.startswith("p") and figure.unit == "ns":
            error = sum(max(1.0, RELATIVE_ERROR * one) for one in (figure.a, figure.b))
            error = error / min(figure.a, figure.b) if ratio else error
        tested = []
        for (effect, error_of_effect, freedom, _), pairs in spreads:
            share = (_SHARE_OF_PAIRS if pairs else 1 - _SHARE_OF_PAIRS) if spreads[1:] else 1.0
            off = max(error_of_effect, _SMALLEST_ERROR)
            p = t_beyond(max(abs(effect) - error, 0.0) / off, freedom) / share
            half = student_t(1 - share * (1 - confidence) / 2, freedom) * off + error
            tested.append((p, half, half + student_t(POWER, freedom) * off, pairs, effect))
        p, half, _, figure.paired, effect = min(tested)
        figure.p = min(p, 1.0)
        found = min(found for _, _, found, *_ in tested)
        low, high = effect - half, effect + half
        figure.differs, figure.why = low > 0 or high < 0, None
        a = figure.a
        if ratio:
            figure.relative, figure.relative_low, figure.relative_high, figure.detectable = (
                math.expm1(min(log, 700.0)) for log in (effect, low, high, found)
            )
            figure.difference, figure.difference_low, figure.difference_high = (
                a * one for one in (figure.relative, figure.relative_low, figure.relative_high)
            )
            return
        figure.difference, figure.difference_low, figure.difference_high = effect, low, high
        figure.relative = figure.relative_low = figure.relative_high = None
        if a:
            shares = effect / a, low / a, high / a
            figure.relative, figure.relative_low, figure.relative_high = shares

    def _within(
        self, values: Mapping[int, float], *, pairs: bool
    ) -> tuple[float, float, int, int] | None:
        """Return a difference B - A within blocks: (effect, standard error, freedom, runs).

        runs: of A, or of B if there are fewer, in blocks that have both. None: no block (host, or
        pair of runs that alternate) has both sides.
        """
        if pairs and not any(self.pairs[n] >= 0 for n in values):
            return None
        blocks: dict[tuple[str, int], list[list[float]]] = defaultdict(lambda: [[], [], []])
        for n, value in values.items():
            side = self.runs[n].side
            pair = self.pairs[n] if pairs and side != EQUAL else -1
            blocks[self.hosts[n], pair][side].append(value)
        squares, freedom, effects = 0.0, 0, []
        used = [0, 0]
        for groups in blocks.values():
            for group in filter(None, groups):
                middle = math.fsum(group) / len(group)
                squares += math.fsum((one - middle) ** 2 for one in group)
                freedom += len(group) - 1
            a, b = groups[A], groups[B]
            if a and b:
                weight = len(a) * len(b) / (len(a) + len(b))
                effects.append((math.fsum(b) / len(b) - math.fsum(a) / len(a), weight))
                used = [used[A] + len(a), used[B] + len(b)]
        if not effects:
            return None
        whole = math.fsum(weight for _, weight in effects)
        effect = math.fsum(one * weight for one, weight in effects) / whole
        squares += math.fsum(weight * (one - effect) ** 2 for one, weight in effects)
        freedom += len(effects) - 1
        error = math.sqrt(squares / freedom / whole) if freedom else 0.0
        return effect, error, freedom, min(used)


def mark(figures: Iterable[Figure], confidence: float) -> None:
    """Set `changed` of the figures that have a `p`.

    Leading ones by their own p, others by Benjamini and Hochberg's procedure, so that the expected
    share of marks that nothing stands behind is 1 - confidence at most.
    """
    level = 1 - confidence
    tested = [one for one in figures if one.p is not None]
    others = sorted(one.p or 0.0 for one in tested if not one.leading)
    kept = [p for rank, p in enumerate(others, 1) if p <= level * rank / len(others)]
    bound = max(kept, default=-1.0)
    for one in tested:
        one.changed = one.p is not None and (one.p < level if one.leading else one.p <= bound)
