# SPDX-License-Identifier: Apache-2.0
"""A comparison of two recordings as plain data. Units: ns, bytes, and shares from 0 to 1."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from biotrail.converters.analysis.figures import DOUBTFUL, Shown, Summary, as_json

Named = tuple[str, ...]

FORMAT = 2
"""Format number of the JSON. Later versions may add keys without changing the number."""


@dataclass
class Figure:
    """One figure of both recordings. low, high: bounds of the confidence intervals."""

    of: str
    """"bios", "requests", "device", "calls", "pairs", or "blame"."""
    stage: str | None
    """Stage of a time or depth: "Q2C", "Q2G", …, or "all" (the whole time of a request, call or
    pair), or a part of calls' time ("running", "own_io", …), or of a victim's ("own service",
    "behind NAME", …); else None."""
    name: str
    """Name of the figure: ios_per_s, mean, p99, …"""
    unit: str
    """"1/s", "bytes/s", "bytes", "ns", "share", or "" for plain numbers."""
    a: float | None
    """Value in A; None: A has no such I/O."""
    b: float | None
    """Value in B; None: B has no such I/O."""
    difference: float | None = None
    """b - a; None where either is None."""
    difference_low: float | None = None
    difference_high: float | None = None
    relative: float | None = None
    """(b - a) / a; None where a is 0, or difference is None."""
    relative_low: float | None = None
    relative_high: float | None = None
    differs: bool | None = None
    """Whether the intervals of the difference and of the relative difference exclude 0; None:
    there is no interval. Of one recording a side: these two differ, which is all that is known."""
    why: str | None = None
    """Why there is no interval; None if there is one."""
    leading: bool = False
    """Whether it is judged by itself (mean Q2C of a device's operation); the others together."""
    p: Annotated[float | None, Shown(digits=".6g")] = None
    """Probability of a difference as large between runs of one load; None: not tested."""
    changed: bool | None = None
    """Whether it differs by more than runs do (`runs.mark`); None: that cannot be told."""
    paired: bool = False
    """Whether the test within pairs of neighbouring runs tells more than that of all runs."""
    detectable: float | None = None
    """Relative change that would be found in runs.POWER of tries, by itself; None: not known."""
    recorder_a: float | None = None
    """ns of a mean's stage that the recorder's own programs took in A; None: not known, or none."""
    recorder_b: float | None = None
    by_recorder: bool = False
    """Whether the means of its stage differ by no more than the recorder's own programs do
    (`diff.set_aside`): then it is not told whether it changed."""

    @property
    def marked(self) -> bool:
        """Whether it changed or, where that cannot be told, differs."""
        return bool(self.differs if self.changed is None else self.changed)

    @property
    def what(self) -> "Named":
        """What tells it apart from others of the same operation, call or pair."""
        return (self.of, self.stage or "", self.name)


@dataclass
class OperationDiff:
    operation: str
    ios_a: int
    ios_b: int
    figures: list[Figure]
    doubtful_a: int = 0
    """Bios of A whose latency is in doubt; they are in no figure of times."""
    doubtful_b: int = 0
    with_doubtful_a: Annotated[Summary | None, Shown(only=DOUBTFUL, optional=True)] = None
    """A's latencies of bios (ns) with those in doubt in; None where none is."""
    with_doubtful_b: Annotated[Summary | None, Shown(only=DOUBTFUL, optional=True)] = None


@dataclass
class DeviceDiff:
    device_a: str
    device_b: str
    figures: list[Figure]
    """Figures of the device as a whole: bios and requests in flight."""
    operations: list[OperationDiff]


@dataclass
class CallDiff:
    call: str
    io: bool
    """Whether the calls queued bios or waited for I/O; the others are there for taking long."""
    count_a: int
    count_b: int
    figures: list[Figure]


@dataclass
class PairDiff:
    pair: str
    by: str
    """Value of --by as text; "": all pairs of that name."""
    count_a: int
    count_b: int
    figures: list[Figure]


@dataclass
class BlameDiff:
    """A victim's I/Os compared: their mean, and what each part of their time adds to it."""

    victim: str
    ios_a: int
    ios_b: int
    share: float
    """Of the time of all victims, 0 to 1, each on the side where it is longer."""
    figures: list[Figure]
    """The whole (stage "Q2C") first; the others add up to it, with those left out."""
    left_out: int
    """Parts that are not compared, as they are small."""


@dataclass
class SideReport:
    log_id: str
    host: str
    kernel: str
    begin: str | None
    """Wall-clock time of the beginning, ISO 8601 in UTC; None: not known."""
    span_ns: int
    """Length of the recorded time (`figures.extent`)."""
    block_ns: int
    """Length of the blocks that were drawn; 0: the recording is too short for intervals."""
    blocks: int
    """Blocks in a draw; 0: the recording is too short for intervals."""
    lost_records: int
    left_out: int
    """Bios and requests of devices and operations past those that are kept (Slots.left_out)."""
    calls_ns: int = 0
    """Time in which calls were timed; 0: they were not."""
    calls_left_out: int = 0
    """Calls of names past those that are kept (Slots.calls_left_out)."""
    pairs_left_out: int = 0
    """Pairs of values of --by past those that are kept (Slots.pairs_left_out)."""
    runs: int = 1
    """Recordings; the files of a rotated one count once."""
    options: dict[str, list[str]] = field(default_factory=dict)
    """How it was recorded: an option of `record` → its value in each run, equal ones once."""


@dataclass
class Diff:
    confidence: float
    draws: int
    seed: int
    a: SideReport
    b: SideReport
    devices: list[DeviceDiff]
    only_a: list[str] = field(default_factory=list)
    """Devices with I/O in A only; empty if the devices to compare were given."""
    only_b: list[str] = field(default_factory=list)
    """Devices with I/O in B only; empty likewise."""

    calls: list[CallDiff] = field(default_factory=list)
    """System calls by name, those with most time first; empty unless both sides timed calls."""

    pairs: list[PairDiff] = field(default_factory=list)
    """Pairs of events of names that both sides have; empty without."""

    blame: list[BlameDiff] = field(default_factory=list)
    """Who waited for whom, victims with most time first; empty unless that was asked for."""

    blame_by: str | None = None
    """What victims and culprits are; None: it was not asked for."""

    equal: int = 0
    """Runs of one load that were given to show how much runs differ."""
    by_runs: bool = False
    """Whether changes are told, by runs; False: that these recordings differ is all that is."""
    one_after_other: bool = False
    """Whether several runs of one side are all before those of the other (Design)."""

    def named(self) -> Iterator[tuple[Named, Named, Figure]]:
        """Yield (its name in A, in B, figure), which tell figures apart within a side."""
        for device in self.devices:
            ends = device.device_a, device.device_b
            for operation, figures in (
                ("", device.figures),
                *((one.operation, one.figures) for one in device.operations),
            ):
                a, b = (("device", end, operation) for end in ends)
                yield from (((*a, *f.what), (*b, *f.what), f) for f in figures)
        others = (
            *((("calls", call.call, str(call.io)), call.figures) for call in self.calls),
            *((("pairs", pair.pair, pair.by), pair.figures) for pair in self.pairs),
            *((("blame", one.victim), one.figures) for one in self.blame),
        )
        for of, figures in others:
            yield from (((*of, *f.what), (*of, *f.what), f) for f in figures)

    def figures(self) -> list[Figure]:
        return [figure for _, _, figure in self.named()]

    @property
    def compared(self) -> int:
        """With an interval."""
        return sum(f.differs is not None for f in self.figures())

    @property
    def differing(self) -> int:
        """Whose intervals exclude 0."""
        return sum(f.differs is True for f in self.figures())

    @property
    def unlike_options(self) -> dict[str, tuple[list[str], list[str]]]:
        """Options of `record` with their values in A and in B, where these are not one and same."""
        names = dict.fromkeys([*self.a.options, *self.b.options])
        both = {n: (self.a.options.get(n, []), self.b.options.get(n, [])) for n in names}
        return {n: (a, b) for n, (a, b) in both.items() if a != b or len(a) > 1}


def as_dict(diff: Diff) -> dict[str, Any]:
    found = as_json(diff)
    sides = {}
    for name, side in (("a", diff.a), ("b", diff.b)):
        options = [{"option": option, "values": of} for option, of in side.options.items()]
        facts = as_json(side, without=("log_id", "runs", "options"))
        sides[name] = {"id": side.log_id, "runs": side.runs, "options": options, **facts}
    return {
        "format": FORMAT,
        "confidence": diff.confidence,
        "draws": diff.draws,
        "seed": diff.seed,
        **sides,
        "equal": diff.equal,
        "by_runs": diff.by_runs,
        "one_after_other": diff.one_after_other,
        "unlike_options": [
            {"option": name, "a": a, "b": b} for name, (a, b) in diff.unlike_options.items()
        ],
        "compared": diff.compared,
        "differing": diff.differing,
        "tested": sum(one.changed is not None for one in diff.figures()),
        "changed": sum(one.changed is True for one in diff.figures()),
        **{key: found[key] for key in ("only_a", "only_b", "devices", "calls", "pairs")},
        "blame_by": diff.blame_by,
        "blame": found["blame"],
    }
