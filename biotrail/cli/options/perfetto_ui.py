# SPDX-License-Identifier: Apache-2.0
"""The Perfetto UI's address, with commands that the UI runs once it has loaded the trace.

The UI runs `startupCommands` (JSON in its address) and shows `visStart` to `visEnd`; both are
documented as deep links, and the commands as stable.
"""

import gzip
import json
import re
from contextlib import suppress
from typing import BinaryIO
from urllib.parse import quote

from biotrail.converters.inputs import unpacking
from biotrail.converters.outputs.perfetto.names import (
    IN_DEVICE,
    QUEUED,
    SLOW_CALLS_TRACK,
    SLOWEST_TRACK,
)
from biotrail.converters.outputs.perfetto.summary import View

UI = "https://ui.perfetto.dev"
_WORKSPACE = "biotrail"
_TRACKS = (
    f"^(({SLOWEST_TRACK}|{SLOW_CALLS_TRACK})( of .*)?|journal of .*|{QUEUED}|{IN_DEVICE}"
    "|latency p99|bios)$"
)
"""Regular expression of the names of the tracks to look at first."""
_OTHERS = "^(.*: block I/O|.*: kernel events|pairs: .*)$"
"""Of the groups that are expanded in a trace without I/O."""
_SLOWEST = """
SELECT one.id, one.name AS slowest, round(one.dur / 1e6, 3) AS ms,
  EXTRACT_ARG(one.arg_set_id, 'debug.why') AS why,
  EXTRACT_ARG(one.arg_set_id, 'debug.call') AS call,
  EXTRACT_ARG(one.arg_set_id, 'debug.purpose') AS purpose,
  EXTRACT_ARG(one.arg_set_id, 'debug.file') AS file,
  EXTRACT_ARG(one.arg_set_id, 'debug.device') AS disk,
  EXTRACT_ARG(one.arg_set_id, 'debug.host') AS host,
  round((SELECT sum(dur) FROM slice WHERE parent_id = one.id AND name = 'D2C') / 1e6, 3) AS device,
  round((SELECT sum(dur) FROM slice WHERE parent_id = one.id
    AND name IN ('pre-flush', 'post-flush', 'flushing')) / 1e6, 3) AS flush,
  one.ts, one.dur, one.track_id, one.id AS slice_id
FROM slice AS one WHERE one.category IN ('slowest', 'slowest call') ORDER BY one.dur DESC
"""
"""The slowest I/Os and calls. By `slice_id`, `ts`, `dur` and `track_id` the UI makes of `id` a link
to the slice."""
_TAIL = 4096
"""Bytes at a trace's end within which its attribute `view` is found, with the longest names."""
_VIEW = re.compile(rb"biotrail(?:\.\d+)?\.view\x1a.(\d+) (\d+) ([^\x00-\x1f]*)$", re.DOTALL)


def address(ui: str, url: str = "", view: View | None = None) -> str:
    """Return the UI's address. url: of the trace to load; empty: the user drops a trace.

    Its commands show the tracks to look at first, and a table of the slowest. The tracks are in a
    workspace of their own, so that nothing of another program's trace is expanded. Regular
    expressions are of names: older UIs know no other.
    """
    commands: list[tuple[str, ...]] = [("ExpandTracksByRegex", _OTHERS)]
    if view is not None and view.device:
        commands = [
            ("CreateWorkspace", _WORKSPACE),
            ("CopyTracksToWorkspaceByRegexWithAncestors", _TRACKS, _WORKSPACE),
            ("SwitchWorkspace", _WORKSPACE),
            ("ExpandTracksByRegex", ".*"),
            ("RunQueryAndShowTab", " ".join(_SLOWEST.split()), "Slowest, and why"),
        ]
    startup = [{"id": f"dev.perfetto.{name}", "args": given} for name, *given in commands]
    parts = [f"url={url}"] if url else []
    parts.append("startupCommands=" + quote(json.dumps(startup, separators=(",", ":"))))
    if view is not None:
        parts += [f"visStart={view.begin}", f"visEnd={view.end}"]
    return f"{ui}/#!/?{'&'.join(parts)}"


def view_of(trace: BinaryIO) -> View | None:
    """Return the view that biotrail wrote at the end of a trace, plain or gzip, and rewind it."""
    packed = trace.read(2) == unpacking.GZIP
    size = trace.seek(0, 2)
    trace.seek(0 if packed else max(size - _TAIL, 0))
    tail = b""
    if packed:
        # What is damaged the UI reports when it loads the trace.
        with gzip.open(trace) as stream, suppress(EOFError, OSError):
            while data := stream.read(1 << 20):
                tail = (tail + data)[-_TAIL:]
    else:
        tail = trace.read()
    trace.seek(0)
    found = _VIEW.search(tail)
    if found is None:
        return None
    begin, end = int(found[1]), int(found[2])
    return View(end - begin, begin, end, found[3].decode(errors="replace"))
