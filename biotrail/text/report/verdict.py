# SPDX-License-Identifier: Apache-2.0
"""State in a few sentences what a report shows: where time goes, for whom, and what to check next.

Each sentence is a rule's: a function that returns a finding if the condition in its docstring
holds, else None. A condition is on the report's own figures; docs/report.md has its threshold.
"""

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import called
from biotrail.text import tallies, units
from biotrail.text.report.cells import RECORDER_SHARE, process_words
from biotrail.text.report.verdict_waits import (
    CPU_NEXT,
    NEXT,
    PART_OF,
    READING,
    STAGES,
    WORDS,
    Found,
    ios_text,
    percent,
    time_by_part,
    upper_devices,
    upper_operations,
    waits,
)

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
DOUBTFUL_SHARE, DOUBTFUL_TIME = 0.01, 0.1
HELD_SHARE = 0.25
READY_SHARE = 0.25
BLAME_SHARE, BLAME_OF_SPAN = 0.25, 0.05
PURPOSE_SHARE = 0.5
PURPOSES = {
    "swap": (
        "swap",
        "memory: vmstat's si and so, and whose pages; docs/path.md, What a bio is for",
    ),
    "readahead": (
        "readahead",
        "read_ahead_kb, and who reads: --by file; docs/path.md, What a bio is for",
    ),
    "journal": ("the journal's", f"who calls fsync, and how often: {READING}, flush"),
    "discard": (
        "discards (trims)",
        "the mount option discard, fstrim's timer, who removes files: --by process",
    ),
}
"""Purposes that are spoken of: words, and what to look at next."""
CGROUP_LIMIT = WAIT_REASON_NAMES[WaitReason.CGROUP_LIMIT]


def _no_io(report: Report) -> Found | None:
    """No bio was recorded, nor pairs of events in their place."""
    if report.total.bios.ios or report.pairs:
        return None
    requests = report.total.requests.ios
    figures = {"count": 0, "requests": requests}
    if requests:
        text = f"No bios were recorded, only {units.plural(requests, 'request')}"
        return text, "D2C of requests below; docs/inputs.md, what to record", figures
    return "No I/O was recorded", "biotrail info: the filters, and what is missing", figures


def _hangs(report: Report) -> Found | None:
    """A device had I/O when the log ended, and had completed none for a second or more."""
    if not report.hanging:
        return None
    one = report.hanging[0]
    number = one.requests or one.bios
    what = one.operations[0] if len(one.operations) == 1 else "I/O"
    size = f" of {units.size(one.bytes)}" if one.bytes else ""
    plural = number != 1
    text = f"{units.count(number)} {ios_text(what) if plural else what}{size} on {one.device} had "
    text += "not completed when the log ended, "
    if one.since_issue_ns is None:
        text += (
            f"{units.duration(one.since_queue_ns)} after the Q of {'the first' if plural else 'it'}"
        )
        text += (
            ", and the driver has none of them" if plural else ", and the driver does not have it"
        )
    else:
        first = "the first issue" if plural else "its issue"
        text += f"{units.duration(one.since_issue_ns)} after {first}"
    if one.completes_none_ns < one.since_queue_ns:
        text += f"; {one.device} completed nothing in the last "
        text += units.duration(one.completes_none_ns)
    if one.who is not None:
        who = called(one.who.process, one.who.title)
        text += f"; {who} ({one.tid}) queued {'the first' if plural else 'it'}"
        text += f" in {one.call}" if one.call else ""
    others = [each.device for each in report.hanging[1:]]
    if others:
        text += f"; {', '.join(others)} likewise"
    figures = {
        **{"device": one.device, "operations": one.operations, "count": number, "bios": one.bios},
        **{"bytes": one.bytes, "since_queue_ns": one.since_queue_ns},
        **{"since_issue_ns": one.since_issue_ns, "completes_none_ns": one.completes_none_ns},
        **{
            "process": one.who.process if one.who else None,
            "pid": one.who.pid if one.who else None,
        },
        **{"tid": one.tid or None, "call": one.call, "others": others},
    }
    next_ = f"biotrail slow -d {one.device}: what still was in flight; dmesg; {READING}, "
    return text, next_ + "What is missing, if it was only not seen to complete", figures


def _held(report: Report) -> Found | None:
    """Limits have HELD_SHARE of what calls waited; without waits: HELD_SHARE of the bios."""
    if not report.held:
        return None
    one = report.held[0]
    name = ios_text(one.operation, one.device)
    of = sum(
        each.bios.ios
        for device in report.devices
        for each in device.operations
        if device.device == one.device and each.operation == one.operation
    )
    waited = sum(wait.time.sum for wait in report.waits)
    ns = sum(wait.time.sum for wait in report.waits if wait.reason == CGROUP_LIMIT)
    share = ns / waited if waited else one.bios / max(of, 1)
    if share < HELD_SHARE:
        return None
    of_whom = f" of {one.process} (pid {one.pid})" if one.process else ""
    text = (
        f"The limit of cgroup {one.cgroup or '(not known)'} held {units.count(one.bios)} of "
        f"{units.count(of)} {name}{of_whom} before they were queued, for "
    )
    known = one.time.count
    text += f"{units.duration(one.time.mean)} on average" if known else "how long is not known"
    if 0 < known < one.bios:
        text += f", {units.count(one.bios - known)} of them for a time not known"
    if waited:
        text += f"; calls waited for limits for {units.duration(ns)} of {units.duration(waited)}"
    figures = {
        **{"cgroup": one.cgroup, "device": one.device, "operation": one.operation},
        **_counted(one.bios, of),
        **{"known": one.time.count, "held_ns": one.time.sum},
        **{"waited_ns": ns, "of_waited_ns": waited},
    }
    return text, f"io.max (v1: blkio.throttle.*) of that cgroup; {READING}, Before Q", figures


def _blamed(report: Report) -> Found | None:
    """One party's I/O has BLAME_SHARE of a victim's time, and the victim BLAME_OF_SPAN of all."""
    if report.blamed is None:
        return None
    from biotrail.converters.analysis.blame.tree import OTHERS
    from biotrail.text.blame import whose, without_them

    found = [
        (part.wait_ns, victim, part.culprit)
        for victim in report.blamed.victims
        for part in victim.parts
        if part.culprit not in (None, OTHERS)
        and victim.name != OTHERS
        and victim.wait_ns >= BLAME_OF_SPAN * report.span_ns
        and part.wait_ns >= max(BLAME_SHARE * victim.wait_ns, 1)
    ]
    if not found:
        return None
    ns, victim, culprit = max(found, key=lambda one: one[0])
    assert culprit is not None
    by = report.blamed.victim_by
    share = ns / victim.wait_ns
    text = f"{percent(share)} of the time of {victim.name}'s I/O is waiting behind "
    text += whose(victim, culprit, of_operations=False)
    told = next((one for one in victim.without if one.culprit == culprit), None)
    if told is not None:
        text += f": {without_them(victim, told)}"
    figures = {
        **{"by": by, "victim": victim.name, "culprit": culprit, "share": round(share, 6)},
        **{"wait_ns": ns, "count": victim.ios, "mean_ns": round(victim.mean_ns, 3)},
        "without_mean_ns": None if told is None else round(told.mean_ns, 3),
    }
    next_ = f"biotrail blame --by {by} --victim {shlex.quote(victim.name)}; docs/blame.md"
    return text, next_, figures


def _purpose(report: Report) -> Found | None:
    """Swap, readahead, a journal or discards have PURPOSE_SHARE or more of a device's time."""
    upper = {device.device for device in upper_devices(report)}
    time: Counter[str] = Counter()
    for one in report.purposes:
        time[one.device] += one.ns
    found = [
        one
        for one in report.purposes
        if one.device in upper
        and one.purpose in PURPOSES
        and one.ns
        and one.ns >= PURPOSE_SHARE * time[one.device]
    ]
    if not found:
        return None
    one = max(found, key=lambda each: each.ns)
    share = one.ns / time[one.device]
    what, next_ = PURPOSES[one.purpose]
    text = f"{percent(share)} of the time of I/O on {one.device} is {what}"
    text += f": {units.plural(one.ios, 'bio')}"
    figures = {
        "device": one.device,
        "purpose": one.purpose,
        "share": round(share, 6),
        "count": one.ios,
    }
    return text, next_, figures


def _main_part(report: Report) -> Found | None:
    """One part of the way has MAIN_SHARE of the time or more."""
    parts = time_by_part(one for _, one in upper_operations(report))
    total_ns = parts.total()
    if not total_ns:
        return None
    [(part, ns)] = parts.most_common(1)
    if ns < MAIN_SHARE * total_ns:
        return None
    device, one = max(upper_operations(report), key=lambda pair: time_by_part([pair[1]])[part])
    mine, name = time_by_part([one])[part], one.operation
    text = (
        f"{percent(ns / total_ns)} of the time of I/O is {WORDS[part]}, {percent(mine / ns)} of "
        f"that for {ios_text(name, device)}"
    )
    if one.bios.latency.count:
        text += f", whose latency is {units.duration(one.bios.latency.mean)} on average"
        if (every := one.bios.with_doubtful) is not None:
            count = units.count(one.bios.counters["doubtful"])
            text += f" (without {count} in doubt; {units.duration(every.mean)} with)"
    figures = {
        "stages": list(STAGES[part]),
        "share": round(ns / total_ns, 6),
        "device": device,
        "operation": name,
        "operation_share": round(mine / ns, 6),
        "mean_ns": round(one.bios.latency.mean, 3) if one.bios.latency.count else None,
    }
    if (every := one.bios.with_doubtful) is not None:
        figures["doubtful"] = one.bios.counters["doubtful"]
        figures["with_doubtful_mean_ns"] = round(every.mean, 3)
    own, ready = _shares_of(report, part, ns)
    if own:
        text += f"; about {percent(own)} of that part is the recorder's own programs"
        figures["recorder_share"] = round(own, 6)
    if ready:
        text += f"; for {percent(ready)} of that part or more its threads were ready to run, "
        text += "without a CPU"
        figures["without_cpu_share"] = round(ready, 6)
    # Who has half of the time; nobody where the kernel's threads queue for others.
    known = [one for one in report.processes if one.name.get("process") is not None]
    if known and len(upper_devices(report)) == len(report.devices):
        first = max(known, key=lambda one: one.latency.sum)
        share = first.latency.sum / max(report.total.bios.latency.sum, 1)
        if share >= MAIN_SHARE:
            who, pid = str(process_words(first.name)), first.name["pid"]
            text += f"; {percent(share)} of all time is of {who}"
            text += "" if pid is None else f" (pid {pid})"
            figures |= {"process": who, "pid": pid, "title": first.name.get("title")}
            figures["process_share"] = round(share, 6)
    return text, CPU_NEXT if ready else NEXT[part], figures


def _shares_of(report: Report, part: str, ns: int) -> tuple[float, float]:
    """Return what of a part (ns) is the recorder's own programs', and threads' without a CPU.

    Shares of the part; 0 if less than RECORDER_SHARE and READY_SHARE.
    """
    stages = [
        stage
        for _, one in upper_operations(report)
        for stage in one.bios.stages
        if stage.stage in STAGES[part]
    ]
    taken = sum(one.recorder_share * one.time.sum for one in stages)
    own = taken / max(sum(one.time.sum for one in stages), 1)
    upper = {device.device for device in upper_devices(report)}
    found = sum(one.ns for one in report.ready if one.device in upper and one.stage in STAGES[part])
    ready = min(found / ns, 1.0) if found else 0.0
    return own if own >= RECORDER_SHARE else 0.0, ready if ready >= READY_SHARE else 0.0


def _spread(report: Report) -> Found | None:
    """No part of the way has MAIN_SHARE of the time."""
    parts = time_by_part(one for _, one in upper_operations(report))
    total_ns = parts.total()
    ranked = parts.most_common(2)
    if not total_ns or ranked[0][1] >= MAIN_SHARE * total_ns:
        return None
    own, ready = zip(*(_shares_of(report, part, ns) for part, ns in ranked), strict=True)
    shares = " and ".join(
        f"{percent(ns / total_ns)} {WORDS[part]}"
        + (f" (about {percent(mine)} of it the recorder's own programs)" if mine else "")
        + (f" ({percent(cpu)} of it or more without a CPU)" if cpu else "")
        for (part, ns), mine, cpu in zip(ranked, own, ready, strict=True)
    )
    text = f"No part of the way has half of the time of I/O: most is {shares}"
    figures = {
        "stages": [stage for part, _ in ranked for stage in STAGES[part]],
        "shares": [round(ns / total_ns, 6) for _, ns in ranked],
        **({"recorder_shares": [round(one, 6) for one in own]} if any(own) else {}),
        **({"without_cpu_shares": [round(one, 6) for one in ready]} if any(ready) else {}),
    }
    return text, CPU_NEXT if ready[0] else NEXT[ranked[0][0]], figures


def _failed(report: Report) -> Found | None:
    """Bios failed; the operation with most of them is named."""
    failed = [(d, one) for d, one in upper_operations(report) if one.bios.counters["failed"]]
    if not failed:
        return None
    device, one = max(failed, key=lambda pair: pair[1].bios.counters["failed"])
    count, errors = one.bios.counters["failed"], one.bios.errors
    of = one.bios.ios
    statuses = ", ".join(f"{status} {units.count(n)}" for status, n in errors.items())
    name = one.operation
    text = f"{units.count(count)} of {units.count(of)} {ios_text(name, device)} failed"
    figures = {"device": device, "operation": name, "count": count, "of": of}
    next_ = "biotrail slow --failed, and dmesg"
    return f"{text} ({statuses})", next_, {**figures, "errors": errors}


def _without(report: Report) -> Found | None:
    """WITHOUT_SHARE of the bios or more have no latency."""
    count, of = report.percentiles.without, sum(report.certainty.values())
    if not of or count < WITHOUT_SHARE * of:
        return None
    text = (
        f"{percent(count / of)} of the bios have no beginning or no end in the log, and are in "
        "no latency"
    )
    return text, f"what is missing, below; {READING}, What is missing", _counted(count, of)


def _counted(count: int, of: int) -> dict[str, Any]:
    return {"count": count, "of": of, "share": round(count / of, 6)}


def _doubtful(report: Report) -> Found | None:
    """Latencies are in doubt, DOUBTFUL_SHARE of an operation's or DOUBTFUL_TIME of its time."""
    found = []
    for device, one in upper_operations(report):
        every, count = one.bios.with_doubtful, one.bios.counters["doubtful"]
        if every is None:
            continue
        ns = every.sum - one.bios.latency.sum
        if count >= DOUBTFUL_SHARE * every.count or ns >= DOUBTFUL_TIME * every.sum:
            found.append((ns, device, one, every))
    if not found:
        return None
    _, device, one, every = max(found, key=lambda each: each[0])
    count, of, name = one.bios.counters["doubtful"], every.count, one.operation
    about = f"of {ios_text(name, device)}"
    text = tallies.doubtful_text(count, of, about, (every.mean, every.p99))
    figures = {
        **{"device": device, "operation": name, **_counted(count, of)},
        **{"doubtful": count, "with_doubtful_mean_ns": round(every.mean, 3)},
    }
    return text, f"--include-ambiguous counts them; {READING}, Latencies in doubt", figures


def _flushes(report: Report) -> Found | None:
    """Flushes are FLUSH_SHARE or more of a device's time; the device with most of it is named."""
    found = []
    for device in upper_devices(report):
        parts = time_by_part(device.operations)
        ns, total_ns = parts["flush"], sum(parts.values())
        if device.flushes and device.flushes.requests and ns and ns >= FLUSH_SHARE * total_ns:
            found.append((ns, total_ns, device.device, device.flushes))
    if not found:
        return None
    ns, total_ns, name, flushes = max(found, key=lambda one: one[:3])
    each = f"{flushes.bios_per_request:.3g}"
    lasted = f" of {units.duration(flushes.time.mean)} on average" if flushes.time.count else ""
    text = (
        f"Flushes of {name} (fsync, FUA) are {percent(ns / total_ns)} of its I/O's "
        f"time: {units.plural(flushes.requests, 'request')}{lasted}, "
        f"with {each} waiting {'bio' if each == '1' else 'bios'} for each"
    )
    figures = {
        "device": name,
        "share": round(ns / total_ns, 6),
        "count": flushes.requests,
        "bios_per_request": round(flushes.bios_per_request, 6),
        "mean_ns": round(flushes.time.mean, 3) if flushes.time.count else None,
    }
    return text, f"who calls fsync, and how often: {READING}, flush", figures


def _tail(report: Report) -> Found | None:
    """A few I/Os, far slower than the median, have TAIL_SHARE or more of an operation's time."""
    upper = {device.device for device in upper_devices(report)}
    for tail in report.tails:
        enough = tail.count >= TAIL_LEAST and tail.of >= TAIL_OF
        if tail.device not in upper or not enough or tail.ns < TAIL_SHARE * tail.of_ns:
            continue
        parts: Counter[str] = Counter()
        for stage, ns in tail.stages.items():
            parts[PART_OF[stage]] += ns
        [(part, ns)] = parts.most_common(1) or [("unknown", 0)]
        in_part = ns / max(sum(parts.values()), 1)
        beside = ""
        if tail.beside >= max(BESIDE_TIMES * tail.beside_others, BESIDE_LEAST):
            beside = (
                f"; when they were queued, {units.size(tail.beside)} of other operations were in "
                f"flight on average, and {units.size(tail.beside_others)} for those that were not "
                "slow"
            )
        text = (
            f"{percent(tail.count / tail.of)} of {ios_text(tail.operation, tail.device)} took "
            f"{units.duration(tail.from_ns)} or more, at least 10 times their median of "
            f"{units.duration(tail.median_ns)}, and have {percent(tail.ns / tail.of_ns)} of the "
            f"time of all of them; {percent(in_part)} of theirs is {WORDS[part]}{beside}"
        )
        figures = {
            **{"device": tail.device, "operation": tail.operation},
            **_counted(tail.count, tail.of),
            **{"median_ns": tail.median_ns, "from_ns": tail.from_ns},
            "time_share": round(tail.ns / tail.of_ns, 6),
            "stages": list(STAGES[part]),
            "stages_share": round(in_part, 6),
            "beside_bytes": round(tail.beside, 3),
            "beside_others_bytes": round(tail.beside_others, 3),
        }
        command = f"biotrail slow -d {tail.device} --op {tail.operation}"
        return text, f"{command}: what was ahead of the slowest", figures
    return None


def _tries(report: Report) -> Found | None:
    """NOWAIT attempts failed, TRIES_SHARE or more of the number of bios."""
    bios = report.total.bios
    count, of = bios.counters["tries"], bios.ios
    if not count or count < TRIES_SHARE * of:
        return None
    text = (
        f"{units.plural(count, 'NOWAIT attempt')} failed at once (AGAIN) beside "
        f"{units.plural(of, 'I/O')}"
    )
    figures = {"count": count, "of": of}
    return text, f"nr_requests and the depth of io_uring; {READING}, Q2G", figures


def _requeued(report: Report) -> Found | None:
    """Drivers requeued REQUEUED_SHARE or more of the requests."""
    requests = report.total.requests
    count, of = requests.counters["requeues"], requests.ios
    if not count or count < REQUEUED_SHARE * of:
        return None
    text = f"Drivers gave requests back {units.plural(count, 'time')}, of {units.count(of)} in all"
    return text, f"{READING}, R2D", {"count": count, "of": of}


def _split(report: Report) -> Found | None:
    """SPLIT_SHARE or more of an operation's bios were split, and SPLIT_LEAST at least."""
    found = [
        (one.bios.counters["split"], device, one)
        for device, one in upper_operations(report)
        if one.bios.counters["split"] >= max(SPLIT_LEAST, SPLIT_SHARE * one.bios.ios)
    ]
    if not found:
        return None
    count, device, one = max(found, key=lambda each: each[0])
    of, name = one.bios.ios, one.operation
    text = f"{percent(count / of)} of {ios_text(name, device)} were split"
    figures = {"device": device, "operation": name, **_counted(count, of)}
    return text, f"max_sectors_kb; {READING}, Splits", figures


def _idle(report: Report) -> Found | None:
    """No device was active for ACTIVE_SHARE of the time."""
    depths = [(device.queue.high or device.queue, device) for device in upper_devices(report)]
    spans = [(one.active_ns, one.active_ns + one.idle_ns, device.device) for one, device in depths]
    known = [(busy / whole, name) for busy, whole, name in spans if whole]
    if not known or max(known)[0] >= ACTIVE_SHARE:
        return None
    share, name = max(known)
    others = ", other devices for less" if len(known) > 1 else ""
    text = f"{name} had I/O in flight for {percent(share)} of the time{others}"
    figures = {"device": name, "share": round(share, 6)}
    return text, "what the programs do between their I/Os", figures


RULES: dict[str, Callable[[Report], Found | None]] = {
    "no-io": _no_io,
    "hangs": _hangs,
    "waits": waits,
    "blame": _blamed,
    "held": _held,
    "purpose": _purpose,
    "main-part": _main_part,
    "spread": _spread,
    "failed": _failed,
    "in-doubt": _doubtful,
    "flushes": _flushes,
    "tail": _tail,
    "without-latency": _without,
    "requeued": _requeued,
    "split": _split,
    "tries": _tries,
    "mostly-idle": _idle,
}
"""Name of each rule → returns its finding or None; in the order of their sentences."""


OF_WAITS = {"time", "wait"}
"""Parts of the path of which one shows what programs waited for."""
MORE = "record --path says which calls waited, and for what: a CPU, a limit, a lock, I/O"
"""What the block layer alone cannot tell."""
SHOWN = 3
"""Most sentences in text and on a page; the JSON has all."""


@dataclass(frozen=True)
class Sentence:
    rule: str
    text: str
    next: str
    figures: dict[str, Any]


def verdict(report: Report | None) -> list[Sentence]:
    """Return the sentences of all rules that hold; the first may name an option to see more."""
    if report is None:
        return []
    found = ((name, find(report)) for name, find in RULES.items())
    said = [Sentence(name, *told) for name, told in found if told is not None]
    if said and report.total.bios.ios and not OF_WAITS & {*report.path_parts}:
        said[0] = replace(said[0], next=f"{said[0].next}; {MORE}")
    return said


def lines(said: list[Sentence]) -> list[str]:
    found = [f"* {one.text}. Next: {one.next}." for one in said[:SHOWN]]
    more = len(said) - SHOWN
    return [*found, *([f"* {units.plural(more, 'more sentence')} in --json"] if more > 0 else [])]


def as_dicts(said: list[Sentence]) -> list[dict[str, Any]]:
    return [
        {"rule": s.rule, "sentence": s.text, "next": s.next, "figures": s.figures} for s in said
    ]
