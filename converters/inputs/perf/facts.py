# SPDX-License-Identifier: Apache-2.0
"""What perf.data says of itself: its events, their formats, and the machine."""

from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from biotrail.converters.inputs.foreign import MAX_NS, clocks_at
from biotrail.converters.inputs.perf.layout import (
    TRACEPOINT,
    Attr,
    ByteOrder,
    Cursor,
    SampleType,
    read_attr,
)
from biotrail.converters.inputs.tracepoints.formats import parse_format
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.formats import Format

# The formats of tracepoints in perf.data: what tracing_data_get() of perf wrote.
#
# The same as the beginning of trace-cmd's trace.dat, version 0.5 or 0.6.

_MAGIC = b"\x17\x08\x44tracing"


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint's system ("block") and format."""

    system: str
    form: Format


def read_tracing_data(data: bytes, where: str) -> dict[int, Tracepoint]:
    """Return the tracepoints in `data` by ID (perf_event_attr.config).

    A format that cannot be read is left out: its event then has none. where: for messages. Raises
    LogFormatError: no tracing data, or cut off.
    """
    if not data.startswith(_MAGIC):
        raise LogFormatError(
            f"{where}: the formats of its events begin with {data[:10].hex(' ')}, which perf does "
            "not write: the file is damaged; record again"
        )
    endian_at = data.find(b"\0", len(_MAGIC)) + 1
    big = data[endian_at : endian_at + 1] == b"\x01"
    cursor = Cursor(data, ">" if big else "<", where)
    cursor.take(len(_MAGIC))
    cursor.text_until_nul()
    cursor.take(1 + 1 + 4)  # byte order, size of a long, size of a page
    for _ in ("header_page", "header_event"):
        cursor.text_until_nul()
        cursor.take(cursor.number(8))
    for _ in range(cursor.number(4)):  # ftrace's own events
        cursor.take(cursor.number(8))
    found: dict[int, Tracepoint] = {}
    for _ in range(cursor.number(4)):
        system = cursor.text_until_nul()
        for _ in range(cursor.number(4)):
            text = cursor.take(cursor.number(8)).decode("utf-8", "replace")
            with suppress(LogFormatError):
                form = parse_format(text, where)
                found[form.number] = Tracepoint(system, form)
    return found


class Feature(IntEnum):
    """Sections of perf.data that are read (HEADER_*, tools/perf/util/header.h)."""

    TRACING_DATA = 1
    HOSTNAME = 3
    OSRELEASE = 4
    VERSION = 5
    ARCH = 6
    NRCPUS = 7
    CPUDESC = 8
    CMDLINE = 11
    EVENT_DESC = 12
    CLOCK_DATA = 29


_TEXTS = {
    Feature.HOSTNAME: "name",
    Feature.OSRELEASE: "release",
    Feature.VERSION: "version",
    Feature.ARCH: "machine",
    Feature.CPUDESC: "cpu_model",
}
_DESCRIBED = {
    Feature.TRACING_DATA: "the formats of events are",
    Feature.HOSTNAME: "the host's name is",
    Feature.OSRELEASE: "the kernel's release is",
    Feature.VERSION: "perf's version is",
    Feature.ARCH: "the machine's architecture is",
    Feature.NRCPUS: "the number of CPUs is",
    Feature.CPUDESC: "the CPU's model is",
    Feature.CMDLINE: "perf's command line, and with it what it left out, is",
    Feature.EVENT_DESC: "names of events that are no tracepoints are",
    Feature.CLOCK_DATA: "the wall-clock time is",
}
_KNOWN = frozenset(_DESCRIBED)
_UNCERTAINTY_NS = 1_000


@dataclass
class Facts:
    """What a recording says of itself; it grows while a pipe is read.

    events: attrs in the file's order. ids: index in `events` by the id that samples have. names: of
    events that are no tracepoints, by index. texts: name, release, version (perf's), machine,
    cpu_model, as far as known. clocks: a reading as in a log's header; None: not known.
    """

    where: str
    order: ByteOrder
    events: list[Attr] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    tracepoints: dict[int, Tracepoint] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    cpus: int = 0
    command: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """What a part that only describes could not be read for, a sentence each."""
    clocks: dict[str, int] | None = None

    def add_event(self, attr: Attr, ids: list[int]) -> None:
        """Add an event with the ids of its samples."""
        self.ids.update(dict.fromkeys(ids, len(self.events)))
        self.events.append(attr)

    def add_attr_record(self, data: bytes) -> None:
        """Add the event of a pipe's HEADER_ATTR record; data: behind the record's header."""
        attr = read_attr(data, self.order, self.where)
        cursor = Cursor(data, self.order, self.where)
        cursor.take(attr.size)
        self.add_event(attr, [cursor.number(8) for _ in range(cursor.rest // 8)])

    def add_tracing_data(self, data: bytes) -> None:
        """Add the formats of tracepoints."""
        self.tracepoints |= read_tracing_data(data, self.where)

    def add_feature(self, number: int, data: bytes) -> None:
        """Add what a section says, by its number; sections that are not needed are passed over.

        One that is cut off or empty, as perf of some ARM machines wrote, costs what it describes,
        and is noted in `unread`. Raises LogFormatError: the formats of events cannot be read.
        """
        if number == Feature.TRACING_DATA:
            self.add_tracing_data(data)
            return
        if number not in _KNOWN:
            return
        try:
            cursor = Cursor(data, self.order, self.where)
            if number in _TEXTS:
                self.texts[_TEXTS[Feature(number)]] = cursor.padded_text()
            elif number == Feature.NRCPUS:
                self.cpus = cursor.number(4)
            elif number == Feature.CMDLINE:
                words = min(cursor.number(4), cursor.rest)
                self.command = [cursor.padded_text() for _ in range(words)]
            elif number == Feature.EVENT_DESC:
                self._add_names(cursor)
            elif number == Feature.CLOCK_DATA:
                self._add_clocks(cursor)
        except LogFormatError:
            self.add_unread(Feature(number), f"{len(data)} bytes")

    def add_unread(self, section: Feature, why: str) -> None:
        """Note that a section could not be read. why: its size, or that the file ends before."""
        self.unread.append(
            f"{self.where}: the section {section.name} is empty, cut off or damaged ({why}): "
            f"{_DESCRIBED[section]} not known"
        )

    def _add_names(self, cursor: Cursor) -> None:
        """Take the names from EVENT_DESC: the number of events, the size of an attr, each event.

        Each is an attr, the number of its ids, its name, and its ids.
        """
        count, attr_bytes = cursor.number(4), cursor.number(4)
        for index in range(count):
            cursor.take(attr_bytes)
            ids = cursor.number(4)
            self.names[index] = cursor.padded_text()
            cursor.take(8 * ids)

    def _add_clocks(self, cursor: Cursor) -> None:
        """Take the clocks: version, clockid (4 bytes each), wall clock, that clock (ns)."""
        cursor.take(8)
        wall, own = cursor.number(8), cursor.number(8)
        if max(wall, own) < MAX_NS:
            self.clocks = clocks_at(own, wall, _UNCERTAINTY_NS)

    def tracepoint(self, index: int) -> Tracepoint | None:
        """Return the tracepoint of an event by its index; None: it is none, or has no format."""
        attr = self.events[index]
        return self.tracepoints.get(attr.config) if attr.type == TRACEPOINT else None

    def damaged_events(self) -> list[str]:
        """Return the names of the events that cannot be what their attrs say.

        They are tracepoints that have no format; and others that record a tracepoint's data (RAW),
        with a number that is a block event's.
        """
        found = []
        for index, attr in enumerate(self.events):
            known = self.tracepoints.get(attr.config)
            if attr.type == TRACEPOINT:
                damaged = known is None
            else:
                raw = SampleType.RAW in attr.sample_type
                damaged = raw and known is not None and known.system == "block"
            found += [self.name(index)] if damaged else []
        return found

    def name(self, index: int) -> str:
        """Return an event's name by its index: "sched_switch", "cpu-clock:u", "event 1:9".

        A tracepoint's is without its system. What is behind other names' colons are modifiers.
        """
        tracepoint = self.tracepoint(index)
        if tracepoint is not None:
            return tracepoint.form.name
        attr = self.events[index]
        name = self.names.get(index, "")
        if attr.type == TRACEPOINT:
            name = name.partition(":")[2] or name
        return name or f"event {attr.type}:{attr.config}"

    def header_facts(self) -> dict[str, Any]:
        """Return what a log's header can have: kernel, host, clocks, created_by, command."""
        texts = self.texts
        host: dict[str, Any] = {k: texts[k] for k in ("name", "machine", "cpu_model") if k in texts}
        if self.cpus:
            host["cpus"] = self.cpus
        found: dict[str, Any] = {"host": host} if host else {}
        if "release" in texts:
            found["kernel"] = {"release": texts["release"]}
        if "version" in texts:
            found["created_by"] = f"perf {texts['version']}"
        if self.command:
            found["command"] = self.command
        if self.clocks is not None:
            found["clocks"] = self.clocks
        return found
