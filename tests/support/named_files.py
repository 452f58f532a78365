# SPDX-License-Identifier: Apache-2.0
"""The paths that a log gives its bios."""

from biotrail.converters.events.tables import Bios
from biotrail.converters.pipeline import Trace


def paths_of(trace: Trace, window_events: int = 1 << 20) -> list[str | None]:
    """Of each bio its file's path."""
    bios = Bios.concatenate([w.bios for w in trace.lifecycles(window_events)])
    files = trace.context.files
    return [files[row].path if row >= 0 else None for row in bios.file.tolist()]
