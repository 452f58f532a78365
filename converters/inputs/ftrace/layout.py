# SPDX-License-Identifier: Apache-2.0
"""The layout of trace.dat files: version 6 in one sequence, version 7 in sections."""

import io
from collections.abc import Callable
from typing import BinaryIO

from biotrail.converters.inputs.ftrace.compression import CODECS, NONE, Decompressor
from biotrail.converters.inputs.ftrace.fields import Fields
from biotrail.converters.inputs.ftrace.recording import (
    MAGIC,
    Buffer,
    CpuData,
    Option,
    Recording,
    chosen_clock,
    read_event_formats,
    read_ftrace_formats,
    read_headers,
    read_option,
)
from biotrail.recorder.schema.errors import LogFormatError

_COMPRESSED = 1
"""Flag of a section."""
_PAGE_BYTES_AT_MOST = 1 << 22
_KIND_BYTES = 10
"""Length of "options", "latency" and "flyrecord", each filled up with spaces and a null byte."""


def read_recording(stream: BinaryIO, name: str) -> Recording:
    """Return what a trace.dat says beside its pages.

    stream: can seek, at the file's beginning. name: shown in errors. Raises LogFormatError: no
    trace.dat, of another version, compressed in an unknown way, cut off or damaged.
    """
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
    _check(fields, recording)
    return recording


def _check(fields: Fields, recording: Recording) -> None:
    for buffer in recording.buffers:
        size = buffer.page_bytes
        if size & (size - 1) or not 512 <= size <= _PAGE_BYTES_AT_MOST:
            raise LogFormatError(
                f"{fields.name}: declares ring-buffer pages of {size} bytes: the file is damaged; "
                "copy it again"
            )
    # Else a small file could have its data read as those of any number of CPUs.
    claimed = sum(cpu.size for buffer in recording.buffers for cpu in buffer.cpus)
    beyond = [cpu for b in recording.buffers for cpu in b.cpus if cpu.offset > fields.size]
    if claimed > 2 * fields.size and not beyond:
        raise LogFormatError(
            f"{fields.name}: its CPUs' data would be {claimed} bytes in a file of {fields.size}: "
            "the file is damaged or cut off; copy it again"
        )


def _read_version_6(fields: Fields, recording: Recording) -> None:
    read_headers(fields, recording)
    read_ftrace_formats(fields, recording)
    read_event_formats(fields, recording)
    fields.skip(fields.number(4))  # kallsyms
    fields.skip(fields.number(4))  # printk_formats
    fields.skip(fields.number(8))  # saved_cmdlines: events have their thread's name
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
    """Read a buffer's options and where its CPUs' pages are; add it to `recording.buffers`.

    name: the instance's, "" for the top buffer. count: number of CPUs unless an option says
    another. Returns the (name, offset) of the instances that options name. Raises LogFormatError.
    """
    instances = []
    kind = fields.take(_KIND_BYTES)
    if kind.startswith(b"options"):
        instances = _read_options_6(fields, recording)
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
        fields.skip(16)
    clock = chosen_clock(fields.block().decode("utf-8", "replace")) if recording.clock else ""
    recording.buffers.append(
        Buffer(name, clock or "local", recording.page_bytes, [cpu for cpu in table if cpu.size])
    )
    return instances


def _read_options_6(fields: Fields, recording: Recording) -> list[tuple[str, int]]:
    instances = []
    while (option := fields.number(2)) != Option.DONE:
        data = fields.block(4)
        if option == Option.BUFFER and len(data) > 8:
            text = data[8:].split(b"\0")[0].decode("utf-8", "replace")
            instances.append((text, int.from_bytes(data[:8], recording.order)))
        else:
            read_option(option, data, recording)
    return instances


def _read_version_7(fields: Fields, recording: Recording) -> None:
    recording.codec = fields.string().lower()
    fields.string()
    if recording.codec not in CODECS:
        raise LogFormatError(
            f"{fields.name}: compressed with {recording.codec!r}; {', '.join(CODECS)} are known: "
            "convert it with `trace-cmd convert --compression none`"
        )
    recording.decompressor = Decompressor(recording.codec)
    offset, read = fields.number(8), set[int]()
    while offset and offset not in read:
        read.add(offset)
        fields.seek(offset)
        offset = _read_options_7(fields, recording)
    _read_section(Option.EVENT_FORMATS, read_event_formats, fields, recording)
    for option, reader, what in (
        (Option.HEADER_INFO, read_headers, "the layout of pages is taken to be the usual one"),
        (Option.FTRACE_EVENTS, read_ftrace_formats, "ftrace's own events have no names"),
    ):
        try:
            _read_section(option, reader, fields, recording)
        except LogFormatError as error:
            recording.problems.append(f"{error}; {what}")


def _read_section(
    option: Option, reader: Callable[[Fields, Recording], None], fields: Fields, found: Recording
) -> None:
    if option in found.sections:
        fields.seek(found.sections[option])
        reader(_section(fields, found)[0], found)


def _section(fields: Fields, recording: Recording) -> tuple[Fields, bool, int]:
    """Return what is in the section that begins here, whether its data are compressed, its end.

    Of a section with pages the content is not read: the fields go on in the file itself. Raises
    LogFormatError: cut off, or damaged.
    """
    at = fields.at
    number, flags = fields.number(2), fields.number(2)
    fields.skip(4)  # the description
    size = fields.number(8)
    end = fields.at + size if size else 0
    compressed = bool(flags & _COMPRESSED) and recording.codec != NONE
    if not compressed or number in (Option.BUFFER, Option.BUFFER_TEXT):
        return fields, compressed, end
    stored, size = fields.number(4), fields.number(4)
    where = f"{fields.name}: the section at offset {at}"
    data = recording.decompressor.decompress(fields.take(stored), size, where)
    return Fields(io.BytesIO(data), where, recording.order), compressed, end


def _read_options_7(fields: Fields, recording: Recording) -> int:
    """Read a section of options; return the offset of the next such section, 0 after the last."""
    options = _section(fields, recording)[0]
    while True:
        option, data = options.number(2), options.block(4)
        if option == Option.DONE:
            return int.from_bytes(data[:8], recording.order)
        if option == Option.BUFFER:
            buffer = _buffer_7(Fields(io.BytesIO(data), fields.name, recording.order), recording)
            _mark_compressed(fields, recording, *buffer)
        elif option == Option.BUFFER_TEXT:
            recording.has_text = True
        else:
            read_option(option, data, recording)


def _buffer_7(option: Fields, recording: Recording) -> tuple[Buffer, int]:
    offset, name, clock = option.number(8), option.string(), option.string()
    buffer = Buffer(name, clock, option.number(4))
    for _ in range(option.number(4)):
        cpu = CpuData(option.number(4), option.number(8), option.number(8))
        if cpu.size:
            buffer.cpus.append(cpu)
    return buffer, offset


def _mark_compressed(fields: Fields, recording: Recording, buffer: Buffer, offset: int) -> None:
    """Add a buffer to `recording`, with what its section's header says of compression.

    offset: of the section. The position of `fields` stays.
    """
    here = fields.at
    if buffer.cpus:
        fields.seek(offset)
        _, buffer.compressed, buffer.end = _section(fields, recording)
        recording.buffers.append(buffer)
    fields.seek(here)
