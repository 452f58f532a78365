# SPDX-License-Identifier: Apache-2.0
"""What a trace.dat says of its own size and contents, held against what was read of it."""

from collections.abc import Iterable

from biotrail.converters.inputs.ftrace.cpu_pages import COUNT_BYTES, CpuPages
from biotrail.converters.inputs.ftrace.fields import Fields
from biotrail.converters.inputs.ftrace.recording import Buffer, Recording

_PIECE = 1 << 20


def unclaimed(fields: Fields, recording: Recording) -> list[str]:
    """Return a sentence for each part of a buffer that no CPU's data reach to, though it has some.

    Data of CPUs follow each other, each from a page's begin on, with zeros between; the last ones
    reach to their section's end (version 7), or to the file's (version 6).
    """
    found = []
    for buffer in recording.buffers:
        ends = [cpu.offset + cpu.size + COUNT_BYTES * buffer.compressed for cpu in buffer.cpus]
        gaps = zip(ends, [cpu.offset for cpu in buffer.cpus][1:], strict=False)
        found += [_gap(fields, buffer, begin, end) for begin, end in gaps]
        if buffer.end:
            found.append(_gap(fields, buffer, max(ends, default=0), buffer.end))
    if recording.version == 6:
        every = [(cpu.offset + cpu.size, b) for b in recording.buffers for cpu in b.cpus]
        last = max(every, key=lambda one: one[0], default=None)
        found += [_gap(fields, last[1], last[0], fields.size)] if last else []
    return [text for text in found if text]


def _gap(fields: Fields, buffer: Buffer, begin: int, end: int) -> str:
    """Return that data between two offsets are no CPU's; "": there are none."""
    end = min(end, fields.size)
    for at in range(max(begin, 0), end, _PIECE):
        fields.seek(at)
        if any(fields.take(min(_PIECE, end - at))):
            return (
                f"{fields.name}: the data at offset {begin} to {end}{of_buffer(buffer.name)} are "
                "no CPU's by the file's table: the file is damaged; they are left out"
            )
    return ""


def uncounted(name: str, recording: Recording, streams: Iterable[CpuPages]) -> list[str]:
    """Return a sentence for each CPU with fewer events than the kernel counted as given out.

    streams: those that were read, to their ends.
    """
    streams = list(streams)
    found = {(s.buffer.name, s.where.cpu): s.events for s in streams}
    left_out = {b.name for b in recording.buffers if b.cpus} - {s.buffer.name for s in streams}
    return [
        f"{name}: of {counted} events of CPU {cpu}{of_buffer(buffer)} that the kernel gave out "
        f"{found.get((buffer, cpu), 0)} are here: the file is damaged, or others read the buffer"
        for (buffer, cpu), counted in recording.counted.read.items()
        if found.get((buffer, cpu), 0) < counted and buffer not in left_out
    ]


def of_buffer(buffer: str) -> str:
    """Return " of instance 'x'", or nothing for the top buffer."""
    return f" of instance {buffer!r}" if buffer else ""
