# SPDX-License-Identifier: Apache-2.0
"""`record --print`: prints I/Os as they end, from the log of a separate recorder process.

If the log is kept, the recorder writes it to a file and this process reads the growing file. If
not, the log comes through a pipe, which a thread empties even if the output's reader is slow.
Either way this process never makes the recorder wait.
"""

import select
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from biotrail.cli.children.recorder_process import Recorder, Tail, Tee, live_source, stopping
from biotrail.converters.analysis.live.live import LiveTrace
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.recorder.output import output
from biotrail.text import units
from biotrail.text.printing import say, tell
from biotrail.text.record.lines import Json, Text, ended


def run(
    target: str | None,
    arguments: Sequence[str],
    command: Sequence[str],
    *,
    what: str,
    force: bool,
    own_io: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Print I/Os until the recording ends; return the recorder's status. target: a log to keep."""
    with ExitStack() as stack:
        kept = output.NewFile(target, force=force) if target else None
        if kept is not None:
            stack.callback(kept.close)
        log = None if kept is None else kept.stream
        recorder = Recorder(arguments, command, log=log, speaks=True)
        stack.enter_context(recorder)
        stack.enter_context(stopping(recorder))
        name = target or "the recorder's log"
        piped = Tee(recorder.stream, None, name)
        source = live_source(recorder, Tail(log, recorder.ended, name) if log else piped)
        if source is None:
            if kept is not None:
                kept.discard()
            return recorder.wait() or 1
        if kept is not None:
            kept.publish()
        if not quiet:
            tell(what)
        printed = print_all(source, own_io=own_io, as_json=as_json)
        source.join()
        status = recorder.wait()
    if not quiet:
        said = f"biotrail: {units.plural(printed, 'I/O')} printed"
        if target is not None:
            size = units.size(Path(target).stat().st_size)
            said += f"; log {size}; next: biotrail report {target}"
        say(said, err=True)
    return status


def print_all(source: LiveSource, *, own_io: bool, as_json: bool) -> int:
    """Print the I/Os of the log until it ends; return how many were printed.

    An I/O is printed when it has ended, or when a later window shows that its end was not recorded.
    """
    trace = LiveTrace(source, own_io=own_io)
    context = trace.context
    lines = Json(context, own_io=own_io) if as_json else Text(context, trace.start)
    source.on_idle = while_read()
    put(lines.head)
    printed = skipped = 0
    unended: list[str] = []
    for window in trace.windows():
        # An I/O that the model gave out without an end, before the last window, has ended: its
        # completion was not recorded. Only those of the last window may still be in flight.
        printed += put(unended)
        skips = source.take_skips()
        skipped += sum(skip.bios for skip in skips)
        put(lines.skipped(skips))
        loss = window.loss  # without those of unknown count and kind: what reading skipped
        put(lines.lost(loss.take(np.flatnonzero((loss.count >= 0) | (loss.kind != 0)))))
        done, others = ended(window.bios)
        printed += put(lines.ios(window, done))
        unended = list(lines.ios(window, others))
    if unended:
        tell(f"{units.plural(len(unended), 'I/O')} had not ended")
    if skipped:
        tell(
            f"{units.plural(skipped, 'I/O')} skipped, for printing could not keep up: "
            "choose fewer devices (-d) or operations (--op)"
        )
    return printed


def put(lines: Iterable[str]) -> int:
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
