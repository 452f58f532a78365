# SPDX-License-Identifier: Apache-2.0
"""State in a few sentences what a report shows: where time goes, for whom, and what to check next.

Each sentence is a rule's (RULES), given where the rule's condition holds. A condition is on the
report's own figures; docs/report.md has each with its threshold.
"""

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
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
    Sentence,
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


RULES = (
    *("no-io", "hangs", "waits", "blame", "held", "purpose", "main-part", "spread", "failed"),
    *("in-doubt", "flushes", "tail", "without-latency", "requeued", "split", "tries"),
    "mostly-idle",
)
"""Name of each rule, in the order of their sentences."""


def _totals(report: Report) -> Iterator[Sentence]:
    """No I/O; bios without a latency, requeues and failed NOWAIT attempts among all."""
    bios, requests = report.total.bios, report.total.requests
    if not bios.ios and not report.pairs:
        figures = {"count": 0, "requests": requests.ios}
        text, next_ = "No I/O was recorded", "biotrail info: the filters, and what is missing"
        if requests.ios:
            text = f"No bios were recorded, only {units.plural(requests.ios, 'request')}"
            next_ = "D2C of requests below; docs/inputs.md, what to record"
        yield Sentence("no-io", text, next_, figures)
    without, of = report.percentiles.without, sum(report.certainty.values())
    if of and without >= WITHOUT_SHARE * of:
        text = (
            f"{percent(without / of)} of the bios have no beginning or no end in the log, and are "
            "in no latency"
        )
        next_ = f"what is missing, below; {READING}, What is missing"
        yield Sentence("without-latency", text, next_, _counted(without, of))
    requeues = requests.counters["requeues"]
    if requeues and requeues >= REQUEUED_SHARE * requests.ios:
        times, figures = units.plural(requeues, "time"), {"count": requeues, "of": requests.ios}
        text = f"Drivers gave requests back {times}, of {units.count(requests.ios)} in all"
        yield Sentence("requeued", text, f"{READING}, R2D", figures)
    tries = bios.counters["tries"]
    if tries and tries >= TRIES_SHARE * bios.ios:
        text = (
            f"{units.plural(tries, 'NOWAIT attempt')} failed at once (AGAIN) beside "
            f"{units.plural(bios.ios, 'I/O')}"
        )
        next_ = f"nr_requests and the depth of io_uring; {READING}, Q2G"
        yield Sentence("tries", text, next_, {"count": tries, "of": bios.ios})


def _counted(count: int, of: int) -> dict[str, Any]:
    return {"count": count, "of": of, "share": round(count / of, 6)}


def _hangs(report: Report) -> Iterator[Sentence]:
    """A device had I/O when the log ended, and had completed none for a second or more."""
    if not report.hanging:
        return
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
    yield Sentence(
        "hangs", text, next_ + "What is missing, if it was only not seen to complete", figures
    )


def _held(report: Report) -> Iterator[Sentence]:
    """Limits have HELD_SHARE of what calls waited; without waits: HELD_SHARE of the bios."""
    if not report.held:
        return
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
        return
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
    yield Sentence(
        "held", text, f"io.max (v1: blkio.throttle.*) of that cgroup; {READING}, Before Q", figures
    )


def _blamed(report: Report) -> Iterator[Sentence]:
    """One party's I/O has BLAME_SHARE of a victim's time, and the victim BLAME_OF_SPAN of all."""
    if report.blamed is None:
        return
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
        return
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
    yield Sentence("blame", text, next_, figures)


def _purpose(report: Report) -> Iterator[Sentence]:
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
        return
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
    yield Sentence("purpose", text, next_, figures)


def _time(report: Report) -> Iterator[Sentence]:
    """The part of the way that has MAIN_SHARE of the time or more; without one, the two largest."""
    upper = upper_operations(report)
    parts = time_by_part(one for _, one in upper)
    if not (total_ns := parts.total()):
        return
    ranked = parts.most_common(2)
    part, ns = ranked[0]
    if ns < MAIN_SHARE * total_ns:
        owns, readies = zip(*(_shares_of(report, part, ns) for part, ns in ranked), strict=True)
        shares = " and ".join(
            f"{percent(ns / total_ns)} {WORDS[part]}"
            + (f" (about {percent(mine)} of it the recorder's own programs)" if mine else "")
            + (f" ({percent(cpu)} of it or more without a CPU)" if cpu else "")
            for (part, ns), mine, cpu in zip(ranked, owns, readies, strict=True)
        )
        text = f"No part of the way has half of the time of I/O: most is {shares}"
        figures: dict[str, Any] = {
            "stages": [stage for part, _ in ranked for stage in STAGES[part]],
            "shares": [round(ns / total_ns, 6) for _, ns in ranked],
            **({"recorder_shares": [round(one, 6) for one in owns]} if any(owns) else {}),
            **({"without_cpu_shares": [round(one, 6) for one in readies]} if any(readies) else {}),
        }
        yield Sentence("spread", text, CPU_NEXT if readies[0] else NEXT[part], figures)
        return
    device, one = max(upper, key=lambda pair: time_by_part([pair[1]])[part])
    mine, name = time_by_part([one])[part], one.operation
    text = (
        f"{percent(ns / total_ns)} of the time of I/O is {WORDS[part]}, {percent(mine / ns)} of "
        f"that for {ios_text(name, device)}"
    )
    latency, every = one.bios.latency, one.bios.with_doubtful
    figures = {
        "stages": list(STAGES[part]),
        "share": round(ns / total_ns, 6),
        "device": device,
        "operation": name,
        "operation_share": round(mine / ns, 6),
        "mean_ns": round(latency.mean, 3) if latency.count else None,
    }
    if latency.count:
        text += f", whose latency is {units.duration(latency.mean)} on average"
    if every is not None:
        count = one.bios.counters["doubtful"]
        figures |= {"doubtful": count, "with_doubtful_mean_ns": round(every.mean, 3)}
        if latency.count:
            mean = units.duration(every.mean)
            text += f" (without {units.count(count)} in doubt; {mean} with)"
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
    yield Sentence("main-part", text, CPU_NEXT if ready else NEXT[part], figures)


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


def _operations(report: Report) -> Iterator[Sentence]:
    """Failures, latencies in doubt and splits, each of the operation that has most of them."""
    failed, doubtful, split = [], [], []
    for device, one in upper_operations(report):
        counters, every = one.bios.counters, one.bios.with_doubtful
        if counters["failed"]:
            failed.append((counters["failed"], device, one))
        if every is not None:
            count, ns = counters["doubtful"], every.sum - one.bios.latency.sum
            if count >= DOUBTFUL_SHARE * every.count or ns >= DOUBTFUL_TIME * every.sum:
                doubtful.append((ns, device, one, every))
        if counters["split"] >= max(SPLIT_LEAST, SPLIT_SHARE * one.bios.ios):
            split.append((counters["split"], device, one))
    if failed:
        count, device, one = max(failed, key=lambda each: each[0])
        of, errors, name = one.bios.ios, one.bios.errors, one.operation
        statuses = ", ".join(f"{status} {units.count(n)}" for status, n in errors.items())
        text = f"{units.count(count)} of {units.count(of)} {ios_text(name, device)} failed"
        figures = {"device": device, "operation": name, "count": count, "of": of, "errors": errors}
        next_ = "biotrail slow --failed, and dmesg"
        yield Sentence("failed", f"{text} ({statuses})", next_, figures)
    if doubtful:
        _, device, one, every = max(doubtful, key=lambda each: each[0])
        count, of, name = one.bios.counters["doubtful"], every.count, one.operation
        about = f"of {ios_text(name, device)}"
        text = tallies.doubtful_text(count, of, about, (every.mean, every.p99))
        figures = {
            **{"device": device, "operation": name, **_counted(count, of)},
            **{"doubtful": count, "with_doubtful_mean_ns": round(every.mean, 3)},
        }
        next_ = f"--include-ambiguous counts them; {READING}, Latencies in doubt"
        yield Sentence("in-doubt", text, next_, figures)
    if split:
        count, device, one = max(split, key=lambda each: each[0])
        of, name = one.bios.ios, one.operation
        text = f"{percent(count / of)} of {ios_text(name, device)} were split"
        figures = {"device": device, "operation": name, **_counted(count, of)}
        yield Sentence("split", text, f"max_sectors_kb; {READING}, Splits", figures)


def _devices(report: Report) -> Iterator[Sentence]:
    """Flushes that are FLUSH_SHARE of a device's time; no device active for ACTIVE_SHARE of it."""
    flushing, activity = [], []
    for device in upper_devices(report):
        parts = time_by_part(device.operations)
        ns, total_ns = parts["flush"], sum(parts.values())
        if device.flushes and device.flushes.requests and ns and ns >= FLUSH_SHARE * total_ns:
            flushing.append((ns, total_ns, device.device, device.flushes))
        depth = device.queue.high or device.queue
        if span := depth.active_ns + depth.idle_ns:
            activity.append((depth.active_ns / span, device.device))
    if flushing:
        ns, total_ns, name, flushes = max(flushing, key=lambda one: one[:3])
        each = f"{flushes.bios_per_request:.3g}"
        known = flushes.time.count
        lasted = f" of {units.duration(flushes.time.mean)} on average" if known else ""
        text = (
            f"Flushes of {name} (fsync, FUA) are {percent(ns / total_ns)} of its I/O's "
            f"time: {units.plural(flushes.requests, 'request')}{lasted}, "
            f"with {each} waiting {'bio' if each == '1' else 'bios'} for each"
        )
        figures: dict[str, Any] = {
            "device": name,
            "share": round(ns / total_ns, 6),
            "count": flushes.requests,
            "bios_per_request": round(flushes.bios_per_request, 6),
            "mean_ns": round(flushes.time.mean, 3) if known else None,
        }
        next_ = f"who calls fsync, and how often: {READING}, flush"
        yield Sentence("flushes", text, next_, figures)
    if activity and max(activity)[0] < ACTIVE_SHARE:
        share, name = max(activity)
        others = ", other devices for less" if len(activity) > 1 else ""
        text = f"{name} had I/O in flight for {percent(share)} of the time{others}"
        figures = {"device": name, "share": round(share, 6)}
        yield Sentence("mostly-idle", text, "what the programs do between their I/Os", figures)


def _tail(report: Report) -> Iterator[Sentence]:
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
        yield Sentence("tail", text, f"{command}: what was ahead of the slowest", figures)
    return


OF_WAITS = {"time", "wait"}
"""Parts of the path of which one shows what programs waited for."""
MORE = "record --path says which calls waited, and for what: a CPU, a limit, a lock, I/O"
"""What the block layer alone cannot tell."""
SHOWN = 3
"""Most sentences in text and on a page; the JSON has all."""


def verdict(report: Report | None) -> list[Sentence]:
    """Return the sentences of all rules that hold; the first may name an option to see more."""
    if report is None:
        return []
    ruled = (_totals, _hangs, waits, _blamed, _held, _purpose, _time, _operations, _devices, _tail)
    said = [one for rules in ruled for one in rules(report)]
    said.sort(key=lambda one: RULES.index(one.rule))
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
