# SPDX-License-Identifier: Apache-2.0
"""Made-up logs of followed objects: hits with kernel stacks, and the lives that come of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from hypothesis import strategies as st

from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.converters.sites.lives import LifeReader
from biotrail.converters.sites.trees import Life, NodeKind
from biotrail.recorder.schema.payloads import FollowFacts, SiteFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Role
from tests.support.site_logs import SiteLog

US, MS = 1_000, 1_000_000
REQUEST = 0xFFFF888000001000
"""Address of the object unless another is given."""

PROGRAM = ("bpf_prog_6deef7357e7b4530_site", "bpf_trace_run2", "__bpf_trace_block_rq")
"""What runs at a tracepoint, innermost first."""
SYSCALL = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_pread64", "vfs_read")
"""Outermost first, as all stacks here are given."""
WORKER = ("ret_from_fork_asm", "ret_from_fork", "kthread", "worker_thread", "process_one_work")
INTERRUPT = ("asm_common_interrupt", "common_interrupt", "__common_interrupt", "handle_irq_event")
SOFTIRQ = ("irq_exit_rcu", "__irq_exit_rcu", "handle_softirqs")
IDLE = ("start_secondary", "cpu_startup_entry", "do_idle", "default_idle_call")
EXIT = ("asm_common_interrupt", "common_interrupt", *SOFTIRQ, "blk_done_softirq")
"""A softirq at the end of an interrupt."""


@dataclass
class FollowLog(SiteLog):
    """A log of one followed type, whose sites are made as they are passed.

    Times are ns since START. Stacks are given outermost first, without the site's own function.
    """

    kind: str = "request"
    detail: str = "__sector"
    detail_unit: str = "sector"
    named: list[SiteFacts] = field(default_factory=list)
    stacks: dict[tuple[str, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pairs = []

    def site(self, name: str, kind: str = "function", module: str = "") -> int:
        """Index of a site, made at its first use."""
        for at, known in enumerate(self.named):
            if known["name"] == name and known["kind"] == kind:
                return at
        made: SiteFacts = {"name": name, "kind": kind, "module": module, "argument": 0}
        self.named.append({**made, "way": "typed" if kind == "tracepoint" else "session"})
        return len(self.named) - 1

    def stack(self, frames: Sequence[str], *inner: str) -> int:
        """Id of a stack with these frames, outermost first, and `inner` below."""
        return self.stacks.setdefault((*frames, *inner), len(self.stacks) + 100)

    def enter(self, at: int, name: str, under: Sequence[str] | None = None, **values: Any) -> None:
        """A function's entry; under: its callers, None: no stack is recorded."""
        stack = -1 if under is None else self.stack(under, name)
        self.hit(at, self.site(name), Role.ENTRY, stack=stack, **self._who(values))

    def leave(self, at: int, name: str, **values: Any) -> None:
        """A function's return."""
        self.hit(at, self.site(name), Role.RETURN, **self._who(values))

    def passes(self, at: int, name: str, under: Sequence[str] | None = None, **values: Any) -> None:
        """A tracepoint; under: the stack at it."""
        stack = -1 if under is None else self.stack(under, *PROGRAM[::-1])
        self.hit(at, self.site(name, "tracepoint"), Role.EVENT, stack=stack, **self._who(values))

    def _who(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values, with `born` and `ended` as flags."""
        flags = HIT_BORN * bool(values.pop("born", False))
        flags |= HIT_ENDED * bool(values.pop("ended", False))
        return {"flags": flags | values.pop("flags", 0), **values}

    def notes(self) -> dict[str, dict[str, Any]]:
        """The stacks, as the recorder writes them."""
        made = {
            str(number): [[name, "", 16] for name in reversed(frames)]
            for frames, number in self.stacks.items()
        }
        return {"stacks": {"site": made}} if made else {}

    def facts(self) -> Any:
        functions = any(site["kind"] == "function" for site in self.named)
        follow: FollowFacts = {
            "type": self.kind,
            "way": "session" if functions else "typed",
            "sites": self.named,
            "detail": self.detail,
            "detail_unit": self.detail_unit,
            "every": 1,
            "max": 1000,
            "slower_ns": 0,
            "unseen": {"inlined, or with a suffix": 12},
        }
        self.follow = follow
        return super().facts()

    def data(self, *arguments: Any, **more: Any) -> bytes:
        more.setdefault("notes", self.notes())
        return super().data(*arguments, **more)


def lives(log: FollowLog, window: int = WINDOW_EVENTS, *cuts: int, **more: Any) -> list[Life]:
    """The lives of a log, in the order in which they come out."""
    trace = Trace(BytesIO(log.data(cuts, **more)))
    return list(LifeReader(trace.context).read(trace.lifecycles(window, small=True)))


def shape(life: Life) -> list[str]:
    """A line per context and node: `  name begin..end`, µs since the life's begin.

    `·` a tracepoint, `?` a missing return, `frame` a function without times of its own.
    """
    made = []
    for run in life.contexts:
        made.append(
            f"{run.kind.name} {run.tid} CPU {','.join(map(str, run.cpus))} {run.what}".strip()
        )
        for node in life.walk(run.roots):
            made.append("  " * (node.depth + 1) + _text(life, node))
    return made


def _text(life: Life, node: Any) -> str:
    since = (node.begin - life.begin) / US
    if node.kind == NodeKind.FRAME:
        return f"{node.name} frame"
    if node.kind == NodeKind.EVENT:
        return f"· {node.name} {since:g}"
    if node.kind == NodeKind.RETURN:
        return f"{node.name} returned {since:g}"
    end = "?" if node.end < 0 else f"{(node.end - life.begin) / US:g}"
    return f"{node.name} {since:g}..{end}"


def read_write(log: FollowLog, life: int = 1, at: int = 0, **more: Any) -> None:
    """A read of three contexts: submitted by a task, issued by a worker, ended in a softirq."""
    who = {"life": life, "object": REQUEST + 0x400 * life, "detail": 2048 * life, **more}
    task = {**who, "tid": 42, "comm": b"fio", "cpu": 0}
    worker = {**who, "tid": 77, "comm": b"kworker/1:1H", "cpu": 1}
    idle = {**who, "tid": 0, "comm": b"swapper/1", "cpu": 1}
    submit = (*SYSCALL, "ext4_file_read_iter", "submit_bio", "blk_mq_submit_bio")
    log.enter(at, "blk_mq_rq_ctx_init", submit, born=True, **task)
    log.leave(at + 2 * US, "blk_mq_rq_ctx_init", **task)
    log.enter(at + 5 * US, "blk_mq_insert_request", submit, **task)
    log.enter(at + 6 * US, "dd_insert_request", (*submit, "blk_mq_insert_request"), **task)
    log.leave(at + 9 * US, "dd_insert_request", **task)
    log.leave(at + 10 * US, "blk_mq_insert_request", **task)
    run = (*WORKER, "blk_mq_run_work_fn", "blk_mq_dispatch_rq_list")
    log.enter(at + 50 * US, "virtio_queue_rq", run, **worker)
    log.passes(at + 52 * US, "block_rq_issue", (*run, "virtio_queue_rq"), **worker)
    log.leave(at + 61 * US, "virtio_queue_rq", **worker)
    done = (*IDLE, *EXIT)
    log.enter(at + 900 * US, "blk_mq_end_request", done, **idle)
    log.enter(at + 905 * US, "blk_mq_free_request", (*done, "blk_mq_end_request"), **idle)
    log.leave(at + 907 * US, "blk_mq_free_request", ended=True, **idle)
    log.leave(at + 908 * US, "blk_mq_end_request", **idle)


def many(log: FollowLog, count: int, gap: int = 2 * MS) -> None:
    """Lives like that of `read_write`, one after the other."""
    for number in range(count):
        read_write(log, number + 1, number * gap)


STACKS = (None, (*SYSCALL, "submit_bio"), (*IDLE, *EXIT))


@st.composite
def logs(draw: st.DrawFn) -> FollowLog:
    """Lives one after the other on each of three addresses, with hits in any order of roles.

    Births, deaths, entries and returns may be missing; hits may follow a death.
    """
    log = FollowLog()
    on: dict[int, int] = {}
    at = lives = 0
    for _ in range(draw(st.integers(1, 40))):
        # Steps of up to 0.7 s, so that lives are over within the log.
        at += draw(st.sampled_from((0, 1, 500, 20_000_000, 700_000_000)))
        place = draw(st.integers(0, 2))
        born = place not in on or draw(st.integers(0, 4)) == 0
        if born:
            lives += 1
            on[place] = lives
        who = {
            "life": on[place],
            "object": REQUEST + 0x400 * place,
            "tid": draw(st.sampled_from((0, 7, 8))),
            "cpu": draw(st.integers(0, 1)),
            "flags": draw(st.sampled_from((0, 0, 0, 0, 2, 4))) | (born and lives % 4 > 0),
        }
        name = draw(st.sampled_from(("a", "b", "c")))
        role = draw(st.integers(0, 2))
        if role == 0:
            log.enter(at, name, draw(st.sampled_from(STACKS)), **who)
        elif role == 1:
            log.leave(at, name, **who)
        else:
            log.passes(at, name, draw(st.sampled_from(STACKS)), **who)
    return log
