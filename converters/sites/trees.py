# SPDX-License-Identifier: Apache-2.0
"""What a stack says of context and callers, and the tree of one life.

A tree has contexts in order of time, and in each the functions that were passed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.tables import HitRows


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TRACING_TOP = tuple(
    _words(
        """
        bpf_prog_ bpf_trace_run __bpf_ ____bpf_ bpf_get_stack __traceiter_ bpf_test_run
        trace_call_bpf perf_trace_ perf_callchain get_perf_callchain trace_event_raw_event_
        stack_trace_save kprobe_multi_link_ kprobe_multi_fp fprobe_ __fprobe_ rethook_
        function_graph_enter ftrace_graph_ ftrace_ops_ arch_ftrace_ops_list_func
        __ftrace_return_to_handler ftrace_return_to_handler kprobe_ftrace_handler
        kprobe_dispatcher kprobe_perf_func kretprobe_ aggr_pre_ __kretprobe_ optimized_callback
        opt_pre_handler kprobe_int3_handler kprobe_breakpoint_handler ftrace_caller
        ftrace_regs_caller ftrace_call ftrace_common bpf_dispatcher_
        """
    )
)
"""Beginnings of the names of functions that run a program at a site. They are the innermost frames
of its stack: what lies inside the outermost of them is left out with it."""
_TRACING_ANYWHERE = tuple(
    _words(
        """
        bpf_trampoline_ arch_rethook_trampoline return_to_handler ftrace_trampoline
        __kretprobe_trampoline kretprobe_trampoline arch_rethook_
        """
    )
)
"""Beginnings of the names of functions that stand between a probed function and its caller, at any
depth: these frames alone are left out."""
_MOST_TRACING = 24
"""Innermost frames among which those of _TRACING_TOP are looked for."""

_SOFTIRQ_ROOTS = frozenset({"__do_softirq", "handle_softirqs", "__softirqentry_text_start"})
_HARD_ROOTS = _words(
    """
    asm_common_interrupt common_interrupt __common_interrupt do_IRQ ret_from_intr
    el1h_64_irq el0t_64_irq el1_irq el0_irq gic_handle_irq handle_domain_irq el1_interrupt
    el0_interrupt __el1_irq __el0_irq_handler_common el1h_64_irq_handler el0t_64_irq_handler
    do_interrupt_handler generic_handle_domain_irq call_on_irq_stack handle_arch_irq
    handle_irq_event
    """
)
_HARD_PREFIXES = ("asm_sysvec_", "sysvec_", "__sysvec_", "asm_call_", "el0t_64_irq", "el1h_64_irq")
_NMI_ROOTS = frozenset({"asm_exc_nmi", "exc_nmi", "default_do_nmi", "el1h_64_fiq", "nmi_restore"})
_LEAVING = _words(
    """
    irqentry_exit_to_user_mode irqentry_exit raw_irqentry_exit_cond_resched
    exit_to_user_mode_loop exit_to_user_mode_prepare prepare_exit_to_usermode
    preempt_schedule_irq arm64_preempt_schedule_irq do_notify_resume
    __irqentry_exit_to_user_mode arm64_exit_to_user_mode
    """
)
"""Functions at an interrupt's end that do the task's own work, such as its switch to another."""
LEAVING = "end of an interrupt"
"""`Path.what` where a task does its own work at an interrupt's end."""
_SOFTIRQ_GLUE = _words(
    """
    __do_softirq do_softirq do_softirq.part.0 do_softirq_own_stack invoke_softirq
    __irq_exit_rcu irq_exit_rcu irq_exit __local_bh_enable_ip ____do_softirq
    __do_softirq_own_stack __softirqentry_text_start call_on_irq_stack asm_call_irq_on_stack
    asm_call_on_stack handle_softirqs
    """
)
"""Functions from an interrupt's end, or from where softirqs are let in, to the softirqs' own."""
_WORKERS = ("worker_thread", "process_one_work", "rescuer_thread", "io_wq_worker", "bh_worker")
_IDLE = frozenset(
    {"do_idle", "cpu_startup_entry", "start_secondary", "secondary_start_kernel", "rest_init"}
)
_THREADS = frozenset({"kthread", "ret_from_fork", "ret_from_fork_asm", "kthreadd"})
_FAULTS = _words(
    """
    asm_exc_page_fault exc_page_fault do_user_addr_fault asm_exc_general_protection el0_da
    el0_ia do_mem_abort do_page_fault
    """
)
_CALLS = _words(
    """
    entry_SYSCALL_64_after_hwframe do_syscall_64 x64_sys_call entry_SYSCALL_64
    do_int80_emulation asm_int80_emulation entry_SYSENTER_compat_after_hwframe
    do_fast_syscall_32 __do_fast_syscall_32 el0_svc do_el0_svc invoke_syscall el0t_64_sync
    el0t_64_sync_handler el0_svc_common.constprop.0 el0_sync
    """
)
_CALL_PREFIXES = (
    *("__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__do_sys_", "__se_sys_", "ksys_", "__sys_"),
)


_HANDLING = _words(
    """
    handle_irq_event_percpu __handle_irq_event_percpu handle_edge_irq handle_fasteoi_irq
    handle_level_irq handle_simple_irq
    """
)
"""Functions from an interrupt's entry to its handler."""


class ContextKind(IntEnum):
    """What the functions of a context run in."""

    TASK = 0
    """A thread of a program: in a system call or a page fault, or not known where."""
    WORKER = 1
    """A worker of the kernel's work queues, or of io_uring."""
    THREAD = 2
    IDLE = 3
    SOFTIRQ = 4
    INTERRUPT = 5
    NMI = 6


_KINDS = ("task", "worker", "kernel thread", "idle", "softirq", "interrupt", "NMI")
KIND_NAMES = dict(zip(ContextKind, _KINDS, strict=True))
"""Names of contexts, in every output."""


def rank(kind: ContextKind) -> int:
    """Return which contexts of a CPU run on top of which: 0 a thread, 1 softirq, 2 hard, 3 NMI."""
    return max(int(kind) - int(ContextKind.IDLE), 0)


class Frame(NamedTuple):
    """A function of a stack. name: `0x…` where none is known. module: "": the kernel itself."""

    name: str
    module: str


@dataclass(frozen=True, slots=True)
class Path:
    """The functions of one context that led to a hit.

    what: what the context does: `system call pread64`, `page fault`, `work NAME`; "" not known.
    frames: outermost first; those of a context that it interrupted are left out. rooted: whether
    the outermost frame is where such a context begins, so that none is missing.
    """

    kind: ContextKind
    what: str
    frames: tuple[Frame, ...]
    rooted: bool
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(frame.name for frame in self.frames))

    def above(self, site: str) -> tuple[str, ...]:
        """Return the names of the functions above a site, outermost first.

        A function is not above itself: the innermost frame is left out if it has the site's name.
        """
        return self.names[:-1] if self.names and self.names[-1] == site else self.names


def tells_context(name: str) -> bool:
    """Return whether a function only says how its context was entered: `do_syscall_64`."""
    entry = name in (_CALLS | _THREADS | _FAULTS | _HANDLING) or name in _WORKERS
    return entry or name in _SOFTIRQ_ROOTS or _is_hard(name) or name.startswith(_CALL_PREFIXES)


def path_of(stack: Sequence[Sequence[object]]) -> Path:
    """stack: [function, module, offset] per frame, innermost first, as a `stacks` note has them."""
    frames = [
        Frame(str(name), str(module))
        if name
        else Frame(f"{offset if isinstance(offset, int) else 0:#x}", "")
        for name, module, offset in stack
    ]
    # Without those that ran a program at the site.
    top = [at for at, f in enumerate(frames[:_MOST_TRACING]) if f.name.startswith(_TRACING_TOP)]
    frames = frames[top[-1] + 1 :] if top else frames
    frames = [frame for frame in frames if not frame.name.startswith(_TRACING_ANYWHERE)]
    kind, cut = _interrupt(frames)
    inner = tuple(reversed(frames[:cut]))
    if kind is None:
        return _of_thread(inner)
    for at, frame in enumerate(inner):
        if frame.name in _LEAVING:
            return Path(ContextKind.TASK, LEAVING, inner[at:], True)
    if kind == ContextKind.SOFTIRQ:  # its action
        names = [frame.name for frame in inner if frame.name not in _SOFTIRQ_GLUE]
    else:  # the vector of an interrupt of the APIC: `sysvec_…`
        vectors = (frame.name for frame in inner if frame.name.startswith("sysvec_"))
        names = [name.removeprefix("sysvec_") for name in vectors]
    return Path(kind, names[0] if names else "", inner, True)


def _interrupt(frames: Sequence[Frame]) -> tuple[ContextKind | None, int]:
    """Return (kind, number of frames that belong to it) of the innermost interrupt of a stack.

    A softirq's are those up to the function that runs softirqs, a hard interrupt's those up to its
    entry. (None, all): no interrupt.
    """
    for at, frame in enumerate(frames):
        if frame.name in _SOFTIRQ_ROOTS:
            return ContextKind.SOFTIRQ, at + 1
        if frame.name in _NMI_ROOTS:
            return ContextKind.NMI, at + 1
        if _is_hard(frame.name):
            end = at + 1
            while end < len(frames) and _is_hard(frames[end].name):
                end += 1
            return ContextKind.INTERRUPT, end
    return None, len(frames)


def _is_hard(name: str) -> bool:
    return name in _HARD_ROOTS or name.startswith(_HARD_PREFIXES)


def _of_thread(frames: tuple[Frame, ...]) -> Path:
    """Return the path of a thread's frames, outermost first: what kind of thread, and in what."""
    names = [frame.name for frame in frames]
    for at, name in enumerate(names):
        if name in _WORKERS:
            run = [n for n in names[at:] if n not in _WORKERS]
            works = run and (name == "io_wq_worker" or "process_one_work" in names)
            return Path(ContextKind.WORKER, f"work {run[0]}" if works else "", frames, True)
        if name in _IDLE:
            return Path(ContextKind.IDLE, "", frames, True)
    if any(name in _FAULTS for name in names):
        return Path(ContextKind.TASK, "page fault", frames, True)
    for name in names:
        for prefix in _CALL_PREFIXES:
            if name.startswith(prefix):
                call = name.removeprefix(prefix)
                return Path(ContextKind.TASK, f"system call {call}", frames, True)
    if any(name in _CALLS for name in names):
        return Path(ContextKind.TASK, "system call", frames, True)
    if names and names[0] in _THREADS:
        run = [n for n in names if n not in _THREADS]
        return Path(ContextKind.THREAD, run[0] if run else "", frames, True)
    return Path(ContextKind.TASK, "", frames, False)


def known(ns: int) -> int | None:
    """Return a time; None: it is NEVER."""
    return None if ns == NEVER else ns


class NodeKind(StrEnum):
    """What a node of a tree is, as named in outputs."""

    FRAME = "frame"
    """A function that is known from stacks alone: its times are those of what is below it."""
    FUNCTION = "function"
    """A function with its entry: a span."""
    EVENT = "tracepoint"
    RETURN = "return"
    """A function's return whose entry is not recorded."""


class Finish(StrEnum):
    """Whether a span has an end, and why not, in every output."""

    RETURNED = "returned"
    LOG_ENDED = "the log ended"
    AFTER_DEATH = "the life ended in it"
    """The object was followed no more when it returned."""
    LOST = "records were lost"
    """Its return may be among them."""
    MISSING = "its return is not recorded"
    """Though later hits show that it did return, or the life's end."""


class Ending(StrEnum):
    """How a life ended, in every output."""

    DIED = "ended"
    LOG_ENDED = "no end by the log's end"
    REUSED = "its address was used again"
    NO_ROOM = "no room to wait for its end"
    """Too many hits were waiting for their lives' ends; this life's were the oldest."""


@dataclass(slots=True)
class Node:
    """A function or tracepoint of a tree. Times in ns of CLOCK_MONOTONIC.

    module: "": the kernel itself. context: its number in the life. parent: index of the node above
    in `Life.nodes`; -1: outermost in its context. depth: number of nodes above. begin, cpu: of the
    entry or tracepoint; of a frame the first below it. end, cpu_end: of the return; of a tracepoint
    as begin; of a frame the last below it; NEVER: not known. seen: the last time that the life was
    seen in it, at most its end.
    """

    kind: NodeKind
    name: str
    module: str
    context: int
    parent: int
    depth: int
    begin: int
    end: int
    cpu: int
    cpu_end: int
    seen: int
    hit: int = -1
    """Index in the life's rows of the entry or tracepoint; -1: a frame."""
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
    """A run of a life's hits in one thread, softirq or interrupt.

    number: from 0, in the order of their begins. what: as `Path.what`. tid, comm: of the thread
    that ran or, in an interrupt, that was interrupted; 0: the idle task. cpus: of its hits, in the
    order of the first on each. begin, end: of its first and last hit.
    """

    number: int
    kind: ContextKind
    what: str
    tid: int
    comm: str
    cpus: list[int]
    begin: int
    end: int
    on_top: int = -1
    """Number of the life's context that it interrupted; -1: none."""
    roots: list[int] = field(default_factory=list)
    """Indices of its outermost nodes in `Life.nodes`, in order of time."""


@dataclass(slots=True)
class Life:
    """One life of a followed object, with its tree.

    number: `HIT.life`, from 1 on. object: address. rows: its hits, in order of time. first, last:
    times of its hits. ended, born: times; NEVER: not recorded. left_out: hits beyond the most that
    a life may have. lost: whether records were lost meanwhile. io: number of the request or bio
    that it is; NEVER: none, or not known by its end.
    """

    number: int
    object: int
    rows: HitRows
    first: int
    last: int
    ended: int
    ending: Ending
    left_out: int
    lost: bool
    io: int
    born: int = NEVER
    detail: int = 0
    """Of its first hit that has one, as later ones may tell what is left of it; 0: none has."""
    contexts: list[ContextRun] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    node_of: list[int] = field(default_factory=list)
    """Per row: index of its node in `nodes`."""
    alone: int = 0
    """Returns whose entry is not recorded."""
    unfinished: int = 0
    """Functions whose return is not recorded."""
    cut: bool = False
    """Whether the recorder had no room for some of its hits (`follow --slower`)."""
    unknown_stacks: int = 0
    """Hits whose stack is not in the log."""

    @property
    def hits(self) -> int:
        return len(self.rows)

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

    def walk(self, roots: list[int]) -> Iterator[Node]:
        """Yield the nodes at `roots` and all below, depth first, in order of time."""
        rest = list(reversed(roots))
        while rest:
            node = self.nodes[rest.pop()]
            yield node
            rest += reversed(node.below)
