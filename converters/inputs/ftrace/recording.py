# SPDX-License-Identifier: Apache-2.0
"""What trace-cmd's trace.dat says of a recording: formats, buffers, clocks.

Sources: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5), and trace-cmd's trace-input.c for what these
pages leave out.
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum

from biotrail.converters.inputs.ftrace.compression import NONE, Decompressor
from biotrail.converters.inputs.ftrace.fields import ByteOrder, Fields

MAGIC = b"\x17\x08\x44tracing"
"""First bytes of every trace.dat."""


class Option(IntEnum):
    """Numbers of options, which version 7 uses for its sections, too."""

    DONE = 0
    DATE = 1
    CPUSTAT = 2
    BUFFER = 3
    TRACECLOCK = 4
    UNAME = 5
    OFFSET = 7
    CPUCOUNT = 8
    VERSION = 9
    TIME_SHIFT = 12
    TSC2NSEC = 14
    HEADER_INFO = 16
    FTRACE_EVENTS = 17
    EVENT_FORMATS = 18
    BUFFER_TEXT = 22


@dataclass(frozen=True)
class CpuData:
    """Where a CPU's ring-buffer pages are: offset and size in bytes, as stored."""

    cpu: int
    offset: int
    size: int


@dataclass
class Counted:
    """The kernel's counts of events that were read, which trace-cmd keeps at the end (CPUSTAT).

    read: events by buffer's name and CPU. buffer: whose CPUs the next texts are of.
    """

    read: dict[tuple[str, int], int] = field(default_factory=dict)
    buffer: str = ""

    def add(self, text: str) -> None:
        """Take in an option: "Buffer: NAME", or a CPU's counts, a line each."""
        pairs = dict(re.findall(r"^([A-Za-z ]+): (.*)$", text, re.MULTILINE))
        if "Buffer" in pairs:
            self.buffer = pairs["Buffer"]
        elif (cpu := pairs.get("CPU", "")).isdecimal():
            self.read[self.buffer, _integer(cpu)] = _integer(pairs.get("read events", ""))


@dataclass
class Buffer:
    """The pages of the top buffer (name "") or of an instance.

    clock: the kernel's name of the trace clock. page_bytes: of a ring-buffer page with its header.
    compressed: whether a CPU's data are compressed chunks. end: offset behind the data of all CPUs;
    0: the file does not say.
    """

    name: str
    clock: str
    page_bytes: int
    cpus: list[CpuData] = field(default_factory=list)
    compressed: bool = False
    end: int = 0


@dataclass
class Recording:
    """What stands in a file beside its pages.

    version: 6 or 7. order, long_bytes: of numbers, and of the kernel's longs. page_bytes: the
    machine's page size. codec, decompressor: of compressed data. header_page: text of
    events/header_page. formats: texts of event formats by system. kernel: its release, "" where not
    recorded. tool: trace-cmd's version. date_ns: wall-clock time minus the time of the top buffer's
    clock, None if not recorded. offset_ns: to add to each time. tsc: (multiplier, shift) from
    counts of the TSC to ns. guest: whether times were to be shifted to a host's. has_text: whether
    a buffer of latency text was left out. cpu_count: as an option says, 0 without it. sections:
    offset of each section that options name, by the option's number. counted: of CPUSTAT. problems:
    what could not be read of it, a sentence each.
    """

    version: int
    order: ByteOrder
    long_bytes: int
    page_bytes: int
    codec: str = NONE
    decompressor: Decompressor = field(default_factory=lambda: Decompressor(NONE))
    header_page: str = ""
    formats: dict[str, list[str]] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    clock: str = ""
    kernel: str = ""
    tool: str = ""
    date_ns: int | None = None
    offset_ns: int = 0
    tsc: tuple[int, int] | None = None
    guest: bool = False
    has_text: bool = False
    cpu_count: int = 0
    sections: dict[int, int] = field(default_factory=dict)
    counted: Counted = field(default_factory=Counted)
    problems: list[str] = field(default_factory=list)


def read_headers(fields: Fields, recording: Recording) -> None:
    """Read the texts of header_page and header_event; keep the first in `recording`.

    Raises LogFormatError: cut off, or they are not there.
    """
    fields.string()
    recording.header_page = fields.block().decode("utf-8", "replace")
    fields.string()
    fields.block()


def read_ftrace_formats(fields: Fields, recording: Recording) -> None:
    """Read the formats of ftrace's own events into `recording.formats`. Raises LogFormatError."""
    recording.formats["ftrace"] = _formats(fields)


def read_event_formats(fields: Fields, recording: Recording) -> None:
    """Read the formats of all systems' events into `recording.formats`. Raises LogFormatError."""
    for _ in range(fields.number(4)):
        system = fields.string()
        recording.formats.setdefault(system, []).extend(_formats(fields))


def _formats(fields: Fields) -> list[str]:
    return [fields.block().decode("utf-8", "replace") for _ in range(fields.number(4))]


def read_option(option: int, data: bytes, recording: Recording) -> None:
    """Put what an option says into `recording`; unknown ones and those too short change nothing."""

    def number(at: int, count: int) -> int:
        return int.from_bytes(data[at : at + count], recording.order)

    text = data.split(b"\0")[0].decode("utf-8", "replace").strip()
    if option == Option.DATE:
        # trace-cmd writes microseconds as a hexadecimal number.
        recording.date_ns = _integer(text) * 1000
    elif option == Option.OFFSET:
        recording.offset_ns += _integer(text)
    elif option == Option.CPUSTAT:
        recording.counted.add(text)
    elif option == Option.TRACECLOCK:
        recording.clock = chosen_clock(text) or recording.clock
    elif option == Option.UNAME:
        words = text.split()
        if len(words) >= 4:
            recording.kernel = words[2]
    elif option == Option.VERSION:
        recording.tool = text
    elif option == Option.CPUCOUNT and len(data) >= 4:
        recording.cpu_count = number(0, 4)
    elif option == Option.TIME_SHIFT:
        recording.guest = True
    elif option == Option.TSC2NSEC and len(data) >= 8 and number(0, 4) and number(4, 4) <= 32:
        recording.tsc = number(0, 4), number(4, 4)
    elif option in _SECTIONS and len(data) >= 8:
        recording.sections.setdefault(option, number(0, 8))


_LARGEST = 1 << 61
"""Above all times and counts that a recording has."""
_SECTIONS = (Option.HEADER_INFO, Option.FTRACE_EVENTS, Option.EVENT_FORMATS)


def _integer(text: str) -> int:
    """Return a number as strtoll with base 0 reads it; 0 where there is none, or one too large."""
    match = re.match(r"([+-]?)(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18})(?![0-9a-fA-F])", text)
    if not match:
        return 0
    digits = match[2]
    number = int(digits, 16 if digits[:2] in ("0x", "0X") else 10)
    return 0 if number >= _LARGEST else -number if match[1] == "-" else number


def chosen_clock(text: str) -> str:
    """Return the clock in brackets of tracefs's `trace_clock`; "" if none is."""
    match = re.search(r"\[([\w.-]+)\]", text)
    return match[1] if match else ""
