# SPDX-License-Identifier: Apache-2.0
"""`record --print`: prints I/Os as they end, from the log of a separate recorder process.

If the log is kept, the recorder writes it to a file and this process reads the growing file. If
not, the log comes through a pipe, which a thread empties even if the output's reader is slow.
Either way this process never makes the recorder wait.
"""

import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from biotrail.cli.children.recorder_process import Recorder, Tail, Tee, stopping
from biotrail.converters.analysis.live.live import LiveTrace
from biotrail.converters.events.tables import Lifecycles, LossWindows
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text import units
from biotrail.text.printing import say
from biotrail.text.record.lines import Json, Text, ended


@dataclass(frozen=True)
class Printing:
    """How `record --print` prints, and what it records."""

    what: str
    """A sentence for the user: which devices are recorded, and until when."""
    target: str | None
    """Path of the log that is kept; None: no log is kept."""
    force: bool
    as_json: bool
    quiet: bool
    filters: Filters
    arguments: Sequence[str]
    """Options for the recorder process, as `given` returns them."""
    command: Sequence[str]


def run(printing: Printing) -> int:
    """Print I/Os until the recording ends; return the recorder's exit status.

    Raises BrokenPipeError if the reader of standard output has gone, and TraceError.
    """
    with ExitStack() as stack:
        target = printing.target
        kept = output.NewFile(target, force=printing.force) if target else None
        if kept is not None:
            stack.callback(kept.close)
        log = None if kept is None else kept.stream
        recorder = Recorder(printing.arguments, printing.command, log=log, speaks=True)
        stack.enter_context(recorder)
        stack.enter_context(stopping(recorder))
        source = _opened(recorder, log, target)
        if source is None:
            if kept is not None:
                kept.discard()
            return recorder.wait() or 1
        if kept is not None:
            kept.publish()
        printed = print_all(source, printing)
        source.join()
        status = recorder.wait()
    if not printing.quiet:
        say(f"biotrail: {units.plural(printed, 'I/O')} printed{_kept(target)}", err=True)
    return status


def _kept(target: str | None) -> str:
    """Return the end of the closing message: size of the log and next command; empty: no log."""
    if target is None:
        return ""
    return f"; log {units.size(Path(target).stat().st_size)}; next: biotrail report {target}"


def _opened(recorder: Recorder, kept: BinaryIO | None, target: str | None) -> LiveSource | None:
    """Open the log that the recorder is writing, and start reading it.

    None: the recorder failed before it began a log, and has printed why. Raises LogFormatError if
    it exits with status 0 without one.
    """
    name = target or "the recorder's log"
    stream = Tee(recorder.stream, None, name) if kept is None else Tail(kept, recorder.ended, name)
    try:
        source = LiveSource(cast(BinaryIO, stream))
    except LogFormatError:
        recorder.stop()
        if recorder.failed():
            return None
        raise
    source.start()
    return source


def print_all(source: LiveSource, printing: Printing) -> int:
    """Print the I/Os of the log until it ends; return how many were printed.

    source: started; its `on_idle` is set. An I/O is printed when it has ended, or when a later
    window shows that its end was not recorded; those without an end in the last window are
    counted on standard error, as are I/Os that were skipped. Raises BrokenPipeError once the
    reader of standard output has gone.
    """
    own = printing.filters.own_io
    trace = LiveTrace(source, own_io=own)
    context = trace.context
    lines = Json(context, own_io=own) if printing.as_json else Text(context, trace.start)
    if not printing.quiet:
        say(f"biotrail: {printing.what}", err=True)
    source.on_idle = while_read()
    put(lines.head())
    printed = skipped = 0
    unended: list[str] = []
    for window in trace.windows():
        # An I/O that the model gave out without an end, before the last window, has ended: its
        # completion was not recorded. Only those of the last window may still be in flight.
        printed += put(unended)
        skips = source.take_skips()
        skipped += sum(skip.bios for skip in skips)
        put(lines.skipped(skips))
        put(lines.lost(real_losses(window)))
        done, others = ended(window.bios)
        printed += put(lines.ios(window, done))
        unended = list(lines.ios(window, others))
    for line in _said_last(len(unended), skipped):
        say(f"biotrail: {line}", err=True)
    return printed


def _said_last(unended: int, skipped: int) -> Iterator[str]:
    """Yield sentences for the end of the output; none for a number that is 0.

    unended: I/Os that had no completion when the recording ended. skipped: I/Os that were not
    read because printing could not keep up.
    """
    if unended:
        yield f"{units.plural(unended, 'I/O')} had not ended"
    if skipped:
        yield (
            f"{units.plural(skipped, 'I/O')} skipped, for printing could not keep up: choose fewer "
            "devices (-d) or operations (--op)"
        )


def real_losses(window: Lifecycles) -> LossWindows:
    """Return the window's losses without those of unknown count and kind: what reading skipped."""
    loss = window.loss
    return loss.take(np.flatnonzero((loss.count >= 0) | (loss.kind != 0)))


def put(lines: Iterable[str]) -> int:
    """Print lines, whose control characters are escaped already, and flush; return their number."""
    found = list(lines)
    if found:
        sys.stdout.write("\n".join([*found, ""]))
        sys.stdout.flush()
    return len(found)


def while_read() -> Callable[[], None]:
    """Return a function that raises BrokenPipeError once stdout's reader has gone (`| head`)."""
    poll = select.poll()
    with suppress(OSError, ValueError):
        poll.register(sys.stdout.fileno(), 0)  # errors alone

    def look() -> None:
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError

    return look
