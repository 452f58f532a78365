# SPDX-License-Identifier: Apache-2.0
"""The Perfetto UI's address, with commands that the UI runs once it has loaded the trace.

The UI runs `startupCommands` (JSON in its address) and shows `visStart` to `visEnd`; both are
documented as deep links, and the commands as stable.
"""

import gzip
import json
import re
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from biotrail.cli.options import compressing
from biotrail.converters.outputs.perfetto.names import IN_DEVICE, QUEUED, SLOWEST_TRACK
from biotrail.converters.outputs.perfetto.summary import View

UI = "https://ui.perfetto.dev"
_GROUPS = "^(?!System( > |$))[^>]+( > [^>]+){0,2}$"
"""Regular expression of the paths of a trace's groups, up to three deep: host, log, device."""
_TAIL = 4096
"""Bytes at a trace's end within which its attribute `view` is found, with the longest names."""
_VIEW = re.compile(rb"biotrail(?:\.\d+)?\.view\x1a.(\d+) (\d+) ([^\x00-\x1f]+)$", re.DOTALL)


def address(ui: str, url: str = "", view: View | None = None) -> str:
    """Return the UI's address.

    url: of the trace to load; empty: the user drops a trace. view: the time that is shown and the
    device whose tracks are pinned; None: the whole trace and every device.
    """
    parts = [f"url={url}"] if url else []
    parts.append("startupCommands=" + quote(json.dumps(_commands(view), separators=(",", ":"))))
    if view is not None:
        parts += [f"visStart={view.begin}", f"visEnd={view.end}"]
    return f"{ui}/#!/?{'&'.join(parts)}"


def _commands(view: View | None) -> list[dict[str, object]]:
    """Return commands that expand the groups and pin the tracks to look at first.

    Those are the slowest I/Os, and the queue depths of the view's device (None: of all devices).
    """
    device = "[^>]+" if view is None else _literal(view.device)
    return [
        _command("ExpandTracksByRegex", _GROUPS, "path"),
        _command("PinTracksByRegex", f"^{_literal(SLOWEST_TRACK)}$", "name"),
        _command("PinTracksByRegex", f"(^| > ){device} > ({QUEUED}|{IN_DEVICE})$", "path"),
    ]


def _command(name: str, *arguments: str) -> dict[str, object]:
    return {"id": f"dev.perfetto.{name}", "args": list(arguments)}


def _literal(text: str) -> str:
    """Return a JavaScript regular expression that matches exactly `text`."""
    return re.sub(r"([][\\^$.|?*+(){}])", r"\\\1", text)


def view_of(trace: BinaryIO) -> View | None:
    """Return the view that biotrail wrote at the end of a trace; None if there is none.

    trace: seekable, plain or gzip; rewound to its beginning afterwards.
    """
    tail = b""
    for data in _chunks(trace):
        tail = (tail + data)[-_TAIL:]
    trace.seek(0)
    found = _VIEW.search(tail)
    if found is None:
        return None
    begin, end = int(found[1]), int(found[2])
    return View(end - begin, begin, end, found[3].decode(errors="replace"))


def _chunks(trace: BinaryIO) -> Iterator[bytes]:
    """Yield a trace's data: of a gzip file all, decompressed; of a plain file its last bytes."""
    packed = trace.read(2) == compressing.GZIP_MAGIC
    size = trace.seek(0, 2)
    trace.seek(0 if packed else max(size - _TAIL, 0))
    if not packed:
        yield trace.read()
        return
    with gzip.open(trace) as stream:
        try:
            while data := stream.read(1 << 20):
                yield data
        except (EOFError, OSError):
            return  # damaged: the UI reports that when it loads the trace
