# SPDX-License-Identifier: Apache-2.0
"""What perf.data says of itself: its events, their formats, and the machine."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from biotrail.converters.inputs.perf.cursor import ByteOrder, Cursor
from biotrail.converters.inputs.perf.layout import TRACEPOINT, Attr, read_attr
from biotrail.converters.inputs.perf.tracing_data import Tracepoint, read_tracing_data


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

        Raises LogFormatError: it is cut off.
        """
        cursor = Cursor(data, self.order, self.where)
        if number == Feature.TRACING_DATA:
            self.add_tracing_data(data)
        elif number in _TEXTS:
            self.texts[_TEXTS[Feature(number)]] = cursor.padded_text()
        elif number == Feature.NRCPUS:
            self.cpus = cursor.number(4)
        elif number == Feature.CMDLINE:
            self.command = [cursor.padded_text() for _ in range(min(cursor.number(4), len(data)))]
        elif number == Feature.EVENT_DESC:
            self._add_names(cursor)
        elif number == Feature.CLOCK_DATA:
            self._add_clocks(cursor)

    def _add_names(self, cursor: Cursor) -> None:
        """Take the names from EVENT_DESC: the number of events, the size of an attr, each event.

        Each is an attr, the number of its ids, its name, and its ids.
        """
        count, attr_bytes = cursor.number(4), cursor.number(4)
        for index in range(count):
            if cursor.rest < attr_bytes:
                return
            cursor.take(attr_bytes)
            ids = cursor.number(4)
            self.names[index] = cursor.padded_text()
            cursor.take(8 * ids)

    def _add_clocks(self, cursor: Cursor) -> None:
        """Take the clocks: version, clockid (4 bytes each), wall clock, that clock (ns).

        Only the recording's own clock is there beside the wall clock: it stands for CLOCK_MONOTONIC
        and CLOCK_BOOTTIME.
        """
        cursor.take(8)
        wall, own = cursor.number(8), cursor.number(8)
        if max(wall, own) < 1 << 62:
            self.clocks = {
                "monotonic": own,
                "boottime": own,
                "realtime": wall,
                "uncertainty": _UNCERTAINTY_NS,
            }

    def tracepoint(self, index: int) -> Tracepoint | None:
        """Return the tracepoint of an event by its index; None: it is none, or has no format."""
        attr = self.events[index]
        return self.tracepoints.get(attr.config) if attr.type == TRACEPOINT else None

    def name(self, index: int) -> str:
        """Return the name of an event by its index: "sched_switch", "cycles", "event 1:9"."""
        tracepoint = self.tracepoint(index)
        if tracepoint is not None:
            return tracepoint.form.name
        attr = self.events[index]
        return self.names.get(index, f"event {attr.type}:{attr.config}").split(":")[-1]

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
