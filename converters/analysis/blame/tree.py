# SPDX-License-Identifier: Apache-2.0
"""What blame found, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from biotrail.converters.analysis.figures import HIDDEN, Shown


class Kind(StrEnum):
    SERVICE = "own service"
    """What I/O of the class takes without company, and all of I/O that was without."""
    OWN = "own other I/O"
    """Waiting behind other I/O of the victim itself."""
    OTHER = "other I/O"
    """Waiting behind I/O of another party, the culprit."""
    DEVICE = "device alone"
    """I/O that took ten times as long though nothing else was there, and negative sums."""
    UNKNOWN = "unknown"
    """Others' I/O was there, and whether it mattered cannot be told."""
    RUNNING = "running"
    """Of calls: on a CPU."""
    CPU = "CPU"
    """Of calls: ready to run, without a CPU."""
    LIMIT = "limit"
    """Of calls: held back by the I/O limit of a cgroup."""
    JOURNAL = "journal"
    """Of calls: waiting for a commit, where no I/O explains it."""
    WAITING = "waiting"


OTHERS = "(others)"


@dataclass
class Part:
    kind: Kind
    culprit: str | None
    wait_ns: int


def parts_of(
    service: int, own: int, behind: Mapping[str, int], device: int, unknown: int
) -> list[Part]:
    """Return the parts of a victim's time, ns, none of them negative but own service.

    A negative sum goes to the device, and from there to own service: what others had in front of
    the device cannot make it faster than it is without them. behind: culprit → ns, of OTHER.
    """
    device += sum(min(ns, 0) for ns in (own, unknown, *behind.values()))
    service += min(device, 0)
    order = sorted(behind, key=lambda name: (name == OTHERS, -behind[name], name))
    parts = [
        Part(Kind.SERVICE, None, service),
        Part(Kind.OWN, None, max(own, 0)),
        *(Part(Kind.OTHER, name, behind[name]) for name in order if behind[name] > 0),
        Part(Kind.DEVICE, None, max(device, 0)),
        Part(Kind.UNKNOWN, None, max(unknown, 0)),
    ]
    return [part for part in parts if part.wait_ns or part.kind == Kind.SERVICE]


@dataclass
class Without:
    culprit: str
    mean_ns: Annotated[float, Shown(digits=".1f")]
    between_ns: Annotated[tuple[float, float] | None, Shown("mean_between_ns", digits=".1f")]
    """95 % interval of the mean; None: the log is too short for one."""
    p99_ns: int | None
    """None: where others have more than a third of the blame, or too few I/Os were without it."""
    rests_on: Annotated[int, Shown("base_ios")]
    """I/Os without company from which the base comes."""


@dataclass(kw_only=True)
class Waited:
    name: str
    ios: int
    wait_ns: int
    mean_ns: Annotated[float, Shown(digits=".1f")] = field(init=False)
    parts: list[Part]
    small_ns: Annotated[int, Shown("cannot_tell_ns")] = 0
    """Time of I/Os of which it cannot be told who slowed them."""

    def __post_init__(self) -> None:
        self.mean_ns = self.wait_ns / self.ios if self.ios else 0.0


@dataclass(kw_only=True)
class Victim(Waited):
    p99_ns: int
    without: list[Without]
    doing: Annotated[dict[str, str], HIDDEN] = field(default_factory=dict, repr=False)
    """Culprit → operation in which most of its time with the devices is."""


@dataclass
class CallVictim:
    name: str
    call: str
    calls: int
    wait_ns: int
    mean_ns: Annotated[float, Shown(digits=".1f")] = field(init=False)
    parts: list[Part]

    def __post_init__(self) -> None:
        self.mean_ns = self.wait_ns / self.calls if self.calls else 0.0


@dataclass
class State:
    count: int
    mean_ns: Annotated[float, Shown(digits=".1f")]


@dataclass
class Share:
    """A share of the time that a victim took while the suspect ran, by how much less there is."""

    share: Annotated[float, Shown(digits=".4f")]
    between: Annotated[tuple[float, float] | None, Shown("share_between", digits=".4f")]
    """95 % interval; None: too few periods for one."""


@dataclass
class Truth:
    """What stopping the suspect gave a victim, and what blame says of it."""

    name: str
    running: Annotated[State, Shown(rename={"count": "ios"})]
    standing: Annotated[State, Shown(rename={"count": "ios"})]
    truth: Annotated[Share, Shown(flat=True)]
    blamed: Annotated[float | None, Shown(digits=".4f")]
    """Share that blame gives the suspect; None: it names nobody who is the suspect, or cannot tell
    of a hundredth of the victim's time or more."""


@dataclass
class CallTruth:
    """What stopping the suspect gave a victim's calls; CPU: running and waiting for a CPU."""

    name: str
    call: str
    running: Annotated[State, Shown(rename={"count": "calls"})]
    standing: Annotated[State, Shown(rename={"count": "calls"})]
    truth: Annotated[Share, Shown(flat=True)]
    cpu: Share
    waits: Share
    blamed: Annotated[float | None, Shown(digits=".4f")]


@dataclass
class Experiment:
    name: str
    label: str
    parties: Annotated[tuple[str, ...], Shown("culprits")]
    """Culprits that are the suspect, or mostly."""
    with_others: Annotated[tuple[str, ...], Shown("culprits_with_others")]
    """Those of them that others are called, too."""
    idle: bool
    """The suspect had no I/O: nobody can be blamed for what it costs others."""
    periods: int = 0
    wanted: Annotated[int, Shown("periods_wanted")] = 0
    """Periods that were asked for: others had stopped it, it did not stand soon, or all ended."""
    stood_ns: int = 0
    left_out: Annotated[int, Shown("left_out_ios")] = 0
    """I/Os asked for that are not in the matrix: the suspect stood, or had just begun or stopped
    to."""
    few: Annotated[int, Shown("too_few")] = 0
    """Victims, and their calls, with too few I/Os or calls in one of the states."""
    victims: list[Truth] = field(default_factory=list)
    calls: list[CallTruth] = field(default_factory=list)


BASES = ("stretch", "log", "substitute")


@dataclass
class Blamed:
    victim_by: Annotated[str, Shown("by.victim")]
    culprit_by: Annotated[str, Shown("by.culprit")]
    victims: list[Victim]
    """By time, the most first; those past a limit are one, OTHERS."""
    calls: list[CallVictim] = field(default_factory=list)
    ios: int = 0
    unknown: Annotated[int, Shown("left_out.time_not_known")] = 0
    upper: Annotated[int, Shown("left_out.of_upper_devices")] = 0
    without_end: Annotated[int, Shown("left_out.requests_without_end")] = 0
    forgotten: Annotated[int, Shown("too_long_ago")] = 0
    named: Annotated[bool, Shown("everybody_recorded")] = True
    """Whether each request could have a party: the recording had no filter by I/O."""
    stretch_ns: Annotated[int, Shown("bases.stretch_ns")] = 0
    based: Annotated[dict[str, int], Shown("bases")] = field(default_factory=dict)
    """How many I/Os have a base of their stretch of time, of the log, and of a substitute: BASES.
    """
    shared: Annotated[list[str], Shown("devices_on_the_cpus")] = field(default_factory=list)
    """Devices that are programs on the same CPUs, of which blame cannot tell."""
    experiment: Experiment | None = None
