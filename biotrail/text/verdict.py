# SPDX-License-Identifier: Apache-2.0
"""State in a few sentences what a report shows: where time goes, for whom, and what to check next.

Each sentence is a rule's: a condition on the report's own figures, with its threshold in
docs/report.md. A rule whose condition does not hold yields no sentence.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from biotrail.converters.analysis.report.tails import Tail
from biotrail.converters.analysis.report.tree import DeviceReport, OperationReport, Report
from biotrail.text import units

SHOWN = 3
"""Most sentences in text and on a page; the JSON has all."""
# Thresholds of the rules; docs/report.md states each with its rule.
MAIN_SHARE = 0.5
FLUSH_SHARE = 0.1
TAIL_SHARE, TAIL_LEAST, TAIL_OF = 0.1, 5, 100
BESIDE_TIMES, BESIDE_LEAST = 4, 64 << 10
WITHOUT_SHARE = 0.05
TRIES_SHARE = 0.1
REQUEUED_SHARE = 0.01
SPLIT_SHARE, SPLIT_LEAST = 0.5, 100
ACTIVE_SHARE = 0.25
BELOW_SHARE = 0.5
"""A device is below another if at least this share of its bios have a parent."""

_READING = "docs/reading.md"
_PARTS = {
    "D2C": ("D2C",),
    "bio-based": ("bio-based",),
    "Q2G": ("Q2G",),
    "I2D": ("I2D",),
    "plug": ("G2I", "G2D", "M2D", "Q2D"),
    "flush": ("flush", "pre-flush", "post-flush"),
    "R2D": ("R2D",),
    "Q2M": ("Q2M",),
    "failed": ("failed",),
    "unknown": ("unknown",),
}
"""Stages that are one part of an I/O's way, by the part's name."""
_WORDS = {
    "D2C": "in the device (D2C)",
    "bio-based": "in the driver of a device without requests (bio-based)",
    "Q2G": "waiting for a request (Q2G)",
    "I2D": "in the scheduler (I2D)",
    "plug": "between getting a request and its issue (G2I, G2D, M2D)",
    "flush": "waiting for flushes",
    "R2D": "after the driver gave requests back (R2D)",
    "Q2M": "looking for a request to join (Q2M)",
    "failed": "before failing without an issue (failed)",
    "unknown": "in stages that the log does not show",
}
"""Where an I/O is in each part, as the sentences say it."""
_NEXT = {
    "D2C": f"In flight and sizes below; {_READING}, D2C",
    "bio-based": f"Stacked devices below; {_READING}, D2C of a stacked device",
    "Q2G": f"nr_requests, and who queues so much: {_READING}, Q2G",
    "I2D": f"biotrail slow: what went ahead; {_READING}, I2D",
    "plug": f"merges below; {_READING}, G2I, G2D, M2D",
    "flush": f"Flush requests below; {_READING}, flush",
    "R2D": f"requeues; {_READING}, R2D",
    "Q2M": f"busy CPUs; {_READING}, Q2M",
    "failed": "biotrail slow --failed",
    "unknown": f"biotrail info: what is missing; {_READING}, What is missing",
}
"""What to look at when most time is in a part."""
_PLURALS = {"read": "reads", "write": "writes", "flush": "flushes", "discard": "discards"}


@dataclass(frozen=True)
class Sentence:
    """One finding. next: what to look at; figures: the numbers that the text states."""

    rule: str
    text: str
    next: str
    figures: dict[str, Any]


Found = tuple[str, str, dict[str, Any]]
"""Text, what to look at next, figures."""


@dataclass(frozen=True)
class Rule:
    """A rule. find: returns the finding, None where the rule's condition does not hold."""

    name: str
    find: Callable[[Report], Found | None]


def verdict(report: Report) -> list[Sentence]:
    """Return the sentences of all rules whose conditions hold, in the order of RULES."""
    found = ((rule.name, rule.find(report)) for rule in RULES)
    return [Sentence(name, *said) for name, said in found if said is not None]


def lines(said: list[Sentence]) -> list[str]:
    """Return the first SHOWN sentences for people, each with what to look at next."""
    found = [f"* {one.text}. Next: {one.next}." for one in said[:SHOWN]]
    more = len(said) - SHOWN
    return [*found, *([f"* {units.plural(more, 'more sentence')} in --json"] if more > 0 else [])]


def as_dicts(said: list[Sentence]) -> list[dict[str, Any]]:
    """Return all sentences for JSON; docs/report.md names every key."""
    return [
        {"rule": s.rule, "sentence": s.text, "next": s.next, "figures": s.figures} for s in said
    ]


# Helpers of the rules


def _percent(share: float) -> str:
    """Return a share as a percentage; `more than 99 %` where rounding would give 100."""
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _ios(name: str) -> str:
    """Return an operation's plural: `reads`, `write_zeroes I/Os`."""
    return _PLURALS.get(name, f"{name} I/Os")


def _operation(one: OperationReport) -> str:
    """Return the operation's name."""
    return str(one.bios.name["operation"])


def _where(device: str, name: str) -> str:
    """Return which I/O a sentence is about: `writes on sda`."""
    return f"{_ios(name)} on {device}"


def _upper(report: Report) -> list[DeviceReport]:
    """Return the devices with I/O that are not below another (BELOW_SHARE)."""
    children: Counter[str] = Counter()
    for pair in report.stacked:
        children[pair.below] += pair.children
    return [
        device
        for device in report.devices
        if (ios := device.total.bios.counters["ios"])
        and children[device.device] < BELOW_SHARE * ios
    ]


def _parts(ones: Iterable[OperationReport]) -> Counter[str]:
    """Return the time of the operations' bios by part, ns."""
    of = {stage: part for part, stages in _PARTS.items() for stage in stages}
    found: Counter[str] = Counter()
    for one in ones:
        for stage in one.bios.stages:
            found[of[stage.stage]] += stage.time.sum
    return found


def _operations(report: Report) -> list[tuple[str, OperationReport]]:
    """Return (device, operation) for all operations of upper devices."""
    return [(device.device, one) for device in _upper(report) for one in device.operations]


# The rules. Each returns its finding if the condition in its docstring holds, else None.


def _no_io(report: Report) -> Found | None:
    """No bio was recorded."""
    if report.total.bios.counters["ios"]:
        return None
    figures = {"count": 0}
    return "No I/O was recorded", "biotrail info: the filters, and what is missing", figures


def _time(report: Report) -> tuple[Counter[str], int]:
    """Return the time of all bios of upper devices by part, and in all, ns."""
    parts = _parts(one for _, one in _operations(report))
    return parts, sum(parts.values())


def _main_part(report: Report) -> Found | None:
    """One part of the way has MAIN_SHARE of the time or more."""
    parts, whole = _time(report)
    if not whole:
        return None
    [(part, ns)] = parts.most_common(1)
    if ns < MAIN_SHARE * whole:
        return None
    device, one = max(_operations(report), key=lambda pair: _parts([pair[1]])[part])
    mine, name = _parts([one])[part], _operation(one)
    text = (
        f"{_percent(ns / whole)} of the time of I/O is {_WORDS[part]}, {_percent(mine / ns)} of "
        f"that for {_where(device, name)}, whose latency is {_duration(one)} on average"
    )
    figures = {
        "stages": list(_PARTS[part]),
        "share": round(ns / whole, 6),
        "device": device,
        "operation": name,
        "operation_share": round(mine / ns, 6),
        "mean_ns": round(one.bios.latency.mean, 3),
    }
    who, who_figures = _main_process(report)
    return text + who, _NEXT[part], {**figures, **who_figures}


def _duration(one: OperationReport) -> str:
    """Return the mean latency of an operation's bios, as text."""
    return units.duration(one.bios.latency.mean)


def _main_process(report: Report) -> tuple[str, dict[str, Any]]:
    """Return who has most of the time, as words and figures; both empty if nobody has half of it.

    Nobody is named if some device is below another: the kernel's threads queue its bios.
    """
    whole = report.total.bios.latency.sum
    known = [one for one in report.processes if one.name.get("process") is not None]
    if not known or not whole or len(_upper(report)) < len(report.devices):
        return "", {}
    first = max(known, key=lambda one: one.latency.sum)
    share = first.latency.sum / whole
    if share < MAIN_SHARE:
        return "", {}
    name, pid = str(first.name["process"]), first.name["pid"]
    text = f"; {_percent(share)} of all time is of {name} (pid {pid})"
    return text, {"process": name, "pid": pid, "process_share": round(share, 6)}


def _spread(report: Report) -> Found | None:
    """No part of the way has MAIN_SHARE of the time."""
    parts, whole = _time(report)
    ranked = parts.most_common(2)
    if not whole or ranked[0][1] >= MAIN_SHARE * whole:
        return None
    shares = " and ".join(f"{_percent(ns / whole)} {_WORDS[part]}" for part, ns in ranked)
    text = f"No part of the way has half of the time of I/O: most is {shares}"
    figures = {
        "stages": [stage for part, _ in ranked for stage in _PARTS[part]],
        "shares": [round(ns / whole, 6) for _, ns in ranked],
    }
    return text, _NEXT[ranked[0][0]], figures


def _failed(report: Report) -> Found | None:
    """Bios failed; the operation with most of them is named."""
    failed = [(d, one) for d, one in _operations(report) if one.bios.counters["failed"]]
    if not failed:
        return None
    device, one = max(failed, key=lambda pair: pair[1].bios.counters["failed"])
    count, errors = one.bios.counters["failed"], one.bios.errors
    of = one.bios.counters["ios"]
    names = ", ".join(f"{name} {units.count(n)}" for name, n in errors.items())
    text = f"{units.count(count)} of {units.count(of)} {_where(device, _operation(one))} failed"
    figures = {"device": device, "operation": _operation(one), "count": count, "of": of}
    next_ = "biotrail slow --failed, and dmesg"
    return f"{text} ({names})", next_, {**figures, "errors": errors}


def _without(report: Report) -> Found | None:
    """WITHOUT_SHARE of the bios or more have no latency."""
    count, of = report.percentiles.without, report.total.bios.counters["ios"]
    if not of or count < WITHOUT_SHARE * of:
        return None
    text = (
        f"{_percent(count / of)} of the bios have no beginning or no end in the log, and are in "
        "no latency"
    )
    return text, f"what is missing, below; {_READING}, What is missing", _counted(count, of)


def _counted(count: int, of: int) -> dict[str, Any]:
    """Return the figures of a share."""
    return {"count": count, "of": of, "share": round(count / of, 6)}


def _flushes(report: Report) -> Found | None:
    """Flushes are FLUSH_SHARE or more of a device's time; the device with most of it is named."""
    found = []
    for device in _upper(report):
        parts = _parts(device.operations)
        ns, whole = parts["flush"], sum(parts.values())
        if device.flushes and device.flushes.requests and ns and ns >= FLUSH_SHARE * whole:
            found.append((ns, whole, device.device, device.flushes))
    if not found:
        return None
    ns, whole, name, flushes = max(found, key=lambda one: one[:3])
    each = f"{flushes.bios_per_request:.3g}"
    text = (
        f"Flushes of {name} (fsync, FUA) are {_percent(ns / whole)} of its I/O's "
        f"time: {units.plural(flushes.requests, 'request')} of {units.duration(flushes.time.mean)} "
        f"on average, with {each} waiting {'bio' if each == '1' else 'bios'} for each"
    )
    figures = {
        "device": name,
        "share": round(ns / whole, 6),
        "count": flushes.requests,
        "bios_per_request": round(flushes.bios_per_request, 6),
        "mean_ns": round(flushes.time.mean, 3),
    }
    return text, f"who calls fsync, and how often: {_READING}, flush", figures


def _tail(report: Report) -> Found | None:
    """A few I/Os, far slower than the median, have TAIL_SHARE or more of an operation's time."""
    upper = {device.device for device in _upper(report)}
    for tail in report.tails:
        enough = tail.count >= TAIL_LEAST and tail.of >= TAIL_OF
        if tail.device not in upper or not enough or tail.ns < TAIL_SHARE * tail.of_ns:
            continue
        of = {stage: part for part, stages in _PARTS.items() for stage in stages}
        parts: Counter[str] = Counter()
        for stage, ns in tail.stages.items():
            parts[of[stage]] += ns
        [(part, ns)] = parts.most_common(1) or [("unknown", 0)]
        in_part = ns / max(sum(parts.values()), 1)
        text = (
            f"{_percent(tail.count / tail.of)} of {_where(tail.device, tail.operation)} took "
            f"{units.duration(tail.from_ns)} or more, at least 10 times their median of "
            f"{units.duration(tail.median_ns)}, and have {_percent(tail.ns / tail.of_ns)} of the "
            f"time of all of them; {_percent(in_part)} of theirs is {_WORDS[part]}{_beside(tail)}"
        )
        figures = {
            **{"device": tail.device, "operation": tail.operation},
            **_counted(tail.count, tail.of),
            **{"median_ns": tail.median_ns, "from_ns": tail.from_ns},
            "time_share": round(tail.ns / tail.of_ns, 6),
            "stages": list(_PARTS[part]),
            "stages_share": round(in_part, 6),
            "beside_bytes": round(tail.beside, 3),
            "beside_others_bytes": round(tail.beside_others, 3),
        }
        command = f"biotrail slow -d {tail.device} --op {tail.operation}"
        return text, f"{command}: what was ahead of the slowest", figures
    return None


def _beside(tail: Tail) -> str:
    """Return what slow I/Os met in flight, if much more than others met; else an empty text."""
    least = max(BESIDE_TIMES * tail.beside_others, BESIDE_LEAST)
    if tail.beside < least:
        return ""
    return (
        f"; when they were queued, {units.size(tail.beside)} of other operations were in flight "
        f"on average, and {units.size(tail.beside_others)} for those that were not slow"
    )


def _tries(report: Report) -> Found | None:
    """NOWAIT tries failed, TRIES_SHARE or more of the number of bios."""
    counters = report.total.bios.counters
    count, of = counters["tries"], counters["ios"]
    if not count or count < TRIES_SHARE * of:
        return None
    text = (
        f"{units.plural(count, 'NOWAIT try', 'NOWAIT tries')} failed at once (AGAIN) beside "
        f"{units.plural(of, 'I/O')}"
    )
    figures = {"count": count, "of": of}
    return text, f"nr_requests and the depth of io_uring; {_READING}, Q2G", figures


def _requeued(report: Report) -> Found | None:
    """Drivers requeued REQUEUED_SHARE or more of the requests."""
    counters = report.total.requests.counters
    count, of = counters["requeues"], counters["ios"]
    if not count or count < REQUEUED_SHARE * of:
        return None
    text = f"Drivers gave requests back {units.plural(count, 'time')}, of {units.count(of)} in all"
    return text, f"{_READING}, R2D", {"count": count, "of": of}


def _split(report: Report) -> Found | None:
    """SPLIT_SHARE or more of an operation's bios were split, and SPLIT_LEAST at least."""
    found = [
        (one.bios.counters["split"], device, one)
        for device, one in _operations(report)
        if one.bios.counters["split"] >= max(SPLIT_LEAST, SPLIT_SHARE * one.bios.counters["ios"])
    ]
    if not found:
        return None
    count, device, one = max(found, key=lambda each: each[0])
    of, name = one.bios.counters["ios"], _operation(one)
    text = f"{_percent(count / of)} of {_where(device, name)} were split"
    figures = {"device": device, "operation": name, **_counted(count, of)}
    return text, f"max_sectors_kb; {_READING}, Splits", figures


def _idle(report: Report) -> Found | None:
    """No device was active for ACTIVE_SHARE of the time."""
    spans = [
        (device.queue.busy_ns, device.queue.busy_ns + device.queue.idle_ns, device.device)
        for device in _upper(report)
    ]
    known = [(busy / whole, name) for busy, whole, name in spans if whole]
    if not known or max(known)[0] >= ACTIVE_SHARE:
        return None
    share, name = max(known)
    others = ", other devices for less" if len(known) > 1 else ""
    text = f"{name} had I/O in flight for {_percent(share)} of the time{others}"
    figures = {"device": name, "share": round(share, 6)}
    return text, "what the programs do between their I/Os", figures


RULES = (
    Rule("no-io", _no_io),
    Rule("main-part", _main_part),
    Rule("spread", _spread),
    Rule("failed", _failed),
    Rule("flushes", _flushes),
    Rule("tail", _tail),
    Rule("without-latency", _without),
    Rule("requeued", _requeued),
    Rule("split", _split),
    Rule("tries", _tries),
    Rule("mostly-idle", _idle),
)
"""All rules, in the order of their sentences."""
