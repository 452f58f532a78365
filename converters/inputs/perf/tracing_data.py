# SPDX-License-Identifier: Apache-2.0
"""The formats of tracepoints in perf.data: what tracing_data_get() of perf wrote.

The same as the beginning of trace-cmd's trace.dat, version 0.5 or 0.6.
"""

from contextlib import suppress
from dataclasses import dataclass

from biotrail.converters.inputs.perf.cursor import Cursor
from biotrail.converters.inputs.tracepoints.formats import parse_format
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.formats import Format

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
