# SPDX-License-Identifier: Apache-2.0
"""The tree of one life, from its hits: spans by entries and returns, frames above by stacks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.sites.lives import Gatherer, LifeHits, Tally, Wanted
from biotrail.converters.sites.tables import Following, HitRows, Site
from biotrail.converters.sites.trees import (
    LEAVING,
    ContextKind,
    ContextRun,
    Ending,
    Finish,
    Life,
    Node,
    NodeKind,
    Path,
    path_of,
    rank,
)
from biotrail.recorder.schema.records import HIT_BORN, HIT_CUT, Kind, Role

PathOf = Callable[[int], Path | None]
"""What a stack says, by its id (`HIT.stack`); None: there is none, or its frames are not known."""
SPLIT_NS = 1_000_000
"""A run of hits in a thread ends where nothing was seen of the life for so long, and no function is
open there: a worker may have done other work, and a task be in its next call of the same kind."""
_NO_PATH = Path(ContextKind.TASK, "", (), False)
_KINDS: dict[int, NodeKind] = {
    Role.ENTRY: NodeKind.FUNCTION,
    Role.EVENT: NodeKind.EVENT,
    Role.RETURN: NodeKind.RETURN,
}
"""What a hit is by its role; one of an unknown role, of a damaged log, as a tracepoint."""
MOST_DEPTH = 400
"""Nodes above a node at most: what is deeper stands beside the last one that is not. More functions
are not taken for open at once in a thread, either."""
_NO_DETAIL = (1 << 64) - 1
"""Sector of a request that has none."""
_MOST_RUNNING = 256
"""Threads at most in which a life's functions may be open at once."""


@dataclass(slots=True)
class _Hit:
    """One hit, with what its stack says."""

    at: int
    """Index in the life's hits."""
    time: int
    site: Site
    cpu: int
    tid: int
    comm: bytes
    value: int
    path: Path | None


@dataclass(slots=True, eq=False)
class _Thread:
    """A thread, or the idle task of a CPU, that the life's hits were in."""

    open: list[int] = field(default_factory=list)
    """Nodes of functions that have not returned, also those of interrupts on top of it."""
    runs: list[ContextRun] = field(default_factory=list)
    """Contexts that a hit may continue: at most one of each rank, in the order of their ranks."""


def build(hits: LifeHits, following: Following, path_of: PathOf, *, lost: bool = False) -> Life:
    """Return a life's tree.

    path_of: gives what a stack id says. lost: whether records were lost during the life.
    """
    return _Builder(hits, following, path_of, lost).built()


class _Builder:
    """Builds one life's tree, hit after hit."""

    def __init__(self, hits: LifeHits, following: Following, path_of: PathOf, lost: bool) -> None:
        rows = hits.rows
        self._hits, self._sites, self._path_of = hits, following, path_of
        born = rows["time"][(rows["flags"] & HIT_BORN) != 0]
        details = rows["detail"][(rows["detail"] != 0) & (rows["detail"] != _NO_DETAIL)]
        self._threads: dict[int, _Thread] = {}
        self._running: list[_Thread] = []
        """Threads with contexts that a hit may continue."""
        self._life = Life(
            number=hits.number,
            object=hits.object,
            first=int(rows["time"][0]),
            last=int(rows["time"][-1]),
            born=int(born[0]) if len(born) else NEVER,
            ended=hits.ended,
            ending=hits.ending,
            detail=int(details[0]) if len(details) else 0,
            contexts=[],
            nodes=[],
            hits=len(rows),
            node_of=[],
            left_out=hits.left_out,
            cut=bool((rows["flags"] & HIT_CUT).any()),
            lost=lost,
        )

    def built(self) -> Life:
        rows = self._hits.rows
        names = ("time", "site", "role", "cpu", "tid", "comm", "value", "stack")
        columns = (rows[name].tolist() for name in names)
        for at, values in enumerate(zip(*columns, strict=True)):
            time, site, role, cpu, tid, comm, value, stack = values
            path = self._path_of(stack)
            self._life.unknown_stacks += path is None and stack >= 0
            hit = _Hit(at, time, self._sites.site(site), cpu, tid, comm, value, path)
            self._life.node_of.append(self._add(hit, role))
        for thread in self._threads.values():
            while thread.open:
                self._give_up(thread, self._why_open(thread.open[-1]))
        return self._life

    def _why_open(self, node: int) -> Finish:
        life = self._life
        if life.lost or life.cut:
            return Finish.LOST
        if life.ending == Ending.DIED:
            return Finish.AFTER_DEATH
        return Finish.LOG_ENDED if life.ending == Ending.LOG_ENDED else Finish.MISSING

    def _add(self, hit: _Hit, role: int) -> int:
        # The idle tasks of all CPUs are thread 0.
        key = hit.tid if hit.tid else -1 - hit.cpu
        thread = self._threads.setdefault(key, _Thread())
        if role == Role.RETURN:
            found = self._entered(thread, hit.site.name)
            if found >= 0:
                return self._return(thread, found, hit)
        context = self._context(thread, hit, role)
        above = self._above(thread, context, hit)
        kind = _KINDS.get(role, NodeKind.EVENT)
        self._life.alone += kind == NodeKind.RETURN
        node = self._new(kind, hit.site.name, hit.site.module, context, above, hit)
        if kind == NodeKind.FUNCTION:
            thread.open.append(node)
            if len(thread.open) > MOST_DEPTH:
                self._give_up(thread, Finish.MISSING)
        self._seen(node, hit)
        return node

    # Spans

    def _entered(self, thread: _Thread, name: str) -> int:
        """Return the place in `thread.open` of the innermost open call of a function; -1: none."""
        for place in range(len(thread.open) - 1, -1, -1):
            if self._life.nodes[thread.open[place]].name == name:
                return place
        return -1

    def _return(self, thread: _Thread, place: int, hit: _Hit) -> int:
        """End the open function at `place`, and give up those inside it; return its index."""
        while len(thread.open) > place + 1:
            self._give_up(thread, Finish.LOST if self._life.lost else Finish.MISSING)
        index = thread.open.pop()
        node = self._life.nodes[index]
        node.end, node.cpu_end, node.value = hit.time, hit.cpu, hit.value
        self._seen(index, hit)
        if thread.open:  # also where it is a task's function that this one's interrupt is on top of
            self._life.nodes[thread.open[-1]].inner += node.end - node.begin
        self._keep_runs(self._life.contexts[node.context])
        return index

    def _give_up(self, thread: _Thread, why: Finish) -> None:
        node = self._life.nodes[thread.open.pop()]
        node.finish = why
        self._life.unfinished += 1
        if thread.open:
            above = self._life.nodes[thread.open[-1]]
            above.inner += node.seen - node.begin

    def _seen(self, index: int, hit: _Hit) -> None:
        """Note in a node, those above it and its context that the life was there at a hit."""
        nodes = self._life.nodes
        context = self._life.contexts[nodes[index].context]
        context.end = hit.time
        if hit.cpu not in context.cpus:
            context.cpus.append(hit.cpu)
        while index >= 0:
            node = nodes[index]
            node.seen = hit.time
            if node.kind == NodeKind.FRAME:
                node.end, node.cpu_end = hit.time, hit.cpu
            index = node.parent

    # Contexts

    def _context(self, thread: _Thread, hit: _Hit, role: int) -> ContextRun:
        """Return the context that a hit is in, a new one where it continues none."""
        path = hit.path
        if path is None:
            found = self._innermost(thread, hit)
            return found or self._begin(thread, hit, _NO_PATH)
        level = rank(path.kind)
        self._drop_stale(thread, hit, path, role)
        for context in thread.runs:
            same = rank(context.kind) == level and self._same(context, path)
            if same and self._is_near(thread, context, hit):
                self._keep_runs(context)
                if not context.what:
                    context.what = path.what
                if path.rooted and context.kind != path.kind:
                    context.kind = path.kind
                return context
        return self._begin(thread, hit, path)

    def _same(self, context: ContextRun, path: Path) -> bool:
        """Return whether a stack may be of the context: of one system call, fault or work."""
        return not (context.what and path.what and context.what != path.what)

    def _is_near(self, thread: _Thread, context: ContextRun, hit: _Hit) -> bool:
        """Return whether a hit comes soon after a context's last, or a function is open there."""
        return hit.time - context.end < SPLIT_NS or self._has_open(thread, context)

    def _has_open(self, thread: _Thread, context: ContextRun) -> bool:
        return any(self._life.nodes[index].context == context.number for index in thread.open)

    def _innermost(self, thread: _Thread, hit: _Hit) -> ContextRun | None:
        """Return the context that a hit without a stack is in: the innermost that goes on."""
        if thread.open:
            found = self._life.contexts[self._life.nodes[thread.open[-1]].context]
        elif thread.runs and self._is_near(thread, thread.runs[-1], hit):
            found = thread.runs[-1]
        else:
            return None
        self._keep_runs(found)
        return found

    def _begin(self, thread: _Thread, hit: _Hit, path: Path) -> ContextRun:
        """Begin a new context of a thread, on top of what the life does there in lower ranks."""
        level, contexts = rank(path.kind), self._life.contexts
        kind = path.kind
        if not hit.tid and kind == ContextKind.TASK:
            kind = ContextKind.IDLE
        # An interrupt's end does not go on after another interrupt, unless a function is open.
        below = [
            run
            for run in thread.runs
            if rank(run.kind) < level and (run.what != LEAVING or self._has_open(thread, run))
        ]
        comm = hit.comm.decode("utf-8", "replace")
        context = ContextRun(
            len(contexts), kind, path.what, hit.tid, comm, [hit.cpu], hit.time, hit.time
        )
        context.on_top = below[-1].number if below else -1
        contexts.append(context)
        self._keep_runs(context)
        thread.runs = [*(run for run in below if run in thread.runs), context]
        if thread not in self._running:
            self._running.append(thread)
        if len(self._running) > _MOST_RUNNING:
            left = self._running.pop(0)
            while left.open:
                self._give_up(left, Finish.MISSING)
            left.runs = []
        return context

    def _keep_runs(self, latest: ContextRun) -> None:
        """Let all contexts end that a hit in `latest` shows to be over.

        Those stay in which a function has not returned, and those that `latest` is on top of.
        """
        life = self._life
        stay = set()
        context = latest
        while context.number not in stay:
            stay.add(context.number)
            if context.on_top >= 0:
                context = life.contexts[context.on_top]
        for thread in self._running:
            entered = {life.nodes[index].context for index in thread.open}
            thread.runs = [r for r in thread.runs if r.number in stay or r.number in entered]
        self._running = [thread for thread in self._running if thread.runs]

    def _drop_stale(self, thread: _Thread, hit: _Hit, path: Path, role: int) -> None:
        """Give up functions that a hit's stack shows to have returned unrecorded.

        They are those of interrupts on top of what the stack is of, those whose callers are not on
        the stack any more, and a function that is entered again by the same callers.
        """
        nodes, level = self._life.nodes, rank(path.kind)
        why = Finish.LOST if self._life.lost else Finish.MISSING
        while thread.open:
            node = nodes[thread.open[-1]]
            context = self._life.contexts[node.context]
            if rank(context.kind) < level:
                return
            if rank(context.kind) == level and not self._left(thread, context, hit, path, role):
                return
            self._give_up(thread, why)

    def _left(self, thread: _Thread, context: ContextRun, hit: _Hit, path: Path, role: int) -> bool:
        """Return whether the innermost open function has returned, though unrecorded."""
        node = self._life.nodes[thread.open[-1]]
        if not self._same(context, path):
            return True
        if node.path < 0 or not path.rooted:
            return False
        path_in = self._path_of(int(self._hits.rows["stack"][node.hit]))
        callers = () if path_in is None else path_in.above(node.name)
        frames = path.above(hit.site.name)
        if frames[: len(callers)] != callers:
            return True
        return role == Role.ENTRY and node.name == hit.site.name and frames == callers

    # Nodes

    def _above(self, thread: _Thread, context: ContextRun, hit: _Hit) -> int:
        """Return the node below which a hit belongs, -1: none; frames between are added."""
        life = self._life
        above = -1
        for index in reversed(thread.open):
            if life.nodes[index].context == context.number:
                above = index
                break
        while above >= 0 and life.nodes[above].depth >= MOST_DEPTH:
            above = life.nodes[above].parent
        if hit.path is None:
            return above
        for place, name in self._between(above, hit):
            above = self._frame(context, above, name, hit.path.frames[place].module, hit)
        return above

    def _between(self, above: int, hit: _Hit) -> list[tuple[int, str]]:
        if hit.path is None:
            return []
        frames = list(enumerate(hit.path.above(hit.site.name)))
        if above < 0:
            return frames
        node = self._life.nodes[above]
        if 0 <= node.path < len(frames) and frames[node.path][1] == node.name:
            return frames[node.path + 1 :]
        for place, name in reversed(frames):
            if name == node.name:
                return frames[place + 1 :]
        # The function is not on the stack: it ended in a jump to the one that it called last.
        names = {self._life.nodes[i].name for t in self._threads.values() for i in t.open}
        return (
            [f for f in frames[max(node.path, 0) :] if f[1] not in names] if node.path >= 0 else []
        )

    def _frame(self, context: ContextRun, above: int, name: str, module: str, hit: _Hit) -> int:
        """Return the node of a frame below another: the last one there if it has the name."""
        nodes = self._life.nodes
        beside = context.roots if above < 0 else nodes[above].below
        if beside:
            last = nodes[beside[-1]]
            if last.kind == NodeKind.FRAME and last.name == name:
                return beside[-1]
        return self._new(NodeKind.FRAME, name, module, context, above, hit)

    def _new(
        self, kind: NodeKind, name: str, module: str, context: ContextRun, above: int, hit: _Hit
    ) -> int:
        """Append a node below another (-1: outermost in its context); return its index."""
        nodes = self._life.nodes
        index = len(nodes)
        span = kind == NodeKind.FUNCTION
        node = Node(
            kind=kind,
            name=name,
            module=module,
            context=context.number,
            parent=above,
            depth=0 if above < 0 else nodes[above].depth + 1,
            begin=hit.time,
            end=NEVER if span else hit.time,
            cpu=hit.cpu,
            cpu_end=hit.cpu,
            seen=hit.time,
            hit=-1 if kind == NodeKind.FRAME else hit.at,
            value=hit.value if kind == NodeKind.RETURN else 0,
            path=len(hit.path.above(name)) if span and hit.path is not None else -1,
        )
        nodes.append(node)
        (context.roots if above < 0 else nodes[above].below).append(index)
        return index


_MOST_LOSSES = 10_000
"""Loss windows that are kept: lives are long over when so many have followed."""


@dataclass
class Followed:
    """A life's tree, and the hits that it was made of."""

    life: Life
    hits: HitRows
    """Row i is of the node `life.node_of[i]`."""
    number: int = NEVER
    """Number of the request or bio that it is; NEVER: none, or not known by its end."""


class LifeReader:
    """Makes trees of the hits of a log, window after window in order."""

    def __init__(self, context: Context, wanted: Wanted | None = None) -> None:
        """Start before the first window.

        context: the log's, whose stacks grow while it is read. wanted: which lives; None: all.
        """
        self.following = Following(context.header)
        self._context = context
        self._losses: list[tuple[int, int]] = []
        """(start, end) in ns of each loss of hits, or of records of unknown kinds."""
        known = context.site_stacks.keys()
        self._gatherer = Gatherer(lambda stacks: stacks <= known, wanted)
        self._paths: dict[int, Path] = {}
        self._numbers: dict[int, int] = {}
        """Life → request or bio, of lives that are not given out yet."""

    @property
    def tally(self) -> Tally:
        """Counts of hits and lives so far."""
        return self._gatherer.tally

    def add(self, window: Lifecycles) -> None:
        """Add the log's next window."""
        loss = window.loss
        rows = np.flatnonzero((loss.kind == Kind.HIT) | (loss.kind == 0))
        times = zip(loss.start[rows].tolist(), loss.end[rows].tolist(), strict=True)
        self._losses = [*self._losses, *times][-_MOST_LOSSES:]
        joined = None if window.sites is None else window.sites.joined
        if joined is not None:
            self._numbers.update(zip(joined.life.tolist(), joined.number.tolist(), strict=True))
        self._gatherer.add(None if window.sites is None else window.sites.hits, window.end)

    def ready(self) -> Iterator[Followed]:
        """Yield the lives that are over, in the order of their ends; each once."""
        return map(self._followed, self._gatherer.ready())

    def rest(self) -> Iterator[Followed]:
        """Yield all other lives, after the last window."""
        return map(self._followed, self._gatherer.rest())

    def _followed(self, hits: LifeHits) -> Followed:
        first, last = int(hits.rows["time"][0]), int(hits.rows["time"][-1])
        lost = any(start <= last and end >= first for start, end in self._losses)
        life = build(hits, self.following, self._path, lost=lost)
        return Followed(life, hits.rows, self._numbers.pop(life.number, NEVER))

    def _path(self, stack: int) -> Path | None:
        """Return what a stack says; None: there is none, or no note with its frames was read."""
        found = self._paths.get(stack)
        if found is None and (frames := self._context.site_stacks.get(stack)) is not None:
            found = self._paths[stack] = path_of(frames)
        return found


def read_lives(windows: Iterable[Lifecycles], reader: LifeReader) -> Iterator[Followed]:
    """Yield the lives of a log's windows, in the order of their ends."""
    for window in windows:
        reader.add(window)
        yield from reader.ready()
    yield from reader.rest()
