# SPDX-License-Identifier: Apache-2.0
"""trace.dat files written by hand: versions 6 and 7, any compression, order of bytes and pages."""

import io
import struct
import zlib
from dataclasses import dataclass, field, replace

import zstandard

from biotrail.converters.inputs.ftrace.pages import CpuPages
from biotrail.converters.inputs.ftrace.recording import Fields, read_recording

MAGIC = b"\x17\x08\x44tracing"
HEADER_PAGE = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:{data};\tsize:{rest};\tsigned:0;\n"
)
CPUSTAT = 2
DONE, DATE, BUFFER, TRACECLOCK, UNAME, OFFSET, CPUCOUNT, TSC2NSEC = 0, 1, 3, 4, 5, 7, 8, 14
FORMAT = """name: block_rq_issue
ID: 7
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:char rwbs[8];\toffset:28;\tsize:8;\tsigned:0;
"""
"""The format of an issue, as its fields lie in `issue`."""
HEADER_INFO, FTRACE_EVENTS, EVENT_FORMATS = 16, 17, 18


@dataclass
class Pages:
    """A buffer: name ("" for the top one), clock, and each CPU's pages."""

    name: str
    clock: str
    cpus: dict[int, bytes]


@dataclass
class Contents:
    """What is put into a file. options: (number, data), beside those that every file has."""

    formats: dict[str, list[str]]
    buffers: list[Pages]
    version: int = 7
    codec: str = "zstd"
    order: str = "<"
    long_bytes: int = 8
    page_bytes: int = 4096
    options: list[tuple[int, bytes]] = field(default_factory=list)

    def changed(self, **changes):
        return replace(self, **changes)


def contents_of(path) -> Contents:
    """Return what a trace.dat has of block events, without kallsyms and other systems."""
    with open(path, "rb") as stream:
        recording = read_recording(stream, str(path))
        fields, buffers = Fields(stream, str(path), recording.order), []
        for buffer in recording.buffers:
            cpus = {}
            for cpu in buffer.cpus:
                pages = CpuPages(fields, recording, buffer, cpu)
                cpus[cpu.cpu] = b"".join(block.tobytes() for block in pages.blocks())
            buffers.append(Pages(buffer.name, buffer.clock, cpus))
    formats = {"ftrace": recording.formats["ftrace"][:2], "block": recording.formats["block"]}
    uname = f"Linux host {recording.kernel} x86_64\0".encode()
    return Contents(formats, buffers, options=[(UNAME, uname)])


def counts(read: dict[tuple[str, int], int]) -> list[tuple[int, bytes]]:
    """Return the options with the kernel's counts of events read, by buffer and CPU."""
    found, last = [], ""
    for (buffer, cpu), number in read.items():
        if buffer != last:
            found.append((CPUSTAT, f"\nBuffer: {buffer}\n\n\0".encode()))
        text = f"CPU: {cpu}\nentries: 0\noverrun: 0\nbytes: 0\nread events: {number}\n\0"
        found.append((CPUSTAT, text.encode()))
        last = buffer
    return found


def trace_dat(contents: Contents) -> bytes:
    """Return a file with these contents."""
    return _version_6(contents) if contents.version == 6 else _version_7(contents)


def _start(c: Contents, version: str) -> bytes:
    return (
        MAGIC
        + f"{version}\0".encode()
        + struct.pack(f"{c.order}BBI", c.order == ">", c.long_bytes, c.page_bytes)
    )


def _headers(c: Contents) -> bytes:
    data = 8 + c.long_bytes
    text = HEADER_PAGE.format(long=c.long_bytes, data=data, rest=c.page_bytes - data).encode()
    return b"".join(
        name + struct.pack(f"{c.order}Q", len(content)) + content
        for name, content in ((b"header_page\0", text), (b"header_event\0", b"# none\n"))
    )


def _formats(c: Contents, texts) -> bytes:
    blocks = b"".join(
        struct.pack(f"{c.order}Q", len(text.encode())) + text.encode() for text in texts
    )
    return struct.pack(f"{c.order}I", len(texts)) + blocks


def _systems(c: Contents) -> bytes:
    systems = {name: texts for name, texts in c.formats.items() if name != "ftrace"}
    return struct.pack(f"{c.order}I", len(systems)) + b"".join(
        name.encode() + b"\0" + _formats(c, texts) for name, texts in systems.items()
    )


def _option(c: Contents, number: int, data: bytes) -> bytes:
    return struct.pack(f"{c.order}HI", number, len(data)) + data


def _version_6(c: Contents) -> bytes:
    cpus = max(max(buffer.cpus, default=0) for buffer in c.buffers) + 1
    file = bytearray(_start(c, "6") + _headers(c) + _formats(c, c.formats.get("ftrace", [])))
    file += _systems(c)
    file += struct.pack(f"{c.order}IIQ", 0, 0, 0)  # kallsyms, printk_formats, saved_cmdlines
    file += struct.pack(f"{c.order}I", cpus) + b"options  \0"
    top = [buffer for buffer in c.buffers if not buffer.name] or [Pages("", "local", {})]
    file += _option(c, TRACECLOCK, f"[{top[0].clock}] other\0".encode())
    for number, data in c.options:
        file += _option(c, number, data)
    instances = [buffer for buffer in c.buffers if buffer.name]
    places = []
    for buffer in instances:
        places.append(len(file) + 6)
        file += _option(c, BUFFER, bytes(8) + buffer.name.encode() + b"\0")
    file += struct.pack(f"{c.order}H", DONE)
    tables = [_table_6(c, file, buffer, cpus) for buffer in [top[0]]]
    for place, buffer in zip(places, instances, strict=True):
        struct.pack_into(f"{c.order}Q", file, place, len(file))
        tables.append(_table_6(c, file, buffer, cpus))
    for table, buffer in zip(tables, [top[0], *instances], strict=True):
        for cpu, pages in buffer.cpus.items():
            file += bytes(-len(file) % c.page_bytes)
            struct.pack_into(f"{c.order}QQ", file, table + 16 * cpu, len(file), len(pages))
            file += pages
    return bytes(file)


def _table_6(c: Contents, file: bytearray, buffer: Pages, cpus: int) -> int:
    """Append a buffer's table to the file; return its offset."""
    file += b"flyrecord\0"
    at = len(file)
    clock = f"[{buffer.clock}]".encode()
    file += bytes(16 * cpus) + struct.pack(f"{c.order}Q", len(clock)) + clock
    return at


def _version_7(c: Contents) -> bytes:
    file = bytearray(_start(c, "7") + f"{c.codec}\0".encode() + b"1.0\0")
    first = len(file)
    file += bytes(8)
    options = [(TRACECLOCK, f"[{c.buffers[0].clock}] other\0".encode()), *c.options]
    for number, content in (
        (HEADER_INFO, _headers(c)),
        (FTRACE_EVENTS, _formats(c, c.formats.get("ftrace", []))),
        (EVENT_FORMATS, _systems(c)),
    ):
        options.append((number, struct.pack(f"{c.order}Q", len(file))))
        file += _section(c, number, content)
    for buffer in c.buffers:
        options.append((BUFFER, _buffer_7(c, file, buffer)))
    struct.pack_into(f"{c.order}Q", file, first, len(file))
    data = b"".join(_option(c, number, content) for number, content in options)
    data += _option(c, DONE, bytes(8))
    file += struct.pack(f"{c.order}HHIQ", 0, 0, 0, len(data)) + data
    return bytes(file)


def _section(c: Contents, number: int, content: bytes) -> bytes:
    """Return a section, compressed unless the codec is none."""
    if c.codec != "none":
        stored = _compress(c.codec, content)
        content = struct.pack(f"{c.order}II", len(stored), len(content)) + stored
    return struct.pack(f"{c.order}HHIQ", number, c.codec != "none", 0, len(content)) + content


def _compress(codec: str, content: bytes) -> bytes:
    if codec == "zlib":
        return zlib.compress(content)
    return zstandard.ZstdCompressor(write_content_size=False).compress(content)


def _buffer_7(c: Contents, file: bytearray, buffer: Pages) -> bytes:
    """Append a buffer's section to the file; return its option."""
    option = struct.pack(f"{c.order}Q", len(file)) + f"{buffer.name}\0{buffer.clock}\0".encode()
    option += struct.pack(f"{c.order}II", c.page_bytes, len(buffer.cpus))
    begin = len(file)
    file += struct.pack(f"{c.order}HHIQ", BUFFER, c.codec != "none", 0, 0)
    for cpu, pages in buffer.cpus.items():
        file += bytes(-len(file) % c.page_bytes)
        at = len(file)
        size = len(pages)
        if c.codec == "none":
            file += pages
        else:
            chunks = [pages[i : i + 2 * c.page_bytes] for i in range(0, size, 2 * c.page_bytes)]
            stored = [_compress(c.codec, chunk) for chunk in chunks]
            file += struct.pack(f"{c.order}I", len(chunks))
            for chunk, data in zip(chunks, stored, strict=True):
                file += struct.pack(f"{c.order}II", len(data), len(chunk)) + data
            size = len(file) - at - 4
        option += struct.pack(f"{c.order}IQQ", cpu, at, size)
    struct.pack_into(f"{c.order}Q", file, begin + 8, len(file) - begin - 16)
    return option


def page(
    events, time: int = 0, order: str = "<", long_bytes: int = 8, page_bytes: int = 4096, lost=None
) -> bytes:
    """Return a ring-buffer page with these events, each as `event` and its like return it.

    lost: number of events lost before the page; -1: unknown; None: none.
    """
    data = b"".join(events)
    commit, after = len(data), b""
    if lost is not None:
        commit |= 1 << 31
    if lost is not None and lost >= 0:
        commit |= 1 << 30
        after = struct.pack(f"{order}{'Q' if long_bytes == 8 else 'I'}", lost)
    head = struct.pack(f"{order}Q{'Q' if long_bytes == 8 else 'I'}", time, commit)
    return (head + data + after).ljust(page_bytes, b"\0")


def issue(sector: int, order: str = "<", dev: int = 7 << 20, kind: int = 7) -> bytes:
    return struct.pack(f"{order}HBBiIIQI8s", kind, 0, 0, 42, dev, 0, sector, 8, b"R")


def event(delta: int, data: bytes, order: str = "<") -> bytes:
    """Return an event of up to 112 bytes by its length in words, of more by its own size."""
    data = data + bytes(-len(data) % 4)
    if len(data) <= 112:
        return _word(len(data) // 4, delta, order) + data
    return _word(0, delta, order) + struct.pack(f"{order}I", len(data) + 4) + data


def time_extend(delta: int, order: str = "<") -> bytes:
    return _word(30, delta & 0x7FFFFFF, order) + struct.pack(f"{order}I", delta >> 27)


def time_stamp(time: int, order: str = "<") -> bytes:
    return _word(31, time & 0x7FFFFFF, order) + struct.pack(f"{order}I", time >> 27 & 0xFFFFFFFF)


def padding(size: int, delta: int = 1, order: str = "<") -> bytes:
    """Return a discarded event of `size` bytes in all."""
    return _word(29, delta, order) + struct.pack(f"{order}I", size - 4) + bytes(size - 8)


def _word(kind: int, delta: int, order: str) -> bytes:
    word = kind << 27 | delta if order == ">" else delta << 5 | kind
    return struct.pack(f"{order}I", word)


def stream(contents: Contents) -> io.BytesIO:
    return io.BytesIO(trace_dat(contents))
