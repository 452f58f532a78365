# SPDX-License-Identifier: Apache-2.0
"""Figures of all analyses as plain data, and how JSON has them.

A row is a dataclass whose fields are JSON's keys, in their order; each carries its unit in its
name. A field that JSON has in another way, or does not have, is Annotated with `Shown`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, TypeVar

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.pipeline import Trace

SHARES = (0.5, 0.9, 0.99, 0.999)

Buckets = list[tuple[int, int, int]]
"""(begin, end, count) of each bucket of a histogram; end is excluded."""


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
    histogram: Buckets | None = None

    @classmethod
    def of(cls, values: Distribution, *, low: bool = False, histogram: bool = False) -> "Summary":
        """low: as in Distribution.percentiles."""
        p50, p90, p99, p99_9 = values.percentiles(SHARES, low=low)
        figures = (values.count, values.sum, values.mean, values.min, p50, p90, p99, p99_9)
        return cls(*figures, values.max, values.log2() if histogram else None)


DOUBTFUL = ("count", "mean_ns", "p99_ns")
"""Keys that JSON has of latencies with those in doubt in."""


def with_doubtful(known: Distribution, doubtful: Distribution) -> Summary | None:
    if not doubtful.count:
        return None
    every = Distribution()
    every.merge(known)
    every.merge(doubtful)
    return Summary.of(every)


@dataclass(frozen=True)
class Shown:
    """How JSON has a field: what the type of the field is annotated with."""

    key: str = ""
    """"": the field's name. "depth.queue": `queue` in the dict `depth`."""
    unit: str = "ns"
    """"ns", "bytes" or "", of a Summary: appended to its keys."""
    digits: str = ".6f"
    """Format of a float; "": all its digits."""
    flat: bool = False
    """Whether the keys of a dict, row or Summary stand beside the other fields."""
    optional: bool = False
    """Whether it is left out where it is None, False or an empty list."""
    histogram: bool = False
    """Whether `as_row` gives a Summary its histogram."""
    hidden: bool = False
    only: Collection[str] = ()
    without: Collection[str] = ()
    """Of a row, or of each in a list: the fields that JSON does not have."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Likewise: field → key."""


HIDDEN = Shown(hidden=True)
_PLAIN = Shown()


@dataclass
class StageTimes:
    stage: str
    share: float
    """Share of the time of all the group's stages, 0 to 1."""
    time: Annotated[Summary, Shown(flat=True)]
    recorder_ns: Annotated[float | None, Shown(digits=".3f", optional=True)] = None
    """ns of each time that the recorder's own programs took, on average; None: not known."""

    @property
    def recorder_share(self) -> float:
        """Share of the time that the recorder's own programs had, 0 to 1; 0: not known."""
        if self.recorder_ns is None or not self.time.sum:
            return 0.0
        return min(self.recorder_ns * self.time.count / self.time.sum, 1.0)


def stage_times(
    parts: Mapping[Any, Distribution],
    names: Mapping[Any, str] | Sequence[str],
    whole: int | None = None,
) -> list[StageTimes]:
    """In the order of `names` (part → name), with times. whole: ns of the shares; None: of all."""
    named = names if isinstance(names, Mapping) else {name: name for name in names}
    if whole is None:
        whole = sum(times.sum for times in parts.values())
    return [
        StageTimes(name, times.sum / max(whole, 1), Summary.of(times))
        for part, name in named.items()
        if (times := parts.get(part)) is not None and times.count
    ]


Row = TypeVar("Row")


def as_row(kind: type[Row], sums: Any, /, **more: Any) -> Row:
    """Return a row with what `sums` has under the names of its fields, and with `more`.

    Distributions become summaries, Counters sorted dicts.
    """
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name in more or not one.init or not hasattr(sums, one.name):
            continue
        value, how = getattr(sums, one.name), _shown(one)
        if isinstance(value, Distribution):
            value = Summary.of(value, low=how.unit == "bytes", histogram=how.histogram)
        more[one.name] = dict(sorted(value.items())) if isinstance(value, Counter) else value
    return kind(**more)


def _shown(one: Field[Any]) -> Shown:
    found: Shown = next(iter(getattr(one.type, "__metadata__", ())), _PLAIN)
    return found


def as_json(
    row: Any, without: Collection[str] = (), rename: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """As dicts and lists for json.dumps. without: fields left out. rename: field → key."""
    found: dict[str, Any] = {}
    for one in fields(row):
        how = _shown(one)
        value = getattr(row, one.name)
        if (
            how.hidden
            or one.name in without
            or (how.optional and (value is None or value is False or value == []))
        ):
            continue
        written = _written(value, how)
        if how.flat:
            found |= written
            continue
        *above, key = (how.key or (rename or {}).get(one.name, one.name)).split(".")
        place = found
        for name in above:
            place = place.setdefault(name, {})
        if isinstance(written, dict) and key in place:
            place[key] |= written
        else:
            place[key] = written
    return found


def _written(value: Any, how: Shown) -> Any:
    if isinstance(value, float):
        return float(f"{value:{how.digits}}")
    if isinstance(value, Summary):
        found = summary(value, how.unit)
        return {key: found[key] for key in how.only} if how.only else found
    if is_dataclass(value):
        return as_json(value, how.without, how.rename)
    if isinstance(value, list | tuple):
        return [_written(one, how) for one in value]
    if isinstance(value, Mapping):
        return {str(key): one for key, one in value.items()}
    return value


def summary(values: Summary, unit: str = "ns") -> dict[str, Any]:
    """unit: "ns", "bytes", or ""; appended to each key but count (`p99_ns`).

    Without values all but count and sum are None.
    """
    end = f"_{unit}" if unit else ""
    found: dict[str, Any] = {"count": values.count, f"sum{end}": values.sum}
    for name in ("mean", "min", "p50", "p90", "p99", "p99_9", "max"):
        found[name + end] = getattr(values, name) if values.count else None
    if values.count:
        found[f"mean{end}"] = round(values.mean, 3)
    if values.histogram is not None:
        found["histogram"] = [
            {f"begin{end}": begin, f"end{end}": to, "count": n} for begin, to, n in values.histogram
        ]
    return found


# From when to when a trace was recorded: the time that rates, shares and depths are of.


def extent(trace: Trace) -> tuple[int, int]:
    """Return (begin, end) of the time that a trace's figures are of, in ns (CLOCK_MONOTONIC).

    From when to when it was recorded, or of a cut the part as far as it was read; of a recording
    that does not say, its first and last event. trace: read to its end.
    """
    account = trace.account
    told = trace.says_time or trace.span is not None
    if told and trace.covered is not None:
        return trace.covered
    if account.first_ns < 0:
        return trace.start, trace.start
    return account.first_ns, account.last_ns


def begin_text(trace: Trace) -> str | None:
    """Return where `extent` begins as UTC: `2024-05-01 12:00:00.123456Z`; None: not known."""
    begin, _ = extent(trace)
    return trace.context.wall_clock(begin) if begin > 0 else None
