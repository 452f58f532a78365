# SPDX-License-Identifier: Apache-2.0
"""Rule of the verdict on what programs waited for: which call of whom, for what, beside whom."""

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from biotrail.converters.analysis.report.tree import (
    Caller,
    DeviceReport,
    OperationReport,
    Report,
)
from biotrail.converters.calls.names import WAIT_ONLY
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import called
from biotrail.recorder.schema.syscalls import REAPING_CALLS
from biotrail.text import units

# Parts of an I/O's way through the block layer: their time in a report, their words.

Found = tuple[str, str, dict[str, Any]]
BELOW_SHARE = 0.5
"""A device is below another if at least this share of its bios have a parent."""
READING = "docs/reading.md"
CPU_NEXT = f"who uses the CPUs, and cpu.max: {READING}, For a CPU"
"""What to look at where a thread waits for a CPU."""
STAGES = {
    "D2C": ("D2C",),
    "bio-based": ("bio-based",),
    "Q2G": ("Q2G",),
    "I2D": ("I2D",),
    "plug": ("G2I", "M2I"),
    "G2D": ("G2D", "M2D", "Q2D"),
    "flush": ("flush", "pre-flush", "post-flush"),
    "R2D": ("R2D",),
    "Q2M": ("Q2M",),
    "failed": ("failed",),
    "unknown": ("unknown",),
}
"""Stages that are one part of an I/O's way, by the part's name."""
PART_OF = {stage: part for part, stages in STAGES.items() for stage in stages}
WORDS = {
    "D2C": "in the device (D2C)",
    "bio-based": "in the driver of a device without requests (bio-based)",
    "Q2G": "waiting for a request (Q2G)",
    "I2D": "in the scheduler (I2D)",
    "plug": "held back by the task, in its plug (G2I, M2I)",
    "G2D": "between getting a request and its issue (G2D, M2D)",
    "flush": "waiting for flushes",
    "R2D": "after the driver gave requests back (R2D)",
    "Q2M": "looking for a request to join (Q2M)",
    "failed": "before failing without an issue (failed)",
    "unknown": "in stages that the log does not show",
}
"""Where an I/O is in each part, as the sentences say it."""
NEXT = {
    "D2C": f"In flight and sizes below; {READING}, D2C",
    "bio-based": f"Stacked devices below; {READING}, D2C of a stacked device",
    "Q2G": f"nr_requests, and who queues so much: {READING}, Q2G",
    "I2D": f"biotrail slow: what went ahead; {READING}, I2D",
    "plug": f"merges below; {READING}, G2I, M2I, G2D, M2D",
    "G2D": f"merges below; {READING}, G2I, M2I, G2D, M2D",
    "flush": f"Flush requests below; {READING}, flush",
    "R2D": f"requeues; {READING}, R2D",
    "Q2M": f"busy CPUs; {READING}, Q2M",
    "failed": "biotrail slow --failed",
    "unknown": f"biotrail info: what is missing; {READING}, What is missing",
}
"""What to look at when most time is in a part."""
_PLURALS = {"read": "reads", "write": "writes", "flush": "flushes", "discard": "discards"}


def percent(share: float) -> str:
    """Return a share as a percentage; `more than 99 %` where rounding would give 100."""
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def ios_text(name: str, device: str = "") -> str:
    words = _PLURALS.get(name, f"{name} I/Os")
    return f"{words} on {device}" if device else words


def upper_devices(report: Report) -> list[DeviceReport]:
    """Return the devices with I/O that are not below another (BELOW_SHARE)."""
    children: Counter[str] = Counter()
    for pair in report.stacked:
        children[pair.below] += pair.children
    return [
        device
        for device in report.devices
        if (ios := device.total.bios.ios) and children[device.device] < BELOW_SHARE * ios
    ]


def time_by_part(ones: Iterable[OperationReport]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in ones:
        for stage in one.bios.stages:
            found[PART_OF[stage.stage]] += stage.time.sum
    return found


def upper_operations(report: Report) -> list[tuple[str, OperationReport]]:
    return [(device.device, one) for device in upper_devices(report) for one in device.operations]


# Thresholds of the rule; docs/report.md states each.
WAITED_OF_SPAN, WAITED_OF_CALLS = 0.05, 0.25
CAUSE_SHARE = 0.25
BESIDE_MEAN, BESIDE_SHARE = 0.5, 0.5
OWN_DEPTH = 4
RAN_SHARE = 0.25
QUOTA_SHARE = 0.1


@dataclass(frozen=True)
class _Cause:
    words: str
    next: str
    device: bool = True
    """Whether a device's I/O ends such waits, so that what it had meanwhile says more."""
    apart: bool = True
    """Whether the call would go on at once without the cause: its own I/O it needs."""


_PATH = "docs/path.md"
_CPU = _Cause("a CPU", CPU_NEXT, device=False)
_CAUSES = {
    "CPU": _CPU,
    "own I/O": _Cause(
        "its own I/O", f"the stages below; {READING}, Which stage has the time", apart=False
    ),
    "page read": _Cause(
        "pages that were not in the page cache", "free memory, read_ahead_kb, and --by file"
    ),
    "limit": _Cause(
        "a cgroup's limit",
        f"io.max (v1: blkio.throttle.*) of that cgroup; {READING}, Before Q",
        device=False,
    ),
    "journal": _Cause("the journal's commits", f"{READING}, For the journal's commit"),
    "throttled": _Cause(
        "throttled writing (too many dirty pages)", f"{READING}, For throttled writing"
    ),
    "write-back": _Cause("write-back", "--by writer: whose pages", apart=False),
    "lock": _Cause("a lock", f"what its holder waits for: slow --calls; {_PATH}, Reasons"),
    "memory": _Cause("memory to be freed", "vmstat's si, so and pgscan, and whose memory"),
    "device's queue": _Cause("room in the device's queue", f"nr_requests; {READING}, Q2G"),
    "other I/O": _Cause("I/O that others queued", f"{_PATH}, Reasons of waits", apart=False),
}
"""Name of a cause in figures → words, and what to look at next."""
_REAPED = replace(_CAUSES["own I/O"], words="I/O that earlier calls queued")
"""Other I/O of calls that reap."""
_BY_REASON = {
    WaitReason.CGROUP_LIMIT: "limit",
    WaitReason.IO_COST: "limit",
    WaitReason.IO_LATENCY: "limit",
    WaitReason.JOURNAL_COMMIT: "journal",
    WaitReason.JOURNAL_TRANSACTION: "journal",
    WaitReason.JOURNAL_SPACE: "journal",
    WaitReason.THROTTLED: "throttled",
    WaitReason.LOCK: "lock",
    WaitReason.DIRECTORY: "lock",
    WaitReason.INODE: "lock",
    WaitReason.PAGE_LOCK: "lock",
    WaitReason.MEMORY: "memory",
    WaitReason.REQUEST: "device's queue",
    WaitReason.QUEUE: "device's queue",
    WaitReason.WRITE_LIMIT: "device's queue",
    WaitReason.WRITE_BACK_LIMIT: "device's queue",
    WaitReason.PAGE_READ: "page read",
}
_OF_NAME = {WAIT_REASON_NAMES[reason]: cause for reason, cause in _BY_REASON.items()}
_WRITE_BACK = {WAIT_REASON_NAMES[one] for one in (WaitReason.PAGE_WRITE, WaitReason.WRITE_BACK)}


def waits(report: Report) -> Found | None:
    """A program's calls waited WAITED_OF_SPAN of the time, and WAITED_OF_CALLS of theirs.

    And one cause has CAUSE_SHARE of the calls' time.
    """
    found = [one for one in (_victim(report, each) for each in report.callers) if one]
    if not found:
        return None
    text, next_, figures = found[0]
    return text, next_, {**figures, "others": [one for _, _, one in found[1:]]}


def _victim(report: Report, caller: Caller) -> Found | None:
    """Return the sentence of the calls of one name of one process; None: they did not wait so."""
    causes = _causes(caller)
    call = caller.call
    took, waited = call.time.sum, sum(causes.values())
    if waited < max(WAITED_OF_SPAN * report.span_ns, WAITED_OF_CALLS * took):
        return None
    shown = [(name, ns) for name, ns in causes.most_common() if ns >= CAUSE_SHARE * took]
    if not shown:
        return None
    first, ns = shown[0]
    pid, title = call.name["pid"], call.name.get("title")
    who = f"{called(str(call.name['process']), None if title is None else str(title))} (pid {pid})"
    mean = units.duration(call.time.mean)
    name = call.call.removesuffix(WAIT_ONLY)
    times = units.plural(call.count, "time" if call.call == name else "wait")
    beside, meanwhile = _beside(caller)
    device = next((one for one, _ in shown if _CAUSES[one].device), None)
    told = {one: _cause_of(one, caller) for one, _ in shown}
    parts = [
        f"{percent(of / took)} for {told[one][0].words}{beside if one == device else ''}"
        for one, of in shown
    ]
    text = (
        f"{name} of {who} took {units.duration(took)} of {units.duration(report.span_ns)} "
        f"({times}, {mean} on average): {' and '.join(parts)}"
    )
    without = (took - ns) / call.count if _CAUSES[first].apart else None
    if without is not None:
        of_these = "that" if len(shown) == 1 else "the first"
        text += f"; without {of_these} it would take {units.duration(without)} on average"
    limits, limit_figures = _kept_from_cpus(report, pid, dict(shown).get("CPU", 0))
    text += limits
    cause, _ = told[first]
    next_ = cause.next
    if cause is _CAUSES["other I/O"] and not caller.waits:
        next_ = f"record the part fs, too, which says for what: {_PATH}"
    if first == device and meanwhile.get("beside"):
        victim = str(call.name["process"])
        next_ = (
            f"biotrail blame --by process --victim {shlex.quote(victim)}: what it costs; {next_}"
        )
    figures = {
        **{"call": call.call, "process": call.name["process"], "pid": pid, "title": title},
        **{"count": call.count, "took_ns": took, "waited_ns": waited},
        "causes": [
            {"cause": one, "wait_ns": of, "share": round(of / took, 6)}
            for one, of in causes.most_common()
        ],
        "mean_ns": round(call.time.mean, 3),
        "without_mean_ns": None if without is None else round(without, 3),
        **{key: of for _, whose in told.values() for key, of in whose.items()},
        **(meanwhile if device else {}),
        **limit_figures,
    }
    return text, next_, figures


def _causes(caller: Caller) -> Counter[str]:
    parts = {part.stage: part.time.sum for part in caller.call.parts}
    found: Counter[str] = Counter()
    left = {"own I/O": parts.get("own_io", 0), "other I/O": parts.get("other_io", 0)}
    for wait in caller.waits:
        own = min(wait.own_io_ns, left["own I/O"])
        other = min(wait.ns - wait.own_io_ns, left["other I/O"])
        cause = _OF_NAME.get(wait.reason)
        if cause is None and wait.reason in _WRITE_BACK:
            found["write-back"] += other
            left["other I/O"] -= other
        if cause is None:
            continue
        found[cause] += own + other
        left["own I/O"] -= own
        left["other I/O"] -= other
    found.update({"CPU": parts.get("runnable", 0), **left})
    return +found


def _cause_of(name: str, caller: Caller) -> tuple[_Cause, dict[str, Any]]:
    """Return a cause, with whose limit or lock it was or who ran in its words, and in figures."""
    reaps = caller.call.call.removesuffix(WAIT_ONLY) in REAPING_CALLS
    cause = _REAPED if reaps and name == "other I/O" else _CAUSES[name]
    of = [wait for wait in caller.waits if _OF_NAME.get(wait.reason) == name]
    if name == "CPU":
        whole = {part.stage: part.time.sum for part in caller.call.parts}.get("runnable", 0)
        ns: Counter[tuple[bool, str]] = Counter()
        for one in caller.ran:
            ns[one.pid == caller.call.name["pid"], one.process] += one.ns
        [((own, ran), longest)] = ns.most_common(1) or [((False, ""), 0)]
        share = longest / max(whole, longest, 1)
        if ns and share >= RAN_SHARE:
            who = "its own other threads" if own else ran
            said = f" ({percent(share)} of that {who} ran instead)" if ran else ""
            words = f"{cause.words}{said}"
            figures = {"ran": ran, "ran_own": own, "ran_share": round(share, 6)}
            return replace(cause, words=words), figures
    if name == "limit":
        limits = Counter[str]()
        for wait in of:
            if wait.limit:
                limits[wait.limit] += wait.ns
        if limits:
            limit = limits.most_common(1)[0][0]
            return replace(cause, words=f"the limit of cgroup {limit}"), {"limit": limit}
    if name == "lock" and (held := [wait.waker for wait in of if wait.waker is not None]):
        most = max(held, key=lambda who: who.ns)
        holder = called(most.process, most.title)
        words = f"a lock that {holder} (pid {most.pid}) had"
        return replace(cause, words=words), {"holder": holder, "holder_pid": most.pid}
    return cause, {}


def _kept_from_cpus(report: Report, pid: object, waited: int) -> tuple[str, dict[str, Any]]:
    """Return what of `waited` (ns) for a CPU a quota and the hypervisor may have."""
    text, figures = "", dict[str, Any]()
    least = max(QUOTA_SHARE * waited, 1)
    own = [group for group in report.throttled if pid in group.pids]
    for group in own[:1] if waited else []:
        if group.ns >= least:
            at_most = min(group.ns, waited)
            text += f"; at most {units.duration(at_most)} of that is "
            text += f"the CPU quota of cgroup {group.cgroup}"
            figures |= {"quota_cgroup": group.cgroup, "quota_at_most_ns": at_most}
    if waited and report.steal_ns >= least:
        at_most = min(report.steal_ns, waited)
        text += f"; at most {units.duration(at_most)} is the hypervisor's (steal)"
        figures["steal_at_most_ns"] = at_most
    return text, figures


def _beside(caller: Caller) -> tuple[str, dict[str, Any]]:
    """Return what the device had meanwhile, as a clause and figures.

    Named are others' I/Os of one process and operation that were in flight BESIDE_MEAN of the time
    and are BESIDE_SHARE of all, and the process's own where they are OWN_DEPTH.
    """
    pid = caller.call.name["pid"]
    means: dict[str, dict[tuple[bool, str, str], float]] = {}
    size: Counter[tuple[str, tuple[bool, str, str]]] = Counter()
    own: dict[str, float] = {}
    for one in caller.beside:
        party = one.party
        key = party.pid == pid, party.process or "", party.operation
        there = means.setdefault(party.device, {})
        there[key] = there.get(key, 0.0) + one.mean
        size[party.device, key] += one.bytes
        own[party.device] = own.get(party.device, 0.0) + one.mean * (party.pid == pid)
    if not means:
        return "", {}
    device = max(means, key=lambda name: (own[name], sum(means[name].values())))
    mine, process, operation = first = max(means[device], key=lambda key: means[device][key])
    mean = means[device][first]
    share = mean / sum(means[device].values())
    figures = {"device": device, "operation": operation, "in_flight": round(mean, 3)}
    on = f"on {device}"
    if mine:
        if mean < OWN_DEPTH:
            return f" {on}", {"device": device}
        text = f", with {mean:.3g} of its own {ios_text(operation)} in flight {on} meanwhile"
        return text, {**figures, "beside": None}
    if not process or mean < BESIDE_MEAN or share < BESIDE_SHARE:
        return f" {on}", {"device": device}
    done = size[device, first]
    text = f", beside {ios_text(operation)} of {process} {on} ({mean:.3g} in flight meanwhile"
    text += f", {units.size(done)} done)" if done else ")"
    carried = sum(of for party, of in caller.carried.items() if party.process == process)
    if carried:
        text += f"; commits wrote {units.size(carried)} of its data"
    figures = {**figures, "beside": process, "beside_bytes": done, "carried_bytes": carried}
    return text, figures
