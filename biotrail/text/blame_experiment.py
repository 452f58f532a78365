# SPDX-License-Identifier: Apache-2.0
"""Show the experiment: what victims took while the suspect stood, beside blame's answer."""

from collections.abc import Iterator

from rich.console import RenderableType

from biotrail.converters.analysis.blame.experiment import LEAST_IOS, SKIP_NS
from biotrail.converters.analysis.blame.tree import CallTruth, Experiment, Share, Truth
from biotrail.text import units
from biotrail.text.columns import block, columns_of, table, with_more
from biotrail.text.rows import first

_NONE = "-"


def parts(found: Experiment, width: int, limit: int) -> Iterator[RenderableType]:
    times = units.plural(max(found.periods, found.wanted), "time")
    times = f"{found.periods} of {times}" if found.periods < found.wanted else times
    title = f"The experiment: {found.label} stood {times}, {units.duration(found.stood_ns)} in all"
    if found.victims:
        victims, more = first(found.victims, limit)
        heads = columns_of(
            "victim < | I/Os, it runs @2 | it stands @2 | mean, it runs | it stands | "
            "truth (95 %) | blamed"
        )
        rows = [[one.name, *_states(one), share(one.truth), _beside(one.blamed)] for one in victims]
        yield with_more(table(title, heads, rows, width), more, "victim")
    if found.calls:
        calls, more = first(found.calls, limit)
        heads = columns_of(
            "victim < | call < | calls, it runs @2 | it stands @2 | mean, it runs | "
            "it stands | truth (95 %) | of that a CPU | waits (95 %) | blamed"
        )
        rows = [
            [
                *(one.name, one.call, *_states(one), share(one.truth)),
                *(units.percent(one.cpu.share, 0), share(one.waits), _beside(one.blamed)),
            ]
            for one in calls
        ]
        yield with_more(table("The experiment, by calls", heads, rows, width), more)
    yield block([*_sentences(found, title), *_notes(found)])


def _states(one: Truth | CallTruth) -> list[str]:
    return [
        units.count(one.running.count),
        units.count(one.standing.count),
        units.duration(one.running.mean_ns),
        units.duration(one.standing.mean_ns),
    ]


def share(one: Share) -> str:
    if one.between is None:
        return f"{units.percent(one.share, 0)} (?)"
    low, high = (f"{100 * end:.0f}" for end in one.between)
    return f"{units.percent(one.share, 0)} ({low} to {high})"


def _beside(blamed: float | None) -> str:
    return _NONE if blamed is None else units.percent(blamed, 0)


def _sentences(found: Experiment, title: str) -> list[str]:
    if not found.victims and not found.calls:
        return [f"{title}. Nobody has {LEAST_IOS} I/Os both while it stood and while it ran."]
    lines = []
    for one in found.victims:
        between = one.truth.between
        if between is None or between[0] <= 0 <= between[1]:
            continue
        mean, now = units.duration(one.standing.mean_ns), units.duration(one.running.mean_ns)
        does = f"makes {one.name} wait: {units.percent(one.truth.share, 0)} of its time"
        if one.truth.share < 0:
            does = f"makes {one.name}'s I/O faster"
        lines.append(f"* {found.label} {does}. Without it the mean was {mean} instead of {now}.")
    if found.victims and not lines:
        lines.append(f"* It is not seen that {found.label} makes anybody's I/O slower or faster.")
    return lines


def _notes(found: Experiment) -> list[str]:
    lines = [
        f"the experiment: the first {units.duration(SKIP_NS)} of each period are left out, and "
        "periods compared with those beside them; all tables above are of the time in which the "
        f"suspect ran: {units.plural(found.left_out, 'I/O')} of other times left out"
    ]
    if found.idle:
        lines.append("it had no I/O: what it costs others is the CPU's, or something else's")
    elif not found.parties:
        lines.append("no culprit of the table is the suspect alone: see --by")
    else:
        lines.append(f"blamed: what is behind {', '.join(found.parties)}")
    if found.with_others:
        lines.append(f"{', '.join(found.with_others)}: others have this name, too, and went on")
    if found.few:
        lines.append(f"{found.few} victims or calls of theirs: fewer than {LEAST_IOS} in a state")
    return lines
