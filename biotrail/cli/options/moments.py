# SPDX-License-Identifier: Apache-2.0
"""Times within a log as people write them, and their conversion to the log's own clock."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from biotrail.converters.inputs.log import Indexed
from biotrail.converters.lifecycles.cutting import ENDLESS, Span, outside
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text.units import Duration

_EXAMPLES = '2.5s, "last 5s", 14:03:05 or 2026-01-31T14:03:05Z'
_BEFORE_END = re.compile(r"\s*(?:last\s+|-)(.+)")
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?")
_LOOKS = 3
"""Clock readings that `_monotonic` tries, each one nearer to the time than the one before."""


@dataclass(frozen=True)
class Moment:
    """A time as the user wrote it (`text`). Exactly one other attribute is not None.

    offset: ns since recording began; before_end: ns before the log's end; wall: a date and time;
    daytime: a time of day in UTC.
    """

    text: str
    offset: int | None = None
    before_end: int | None = None
    wall: datetime | None = None
    daytime: time | None = None


def parse(text: str) -> Moment:
    """Parse `2.5s`, `last 5s`, `-5s`, `14:03[:05[.5]]` or ISO 8601 (UTC if it has no offset).

    Raises ValueError.
    """
    if match := _BEFORE_END.fullmatch(text):
        return Moment(text, before_end=_ns(match[1]))
    if _TIME.fullmatch(text.strip()):
        clock_time = text.strip().zfill(5) if text.strip().count(":") == 1 else text.strip()
        hour, rest = clock_time.split(":", 1)
        return Moment(text, daytime=time.fromisoformat(f"{hour:0>2}:{rest}"))
    if "-" in text or "T" in text:
        found = datetime.fromisoformat(text.strip())
        return Moment(text, wall=found if found.tzinfo else found.replace(tzinfo=UTC))
    return Moment(text, offset=_ns(text))


def _ns(text: str) -> int:
    """Return a duration in ns. Raises ValueError."""
    try:
        return round(Duration().convert(text, None, None) * 1e9)
    except click.UsageError as error:
        raise ValueError(text) from error


if TYPE_CHECKING:  # generic in click 8.2 and later only
    _MomentType = click.ParamType[Moment]
else:
    _MomentType = click.ParamType


class MomentType(_MomentType):
    """The type of an option whose value is a Moment: `2.5s`, `last 5s`, `14:03:05`, ISO 8601."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """Return the Moment. Raises click.UsageError for anything that is no time."""
        if isinstance(value, Moment):
            return value
        try:
            return parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time: write {_EXAMPLES}", param, ctx)


@dataclass(frozen=True)
class Times:
    """A part of a log's time: from `begin` (None: the log's begin) to before `end` (None: its end).

    If `around` is given, `window` ns around it instead.
    """

    begin: Moment | None = None
    end: Moment | None = None
    around: Moment | None = None
    window: int = 0

    @property
    def all(self) -> bool:
        """Whether it is the whole log."""
        return self == Times()

    @property
    def by_end(self) -> bool:
        """Whether a time counts back from the log's end, which must be known then."""
        given = (self.begin, self.end, self.around)
        return any(moment is not None and moment.before_end is not None for moment in given)

    def span(self, trace: Trace) -> Span:
        """Return this part in the trace's clock (ns of CLOCK_MONOTONIC), clipped to the log.

        Raises ConversionError if it is outside of the log, if its end is not after its begin, or
        if the log lacks what a time needs (a wall clock; for `last 5s`, a known end).
        """
        bounds = trace.reader.bounds() if isinstance(trace.reader, Indexed) else None
        first, last = bounds or (trace.start, ENDLESS - 1)
        if self.around is not None:
            middle = _resolved(self.around, trace, first, last)
            begin, end = middle - self.window // 2, middle + self.window - self.window // 2
        else:
            begin = first if self.begin is None else _resolved(self.begin, trace, first, last)
            end = last + 1 if self.end is None else _resolved(self.end, trace, first, last)
        if begin > last or end <= first:
            shown = ENDLESS if self.end is None and self.around is None else min(end, ENDLESS)
            raise outside(Span(begin, shown), first, last, trace.context)
        if end <= begin:
            words = [moment.text for moment in (self.begin, self.end) if moment is not None]
            raise ConversionError(f"there is no time between {' and '.join(words)} in this log")
        return Span(max(begin, first), min(end, last + 1))


def _resolved(moment: Moment, trace: Trace, first: int, last: int) -> int:
    """Return a moment in ns of CLOCK_MONOTONIC. first, last: ns of the log's first and last event.

    A time of day is that of the day on which the log begins or, if it is before the log's begin
    and the log lasts as long, of the next day. Raises ConversionError.
    """
    if moment.offset is not None:
        return trace.start + moment.offset
    if moment.before_end is not None:
        if last >= ENDLESS - 1:
            raise ConversionError(
                f"{moment.text!r} counts back from the end of the log, which is not known for this "
                "input: give an offset (2.5s)"
            )
        return last - moment.before_end + 1
    if not trace.context.clocks:
        raise ConversionError(
            f"{moment.text} is a wall-clock time, and the log has no wall clock; give offsets "
            "(2.5s)"
        )
    if moment.wall is not None:
        return _monotonic(trace, _epoch_ns(moment.wall))
    assert moment.daytime is not None
    first_reading = trace.context.clocks[0]
    realtime = int(first_reading["realtime"]) + first - int(first_reading["monotonic"])
    day = date(1970, 1, 1) + timedelta(days=realtime // (86400 * 10**9))
    found = _epoch_ns(datetime.combine(day, moment.daytime, UTC))
    later = _monotonic(trace, found + 86400 * 10**9)
    return later if found < realtime and later <= last else _monotonic(trace, found)


def _epoch_ns(moment: datetime) -> int:
    """Return ns since 1970, exactly: datetime.timestamp() would round."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000


def _monotonic(trace: Trace, realtime: int) -> int:
    """Convert CLOCK_REALTIME (ns since 1970) to CLOCK_MONOTONIC by the nearest clock reading."""
    reading = trace.context.clocks[0]
    for _ in range(_LOOKS):
        at = int(reading["monotonic"]) + realtime - int(reading["realtime"])
        near = trace.reader.clock_near(at) if isinstance(trace.reader, Indexed) else None
        if near is None or near == reading:
            break
        reading = near
    return int(reading["monotonic"]) + realtime - int(reading["realtime"])
