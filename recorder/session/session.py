# SPDX-License-Identifier: Apache-2.0
"""Runs one recording from start to stop: from probes by rings to the log."""

from collections.abc import Callable
from contextlib import ExitStack

from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.session.finishing import finish
from biotrail.recorder.session.opening import open_recording
from biotrail.recorder.session.rights_kept import reduce
from biotrail.recorder.session.running import Running
from biotrail.recorder.session.session_types import RecordOptions, Status, Summary

__all__ = ["Probes", "RecordOptions", "Status", "Summary", "record"]


def record(
    options: RecordOptions,
    on_status: Callable[[Status], None] | None = None,
    probes: Probes | None = None,
) -> Summary:
    """Record until a limit of `options`, the command's end, a signal or an error; return a summary.

    Limits are of time, events or bytes; errors those of the output (also if others removed it) and
    of reading the probes. They do not raise: the summary's `error` is set then, and what was
    written before is readable. If the recording ends first, the command's end is waited for.
    `on_status`: called about once a second, and with messages for the user. `probes`: None: made by
    `options.backend`. Raises TraceError or OSError: recording could not begin; then no file is left
    behind, and one that was to be replaced is as it was.
    """
    keep_freed_memory()
    with ExitStack() as stack:
        with ExitStack() as undo:
            opened = open_recording(options, probes, stack, undo)
            if opened.new_file is not None:  # all began, and there are still all rights to do it
                opened.new_file.publish()
            # Before the first thread is started, as threads inherit capabilities.
            kept = None
            if options.give_up_rights:
                kept, warning = reduce(options, opened.probes)
                opened.messages.extend([warning] if warning else [])
            running = Running(opened, kept, on_status, stack, undo)
            undo.pop_all()
        try:
            running.loop()
        except (OSError, TraceError, MemoryError) as error:  # the log shall get its END frame
            running.fail(error)
        return finish(running)
