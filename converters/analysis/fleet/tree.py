# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet as plain data. Units: ns, bytes, and shares from 0 to 1."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any

from biotrail.converters.analysis.blame.tree import Waited
from biotrail.converters.analysis.diff.figures import Estimate
from biotrail.converters.analysis.diff.tree import Figure
from biotrail.converters.analysis.figures import HIDDEN, Shown, as_json
from biotrail.converters.analysis.report.tree import (
    DepthReport,
    FlushReport,
    OperationReport,
    PatternReport,
)

FORMAT = 2
"""Format number of the JSON. Later versions may add keys without changing the number."""


@dataclass(frozen=True, kw_only=True)
class RecordingFacts:
    host: str
    log_id: str
    files: list[str]
    begin: str | None
    """Wall-clock time of the beginning, UTC; None: not known."""
    span_ns: int
    events: int
    lost_records: int
    interrupted: bool
    damaged_windows: int
    problems: list[str]
    """The first sentences about damage."""
    problem_count: int
    kernel: Annotated[str, HIDDEN] = field(repr=False)
    machine: Annotated[str, HIDDEN] = field(repr=False)
    bytes: Annotated[int, HIDDEN] = field(repr=False)
    """Of its files together."""
    columns: Annotated[dict[str, str], HIDDEN] = field(repr=False)
    """What the user's table says of the host, by column."""
    options: Annotated[dict[str, str], HIDDEN] = field(default_factory=dict, repr=False)
    """How it was recorded: option of `record` → its value (`options_of`)."""
    io_ns: Annotated[int, HIDDEN] = field(default=0, repr=False)
    """Q2C of all bios."""
    said: Annotated[list[dict[str, Any]], HIDDEN] = field(default_factory=list, repr=False)
    """The first sentences of its report, as in that report's JSON."""

    @property
    def complete(self) -> bool:
        """Everything was read, nothing was lost, and the log has an end."""
        return not (
            self.problem_count or self.damaged_windows or self.lost_records or self.interrupted
        )


@dataclass(frozen=True)
class LeftOut:
    file: str
    why: str


@dataclass
class FleetGroup:
    """Figures of the devices of one group: a host, a model, a kernel, or the whole fleet."""

    name: str
    """"" for the whole fleet, and for what was too much to be kept apart (`rest`)."""
    rest: Annotated[bool, Shown(optional=True)]
    """Whether it holds the I/O of all groups past part.MOST_GROUPS."""
    hosts: int
    recordings: int
    devices: int
    span_ns: int
    """Sum of the recordings' lengths; rates are per this time, so they are means of one host."""
    total: OperationReport
    operations: list[OperationReport]
    queue: Annotated[DepthReport, Shown("depth.queue")]
    issued: Annotated[DepthReport, Shown("depth.issued")]
    q2q: Annotated[PatternReport, Shown("pattern.q2q")]
    d2d: Annotated[PatternReport, Shown("pattern.d2d")]
    flushes: FlushReport | None
    events: dict[str, int]


@dataclass
class HostFigure:
    operation: str
    stage: str
    figure: str
    value_ns: Annotated[float | None, Shown(digits="")]


@dataclass
class HostReport:
    host: str
    kernels: list[str]
    models: list[str]
    columns: dict[str, str]
    """What the user's table says of the host, by column."""
    recordings: int
    span_ns: int
    ios: int
    bytes: int
    lost_records: int
    estimates: Annotated[dict[tuple[str, str, str], Estimate], HIDDEN] = field(
        default_factory=dict, repr=False
    )
    figures: list[HostFigure] = field(init=False)
    said: Annotated[list[dict[str, Any]], Shown("verdict")] = field(default_factory=list)
    """The first sentences of the report of one recording, of `said_of`."""
    said_of: Annotated[str, Shown("verdict_of")] = ""
    """Id of the log of the recording with most time of I/O."""
    blame: list[Waited] | None = None

    def __post_init__(self) -> None:
        self.figures = [HostFigure(*key, one.value) for key, one in self.estimates.items()]


@dataclass
class Deviation:
    """A figure of a host (figure.b) beside the median of those of the other hosts (figure.a)."""

    host: str
    operation: str
    peers: int
    spreads: Annotated[float | None, Shown(digits=".3f")]
    """Distance of the host's value from the median of all hosts, on a logarithmic scale, in
    standard deviations as the median absolute deviation estimates them; None: all hosts but a few
    have the same value."""
    figure: Annotated[Figure, Shown(flat=True)]
    outlier: Annotated[bool, HIDDEN] = field(repr=False)
    """Whether the figure changed, and is at least `closing.far_of` spreads away."""


@dataclass
class FleetReport:
    by: str
    total: FleetGroup
    groups: list[FleetGroup]
    """Groups of `by`, those with most bios first."""
    hosts: list[HostReport]
    recordings: Annotated[list[RecordingFacts], HIDDEN] = field(repr=False)
    deviations: Annotated[list[Deviation], HIDDEN] = field(repr=False)
    """Outliers first, those with the largest relative difference first."""
    left_out: list[LeftOut]
    certainty: dict[str, int]
    lost_records: dict[str, int]
    files: int
    """Files in the figures."""
    bytes: int
    events: int
    begin: str | None
    """Wall-clock time when the first of all began, UTC; None: no recording has one."""
    blame: list[Waited] | None = None
    blame_by: str | None = None

    @property
    def unlike_options(self) -> dict[str, dict[str, int]]:
        """Options of `record` that are not the same in all recordings: value → how many of them."""
        names = sorted({name for one in self.recordings for name in one.options})
        found = {n: Counter(one.options.get(n, "no") for one in self.recordings) for n in names}
        return {
            name: dict(values.most_common()) for name, values in found.items() if len(values) > 1
        }

    @property
    def outliers(self) -> list[Deviation]:
        return [one for one in self.deviations if one.outlier]

    @property
    def incomplete(self) -> list[RecordingFacts]:
        """Recordings in which something is missing."""
        return [one for one in self.recordings if not one.complete]


def as_dict(report: FleetReport) -> dict[str, Any]:
    found = as_json(report)
    unlike = report.unlike_options.items()
    return {
        "format": FORMAT,
        **{name: found[name] for name in ("by", "begin")},
        "recordings": len(report.recordings),
        **{name: found[name] for name in ("files", "bytes", "events", "total", "groups", "hosts")},
        "outliers": [as_json(one) for one in report.outliers],
        "compared": len(report.deviations),
        "unlike_options": [{"option": name, "values": values} for name, values in unlike],
        **{name: found[name] for name in ("blame_by", "blame", "certainty", "lost_records")},
        "incomplete": [as_json(one) for one in report.incomplete],
        "left_out": found["left_out"],
    }
