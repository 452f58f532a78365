# SPDX-License-Identifier: Apache-2.0
"""Show a comparison of two logs in tables for people."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.diff.tree import (
    BlameDiff,
    DeviceDiff,
    Diff,
    Figure,
)
from biotrail.converters.analysis.distributions.slots import WHOLE
from biotrail.text import tallies, units
from biotrail.text.columns import Column, block, columns_of, table, with_lines, without_repeats
from biotrail.text.report.path import PARTS

_MAIN = ("ios_per_s", "bytes_per_s", "mean_bytes", "merged_per_io", "in_flight")
"""Figures shown even if unchanged, as are those of Q2C, and mean and p99 of stages."""
_OF_CALLS = ("calls_per_s", "share")
"""Figures of system calls shown even if unchanged, as are those of the time to their return."""
_FIGURES = {
    "ios_per_s": "I/O/s",
    "bytes_per_s": "data/s",
    "mean_bytes": "size",
    "merged_per_io": "merged",
    "split_per_io": "split",
    "requeues_per_io": "requeues each",
    "failed_per_io": "failed",
    "tries_per_io": "tries each",
    "calls_per_s": "calls/s",
    "pairs_per_s": "pairs/s",
    "failed_per_call": "failed",
    "bios_per_call": "bios each",
    "in_flight": "in flight",
    "p99_9": "p99.9",
}
_COLUMNS = columns_of("operation < | of < | figure < | A | B | change | interval @1 | <")
_VICTIM_SHARE, _BLAME_SHARE = 0.01, 0.05
_GROWN_SHARE = 0.2
"""Of what a victim's mean changed by, from which a sentence tells of a part."""
_PART_WORDS = {
    "own service": "of its own service",
    "own other I/O": "of waiting behind its own other I/O",
    "device alone": "of the device alone",
    "unknown": "of which it cannot be told why",
}
"""Part of a victim's time → its words in a sentence."""
_UP, _DOWN = "▲", "▼"


def parts(
    diff: Diff, names: Sequence[str], width: int, everything: bool
) -> Iterator[RenderableType]:
    """Yield what to print. names: of A and B. everything: show figures of less interest, too."""
    yield block(_head(diff, names))
    for device in diff.devices:
        yield _table(device, width, everything)
    if diff.calls:
        rows = [
            _row(one.call if one.io else f"{one.call} (no I/O)", figure)
            for one in diff.calls
            for figure in one.figures
            if everything or figure.marked or figure.name in _OF_CALLS or figure.stage == "all"
        ]
        columns = [Column("call", left=True), *_COLUMNS[1:]]
        yield table("Calls", columns, without_repeats(rows, 2), width)
    if diff.pairs:
        rows = [
            [one.pair, one.by or "all", *_row("", figure)[2:]]
            for one in diff.pairs
            for figure in one.figures
            if everything or figure.marked or not one.by
        ]
        columns = [*columns_of("pair < | of <"), *_COLUMNS[2:]]
        yield table("Pairs of events", columns, without_repeats(rows, 2), width)
    if diff.blame:
        yield from _blame(diff, width, everything)
    yield block(_foot(diff, everything))


def _head(diff: Diff, names: Sequence[str]) -> list[str]:
    found = []
    for letter, name, side in zip("AB", names, (diff.a, diff.b), strict=True):
        found.append(
            f"{letter}: {name}: {side.host}, kernel {side.kernel}; from "
            f"{side.begin or 'an unknown time'}, {units.duration(side.span_ns)}"
        )
        if not side.blocks and not diff.by_runs:
            found.append("   too short for intervals (record 0.3 s or longer)")
        if side.lost_records:
            found.append(f"   {units.plural(side.lost_records, 'event')} lost while recording")
        if side.left_out:
            left = units.plural(side.left_out, "bio and request", "bios and requests")
            found.append(f"   {left} of further devices and operations not compared")
        if 0 < side.calls_ns < side.span_ns:
            timed = units.duration(side.calls_ns)
            found.append(f"   calls were timed for {timed} only, to which their rates refer")
        if side.calls_left_out:
            left = units.plural(side.calls_left_out, "call")
            found.append(f"   {left} of further names not compared")
        if side.pairs_left_out:
            left = units.plural(side.pairs_left_out, "pair")
            found.append(f"   {left} of further values of --by compared with all pairs alone")
    if diff.a.log_id == diff.b.log_id and diff.a.log_id.strip("0"):
        found.append("A and B are the same recording, or parts of it")
    for option, (a, b) in diff.unlike_options.items():
        found.append(
            f"recorded differently: {option}: A {' or '.join(a) or 'no'}; B "
            f"{' or '.join(b) or 'no'} (recording more takes time in stages, and leaving out "
            "changes rates)"
        )
    if diff.by_runs:
        equal = f", and {units.plural(diff.equal, 'run')} of one load" if diff.equal else ""
        found.append(f"compared by runs: {diff.a.runs} of A, {diff.b.runs} of B{equal}")
    if diff.by_runs and diff.one_after_other:
        found.append(
            "all runs of one side were before those of the other: what changed meanwhile counts as "
            "a change (diff --record alternates runs)"
        )
    return found


def _table(device: DeviceDiff, width: int, everything: bool) -> RenderableType:
    rows = [
        _row("(all)", figure)
        for figure in device.figures
        if everything or figure.marked or figure.name in _MAIN
    ]
    for one in device.operations:
        rows += [_row(one.operation, f) for f in one.figures if everything or _shown(f)]
    names = dict.fromkeys((device.device_a, device.device_b))
    made = table(" → ".join(names), _COLUMNS, without_repeats(rows, 2), width)
    doubtful = [
        f"{side}: {tallies.doubtful_line(count, every.count, f'of {one.operation}', figures)}"
        for one in device.operations
        for side, count, every in (
            ("A", one.doubtful_a, one.with_doubtful_a),
            ("B", one.doubtful_b, one.with_doubtful_b),
        )
        if every is not None and (figures := (every.mean, every.p99))
    ]
    return with_lines(made, doubtful)


def _blame(diff: Diff, width: int, everything: bool) -> Iterator[RenderableType]:
    """Yield the table of what victims waited for, and sentences on what grew because of whom."""
    shown = [one for one in diff.blame if everything or one.share >= _VICTIM_SHARE]
    rows = [
        [one.victim, *_row("", figure)[1:2], *_row("", figure)[3:]]
        for one in shown
        for figure in one.figures
        if everything
        or figure.marked
        or any(
            (mine or 0.0) >= _BLAME_SHARE * (whole or 0.0) > 0
            for mine, whole in (
                (figure.a, one.figures[0].a),
                (figure.b, one.figures[0].b),
            )
        )
    ]
    columns = [*columns_of("victim < | part <"), *_COLUMNS[3:]]
    title = f"Whose I/O made whose I/O wait, mean of each I/O, by {diff.blame_by}"
    made = table(title, columns, without_repeats(rows, 1), width)
    left = sum(one.left_out for one in shown)
    more = units.plural(left, "smaller part")
    verb = "is" if left == 1 else "are"
    yield with_lines(made, [f"{more} {verb} not compared"] if left else [])
    if said := [line for one in shown for line in _grown(one)]:
        yield block(said)


def _grown(one: BlameDiff) -> Iterator[str]:
    """Yield a sentence on what a victim's mean grew, or fell, by; none where it did not surely."""
    whole, parts = one.figures[0], one.figures[1:]
    if not whole.marked or not whole.difference or whole.a is None or whole.b is None:
        return
    up = whole.difference > 0
    told = [
        part
        for part in parts
        if part.marked and (part.difference or 0.0) / whole.difference >= _GROWN_SHARE
    ]
    told.sort(key=lambda part: -abs(part.difference or 0.0))
    of = []
    for part in told:
        between = ""
        if part.difference_low is not None and part.difference_high is not None:
            ends = sorted(map(abs, (part.difference_low, part.difference_high)))
            between = f" ({' to '.join(map(units.duration, ends))})"
        words = _PART_WORDS.get(part.stage or "", f"of waiting {part.stage}")
        of.append(f"{units.duration(abs(part.difference or 0.0))}{between} {words}")
    yield (
        f"* {one.victim}: the mean {'grew' if up else 'fell'} by "
        f"{units.duration(abs(whole.difference))}, from {units.duration(whole.a)} to "
        f"{units.duration(whole.b)}: " + (" and ".join(of) or "no part of it surely") + "."
    )


def _shown(figure: Figure) -> bool:
    if figure.marked:
        return True
    if figure.stage is None:
        return figure.of == "bios" and figure.name in _MAIN
    if figure.of == "requests":
        return figure.stage == "D2C" and figure.name in ("mean", "p99")
    return figure.stage == "Q2C" or figure.name in ("mean", "p99")


def _row(operation: str, figure: Figure) -> list[str]:
    change = "-" if not figure.difference else _points(figure.difference, figure.unit)
    if figure.relative is not None and (figure.relative_low is not None or not figure.differs):
        change = _per_cent(figure.relative)
    if figure.differs is None:
        interval = figure.why or "-"
    elif figure.relative_low is not None and figure.relative_high is not None:
        interval = f"{_per_cent(figure.relative_low)} … {_per_cent(figure.relative_high)}"
    else:
        ends = (figure.difference_low or 0.0, figure.difference_high or 0.0)
        interval = " … ".join(_points(end, figure.unit) for end in ends)
    # Of two recordings, what differs; else an arrow up or down for a figure that changed.
    mark = ""
    if figure.by_recorder and figure.marked:
        mark = "differs by recording"
    elif figure.changed is None and figure.differs:
        mark = "differs"
    elif figure.changed:
        mark = f"{_UP if (figure.difference or 0) > 0 else _DOWN} changed"
    return [
        operation,
        _of(figure),
        _FIGURES.get(figure.name, figure.name),
        _value(figure.a, figure.unit),
        _value(figure.b, figure.unit),
        change,
        interval,
        mark,
    ]


def _of(figure: Figure) -> str:
    if figure.of == "device":
        return "Q to C" if figure.stage == "Q2C" else "D to C"
    if figure.of == "blame":
        return "whole (Q2C)" if figure.stage == WHOLE else figure.stage or ""
    if figure.of == "calls":
        whole = {None: "calls", "all": "entry to return"}
        return whole.get(figure.stage) or PARTS[figure.stage or ""]
    if figure.of == "bios":
        return figure.stage or "bios"
    return "requests" if figure.stage in (None, "all") else f"{figure.stage} of requests"


def _value(value: float | None, unit: str) -> str:
    """Return a value with its unit (ns, share, bytes, bytes/s, 1/s or a count); `-` for None."""
    if value is None:
        return "-"
    if unit == "ns":
        return units.duration(value)
    if unit == "share":
        return units.percent(value)
    if unit == "bytes":
        return units.size(value)
    if unit == "bytes/s":
        return units.size(value) + "/s"
    return f"{value:,.0f}" if unit == "1/s" else f"{value:.2f}"


def _points(difference: float, unit: str) -> str:
    """Return a signed difference in the figure's unit; of shares, in percentage points."""
    if unit == "share":
        return f"{100 * difference:+.1f} points"
    sign = "-" if difference < 0 else "+"
    return sign + _value(abs(difference), unit)


def _per_cent(share: float) -> str:
    return f"{100 * share:+.1f} %" if abs(share) < 10 else f"x {1 + share:,.1f}"


def _foot(diff: Diff, everything: bool) -> list[str]:
    found = [
        f"only in {which}: {', '.join(names)}"
        for names, which in ((diff.only_a, "A"), (diff.only_b, "B"))
        if names
    ]
    if bool(diff.a.calls_ns) != bool(diff.b.calls_ns):
        which = "A" if diff.a.calls_ns else "B"
        found.append(f"calls were timed in {which} only (record --path), and are not compared")
    if not diff.devices and not diff.pairs:
        found.append("no device of one name has I/O in both: choose with --device-a and --device-b")
    if diff.by_runs:
        found += _changed(diff)
    elif diff.compared:
        found += [
            f"{units.count(diff.differing)} of {units.plural(diff.compared, 'figure')} differ "
            f"between these recordings ({100 * diff.confidence:g} % intervals). That is all that "
            "is known: runs of one load differ by more than the time within one shows",
            "to tell what changed, record each side three times or more, in turn "
            "(biotrail diff --record 3 -- A-COMMAND -- B-COMMAND), or give runs of one load by "
            "--equal",
        ]
    told = [
        f"{operation.operation} {one.stage} ({units.duration(one.recorder_a)} in A, "
        f"{units.duration(one.recorder_b)} in B)"
        for device in diff.devices
        for operation in device.operations
        for one in operation.figures
        if one.by_recorder and one.of == "bios"
        if one.recorder_a is not None and one.recorder_b is not None
    ]
    if told:
        found.append(
            "not told whether it changed, as the means differ by no more than what the recorder's "
            f"own programs took: {', '.join(dict.fromkeys(told))}"
        )
    if diff.compared and not everything:
        found.append("figures of less interest that are alike are left out: --all shows them")
    return found


def _changed(diff: Diff) -> list[str]:
    """Return how many figures changed, and the change that would have been found."""
    level = f"{100 * (1 - diff.confidence):.3g} %"
    leading, others = (
        [one for one in diff.figures() if one.changed is not None and one.leading == which]
        for which in (True, False)
    )
    if not leading and not others:
        return ["no figure is in enough runs of both sides: nothing can be said to have changed"]
    found = []
    if leading:
        found.append(
            f"{units.count(sum(one.changed is True for one in leading))} of "
            f"{units.plural(len(leading), 'leading figure')} changed (mean Q2C of each operation, "
            f"each marked by chance in {level} of comparisons)"
        )
    if others:
        found.append(
            f"{units.count(sum(one.changed is True for one in others))} of "
            f"{units.plural(len(others), 'other figure')} changed (false discovery rate {level})"
        )
    sizes = [
        f"{device.device_a} {one.operation} {_per_cent(figure.detectable)}"
        for device in diff.devices
        for one in device.operations
        for figure in one.figures
        if figure.leading and figure.detectable is not None
    ]
    if sizes:
        found.append(f"mean Q2C: found in nine of ten tries is a change of {', '.join(sizes)}")
    return found
