# SPDX-License-Identifier: Apache-2.0
"""Runs one recording from start to stop: from probes by rings to the log."""

import os
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.cost import ns_per_run, part_seconds
from biotrail.recorder.host import clocks
from biotrail.recorder.log import LogWriter
from biotrail.recorder.output import folders
from biotrail.recorder.output.folders import explain
from biotrail.recorder.output.sinks import FlightBuffer, LogSink
from biotrail.recorder.output.writer import Job
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.rights import capabilities, priority, rights
from biotrail.recorder.rights.rights import Trial
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.errors import OutputError, TraceError
from biotrail.recorder.schema.payloads import Clock, End
from biotrail.recorder.session.opening import Opened
from biotrail.recorder.session.running import Running
from biotrail.recorder.session.session_types import RecordOptions, Status, Summary

__all__ = ["Probes", "RecordOptions", "Status", "Summary", "record"]

STUCK_NS = 5_000_000_000
"""After a second signal, an output is given up if no write has ended for so long."""


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
            opened = Opened(options, probes, stack, undo)
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
        return _finish(running)


def needed(options: RecordOptions, probes: Probes) -> tuple[set[str], list[Trial]]:
    """Return (capabilities that are needed in any case, actions to try without any).

    CAP_KILL for a command, which may change its user. CAP_SYSLOG for kernel symbols of modules
    loaded later; for programs started later those to read /proc/PID/maps, /proc/PID/map_files and
    the files mapped there. Reading the programs' counters is tried: before 5.19, with
    kernel.unprivileged_bpf_disabled, bpf(2) requires the capability even for an open descriptor.

    If files are made while recording, and the user called sudo: CAP_CHOWN to give them to that
    user, CAP_DAC_OVERRIDE to rename them in that user's directory, CAP_FOWNER to delete them there
    if it is sticky and another user's. Else making one in the output's directory is tried.
    """
    names = {"CAP_KILL"} if options.command else set()
    if options.stacks or "fs" in options.path or probes.site_stacks:
        names |= {"CAP_SYSLOG"}
    if options.stacks >= Stacks.USER:
        names |= {"CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH"}
    bpf = "CAP_BPF" if capabilities.holds("CAP_BPF") else "CAP_SYS_ADMIN"
    trials: list[Trial] = [(probes.programs, bpf)]
    if options.output is None or (options.rotate is None and options.keep is None):
        return names, trials
    directory = os.path.dirname(options.output) or "."

    def make_nameless_file() -> None:
        flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
        os.close(os.open(directory, flags, folders.PRIVATE_FILE))

    if folders.owner() is None:
        trials.append((make_nameless_file, "CAP_DAC_OVERRIDE"))
        return names, trials
    names |= {"CAP_CHOWN", "CAP_DAC_OVERRIDE"}
    with suppress(OSError):  # reported when the first file is made
        status = os.stat(directory)
        if status.st_mode & stat.S_ISVTX and status.st_uid != os.geteuid():
            names |= {"CAP_FOWNER"}
    return names, trials


def reduce(options: RecordOptions, probes: Probes) -> tuple[list[str] | None, str]:
    """Give up the calling thread's capabilities but those that recording needs, for good.

    Kept are, of those held, what is `needed` or what a failing trial requires, and CAP_SYS_NICE
    where RLIMIT_RTPRIO, which is raised first if possible, does not permit real-time priority
    without. Returns (names of the capabilities kept, warning or ""); (None, warning) where they
    could not be given up.
    """
    if capabilities.holds("CAP_SYS_NICE"):
        priority.permit()
    try:
        names, trials = needed(options, probes)
        names |= set() if priority.permitted() else {"CAP_SYS_NICE"}
        kept = rights.give_up(names, trials)
    except (OSError, AttributeError) as error:  # AttributeError: a C library without capset
        return None, f"could not give up the rights it no longer needs ({error}); it keeps them"
    warnings = []
    try:
        capabilities.gain_no_more()
    except (OSError, AttributeError) as error:
        warnings.append(f"programs that it starts may gain rights that it gave up ({error})")
    if others := rights.threads_with_more(capabilities.mask(kept)):
        who = ", ".join(others)
        warnings.append(f"threads of a library keep rights that recording no longer needs: {who}")
    return kept, "; ".join(warnings)


def _finish(running: Running) -> Summary:
    """Detach, copy out the remaining records, end the log, and wait for the command's end.

    After errors while detaching or reading the rings, the log gets what was copied.
    """
    stop, writer = running.stop, running.writer
    stopped = clocks.reading()  # programs are detached one by one: later events have gaps
    try:
        if running.opened.guard is not None:
            running.opened.guard.close()
            running.note_periods()
        running.watch.count(False)
        running.probes.detach()
        while running.intake.drain():
            pass
        now_ns = time.monotonic_ns()
        running.intake.sample_rings(now_ns)
        running.intake.sample_programs(now_ns)
        running.check_triggers()
    except (OSError, TraceError, MemoryError) as error:
        running.fail(error)
    ended = writer.finish(
        _last_job(running, stopped),
        lambda: stop.signals > 1 and time.monotonic_ns() - writer.progress_ns > STUCK_NS,
    )
    running.report_messages()
    summary = _summary(running, stopped)
    summary.error = _error(running, ended)
    if (child := running.child) is not None:
        # Each signal to stop is passed on as SIGTERM.
        seen = stop.signals
        if seen:
            child.terminate()
        if not child.wait(0.5):
            command = running.options.command[0]
            running.report(f"recording has ended; waiting for {command} to end")
        while not child.wait(0.1):
            if stop.signals > seen:
                child.terminate()
                seen = stop.signals
        summary.command_status = child.status
    return summary


def _last_job(running: Running, stopped: Clock) -> Job:
    """Return the job that writes all that waits to be written, then the END frame."""
    jobs = running.intake.jobs()
    jobs.append(lambda _log: running.opened.cgroups.last())
    for name, watch in running.watches.items():
        jobs.append(running.writer.note(name, watch.changes))

    def end(log: LogSink) -> None:
        log.close(_end_facts(running, stopped))

    def last(log: LogSink) -> None:
        # A log that lacks a chunk gets no END frame, so that it reads as interrupted. A flight
        # recorder still tries to write what is in memory.
        if not isinstance(running.opened.sink, FlightBuffer):
            for job in jobs:
                job(log)
            if running.writer.error is None:
                end(log)
            return
        first: Exception | None = None
        for job in (*jobs, end):
            try:
                job(log)
            except Exception as error:  # a bug in one job shall not cost what is in memory
                first = first or error
        if first is not None:
            raise first

    return last


def _end_facts(running: Running, stopped: Clock) -> End:
    """Return the facts of the whole recording: counters of programs since they were loaded."""
    probes, kept = running.probes, running.kept
    now, reason = cost.read(probes.programs()), running.stop.reason or ""
    facts = cost.end_facts(reason, running.began, now, running.intake.loss, stopped)
    path: End = {}
    dumps: End = {}
    if isinstance(running.opened.sink, FlightBuffer):
        hit = running.files.waiting_hit  # that waits for this dump, the last one
        dumps = {} if hit is None else {"trigger": asdict(hit)}
        dumps["triggers_let_pass"] = running.files.let_pass
    if probes.path.parts:
        runs, seconds = probes.path_runs(), _path_seconds(running)
        path = {"path": {"calls": runs.calls, "timed": runs.timed, "seconds": seconds}}
    return {
        **facts,
        **dumps,
        "seconds": _seconds(running, stopped),
        "programs": cost.program_rows(None, now),
        "left_out": probes.left_out().account(),
        "recorder": {
            **facts["recorder"],
            "max_cpu": running.options.max_cpu,
            "max_cpu_exceeded": running.watch.warnings,
            "hurried": running.boost.times,
        },
        "events": round(running.writer.meter.events),
        "ns_per_event": ns_per_run(probes.programs()),
        **path,
        **probes.end_facts(),
        **({} if kept is None else {"rights_kept": kept}),
    }


def _path_seconds(running: Running) -> dict[str, float]:
    probes, meter = running.probes, running.writer.meter
    block_events = meter.events - meter.path_events
    return part_seconds(probes.programs(), probes.path_runs(), block_events)


def _summary(running: Running, stopped: Clock) -> Summary:
    writer, loss, sink = running.writer, running.intake.loss, running.opened.sink
    series, output = None if isinstance(sink, LogWriter) else sink.series, running.options.output
    now = cost.read(())
    unwritten, unwritten_bytes = writer.unwritten, running.intake.taken_bytes - writer.meter.bytes
    unwritten_events = unwritten.events
    if unwritten.bytes < unwritten_bytes:
        # Jobs that did not run counted none: by the mean size of all events that were counted.
        size = unwritten.bytes + writer.meter.bytes
        events = unwritten.events + writer.meter.events
        unwritten_events = unwritten_bytes * events / size if size else 0.0
    moment = None
    if (until := writer.until) is not None:
        moment = max(0.0, _seconds(running, until)), until["realtime"]
    return Summary(
        reason=running.stop.reason or "",
        seconds=_seconds(running, stopped),
        events=round(writer.meter.events),
        events_exact=writer.meter.exact,
        log_bytes=writer.log_bytes,
        file_bytes=sink.size if isinstance(sink, LogWriter) else 0,
        lost=loss.by_kind,
        too_deep=loss.too_deep,
        skipped=loss.skipped,
        unwritten_bytes=unwritten_bytes,
        unwritten_events=round(unwritten_events) if unwritten_bytes else 0,
        written_until=moment,
        cpu_seconds=now.cpu_seconds - running.began.cpu_seconds,
        max_rss_bytes=now.max_rss_bytes,
        ns_per_event=ns_per_run(running.probes.programs()),
        path_events=round(writer.meter.path_events),
        path_seconds=_path_seconds(running),
        followed=dict(running.probes.end_facts().get("sites", {}).get("follow", {})),
        left_out=running.probes.left_out(),
        missing=running.opened.missing,
        lacking=running.opened.lacking,
        triggers_let_pass=running.files.let_pass,
        files=series.files if series else [output] if output else [],
        files_deleted=series.deleted if series else 0,
        files_gone=series.taken_away if series else 0,
    )


def _seconds(running: Running, clock: Clock) -> float:
    return (clock["monotonic"] - running.began.monotonic) / 1e9


def _error(running: Running, ended: bool) -> TraceError | None:
    """Return why the recording had to stop: the output's error, else the recorder's.

    `ended`: the output is not stuck. None: the log was written, as was asked for.
    """
    error, path, failure = running.writer.error, running.options.output, running.failure
    if not ended:
        return OutputError(
            "the output takes no more data: the end of the log could not be written; "
            "what was written reads back as an interrupted log"
        )
    if isinstance(error, OSError):
        return explain(error, path or "standard output")
    if error is not None:
        return error
    if running.stop.reason == "output removed":
        return OutputError(
            f"{path} was removed while recording: nothing of it is left; "
            "record again, to a place where it stays"
        )
    if isinstance(failure, OSError):
        where = f"{failure.filename}: " if failure.filename else ""
        return TraceError(f"recording had to stop: {where}{failure.strerror or failure}")
    return failure
