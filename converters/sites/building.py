# SPDX-License-Identifier: Apache-2.0
"""The tree of one life, from its hits: spans by entries and returns, frames above by stacks."""

from collections.abc import Callable
from dataclasses import dataclass, field

from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.tables import Following, Site
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
    rank,
)
from biotrail.recorder.schema.records import HIT_BORN, HIT_CUT, Role

PathOf = Callable[[int], Path | None]
"""What a stack says, by its id (`HIT.stack`); None: there is none, or its frames are not known."""
_SPLIT_NS = 1_000_000
"""A run of hits in a thread ends where nothing was seen of the life for so long, and no function is
open there: a worker may have done other work, and a task be in its next call of the same kind."""
_NO_PATH = Path(ContextKind.TASK, "", (), False)
_KINDS: dict[int, NodeKind] = {Role.ENTRY: NodeKind.FUNCTION, Role.RETURN: NodeKind.RETURN}
"""What a hit is by its role; one of an unknown role, of a damaged log, as a tracepoint."""
_MOST_DEPTH = 400
"""Nodes above a node at most: what is deeper stands beside the last one that is not. More functions
are not taken for open at once in a thread, either."""
_NO_DETAIL = (1 << 64) - 1
"""Sector of a request that has none."""
_MOST_RUNNING = 256
"""Threads at most in which a life's functions may be open at once."""


@dataclass(slots=True)
class _Hit:
    """at: index in the life's hits."""

    at: int
    time: int
    site: Site
    cpu: int
    tid: int
    comm: bytes
    value: int
    path: Path | None


@dataclass(slots=True, eq=False)
class _Thread:
    """A thread, or the idle task of a CPU, that the life's hits were in.

    open: nodes of functions that have not returned, also those of interrupts on top of it. runs:
    contexts that a hit may continue: at most one of each rank, in the order of their ranks.
    """

    open: list[int] = field(default_factory=list)
    runs: list[ContextRun] = field(default_factory=list)


class Builder:
    """Builds one life's tree, hit after hit."""

    def __init__(self, life: Life, following: Following, path_of: PathOf) -> None:
        """life: with at least one hit, and what its hits do not say."""
        self._life, self._sites, self._path_of = life, following, path_of
        self._threads: dict[int, _Thread] = {}
        self._running: list[_Thread] = []
        """Threads with contexts that a hit may continue."""

    def build(self) -> None:
        life, rows = self._life, self._life.rows
        born = rows["time"][(rows["flags"] & HIT_BORN) != 0]
        life.born = int(born[0]) if len(born) else NEVER
        details = rows["detail"][(rows["detail"] != 0) & (rows["detail"] != _NO_DETAIL)]
        life.detail = int(details[0]) if len(details) else 0
        life.cut = bool((rows["flags"] & HIT_CUT).any())
        names = ("time", "site", "role", "cpu", "tid", "comm", "value", "stack")
        columns = (rows[name].tolist() for name in names)
        for at, values in enumerate(zip(*columns, strict=True)):
            time, site, role, cpu, tid, comm, value, stack = values
            path = self._path_of(stack)
            life.unknown_stacks += path is None and stack >= 0
            hit = _Hit(at, time, self._sites.site(site), cpu, tid, comm, value, path)
            life.node_of.append(self._add(hit, role))
        open_ended = {Ending.DIED: Finish.AFTER_DEATH, Ending.LOG_ENDED: Finish.LOG_ENDED}
        why = open_ended.get(life.ending, Finish.MISSING)
        for thread in self._threads.values():
            while thread.open:
                self._give_up(thread, Finish.LOST if life.lost or life.cut else why)

    def _add(self, hit: _Hit, role: int) -> int:
        # The idle tasks of all CPUs are thread 0.
        key = hit.tid if hit.tid else -1 - hit.cpu
        thread = self._threads.setdefault(key, _Thread())
        if role == Role.RETURN:
            for place in range(len(thread.open) - 1, -1, -1):
                if self._life.nodes[thread.open[place]].name == hit.site.name:
                    return self._return(thread, place, hit)
        context = self._context(thread, hit, role)
        above = self._above(thread, context, hit)
        kind = _KINDS.get(role, NodeKind.EVENT)
        self._life.alone += kind == NodeKind.RETURN
        node = self._new(kind, hit.site.name, hit.site.module, context, above, hit)
        if kind == NodeKind.FUNCTION:
            thread.open.append(node)
            if len(thread.open) > _MOST_DEPTH:
                self._give_up(thread, Finish.MISSING)
        self._seen(node, hit)
        return node

    # Spans

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
            self._life.nodes[thread.open[-1]].inner += node.seen - node.begin

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
        if path is None:  # the innermost one
            if thread.open:
                found = self._life.contexts[self._life.nodes[thread.open[-1]].context]
            elif thread.runs and self._is_near(thread, thread.runs[-1], hit):
                found = thread.runs[-1]
            else:
                return self._begin(thread, hit, _NO_PATH)
            self._keep_runs(found)
            return found
        level = rank(path.kind)
        self._drop_stale(thread, hit, path, role)
        for context in thread.runs:
            same = rank(context.kind) == level and _may_be_of(context, path)
            if same and self._is_near(thread, context, hit):
                self._keep_runs(context)
                if not context.what:
                    context.what = path.what
                if path.rooted and context.kind != path.kind:
                    context.kind = path.kind
                return context
        return self._begin(thread, hit, path)

    def _is_near(self, thread: _Thread, context: ContextRun, hit: _Hit) -> bool:
        return hit.time - context.end < _SPLIT_NS or self._has_open(thread, context)

    def _has_open(self, thread: _Thread, context: ContextRun) -> bool:
        return any(self._life.nodes[index].context == context.number for index in thread.open)

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
            if rank(context.kind) == level and not self._left(node, context, hit, path, role):
                return
            self._give_up(thread, why)

    def _left(self, node: Node, context: ContextRun, hit: _Hit, path: Path, role: int) -> bool:
        if not _may_be_of(context, path):
            return True
        if node.path < 0 or not path.rooted:
            return False
        path_in = self._path_of(int(self._life.rows["stack"][node.hit]))
        callers = () if path_in is None else path_in.above(node.name)
        frames = path.above(hit.site.name)
        if frames[: len(callers)] != callers:
            return True
        return role == Role.ENTRY and node.name == hit.site.name and frames == callers

    # Nodes

    def _above(self, thread: _Thread, context: ContextRun, hit: _Hit) -> int:
        """Return the node below which a hit belongs, -1: none; frames between are added."""
        nodes = self._life.nodes
        above = -1
        for index in reversed(thread.open):
            if nodes[index].context == context.number:
                above = index
                break
        while above >= 0 and nodes[above].depth >= _MOST_DEPTH:
            above = nodes[above].parent
        if hit.path is None:
            return above
        for place, name in self._between(above, hit.path.above(hit.site.name)):
            beside = context.roots if above < 0 else nodes[above].below
            last = nodes[beside[-1]] if beside else None
            if last is not None and last.kind == NodeKind.FRAME and last.name == name:
                above = beside[-1]
            else:
                module = hit.path.frames[place].module
                above = self._new(NodeKind.FRAME, name, module, context, above, hit)
        return above

    def _between(self, above: int, names: tuple[str, ...]) -> list[tuple[int, str]]:
        """Return the frames, by place and name, of a stack that are below the node `above`."""
        frames = list(enumerate(names))
        if above < 0:
            return frames
        node = self._life.nodes[above]
        if 0 <= node.path < len(frames) and names[node.path] == node.name:
            return frames[node.path + 1 :]
        for place, name in reversed(frames):
            if name == node.name:
                return frames[place + 1 :]
        if node.path < 0:
            return []
        # The function is not on the stack: it ended in a jump to the one that it called last.
        entered = {self._life.nodes[i].name for t in self._threads.values() for i in t.open}
        return [frame for frame in frames[node.path :] if frame[1] not in entered]

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


def _may_be_of(context: ContextRun, path: Path) -> bool:
    """Return whether a stack may be of the context: of one system call, fault or work."""
    return not (context.what and path.what and context.what != path.what)
