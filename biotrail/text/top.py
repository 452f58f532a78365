# SPDX-License-Identifier: Apache-2.0
"""Show snapshots of `biotrail top` in tables, on a terminal's whole screen or as plain text."""

import os
import select
import shutil
import sys
import termios
import textwrap
import threading
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.live import Live

from biotrail.converters.analysis.blame.tree import Kind, Waited
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.live.tree import Snapshot, Stretch
from biotrail.converters.analysis.report.tree import GroupReport
from biotrail.converters.events.context import called
from biotrail.text import units
from biotrail.text.blame import FILTERED, KINDS, share
from biotrail.text.columns import (
    Column,
    block,
    columns_of,
    console,
    table,
    with_more,
    without_repeats,
)
from biotrail.text.report.cells import doubtful_lines, in_order, name_cells, ranges_text, weight
from biotrail.text.report.path import PARTS
from biotrail.text.report.verdict import lines, verdict
from biotrail.text.rows import Order, first

PLAIN_ROWS = 10
TIMES = columns_of("p50 | p99 | max @2 | p50 1 min @1 | p99 1 min @1")


@dataclass(frozen=True)
class Table:
    """One table of a snapshot. repeats: leading cells that are blank where they repeat."""

    columns: Sequence[Column]
    rows: list[list[str]]
    repeats: int = 0
    most: int = PLAIN_ROWS
    """Rows shown where neither a terminal nor an option limits them."""

    def drawn(self, limit: int, width: int, screen: bool = False) -> RenderableType:
        shown, more = first(self.rows, limit)
        rows = without_repeats(shown, self.repeats) if self.repeats else shown
        made = table("", self.columns, rows, width)
        if screen and more:
            return Group(made, f"… {units.plural(more, 'more row')}")
        return with_more(made, more)


def times(now: Summary | None, minute: Summary | None) -> list[str]:
    found = []
    for values, shown in ((now, ("p50", "p99", "max")), (minute, ("p50", "p99"))):
        some = values is not None and values.count
        found += [units.duration(getattr(values, name)) if some else "-" for name in shown]
    return found


_LEAST = 0.01
"""Share of a victim's time from which a part has a row."""


def blame(snapshot: Snapshot) -> Table:
    now, minute = snapshot.now.blame, snapshot.minute.blame
    newest = {one.name: _parts(one) for one in now.victims} if now else {}
    rows = []
    for one in minute.victims if minute else ():
        mine = newest.get(one.name, {})
        for what, ns in sorted(_parts(one).items(), key=lambda part: -part[1]):
            if ns < _LEAST * one.wait_ns:
                continue
            cells = [share(mine.get(what, 0), sum(mine.values())), share(ns, one.wait_ns)]
            rows.append([one.name, what, *cells, units.duration(ns / max(one.ios, 1))])
    columns = columns_of("waits < | < | share @1 | share 1 min | of each I/O")
    return Table(columns, rows, 1, 2 * PLAIN_ROWS)


def _parts(one: Waited) -> dict[str, int]:
    return {
        f"behind {part.culprit}" if part.kind == Kind.OTHER else KINDS[part.kind]: part.wait_ns
        for part in one.parts
    }


_HEAD = 2
_LATE_NS = 3_000_000_000
"""ns that the snapshot may be behind before the head says so."""
_WORK = columns_of("I/O/s | data/s @1")


@dataclass(frozen=True)
class Cost:
    recorder: float
    """The recorder process's share of one core, without the BPF programs."""
    top: float
    """This process's share of one core."""
    behind_ns: int


def parts(
    snapshot: Snapshot,
    cost: Cost,
    width: int,
    height: int | None,
    limit: int | None = None,
    order: Order | None = None,
) -> Iterator[RenderableType]:
    """Yield what to show. height: lines of the screen; None: text. order: None: by count."""
    if order is not None:
        snapshot = arranged(snapshot, order)
    head = _head(snapshot, cost)
    yield block(head)
    drawn = (_devices, blame, _operations, slowest_calls, _stages, calls, _processes, _slowest)
    tables = [one for draw in drawn if (one := draw(snapshot)).rows]
    if height is None:
        for one in tables:
            yield one.drawn(one.most if limit is None else limit, width)
        return
    room = height - sum(len(textwrap.wrap(line, width)) for line in head)
    shares = fitting([len(one.rows) for one in tables], limit or 0, room)
    for one, rows in zip(tables, shares, strict=False):
        yield one.drawn(rows, width, screen=True)
    if missing := tables[len(shares) :]:
        yield f"no room for: {', '.join(one.columns[0].head for one in missing)}"


def fitting(rows: Sequence[int], limit: int, room: int) -> list[int]:
    """Return how many of its `rows` each table shows in `room` lines; the last may be left out."""
    kept = len(rows)
    while kept and sum(_lines(1, have) for have in rows[:kept]) + (kept < len(rows)) > room:
        kept -= 1
    room -= kept < len(rows)
    wanted = [min(have, limit) if limit else have for have in rows[:kept]]
    shares = [1] * kept
    while True:
        used = sum(map(_lines, shares, rows))
        cost = {i: _lines(shares[i] + 1, rows[i]) - _lines(shares[i], rows[i]) for i in range(kept)}
        grown = [i for i in range(kept) if shares[i] < wanted[i] and used + cost[i] <= room]
        if not grown:
            return shares
        shares[min(grown, key=lambda i: shares[i])] += 1


def _lines(shown: int, rows: int) -> int:
    return _HEAD + shown + (shown < rows)


def arranged(snapshot: Snapshot, order: Order) -> Snapshot:
    def ranked(stretch: Stretch) -> Stretch:
        operations = sorted(stretch.operations, key=lambda one: -weight(one.bios, order))
        return replace(stretch, operations=operations, processes=in_order(stretch.processes, order))

    return replace(snapshot, now=ranked(snapshot.now), minute=ranked(snapshot.minute))


def shortened(snapshot: Snapshot, limit: int) -> Snapshot:
    def cut(stretch: Stretch) -> Stretch:
        blamed = stretch.blame
        if blamed is not None:
            blamed = replace(blamed, victims=first(blamed.victims, limit)[0])
        return replace(
            stretch,
            operations=first(stretch.operations, limit)[0],
            processes=first(stretch.processes, limit)[0],
            calls=first(stretch.calls, limit)[0],
            blame=blamed,
        )

    return replace(
        snapshot,
        now=cut(snapshot.now),
        minute=cut(snapshot.minute),
        slowest=first(snapshot.slowest, limit)[0],
        slowest_calls=first(snapshot.slowest_calls, limit)[0],
    )


def _head(snapshot: Snapshot, cost: Cost) -> list[str]:
    now = snapshot.now
    total = now.total.bios
    found = [
        f"biotrail top: {units.duration(now.end_ns - now.begin_ns)}: {total.ios_per_s:,.0f} I/O/s, "
        f"{units.size(total.bytes_per_s)}/s{ranges_text(total.counters)}, "
        f"{units.count(total.counters['failed'])} failed; "
        f"recorder {units.percent(cost.recorder)}, top {units.percent(cost.top)} of a core; "
        f"lost {units.plural(snapshot.lost_records, 'event')}"
    ]
    if snapshot.skipped_ns:
        found.append(
            f"CANNOT KEEP UP: {units.duration(snapshot.skipped_ns)} of the recording skipped "
            "here: choose fewer devices (-d) or operations (--op)"
        )
    found += lines(verdict(snapshot.report)[:1])
    found += doubtful_lines([(snapshot.minute.total.bios, "of the last minute")])
    if (blamed := snapshot.minute.blame) is not None:
        found += [] if blamed.everybody else [FILTERED]
        if missing := blamed.left_out.get("time_not_known"):
            missed = units.plural(missing, "bio")
            found.append(f"{missed} of the last minute waited for an unknown time")
        if missing := blamed.left_out.get("requests_too_long"):
            requests = units.plural(missing, "request")
            found.append(f"{requests} of more than a second are blamed for nothing")
    if snapshot.calls_until_ns is not None:
        since = units.duration(max(now.end_ns - snapshot.calls_until_ns, 0))
        found.append(f"calls have not been timed for {since}, as that took too much: --call-budget")
    if cost.behind_ns > _LATE_NS and not snapshot.last:
        found.append(f"{units.duration(cost.behind_ns)} behind")
    return found


def _devices(snapshot: Snapshot) -> Table:
    busy = sorted(snapshot.devices, key=lambda d: (-d.queue.active_ns, d.device))
    rows = []
    for one in busy:
        queue, issued = one.queue, one.issued
        active = 100 * queue.active_ns / queue.time_ns if queue.time_ns else 0.0
        rows.append(
            [
                one.device,
                units.count(queue.now),
                f"{queue.mean:.2f}",
                units.count(queue.max),
                units.count(issued.now),
                f"{issued.mean:.2f}",
                units.count(issued.max),
                f"{active:.0f} %",
            ]
        )
    columns = columns_of("in flight < | Q-C now | mean | max | D-C now | mean | max | active")
    return Table(columns, rows)


_FIELDS = ("device", "operation")


def _groups(
    heads: str, fields: Sequence[str], now: Iterable[GroupReport], minute: Iterable[GroupReport]
) -> Table:
    newest = {tuple(group.name.values()): group for group in now}
    rows = []
    for group in minute:
        mine = newest.get(tuple(group.name.values()))
        work = ["0", "0 B/s"]
        if mine is not None:
            work = [f"{mine.ios_per_s:,.0f}", f"{units.size(mine.bytes_per_s)}/s"]
        found = times(mine.latency if mine else None, group.latency)
        rows.append([*name_cells(group, fields), *work, *found])
    return Table([*columns_of(heads), *_WORK, *TIMES], rows)


def _named(stretch: Stretch) -> dict[tuple[object, ...], GroupReport]:
    """Return each device's operations by name; one that left and came again is its last self."""
    return {tuple(one.bios.name.values()): one.bios for one in stretch.operations}


def _operations(snapshot: Snapshot) -> Table:
    now, minute = (_named(of).values() for of in (snapshot.now, snapshot.minute))
    return _groups("Q to C < | <", _FIELDS, now, [bios for bios in minute if bios.ios])


def _processes(snapshot: Snapshot) -> Table:
    now, minute = snapshot.now.processes, snapshot.minute.processes
    return _groups("process < | pid", ("process", "pid"), now, minute)


def _stages(snapshot: Snapshot) -> Table:
    now = _named(snapshot.now)
    rows = []
    for name, one in _named(snapshot.minute).items():
        newest = {s.stage: s.time for s in now[name].stages} if name in now else {}
        stages = sorted(one.stages, key=lambda s: -s.share)
        for stage in stages:
            share = units.percent(stage.share, 0)
            found = times(newest.get(stage.stage), stage.time)
            rows.append([*name_cells(one, _FIELDS), stage.stage, share, *found])
    columns = [*columns_of("stages < | < | < | share 1 min"), *TIMES]
    return Table(columns, rows, 2, 2 * PLAIN_ROWS)


def _slowest(snapshot: Snapshot) -> Table:
    rows = [
        [
            units.duration(one.latency_ns),
            one.device,
            one.operation,
            str(one.sector),
            units.size(one.bytes),
            called(one.process or "(unknown)", one.title),
            str(one.pid or ""),
            f"{one.stage} {units.duration(one.stage_ns)}" if one.stage else "-",
            f"{units.duration(max(snapshot.now.end_ns - one.end_ns, 0))} ago",
        ]
        for one in snapshot.slowest
    ]
    columns = columns_of(
        "slowest | device < | < | sector @2 | size @2 | process < | pid @3 | "
        "longest stage < @1 | when @1"
    )
    return Table(columns, rows)


def calls(snapshot: Snapshot) -> Table:
    stretch = snapshot.now
    seconds = max(stretch.end_ns - stretch.begin_ns, 1) / 1e9
    now = {(one.call, one.io): one for one in stretch.calls}
    rows = []
    for one in snapshot.minute.calls:
        newest = now.get((one.call, one.io))
        count = newest.count if newest else 0
        longest = max(one.parts, key=lambda part: part.share, default=None)
        rows.append(
            [
                one.call if one.io else f"{one.call} (no I/O)",
                f"{count / seconds:,.0f}",
                ", ".join(f"{name} {units.count(n)}" for name, n in one.errors.items()) or "-",
                *times(newest.time if newest else None, one.time),
                f"{PARTS[longest.stage]} {units.percent(longest.share, 0)}" if longest else "-",
            ]
        )
    columns = [
        *columns_of("calls with I/O or waits < | calls/s | failed 1 min @3"),
        *TIMES,
        Column("most of it", left=True),
    ]
    return Table(columns, rows)


def slowest_calls(snapshot: Snapshot) -> Table:
    rows = [
        [
            units.duration(one.duration_ns),
            one.call,
            called(one.process or "(unknown)", one.title),
            str(one.pid or ""),
            units.count(one.bios) if one.bios else "-",
            f"{PARTS[one.part]} {units.duration(one.part_ns)}",
            one.error or "",
            f"{units.duration(max(snapshot.now.end_ns - one.end_ns, 0))} ago",
        ]
        for one in snapshot.slowest_calls
    ]
    columns = columns_of(
        "slowest calls | < | process < | pid @3 | bios @2 | longest part < @1 | < @2 | when @1"
    )
    return Table(columns, rows)


_QUIT = b"qQ"
_LOOK_SECONDS = 0.2
"""Seconds between two checks of whether to stop waiting for keys."""


Show = Callable[[Snapshot, Cost], None]
"""Shows a snapshot, with the CPU time of recorder and top."""


@contextmanager
def screen(
    stop: Callable[[], None], limit: int | None = None, order: Order | None = None
) -> Iterator[Show]:
    """Yield what draws a snapshot on the whole screen, or prints it. stop: for the key q."""
    to = console()

    def print_below(snapshot: Snapshot, cost: Cost) -> None:
        for part in parts(snapshot, cost, to.width, None, limit, order):
            to.print(part)
        to.print()
        sys.stdout.flush()

    def draw(snapshot: Snapshot, cost: Cost) -> None:
        size = shutil.get_terminal_size()
        to.size = (size.columns, size.lines)
        drawn = parts(snapshot, cost, size.columns, size.lines, limit, order)
        live.update(Group(*drawn), refresh=True)

    if not sys.stdout.isatty():
        yield print_below
        return
    with _keys(stop), Live("recording …", console=to, screen=True, auto_refresh=False) as live:
        yield draw


@contextmanager
def _keys(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, from another thread, when q is pressed during the block."""
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            if not select.select([terminal], [], [], _LOOK_SECONDS)[0]:
                continue
            pressed = os.read(terminal, 64)
            if not pressed or any(key in _QUIT for key in pressed):
                stop()
                return

    looking = threading.Thread(target=look, name="keys", daemon=True)
    try:
        tty.setcbreak(terminal)
        looking.start()
        yield
    finally:
        over.set()
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
