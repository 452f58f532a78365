# SPDX-License-Identifier: Apache-2.0
"""What trace-cmd's trace.dat says of a recording: formats, buffers, clocks.

Version 6 has it in one sequence, version 7 in sections. Sources: trace-cmd.dat.v6(5) and
trace-cmd.dat.v7(5), and trace-cmd's trace-input.c for what these pages leave out.
"""

import io
import os
import re
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

import zstandard

from biotrail.converters.inputs.beginning import read_some
from biotrail.converters.inputs.unpacking import Allowance, TooLargeError
from biotrail.recorder.log.frames import most_raw
from biotrail.recorder.schema.errors import LogFormatError

ByteOrder: TypeAlias = Literal["little", "big"]
_STRING_BYTES = 4096
"""Most bytes of a string that ends with a null byte: names, clocks, versions."""
_STRING_PIECE = 16
"""Bytes read at once for a string, so that many short ones are not read many times."""


class Fields:
    """A position in a file or a decompressed section, which each read advances."""

    def __init__(self, stream: BinaryIO, name: str, order: ByteOrder = "little") -> None:
        self.stream = stream
        self.name = name
        self.order: ByteOrder = order
        here = stream.tell()
        self.size = stream.seek(0, os.SEEK_END)
        stream.seek(here)

    @property
    def at(self) -> int:
        return self.stream.tell()

    def seek(self, offset: int) -> None:
        if not 0 <= offset <= self.size:
            raise LogFormatError(
                f"{self.name}: refers to offset {offset}, but ends at {self.size}: the file is "
                "cut off or damaged; copy it again, or record again"
            )
        self.stream.seek(offset)

    def take(self, count: int) -> bytes:
        at = self.at
        if count > self.size - at:
            raise LogFormatError(
                f"{self.name}: cut off: {count} bytes at offset {at} reach behind the end at "
                f"{self.size}; copy the file again, or record again"
            )
        return read_some(self.stream, count, self.name, at)

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), self.order)

    def string(self) -> str:
        at, text = self.at, b""
        while b"\0" not in text:
            more = self.stream.read(_STRING_PIECE)
            text += more
            if not more or len(text) > _STRING_BYTES:
                raise LogFormatError(
                    f"{self.name}: a string at offset {at} has no end: the file is cut off or "
                    "damaged; copy it again, or record again"
                )
        text = text.partition(b"\0")[0]
        self.stream.seek(at + len(text) + 1)
        return text.decode("utf-8", "replace")

    def block(self, length_bytes: int = 8) -> bytes:
        return self.take(self.number(length_bytes))


NONE = "none"
CODECS = ("zstd", "zlib", NONE)
_PAGE_BYTES = 1 << 16


MAGIC = b"\x17\x08\x44tracing"


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


class CpuData(NamedTuple):
    cpu: int
    offset: int
    size: int


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
    machine's page size. codec: of compressed data, which must not be far larger than the file
    (allowance). header_page: text of events/header_page. formats: texts of event formats by system.
    kernel: its release, "" where not recorded. tool: trace-cmd's version. date_ns: wall-clock time
    minus the time of the top buffer's clock, None if not recorded. offset_ns: to add to each time.
    tsc: (multiplier, shift) from counts of the TSC to ns. guest: whether times were to be shifted
    to a host's. has_text: whether a buffer of latency text was left out. cpu_count: as an option
    says, 0 without it. sections: offset of each section that options name, by the option's number.
    counted: the kernel's counts of events that were read, which trace-cmd keeps at the end
    (CPUSTAT), by buffer's name and CPU; counted_buffer: whose CPUs the next ones are of. problems:
    what could not be read of it, a sentence each.
    """

    version: int
    order: ByteOrder
    long_bytes: int
    page_bytes: int
    codec: str = NONE
    allowance: Allowance = field(default_factory=Allowance)
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
    counted: dict[tuple[str, int], int] = field(default_factory=dict)
    counted_buffer: str = ""
    problems: list[str] = field(default_factory=list)

    def decompress(self, stored: bytes, size: int, where: str) -> bytes:
        """Return the `size` bytes that were stored, allocating no more. Raises LogFormatError."""
        if size > most_raw(len(stored)) + _PAGE_BYTES:
            raise LogFormatError(
                f"{where}: {len(stored)} compressed bytes declare {size}: the file is damaged; "
                "copy it again"
            )
        self.allowance.stored += len(stored)
        try:
            self.allowance.add(size)
            if self.codec == "zstd":
                # trace-cmd leaves the content's size out; one that is there the library trusts.
                declared = zstandard.frame_content_size(stored)
                if declared not in (-1, size):
                    raise zstandard.ZstdError(
                        f"the frame declares {declared} bytes, its chunk {size}"
                    )
                unpacker = zstandard.ZstdDecompressor()
                data = unpacker.decompress(stored, max_output_size=max(size, 1))
            else:
                data = zlib.decompressobj().decompress(stored, size + 1)
        except (zstandard.ZstdError, zlib.error, TooLargeError) as error:
            raise LogFormatError(
                f"{where}: does not decompress ({error}): the file is damaged; copy it again"
            ) from None
        if len(data) != size:
            raise LogFormatError(
                f"{where}: holds {len(data)} bytes where it declares {size}: the file is damaged; "
                "copy it again"
            )
        return data


_COMPRESSED = 1
_PAGE_BYTES_AT_MOST = 1 << 22
_KIND_BYTES = 10
"""Length of "options", "latency" and "flyrecord", each filled up with spaces and a null byte."""


def read_recording(stream: BinaryIO, name: str) -> Recording:
    """Return what a trace.dat, which the stream begins with, says beside its pages."""
    fields = Fields(stream, name)
    if fields.take(min(len(MAGIC), fields.size)) != MAGIC:
        raise LogFormatError(f"{name}: no trace.dat: it does not begin as trace-cmd's files do")
    version = fields.string()
    if version not in ("6", "7"):
        raise LogFormatError(
            f"{name}: trace.dat of version {version}; versions 6 and 7 are known: convert it with "
            "`trace-cmd convert --file-version 7`"
        )
    fields.order = "big" if fields.number(1) else "little"
    recording = Recording(int(version), fields.order, fields.number(1), fields.number(4))
    if version == "6":
        _read_version_6(fields, recording)
    else:
        _read_version_7(fields, recording)
    for buffer in recording.buffers:
        size = buffer.page_bytes
        if size & (size - 1) or not 512 <= size <= _PAGE_BYTES_AT_MOST:
            raise LogFormatError(
                f"{name}: declares ring-buffer pages of {size} bytes: the file is damaged; "
                "copy it again"
            )
    # Else a small file could have its data read as those of any number of CPUs.
    cpus = [cpu for buffer in recording.buffers for cpu in buffer.cpus]
    claimed = sum(cpu.size for cpu in cpus)
    if claimed > 2 * fields.size and all(cpu.offset <= fields.size for cpu in cpus):
        raise LogFormatError(
            f"{name}: its CPUs' data would be {claimed} bytes in a file of {fields.size}: "
            "the file is damaged or cut off; copy it again"
        )
    return recording


def _read_version_6(fields: Fields, recording: Recording) -> None:
    for option in (Option.HEADER_INFO, Option.FTRACE_EVENTS, Option.EVENT_FORMATS):
        _read_section(option, fields, recording)
    # kallsyms, printk_formats, and saved_cmdlines, as events have their thread's name.
    for length_bytes in (4, 4, 8):
        length = fields.number(length_bytes)
        fields.seek(fields.at + length)
    count = fields.number(4)
    instances = _read_table(fields, recording, "", count)
    while instances:
        name, offset = instances.pop(0)
        fields.seek(offset)
        # Instances inside an instance would be a cycle, or another's.
        _read_table(fields, recording, name, recording.cpu_count or count)


def _read_table(
    fields: Fields, recording: Recording, name: str, count: int
) -> list[tuple[str, int]]:
    """Add a buffer with its CPUs' pages; return (name, offset) of the instances that it names."""
    instances = []
    kind = fields.take(_KIND_BYTES)
    if kind.startswith(b"options"):
        while (option := fields.number(2)) != Option.DONE:
            data = fields.block(4)
            if option == Option.BUFFER and len(data) > 8:
                text = data[8:].split(b"\0")[0].decode("utf-8", "replace")
                instances.append((text, int.from_bytes(data[:8], recording.order)))
            else:
                read_option(option, data, recording)
        kind = fields.take(_KIND_BYTES)
    if kind.startswith(b"latency"):
        recording.has_text = True
        return instances
    if not kind.startswith(b"flyrecord"):
        raise LogFormatError(
            f"{fields.name}: no table of the CPUs' data at offset {fields.at - _KIND_BYTES}: the "
            "file is cut off or damaged; copy it again, or record again"
        )
    cpus = recording.cpu_count or count
    table = [CpuData(cpu, fields.number(8), fields.number(8)) for cpu in range(cpus)]
    if count < cpus:
        # For old readers, which know no option for the number of CPUs.
        fields.seek(fields.at + 16)
    clock = chosen_clock(fields.block().decode("utf-8", "replace")) if recording.clock else ""
    recording.buffers.append(
        Buffer(name, clock or "local", recording.page_bytes, [cpu for cpu in table if cpu.size])
    )
    return instances


def _read_version_7(fields: Fields, recording: Recording) -> None:
    recording.codec = fields.string().lower()
    fields.string()
    if recording.codec not in CODECS:
        raise LogFormatError(
            f"{fields.name}: compressed with {recording.codec!r}; {', '.join(CODECS)} are known: "
            "convert it with `trace-cmd convert --compression none`"
        )
    offset, read = fields.number(8), set[int]()
    while offset and offset not in read:
        read.add(offset)
        fields.seek(offset)
        offset = _read_options_7(fields, recording)
    for option, what in (
        (Option.EVENT_FORMATS, ""),
        (Option.HEADER_INFO, "the layout of pages is taken to be the usual one"),
        (Option.FTRACE_EVENTS, "ftrace's own events have no names"),
    ):
        if option not in recording.sections:
            continue
        try:
            fields.seek(recording.sections[option])
            _read_section(option, _section(fields, recording)[0], recording)
        except LogFormatError as error:
            if not what:
                raise
            recording.problems.append(f"{error}; {what}")


def _section(fields: Fields, recording: Recording) -> tuple[Fields, bool, int]:
    """Return (its content, whether pages are compressed, its end); pages are not read."""
    at = fields.at
    number, flags = fields.number(2), fields.number(2)
    fields.seek(fields.at + 4)  # the description
    size = fields.number(8)
    end = fields.at + size if size else 0
    compressed = bool(flags & _COMPRESSED) and recording.codec != NONE
    if not compressed or number in (Option.BUFFER, Option.BUFFER_TEXT):
        return fields, compressed, end
    stored, size = fields.number(4), fields.number(4)
    where = f"{fields.name}: the section at offset {at}"
    data = recording.decompress(fields.take(stored), size, where)
    return Fields(io.BytesIO(data), where, recording.order), compressed, end


def _read_options_7(fields: Fields, recording: Recording) -> int:
    """Read a section of options; return the offset of the next one, 0 after the last."""
    options = _section(fields, recording)[0]
    while True:
        number, data = options.number(2), options.block(4)
        if number == Option.DONE:
            return int.from_bytes(data[:8], recording.order)
        if number == Option.BUFFER_TEXT:
            recording.has_text = True
        elif number != Option.BUFFER:
            read_option(number, data, recording)
        else:
            option = Fields(io.BytesIO(data), fields.name, recording.order)
            offset, name, clock = option.number(8), option.string(), option.string()
            buffer = Buffer(name, clock, option.number(4))
            for _ in range(option.number(4)):
                cpu = CpuData(option.number(4), option.number(8), option.number(8))
                buffer.cpus += [cpu] if cpu.size else []
            if buffer.cpus:
                here = fields.at
                fields.seek(offset)
                _, buffer.compressed, buffer.end = _section(fields, recording)
                recording.buffers.append(buffer)
                fields.seek(here)


def _read_section(option: Option, fields: Fields, recording: Recording) -> None:
    """Read the texts of header_page and header_event, or formats of events by system."""
    if option == Option.HEADER_INFO:
        fields.string()
        recording.header_page = fields.block().decode("utf-8", "replace")
        fields.string()
        fields.block()
        return
    # ftrace's own events stand alone.
    for _ in range(1 if option == Option.FTRACE_EVENTS else fields.number(4)):
        system = "ftrace" if option == Option.FTRACE_EVENTS else fields.string()
        texts = [fields.block().decode("utf-8", "replace") for _ in range(fields.number(4))]
        recording.formats.setdefault(system, []).extend(texts)


def read_option(option: int, data: bytes, recording: Recording) -> None:
    first, second = (int.from_bytes(data[at : at + 4], recording.order) for at in (0, 4))
    text = data.split(b"\0")[0].decode("utf-8", "replace").strip()
    if option == Option.DATE:
        # trace-cmd writes microseconds as a hexadecimal number.
        recording.date_ns = _integer(text) * 1000
    elif option == Option.OFFSET:
        recording.offset_ns += _integer(text)
    elif option == Option.CPUSTAT:
        pairs = dict(re.findall(r"^([A-Za-z ]+): (.*)$", text, re.MULTILINE))
        if "Buffer" in pairs:
            recording.counted_buffer = pairs["Buffer"]
        elif (cpu := pairs.get("CPU", "")).isdecimal():
            read = _integer(pairs.get("read events", ""))
            recording.counted[recording.counted_buffer, _integer(cpu)] = read
    elif option == Option.TRACECLOCK:
        recording.clock = chosen_clock(text) or recording.clock
    elif option == Option.UNAME and len(text.split()) >= 4:
        recording.kernel = text.split()[2]
    elif option == Option.VERSION:
        recording.tool = text
    elif option == Option.CPUCOUNT and len(data) >= 4:
        recording.cpu_count = first
    elif option == Option.TIME_SHIFT:
        recording.guest = True
    elif option == Option.TSC2NSEC and len(data) >= 8 and first and second <= 32:
        recording.tsc = first, second
    elif option in _SECTIONS and len(data) >= 8:
        recording.sections.setdefault(option, int.from_bytes(data[:8], recording.order))


_LARGEST = 1 << 61
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
    match = re.search(r"\[([\w.-]+)\]", text)
    return match[1] if match else ""
