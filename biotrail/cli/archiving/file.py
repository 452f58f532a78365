# SPDX-License-Identifier: Apache-2.0
"""A recording as one Parquet file, and lines about it."""

import os
from pathlib import Path

from biotrail import __version__
from biotrail.cli.options.recordings import Recording
from biotrail.converters.inputs.log import Source
from biotrail.recorder.output import output
from biotrail.text import units
from biotrail.text.progress import working


def write_events(
    recording: Recording,
    target: str | os.PathLike[str],
    level: int,
    force: bool,
    shown: str | None = None,
) -> int:
    """Archive a recording as the file `target` and return its number of events.

    level: zstd's, 1 to 19. shown: the target in messages; None: itself. Raises TraceError.
    """
    from biotrail.converters.outputs.parquet import archive

    source, log = recording.trace.reader, Path(recording.paths[0]).name
    with (
        output.replacing(target, force=force, shown=shown) as stream,
        working(source.size, "archiving") as reached,
    ):
        summary = archive.write(
            source, stream, level=level, created_by=__version__, log=log, on_progress=reached
        )
    return summary.events


def file_lines(target: str | os.PathLike[str], events: int, source: Source) -> list[str]:
    """Return lines about an archive: file, size and events, then damage and what was left out.

    target: the file that was written; events: their number; source: the log, read to its end.
    """
    size = os.stat(target).st_size
    each = f", {size / events:.2f} bytes per event" if events else ""
    lines = [f"wrote {target} ({units.size(size)}): {units.plural(events, 'event')}{each}"]
    lines += [f"  damaged: {problem}" for problem in source.problems]
    if source.interrupted:
        lines.append("  interrupted: the log has no end; up to a second before it may be missing")
    for kind, count in sorted(source.unknown.items()):
        lines.append(
            f"  left out: {units.plural(count, 'record')} of unknown kind {kind}, written by a "
            "newer biotrail: archive with that"
        )
    return lines
