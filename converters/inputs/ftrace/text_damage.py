# SPDX-License-Identifier: Apache-2.0
"""Damage of a text: zeros where a page was lost, and fewer events than ftrace's header counts.

Damage is dated by the events before and behind it, so that it waits for the next event. Between two
events there is one place, however many lines are damaged there.
"""

import re
from dataclasses import dataclass, field

_ENTRIES = re.compile(
    rb"# (?:entries-in-buffer/entries-written: (\d+)/(\d+)|latency: \d+ us, #(\d+)/(\d+),)"
)
_NAMED_AT_MOST = 8
Window = dict[str, int]
"""offset (bytes of the text), start, end (ns)."""


@dataclass
class _Place:
    """A damaged place. line: from 1. zeros: bytes of zeros there, 0 for a line that is odd."""

    offset: int
    line: int
    start: int
    zeros: int = 0
    end: int = -1


@dataclass
class _Section:
    """What follows a header of ftrace. counted: entries that it counts, -1: there is no header."""

    counted: int = -1
    line: int = 0
    read: int = 0
    lost: int = 0
    places: list[_Place] = field(default_factory=list)


class TextDamage:
    """The damaged places of a text, met line by line.

    overwritten: number of older events that ftrace says it had overwritten.
    """

    def __init__(self, name: str) -> None:
        """name: the text, for messages."""
        self.overwritten = 0
        self._name = name
        self._section = _Section()
        self._open: _Place | None = None
        self._zeros: list[_Place] = []
        self._short: list[str] = []
        self._newest = 0

    def entries(self, read: int) -> None:
        """Count events that were read, of any kind."""
        self._section.read += read

    def lost(self, count: int) -> None:
        """Count events that the text says are lost."""
        self._section.lost += max(count, 0)

    def header(self, text: bytes, line: int) -> list[Window] | None:
        """Begin a section if a line is a header with counts; return the windows of the one before.

        None: the line is none. line: from 1.
        """
        if (match := _ENTRIES.match(text)) is None:
            return None
        counted, written = int(match[1] or match[3]), int(match[2] or match[4])
        self.overwritten = max(written - counted, 0)
        windows = self._end_section()
        self._section = _Section(counted, line)
        return windows

    def place(self, offset: int, line: int, last: int, zeros: int = 0) -> None:
        """Note a damaged line at `offset`. last: time (ns) of the event before it, -1: none.

        zeros: how many of its bytes are zeros; without any it is odd, which matters where a header
        counts what there should be.
        """
        if not zeros and self._section.counted < 0:
            return
        if self._open is None:
            self._open = _Place(offset, line, last)
            self._section.places += [self._open] if self._section.counted >= 0 else []
        if zeros and not self._open.zeros:
            self._open.offset, self._open.line = offset, line
            self._zeros.append(self._open)
        self._open.zeros += zeros

    def dated(self, first: int) -> list[Window]:
        """Date the last place by the next event's time (ns); return its window if it is of zeros.

        first: -1: there is no further event.
        """
        place, self._open = self._open, None
        if place is None:
            return []
        known = [time for time in (place.start, first) if time >= 0] or [0]
        place.start = known[0]
        place.end = max(known[-1], place.start)
        return [_window(place)] if place.zeros else []

    def end(self) -> list[Window]:
        """Return the windows that are known at the end only."""
        return self.dated(-1) + self._end_section()

    @property
    def zero_bytes(self) -> int:
        """Bytes of zeros that were met."""
        return sum(place.zeros for place in self._zeros)

    def problems(self) -> list[str]:
        """Return a sentence for each place with zeros, and for each header that does not add up."""
        found = [
            f"{self._name}: {place.zeros:,} bytes of zeros at byte {place.offset:,} of the text "
            f"(line {place.line}), {_dated(place)}: a part of the file was lost; copy it again"
            for place in self._zeros[:_NAMED_AT_MOST]
        ]
        if more := self._zeros[_NAMED_AT_MOST:]:
            found.append(
                f"{self._name}: {sum(p.zeros for p in more):,} bytes of zeros at {len(more)} "
                "further places"
            )
        return found + self._short

    def _end_section(self) -> list[Window]:
        """Return the windows of odd lines if the section has fewer entries than its header counts.

        Adds a sentence on that.
        """
        one = self._section
        missing = one.counted - one.read - one.lost
        if one.counted < 0 or missing <= 0:
            return []
        where = "where is not known"
        if len(one.places) == 1:
            where = _dated(one.places[0])
        elif one.places:
            where = f"at {len(one.places)} places, the first in line {one.places[0].line}"
        self._short.append(
            f"{self._name}: ftrace's header in line {one.line} counts {one.counted:,} entries, and "
            f"{one.read:,} are here: {missing:,} are missing, {where}: the text was cut, or lines "
            "were taken out of it"
        )
        return [_window(place) for place in one.places if not place.zeros and place.end >= 0]


def _window(place: _Place) -> Window:
    return {"offset": place.offset, "start": place.start, "end": place.end}


def _dated(place: _Place) -> str:
    """Return between which events' times a place is."""
    if place.end < 0:
        return f"in line {place.line}"
    return f"between events at {place.start / 1e9:.6f} and {place.end / 1e9:.6f} s"
