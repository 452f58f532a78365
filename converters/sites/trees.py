# SPDX-License-Identifier: Apache-2.0
"""The tree of one life: contexts in order of time, and in each the functions that were passed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.frames import ContextKind


class NodeKind(IntEnum):
    """What a node of a tree is."""

    FRAME = 0
    """A function that is known from stacks alone: its times are those of what is below it."""
    FUNCTION = 1
    """A function with its entry: a span."""
    EVENT = 2
    """A tracepoint."""
    RETURN = 3
    """A function's return whose entry is not recorded."""


class Finish(IntEnum):
    """Why a span has no end."""

    RETURNED = 0
    """It has one: its return was recorded."""
    LOG_ENDED = 1
    """The log ended before it returned."""
    AFTER_DEATH = 2
    """The object was followed no more when it returned."""
    LOST = 3
    """Records were lost during the life: its return may be among them."""
    MISSING = 4
    """Its return is not recorded, though later hits show that it did return, or the life's end."""


FINISH_NAMES = {
    Finish.RETURNED: "returned",
    Finish.LOG_ENDED: "the log ended",
    Finish.AFTER_DEATH: "the life ended in it",
    Finish.LOST: "records were lost",
    Finish.MISSING: "its return is not recorded",
}


class Ending(IntEnum):
    """How a life ended."""

    DIED = 0
    """A hit that ends it."""
    LOG_ENDED = 1
    """It goes on at the log's end, as far as is known."""
    REUSED = 2
    """Its end is not recorded: the address was used again."""
    NO_ROOM = 3
    """Too many hits were waiting for their lives' ends; this life's were the oldest."""


ENDING_NAMES = {
    Ending.DIED: "ended",
    Ending.LOG_ENDED: "no end by the log's end",
    Ending.REUSED: "its address was used again",
    Ending.NO_ROOM: "no room to wait for its end",
}


@dataclass(slots=True)
class Node:
    """A function or tracepoint of a tree. Times in ns of CLOCK_MONOTONIC."""

    kind: NodeKind
    name: str
    module: str
    """"": the kernel itself."""
    context: int
    """Number of its context in the life."""
    parent: int
    """Index of the node above in `Life.nodes`; -1: outermost in its context."""
    depth: int
    """Number of nodes above."""
    begin: int
    """Entry, or the tracepoint; of a frame the first time below it."""
    end: int
    """Return; of a tracepoint its time; of a frame the last time below it; NEVER: not known."""
    cpu: int
    """CPU of the entry, or of the tracepoint."""
    cpu_end: int
    """CPU of the return."""
    seen: int
    """The last time that the life was seen in it: at most its end."""
    hit: int = -1
    """Index in the life's hits of the entry or tracepoint; -1: a frame."""
    value: int = 0
    """What it returned."""
    inner: int = 0
    """ns in followed functions that it called, and in interrupts on top of it."""
    finish: Finish = Finish.RETURNED
    path: int = -1
    """Number of frames of the stack above the function; -1: its entry has no stack."""
    below: list[int] = field(default_factory=list)
    """Indices of the nodes directly below, in order of time."""

    @property
    def took(self) -> int:
        """Time from entry to return (ns); NEVER without one, 0 of a tracepoint."""
        return NEVER if self.end == NEVER else self.end - self.begin

    @property
    def own(self) -> int:
        """Time in the function itself (ns): without `inner`; NEVER where `took` is not known."""
        return NEVER if self.end == NEVER else max(self.end - self.begin - self.inner, 0)


@dataclass(slots=True, eq=False)
class ContextRun:
    """A run of a life's hits in one thread, softirq or interrupt."""

    number: int
    """From 0, in the order of their begins."""
    kind: ContextKind
    what: str
    """As `frames.Path.what`."""
    tid: int
    """Thread that ran or, in an interrupt, that was interrupted; 0: the idle task."""
    comm: str
    """That thread's name."""
    cpus: list[int]
    """CPUs of its hits, in the order of the first on each."""
    begin: int
    end: int
    """Time of its last hit."""
    on_top: int = -1
    """Number of the life's context that it interrupted; -1: none."""
    roots: list[int] = field(default_factory=list)
    """Indices of its outermost nodes in `Life.nodes`, in order of time."""


@dataclass(slots=True)
class Life:
    """One life of a followed object, with its tree."""

    number: int
    """`HIT.life`, from 1 on."""
    object: int
    """Address."""
    first: int
    """Time of its first hit."""
    last: int
    """Time of its last hit."""
    born: int
    """Time of its birth; NEVER: not recorded."""
    ended: int
    """Time of its death; NEVER: see `ending`."""
    ending: Ending
    detail: int
    """Of its first hit that has one, as later ones may tell what is left of it; 0: none has."""
    contexts: list[ContextRun]
    nodes: list[Node]
    hits: int
    """Number of its hits in the tree."""
    node_of: list[int]
    """Per hit: index of its node in `nodes`."""
    alone: int = 0
    """Returns whose entry is not recorded."""
    unfinished: int = 0
    """Functions whose return is not recorded."""
    left_out: int = 0
    """Hits beyond the most that a life may have."""
    cut: bool = False
    """Whether the recorder had no room for some of its hits (`follow --slower`)."""
    lost: bool = False
    """Whether records were lost during the life."""
    unknown_stacks: int = 0
    """Hits whose stack is not in the log."""

    @property
    def begin(self) -> int:
        """Birth, or else the first hit."""
        return self.first if self.born == NEVER else self.born

    @property
    def took(self) -> int:
        """Time from birth to death (ns); NEVER where one of them is not recorded."""
        return NEVER if NEVER in (self.born, self.ended) else self.ended - self.born

    @property
    def span(self) -> int:
        """Time from birth, or the first hit, to death, or the last hit (ns)."""
        return (self.last if self.ended == NEVER else self.ended) - self.begin

    @property
    def has_functions(self) -> bool:
        """Whether the tree has functions with times of their own."""
        return any(node.kind == NodeKind.FUNCTION for node in self.nodes)

    def walk(self, roots: list[int]) -> Iterator[Node]:
        """Yield the nodes at `roots` and all below, depth first, in order of time."""
        rest = list(reversed(roots))
        while rest:
            node = self.nodes[rest.pop()]
            yield node
            rest += reversed(node.below)
