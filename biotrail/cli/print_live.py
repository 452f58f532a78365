# SPDX-License-Identifier: Apache-2.0
"""`record --print`: I/Os as they end. A recorder of its own records; here its log is read.

With a log that is kept, the recorder writes it as ever, and this process reads the growing
file. Without, the log comes through a pipe that a thread empties, whoever reads what is
printed. Either way nothing here keeps the recorder waiting.
"""

import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from biotrail.cli.options.record_print import Printing
from biotrail.cli.top_child import Recorder, Tail, Tee, stopping
from biotrail.converters.analysis.live.live import LiveTrace
from biotrail.converters.events.tables import Lifecycles, LossWindows
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text import units
from biotrail.text.print_lines import Json, Text, ended
from biotrail.text.printing import say


def run(printing: Printing) -> int:
    """Print until the recording ends; its exit status.

    Raises BrokenPipeError when nobody reads what is printed any more, and TraceError.
    """
    with ExitStack() as stack:
        target = printing.target
        kept = output.create(target, force=printing.force) if target else None
        if kept is not None:
            stack.enter_context(kept)
        recorder = Recorder(printing.arguments, printing.command, log=kept, speaks=True)
        stack.enter_context(recorder)
        stack.enter_context(stopping(recorder))
        source = _opened(recorder, kept, target)
        if source is None:
            if target:
                Path(target).unlink()
            return recorder.wait() or 1
        printed = print_all(source, printing)
        source.join()
        status = recorder.wait()
    if not printing.quiet:
        say(f"biotrail: {units.plural(printed, 'I/O')} printed{_kept(target)}", err=True)
    return status


def _kept(target: str | None) -> str:
    if target is None:
        return ""
    return f"; log {units.size(Path(target).stat().st_size)}; next: biotrail report {target}"


def _opened(recorder: Recorder, kept: BinaryIO | None, target: str | None) -> LiveSource | None:
    """Return the log that is being written; None: the recorder could not begin, and said so."""
    name = target or "the recorder's log"
    stream = Tee(recorder.stream, None, name) if kept is None else Tail(kept, recorder.ended, name)
    try:
        source = LiveSource(cast(BinaryIO, stream))
    except LogFormatError:
        recorder.stop()
        if recorder.wait():
            return None
        raise
    source.start()
    return source


def print_all(source: LiveSource, printing: Printing) -> int:
    """Print all of it; how many I/Os."""
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
        # What another window comes behind is over, though nobody saw it end.
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
    if unended:
        yield f"{units.plural(unended, 'I/O')} had not ended"
    if skipped:
        yield (
            f"{units.plural(skipped, 'I/O')} skipped, for printing could not keep up: choose fewer "
            "devices (-d) or operations (--op)"
        )


def real_losses(window: Lifecycles) -> LossWindows:
    """Return the window's losses without what was skipped here, which nobody counted."""
    loss = window.loss
    return loss.take(np.flatnonzero((loss.count >= 0) | (loss.kind != 0)))


def put(lines: Iterable[str]) -> int:
    """Print the lines, which are shown already, at once; how many."""
    found = list(lines)
    if found:
        sys.stdout.write("\n".join([*found, ""]))
        sys.stdout.flush()
    return len(found)


def while_read() -> Callable[[], None]:
    """Return what raises BrokenPipeError when nobody reads standard output: `| head` has ended."""
    poll = select.poll()
    with suppress(OSError, ValueError):
        poll.register(sys.stdout.fileno(), 0)  # errors alone

    def look() -> None:
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError

    return look
