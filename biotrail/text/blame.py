# SPDX-License-Identifier: Apache-2.0
"""Show whose I/O made whose I/O wait: a matrix, sentences, and what cannot be told."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from biotrail.converters.analysis.blame.bases import ENOUGH
from biotrail.converters.analysis.blame.blame import TELLING_NS
from biotrail.converters.analysis.blame.experiment import LEAST_IOS, SKIP_NS
from biotrail.converters.analysis.blame.tree import (
    OTHERS,
    Blamed,
    CallTruth,
    CallVictim,
    Experiment,
    Kind,
    Part,
    Share,
    Truth,
    Victim,
    Without,
)
from biotrail.converters.analysis.distributions.keys import RECORDER
from biotrail.text import units
from biotrail.text.columns import Column, block, columns_of, table, with_more
from biotrail.text.rows import first

MOST_ROWS = 15
_MOST_COLUMNS = 5
_COLUMN_SHARE = 0.005
"""Share of all time from which a culprit has a column."""
_TOLD = 0.1
"""Share of a victim's time from which a sentence tells of it."""
_OWN_TOLD = 0.5
"""Share of waiting behind own other I/O from which a sentence tells of it."""
_SAME = 0.01
"""Of a percentile: as far as it is off by its buckets, and by the I/Os that happen to be there."""
_SMALL = 0.01
"""Victims with less of the time of all are in the table alone."""
_FOR_OTHERS = ("kworker", "jbd2/")
"""Beginnings of the names of threads that write what others asked for."""
KINDS = {
    Kind.SERVICE: "own service",
    Kind.OWN: "own other I/O",
    Kind.DEVICE: "device alone",
    Kind.UNKNOWN: "unknown",
    Kind.RUNNING: "running",
    Kind.CPU: "waits for a CPU",
    Kind.LIMIT: "limit",
    Kind.JOURNAL: "journal",
    Kind.WAITING: "other waits",
}
"""Kind of a part → head of its column. OTHER has a column for each culprit."""
_NONE = "-"
RECORDER_NEXT = (
    "* The recorder writes its log to a device that it records: write it elsewhere (record -o), or "
    "trace less."
)
FILTERED = "the recording has filters: I/O that it left out is blamed on nobody"


def parts(
    blamed: Blamed, width: int, limit: int | None, path_parts: Sequence[str]
) -> Iterator[RenderableType]:
    """Yield what to print. limit: victims shown, 0: all; None: MOST_ROWS."""
    if not blamed.victims:
        yield block(["No I/O with a known time: nobody waited.", *_notes(blamed, path_parts)])
        return
    most = MOST_ROWS if limit is None else limit
    victims, more = first(blamed.victims, most)
    by, behind = blamed.victim_by, blamed.culprit_by
    title = (
        f"Whose I/O made whose I/O wait, {f'by {by}' if by == behind else f'{by} behind {behind}'}"
    )
    rows = [
        (
            [
                one.name,
                units.count(one.ios),
                *map(units.duration, (one.wait_ns, one.mean_ns)),
                units.duration(one.p99_ns),
            ],
            one.parts,
        )
        for one in victims
    ]
    heads = columns_of("victim < | I/Os @2 | time | mean | p99 @3")
    yield with_more(matrix(title, heads, rows, width), more, "victim")
    yield block(_sentences(victims, blamed.culprit_by == "op"))
    if blamed.calls:
        calls, more = first(blamed.calls, most)
        of_calls = [
            (
                [
                    *(one.name, one.call, units.count(one.calls)),
                    *map(units.duration, (one.wait_ns, one.mean_ns)),
                ],
                one.parts,
            )
            for one in calls
        ]
        heads = columns_of("victim < | call < | calls @2 | time | mean")
        yield with_more(matrix("Where the time of calls went", heads, of_calls, width), more)
        yield block(_call_sentences(calls))
    if blamed.experiment is not None:
        yield from _experiment(blamed.experiment, width, most)
    yield block(_notes(blamed, path_parts))


def words(blamed: Blamed, path_parts: Sequence[str]) -> dict[str, list[str]]:
    """Return sentences `said` of victims, `of_calls`, and `notes` on what figures rest on."""
    victims, calls = first(blamed.victims, MOST_ROWS)[0], first(blamed.calls, MOST_ROWS)[0]
    said = _sentences(victims, blamed.culprit_by == "op") if victims else []
    found = {"said": said, "of_calls": _call_sentences(calls) if calls else []}
    found = {name: [line.removeprefix("* ") for line in lines] for name, lines in found.items()}
    return {**found, "notes": _notes(blamed, path_parts)}


def matrix(
    title: str, heads: Sequence[Column], rows: Sequence[tuple[list[str], list[Part]]], width: int
) -> Table:
    """Return the matrix: a row for each victim, a column for each kind, and for each culprit."""
    whole = sum(part.wait_ns for _, found in rows for part in found)
    by_kind, by_culprit = Counter[Kind](), Counter[str]()
    for _, found in rows:
        for part in found:
            if part.culprit is None:
                by_kind[part.kind] += part.wait_ns
            else:
                by_culprit[part.culprit] += part.wait_ns
    named = [name for name, ns in by_culprit.most_common() if ns >= _COLUMN_SHARE * whole]
    named = [name for name in named if name != OTHERS][:_MOST_COLUMNS]
    rest = sum(by_culprit.values()) > sum(by_culprit[name] for name in named)
    kinds = [kind for kind in KINDS if by_kind[kind]]
    before = [kind for kind in kinds if kind in (Kind.SERVICE, Kind.OWN)]
    after = [kind for kind in kinds if kind not in before]
    columns = [
        *heads,
        *(Column(KINDS[kind], 1) for kind in before),
        *(Column(f"behind {name}") for name in named),
        *([Column("behind others", 1)] if rest else []),
        *(Column(KINDS[kind], 1) for kind in after),
    ]
    cells = []
    for cell, found in rows:
        total = sum(part.wait_ns for part in found)
        of_kind, of_culprit = Counter[Kind](), Counter[str]()
        for part in found:
            of_kind[part.kind] += part.wait_ns
            of_culprit[part.culprit or ""] += part.wait_ns
        others = of_kind[Kind.OTHER] - sum(of_culprit[name] for name in named)
        shares = [
            *(of_kind[kind] for kind in before),
            *(of_culprit[name] for name in named),
            *([others] if rest else []),
            *(of_kind[kind] for kind in after),
        ]
        cells.append([*cell, *(share(ns, total) for ns in shares)])
    return table(title, columns, cells, width)


def share(ns: int, total: int) -> str:
    if not ns or not total:
        return _NONE
    share = 100 * ns / total
    return f"{share:.0f} %" if share >= 0.5 else "< 1 %"


def _sentences(victims: Sequence[Victim], of_operations: bool) -> list[str]:
    whole = sum(one.wait_ns for one in victims)
    most = [one for one in victims if one.wait_ns >= _SMALL * whole]
    found = [line for one in most for line in _of_victim(one, of_operations)]
    unknown = []
    for one in most:
        ns = sum(part.wait_ns for part in one.parts if part.kind == Kind.UNKNOWN)
        unknown += [one.name] if ns >= _TOLD * one.wait_ns > 0 else []
    if not any("waiting behind" in line and "its own" not in line for line in found):
        found.append("* No party's I/O made another's wait for a tenth of its time or more")
        found[-1] += ", as far as can be told." if unknown else "."
    if any(f"waiting behind {RECORDER}'s" in line for line in found):
        found.append(RECORDER_NEXT)
    if unknown:
        names = " and ".join(filter(None, (", ".join(unknown[:-1]), unknown[-1])))
        found.append(f"* Whether others' I/O slowed that of {names} cannot be told.")
    return found


def _of_victim(victim: Victim, of_operations: bool) -> Iterator[str]:
    total = max(victim.wait_ns, 1)
    for part in victim.parts:
        share = f"{100 * part.wait_ns / total:.0f} % of {victim.name}'s time"
        if part.kind == Kind.OTHER and part.culprit and part.wait_ns >= _TOLD * total:
            if part.culprit == OTHERS:
                yield f"* {share} is waiting behind others, none of whom has a column."
                continue
            what = whose(victim, part.culprit, of_operations)
            told = next((one for one in victim.without if one.culprit == part.culprit), None)
            if told is None:
                without = (
                    f"; what it would be without them cannot be told: fewer than {ENOUGH} of such "
                    "I/Os were without company."
                )
            else:
                rests = units.plural(told.rests_on, "I/O")
                without = f": {without_them(victim, told)}, by {rests} without company."
            yield f"* {share} is waiting behind {what}{without}"
        elif part.kind == Kind.OWN and part.wait_ns >= _OWN_TOLD * total:
            yield (
                f"* {share} is waiting behind its own other I/O: it has more in flight than the "
                "device does at once."
            )
        elif part.kind == Kind.DEVICE and part.wait_ns >= _TOLD * total:
            yield (
                f"* {share} is the device's alone: I/O took longer though nothing else was there, "
                "or less beside others than without."
            )


def whose(victim: Victim, culprit: str, of_operations: bool) -> str:
    operation = culprit if of_operations else victim.doing.get(culprit, "I/O")
    ios = {"flush": "flushes", "I/O": "I/O"}.get(operation, operation + "s")
    return f"others' {ios}" if of_operations else f"{culprit}'s {ios}"


def without_them(victim: Victim, told: Without) -> str:
    """Return what the mean and, if it is not longer, the p99 would be without a culprit."""
    between = ""
    if told.between_ns is not None:
        low, high = map(units.duration, told.between_ns)
        between = f" ({low} to {high})"
    mean, now = units.duration(told.mean_ns), units.duration(victim.mean_ns)
    words = "without them the mean would "
    words += "not change" if mean == now else f"be {mean}{between} instead of {now}"
    if told.p99_ns is None or told.p99_ns > victim.p99_ns * (1 + _SAME):
        return words
    if told.p99_ns >= victim.p99_ns * (1 - _SAME):
        return f"{words}, the 99th percentile would not change"
    p99, now = units.duration(told.p99_ns), units.duration(victim.p99_ns)
    return f"{words}, the 99th percentile about {p99} instead of {now}"


def _call_sentences(calls: Sequence[CallVictim]) -> list[str]:
    whole = sum(one.wait_ns for one in calls)
    found = []
    for one in calls:
        if one.wait_ns < _SMALL * whole:
            continue
        what = f"of the time of {one.name}'s {one.call} calls"
        for part in one.parts:
            if part.wait_ns < _TOLD * one.wait_ns:
                continue
            share = f"{100 * part.wait_ns / max(one.wait_ns, 1):.0f} % {what}"
            if part.kind == Kind.OTHER:
                found.append(f"* {share} is waiting because of {part.culprit}'s I/O.")
            elif part.kind == Kind.LIMIT:
                found.append(f"* {share} is the limit of a cgroup: raise it, or ask for less.")
            elif part.kind == Kind.CPU:
                found.append(f"* {share} is waiting for a CPU, not for I/O.")
            elif part.kind == Kind.JOURNAL:
                found.append(f"* {share} is waiting for commits of the journal.")
    return found or ["* No call waited for anybody else's I/O, a limit or a CPU for long."]


def _notes(blamed: Blamed, path_parts: Sequence[str]) -> list[str]:
    found = []
    based = blamed.based
    if total := sum(based.values()):
        here = 100 * based.get("stretch", 0) / total
        found.append(
            f"own service: of {here:.0f} % of the I/Os by I/O without company in the same "
            f"{units.duration(blamed.stretch_ns)}, of {100 * based.get('log', 0) / total:.0f} % "
            "by that of the whole log"
        )
        if substitute := based.get("substitute", 0):
            found[-1] += (
                f"; {units.plural(substitute, 'I/O')} had nobody like them without company: by the "
                "time since the completion before"
            )
    if blamed.upper:
        found.append(
            f"{units.plural(blamed.upper, 'bio')} of upper devices left out: the bios below stand "
            "for them"
        )
    if blamed.unknown:
        found.append(f"{units.plural(blamed.unknown, 'bio')} left out: their time is not known")
    if blamed.without_end:
        requests = units.plural(blamed.without_end, "request")
        verb = "stands" if blamed.without_end == 1 else "stand"
        found.append(f"{requests} without a known completion {verb} beside nothing")
    if blamed.forgotten:
        found.append(
            f"{units.plural(blamed.forgotten, 'bio')} waited so long that what was there when they "
            "began is no longer known: unknown"
        )
    small = sum(one.small_ns for one in blamed.victims)
    if small:
        on = f", or are on {', '.join(blamed.shared)}, programs on the same CPUs" * bool(
            blamed.shared
        )
        found.append(
            f"I/Os with {units.duration(small)} in all take less than {units.duration(TELLING_NS)} "
            f"without company{on}: who slows such I/O cannot be told"
        )
    if not blamed.named:
        found.append(FILTERED)
    names = {one.name for one in blamed.victims}
    names |= {part.culprit for one in blamed.victims for part in one.parts if part.culprit}
    if "dirty" not in path_parts and any(name.startswith(_FOR_OTHERS) for name in names):
        found.append(
            "kworker and jbd2 write what others asked for: biotrail record --path tells for whom"
        )
    return found


# The experiment: what victims took while the suspect stood, beside blame's answer.


def _experiment(found: Experiment, width: int, limit: int) -> Iterator[RenderableType]:
    times = units.plural(max(found.periods, found.wanted), "time")
    times = f"{found.periods} of {times}" if found.periods < found.wanted else times
    title = f"The experiment: {found.label} stood {times}, {units.duration(found.stood_ns)} in all"
    if found.victims:
        victims, more = first(found.victims, limit)
        heads = columns_of(
            "victim < | I/Os, it runs @2 | it stands @2 | mean, it runs | it stands | "
            "truth (95 %) | blamed"
        )
        rows = [
            [one.name, *_states(one), _truth(one.truth), _beside(one.blamed)] for one in victims
        ]
        yield with_more(table(title, heads, rows, width), more, "victim")
    if found.calls:
        calls, more = first(found.calls, limit)
        heads = columns_of(
            "victim < | call < | calls, it runs @2 | it stands @2 | mean, it runs | "
            "it stands | truth (95 %) | of that a CPU | waits (95 %) | blamed"
        )
        rows = [
            [
                *(one.name, one.call, *_states(one), _truth(one.truth)),
                *(units.percent(one.cpu.share, 0), _truth(one.waits), _beside(one.blamed)),
            ]
            for one in calls
        ]
        yield with_more(table("The experiment, by calls", heads, rows, width), more)
    yield block(_experiment_words(found, title))


def _states(one: Truth | CallTruth) -> list[str]:
    return [
        units.count(one.running.count),
        units.count(one.standing.count),
        units.duration(one.running.mean_ns),
        units.duration(one.standing.mean_ns),
    ]


def _truth(one: Share) -> str:
    if one.between is None:
        return f"{units.percent(one.share, 0)} (?)"
    low, high = (f"{100 * end:.0f}" for end in one.between)
    return f"{units.percent(one.share, 0)} ({low} to {high})"


def _beside(blamed: float | None) -> str:
    return _NONE if blamed is None else units.percent(blamed, 0)


def _experiment_words(found: Experiment, title: str) -> list[str]:
    lines = []
    if not found.victims and not found.calls:
        lines.append(f"{title}. Nobody has {LEAST_IOS} I/Os both while it stood and while it ran.")
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
    lines.append(
        f"the experiment: the first {units.duration(SKIP_NS)} of each period are left out, and "
        "periods compared with those beside them; all tables above are of the time in which the "
        f"suspect ran: {units.plural(found.left_out, 'I/O')} of other times left out"
    )
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
