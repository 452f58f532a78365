# SPDX-License-Identifier: Apache-2.0
"""What the kernel's own tracer says of functions and tracepoints: its text, read.

`kprobe_lines` declares probes, `passings` reads what they wrote. Both know nothing of biotrail:
they are what its recordings are held against.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

MICROSECOND = 1000
ENTRIES, RETURNS = "bt_entry", "bt_return"
"""Groups of the probes."""
AT_ONCE = 128
"""Calls of a function that may be open at once, or their returns are missed."""
_LINE = re.compile(
    r"\s*(?P<comm>.+)-(?P<tid>\d+)\s+\[(?P<cpu>\d+)\]\s+(?P<flags>\S+)\s+"
    r"(?P<seconds>\d+)\.(?P<micros>\d{6}): (?P<event>\w+): (?P<rest>.*)"
)
_IN_INTERRUPT = ("h", "H", "s", "z", "Z")
"""Third of a line's flags: hard or soft interrupt, or NMI."""
_POINTER = re.compile(r"\bobj=0x([0-9a-f]+)")
_FIELD = re.compile(r"(\w+)=([^\s,]+)")
Span = tuple[int, int]
"""Begin and end, ns."""


@dataclass(frozen=True, slots=True)
class Passing:
    """A function's entry or return, or an event.

    time: ns of CLOCK_MONOTONIC; the kernel prints whole microseconds. pointer: the object; of a
    return that of its entry, 0 where that is not known. in_interrupt: on top of the thread `tid`,
    as far as is known. rest: what the event says.
    """

    time: int
    cpu: int
    tid: int
    name: str
    is_return: bool = False
    pointer: int = 0
    in_interrupt: bool = False
    rest: str = ""

    @property
    def context(self) -> tuple[int, int]:
        """Who ran: (tid, 0); of the idle tasks, which are many, (0, CPU + 1)."""
        return (self.tid, 0) if self.tid else (0, self.cpu + 1)

    def __str__(self) -> str:
        mark = "<" if self.is_return else ">"
        return f"{self.time / 1e9:.6f} [{self.cpu}] {self.tid} {mark}{self.name} {self.pointer:x}"


def kprobe_lines(functions: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Yield the lines of `kprobe_events` for each (function, index of its argument): two each."""
    for name, argument in functions:
        entry = f"p:{ENTRIES}/{name} {name} obj=$arg{argument + 1}:x64"
        yield entry, f"r{AT_ONCE}:{RETURNS}/{name} {name}"


def passings(lines: Iterable[str]) -> list[Passing]:
    """Read the text of `trace`, in order of time; returns have the pointers of their entries.

    AssertionError where a line is not understood, or says that events were lost.
    """
    found = [_parsed(line) for line in lines if line.strip() and not line.startswith("#")]
    return list(_with_pointers(sorted(found, key=lambda passing: passing.time)))


def _parsed(line: str) -> Passing:
    match = _LINE.match(line)
    assert match is not None, line
    time = (int(match["seconds"]) * 1_000_000 + int(match["micros"])) * MICROSECOND
    rest = match["rest"]
    pointer = _POINTER.search(rest)
    return Passing(
        time,
        int(match["cpu"]),
        int(match["tid"]),
        match["event"],
        " <- " in rest,
        int(pointer[1], 16) if pointer else 0,
        match["flags"][2:3] in _IN_INTERRUPT,
        rest,
    )


def _with_pointers(found: Iterable[Passing]) -> Iterator[Passing]:
    """Yield the passings; a return gets the pointer of its thread's last open entry of the name."""
    open_calls: dict[tuple[tuple[int, int], str], list[int]] = defaultdict(list)
    for passing in found:
        calls = open_calls[passing.context, passing.name]
        if not passing.is_return:
            calls.append(passing.pointer)
            yield passing
        else:
            yield replace(passing, pointer=calls.pop() if calls else 0)


def fields(passing: Passing) -> dict[str, str]:
    """Return an event's NAME=VALUE fields as text."""
    return dict(_FIELD.findall(passing.rest))


def missed(profile: str) -> dict[str, int]:
    """Read `kprobe_profile`: by function, how often a probe was hit and not run; no zeros."""
    rows = [line.split() for line in profile.splitlines()]
    counts: dict[str, int] = defaultdict(int)
    for name, _, number in rows:
        counts[name] += int(number)
    return {name: number for name, number in counts.items() if number}


def spans(
    events: Iterable[Passing], begin: str, end: str, keys: Sequence[str]
) -> dict[tuple[int, ...], list[Span]]:
    """Return (begin, end) in ns of each `begin` with the next `end` of the same fields `keys`.

    By the fields' values; "cpu" is the CPU that the event was on.
    """
    begun: dict[tuple[int, ...], int] = {}
    found: dict[tuple[int, ...], list[Span]] = defaultdict(list)
    for event in events:
        if event.name not in (begin, end):
            continue
        known = fields(event) | {"cpu": str(event.cpu)}
        values = tuple(int(known[key], 0) for key in keys)
        if event.name == begin:
            begun[values] = event.time
        elif values in begun:
            found[values].append((begun.pop(values), event.time))
    return dict(found)


def median_duration(found: Iterable[Span]) -> float:
    """Return the median of end - begin, ns."""
    return median(end - begin for begin, end in found)


def unmatched(wanted: Iterable[int], times: Iterable[int], reach: int) -> list[int]:
    """Return the wanted times (ns) that none of `times` is within `reach` of; each serves once."""
    left = sorted(times)
    lone = []
    for time in sorted(wanted):
        place = bisect_left(left, time - reach)
        if place < len(left) and left[place] <= time + reach:
            del left[place]
        else:
            lone.append(time)
    return lone


def misplaced(wanted: Iterable[int], times: Iterable[int]) -> list[int]:
    """Return the wanted times (ns) that are not each between one of `times` and the next.

    `wanted` are of a recorder that runs after another at the same events, one event at a time;
    `times` of that other, which has all of them. However long the two are kept apart, the second
    has an event before the first has the next.
    """
    known = sorted(times)
    placed = [(time, bisect_right(known, time)) for time in sorted(wanted)]
    taken = Counter(place for _, place in placed)
    return [time for time, place in placed if place == 0 or taken[place] > 1]
