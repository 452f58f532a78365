# SPDX-License-Identifier: Apache-2.0
"""Report in sentences what a log lost, what is damaged, and how certain the rest is."""

from collections import Counter
from typing import Any

from biotrail.converters.lifecycles.account import Pairing
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.text import units

CERTAINTY_MEANINGS = {
    "exact": "known from its pointers",
    "interval": "found by its sectors",
    "ambiguous": "one of several that fit",
    "incomplete": "began or ended outside the log",
    "lost": "in flight while events were lost, or its completion was not seen",
}

LIGHT = (
    "light recording: an I/O is a request with all its bios, from its start to its completion by "
    "the kernel's own clock (docs/recording.md, Light recordings)"
)

PROGRAMS = ("core", "bcc")
"""Backends that record with BPF programs."""


def kind_name(kind: int) -> str:
    """Return a record kind as text: `Q (queue)`; one of a newer version is `events of kind 99`."""
    if kind not in set(Kind):
        return "events of unknown kind" if kind == 0 else f"events of kind {kind}"
    found = BY_KIND[Kind(kind)]
    return f"{found.letter} ({found.name})"


def lost_by_kind(trace: Trace) -> dict[int, int]:
    lost: Counter[int] = Counter()
    for window in trace.losses:
        if (count := int(window.get("count", 0))) >= 0:
            lost[int(window.get("kind", 0))] += count
    return dict(sorted(lost.items()))


def loss_lines(trace: Trace) -> list[str]:
    lines = []
    lost = lost_by_kind(trace)
    if lost:
        what = ", ".join(f"{kind_name(kind)} {units.count(n)}" for kind, n in lost.items())
        lines.append(f"{units.plural(sum(lost.values()), 'event')} lost while recording: {what}")
    unknown = [window for window in trace.losses if int(window.get("count", 0)) < 0]
    if unknown:
        cpus = sorted({int(window.get("cpu", -1)) for window in unknown} - {-1})
        where = f", on CPU {', '.join(map(str, cpus))}" if cpus else ""
        what = units.plural(len(unknown), "window")
        lines.append(f"an unknown number of events lost, in {what}{where}")
    if trace.reader.interrupted:
        lines.append("interrupted: the log has no end; up to a second before it may be missing")
    lines += [f"damaged: {problem}" for problem in trace.reader.problems]
    lines += [f"note: {remark}" for remark in trace.reader.remarks]
    account = trace.account
    if no_start := account.light.without_start:
        lines.append(
            f"the kernel took no start time of {units.plural(no_start, 'request')}, as its "
            "statistics are off (queue/iostats 0): no latency"
        )
    if no_issue := account.light.without_issue:
        lines.append(
            f"the kernel took no issue time of {units.plural(no_issue, 'request')}, as nothing "
            "uses its statistics (queue/wbt_lat_usec 0): D2C is not known, latencies are"
        )
    if account.late:
        late = units.plural(account.late, "event")
        lines.append(f"{late} came too late: the window of their time was complete already")
    for reason, number in sorted(trace.stacks.refused.items()):
        lines.append(f"{units.plural(number, 'bio')} without a whole call stack: {reason}")
    for kind, number in sorted(account.unknown.items()):
        lines.append(
            f"{units.plural(number, 'record')} of unknown kind {kind}: written by a newer biotrail"
        )
    if account.unreadable_bytes:
        lines.append(f"{units.size(account.unreadable_bytes)} of records could not be read")
    if account.completions_not_seen:
        requests = units.plural(account.completions_not_seen, "request")
        completions = lost.get(Kind.C, 0)  # to full rings, or to recursion
        why = ""
        if trace.reader.header.get("backend") not in PROGRAMS:
            pass
        elif completions:
            skipped = int(((trace.reader.end or {}).get("skipped") or {}).get("C", 0))
            recursion = f", {units.count(skipped)} of them skipped for recursion" if skipped else ""
            why = f" ({units.count(completions)} of the events lost were completions{recursion})"
        elif trace.context.counts_losses:
            why = " (the kernel ran no program for it, for a reason of its own: it counted no "
            why += "recursion)"
        else:
            why = " (the kernel ran no program for it, for recursion or a reason of its own)"
        lines.append(
            f"the completion of {requests} was not recorded{why}: closed as lost, without a "
            "latency, ended at the latest when the request or its tag was used again; all other "
            "times stand (docs/recording.md, Missing completions)"
        )
    return lines


def certainty_lines(trace: Trace) -> list[str]:
    account = trace.account
    if "sites" in trace.reader.header and not any(
        [*account.bios.values(), *account.requests.values()]
    ):
        return []
    doubtful = [
        units.plural(n, name.removesuffix("s")) for name, n in account.doubtful.items() if n
    ]
    found = []
    for one, many, counts in (
        ("bio", "bios", account.bios),
        ("request", "requests", account.requests),
        ("edge between them", "edges between them", account.edges),
    ):
        parts = ", ".join(f"{units.count(n)} {certainty}" for certainty, n in counts.items() if n)
        found.append(
            units.plural(sum(counts.values()), one, many) + (f": {parts}" if parts else "")
        )
    if doubtful:
        found.append(
            f"the latency of {' and of '.join(doubtful)} is in doubt (several I/Os fit one "
            "completion), and in no figure"
        )
    return found + pairing_lines(account.pairing)


def pairing_lines(pairing: Pairing) -> list[str]:
    """Return how far the ends of flushes that several completions fit may be off."""
    if not pairing.completions:
        return []
    total = units.plural(pairing.completions, "flush", "flushes")
    lines = [f"{total} could have ended by one of several completions"]
    if pairing.same:
        exact = "times are exact, only which is whose is open"
        lines.append(f"  {units.count(pairing.same)} came at one time: {exact}")
    if pairing.completions > pairing.same:
        half, most = units.duration(pairing.half_ns), units.duration(pairing.most_ns)
        lines.append(f"  whichever is whose, half of the ends are off by {half} at most")
        lines[-1] += f", all by {most} at most"
    return lines


def doubtful_text(
    count: int, of: int, about: str = "", every: tuple[float, float] | None = None
) -> str:
    """Return `2 of 3 latencies are in doubt …`. every: mean and p99 (ns) with those in."""
    verb, they = ("is", "it") if count == 1 else ("are", "them")
    latencies = " ".join(["latency" if of == 1 else "latencies", *([about] if about else [])])
    text = (
        f"{units.count(count)} of {units.count(of)} {latencies} {verb} in doubt (several I/Os fit "
        "one completion) and in no figure"
    )
    if every is not None:
        mean, p99 = map(units.duration, every)
        text += f"; with {they} in: mean {mean}, p99 {p99}"
    return text


def doubtful_line(
    count: int, of: int, about: str = "", every: tuple[float, float] | None = None
) -> str:
    they = "it" if count == 1 else "them"
    return f"{doubtful_text(count, of, about, every)}; --include-ambiguous takes {they} in"


def own_lines(trace: Trace) -> list[str]:
    """Return how much I/O is the recording's own, and whether it is shown; empty: there is none."""
    account = trace.account
    if not account.own_bios:
        return []
    what = f"{units.plural(account.own_bios, 'bio')}, {units.size(account.own_bytes)}"
    how = "shown, marked own" if trace.own_io else "left out; --own-io shows them"
    return [f"the recorder's own I/O: {what}, {how}"]


def failed_nowait_text(count: int) -> str:
    """Return `3 failed NOWAIT attempts (AGAIN)`, as reports and the choice of I/Os count them."""
    return f"{units.plural(count, 'failed NOWAIT attempt')} (AGAIN)"


def losses_as_dict(trace: Trace) -> dict[str, Any]:
    lost = {kind_name(kind): n for kind, n in lost_by_kind(trace).items()}
    return {"lost": lost, "problems": trace.reader.problems}


def as_dict(trace: Trace) -> dict[str, Any]:
    losses = losses_as_dict(trace)
    return {
        "lost": losses["lost"],
        "interrupted": trace.reader.interrupted,
        "stacks_refused": dict(trace.stacks.refused),
        "problems": losses["problems"],
        "remarks": trace.reader.remarks,
        "damaged": trace.damaged,
        "account": trace.account.as_dict(),
    }
