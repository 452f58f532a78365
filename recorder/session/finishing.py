# SPDX-License-Identifier: Apache-2.0
"""The end of a recording: the last records, the END frame's facts, the summary and its error."""

import time
from collections.abc import Callable, Sequence

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.path_cost import ns_per_run, part_seconds
from biotrail.recorder.host import clocks
from biotrail.recorder.output.explaining import explain
from biotrail.recorder.output.sinks import LogSink, PlainLog
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.schema.errors import OutputError, TraceError
from biotrail.recorder.schema.payloads import Clock, End
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.running import Running, note_periods
from biotrail.recorder.session.session_types import Moment, Summary
from biotrail.recorder.session.stop import StopRequests

STUCK_NS = 5_000_000_000
"""After a second signal, an output is given up if no write has ended for so long."""


def finish(running: Running) -> Summary:
    """Detach, copy out the remaining records, end the log, and wait for the command's end.

    `running`: its loop has ended, by a reason or by an error given to `fail`. Returns the summary;
    its `error` is None if the recording stopped as asked for, else the output's or, if that has
    none, the recorder's. Errors while detaching or reading the rings do not raise: they are kept in
    `running.failure` (unless one is there), and the log gets what was copied. The end of the log is
    not waited for if the output is stuck and the user insists (`_stuck`).
    """
    stop, writer = running.stop, running.writer
    stopped = clocks.reading()  # programs are detached one by one: later events have gaps
    try:
        _take_rest(running)
    except (OSError, TraceError) as error:
        running.fail(error)
    ended = writer.finish(_last_job(running, stopped), lambda: _stuck(writer, stop))
    running.pass_on()
    summary = _summary(running, stopped)
    summary.error = _of_output(running, ended) or _of_recorder(running.failure)
    if running.child is not None:
        name = running.options.command[0]
        summary.command_status = _wait_for_command(running.child, name, stop, running.progress.tell)
    return summary


def _take_rest(running: Running) -> None:
    """Detach the programs; copy out their last records, losses and triggers.

    Records then wait in `running.intake` (whatever their number), loss windows in
    `running.loss_feed` or the writer's queue, requests for dumps in `running.flight`. The counting
    of program runs is switched off first. Raises OSError or TraceError, and skips the steps behind;
    what was copied by then stays.
    """
    if running.opened.guard is not None:
        running.opened.guard.close()
        note_periods(running.opened.guard, running.writer)
    running.watch.end()
    running.probes.detach()
    while running.intake.drain():
        pass
    now_ns = time.monotonic_ns()
    running.loss_feed.sample_rings(now_ns)
    running.loss_feed.sample_programs(now_ns)
    running.listen()


def _last_job(running: Running, stopped: Clock) -> Job:
    """Return the job that writes all that waits to be written, then the END frame.

    In this order: new stacks, records, loss windows, devices, cgroups and mounts, END. The END
    frame is left out where an earlier job failed, or one of these jobs fails, except by a flight
    recorder. `stopped`: clock readings (name → ns) right before the programs were detached.
    """
    jobs = [*running.intake.jobs(), *running.loss_feed.jobs(), *running.changes.jobs()]

    def last(log: LogSink) -> None:
        """Run `jobs` on `log`, then close it with the END frame; runs in the writer thread.

        Not closed if `running.writer.error` is set, unless this is a flight recorder. An error of a
        job passes at once, and the log is not closed; a flight recorder runs the other jobs and
        closes the log first, of whose errors the first passes.
        """
        # A log that lacks a chunk gets no END frame, so that it reads as interrupted. A flight
        # recorder still tries to write what is in memory.
        if running.flight.possible:
            _run_all([*jobs, lambda log: log.close(_end_facts(running, stopped))], log)
            return
        for job in jobs:
            job(log)
        if running.writer.error is None:
            log.close(_end_facts(running, stopped))

    return last


def _run_all(jobs: Sequence[Job], log: LogSink) -> None:
    """Run every job on `log`, whatever those before it raise; then raise the first exception."""
    first: Exception | None = None
    for job in jobs:
        try:
            job(log)
        except Exception as error:  # a bug in one job shall not cost what is in memory
            first = first or error
    if first is not None:
        raise first


def _end_facts(running: Running, stopped: Clock) -> End:
    """Return the facts for the END frame; the log writer adds the log's size.

    Why recording stopped ("" if unknown), its seconds up to `stopped`, clocks then and now, losses
    by kind, what programs skipped and filters left out, run counts and times per program, the
    recorder's own cost, the number of events, mean ns of a run, the calls and cost of the path if
    it is recorded, and the capabilities kept if others were given up. A flight recorder's also:
    `Flight.at_end`. `stopped`: clock readings (name → ns) right before the programs were detached.
    Reads the programs' counters, so they must still be loaded. Raises RefusedError.
    """
    loss, began = running.loss, running.began
    now = cost.read(running.probes.programs())
    return {
        "reason": running.stop.reason or "",
        **running.flight.at_end(),
        "seconds": _seconds(running, stopped),
        "stopped": stopped,
        "clocks": clocks.reading(),
        "lost": {str(kind): count for kind, count in loss.by_kind.items()},
        "too_deep": loss.too_deep,
        "skipped": loss.skipped,
        "programs": cost.program_rows(None, now),
        "left_out": running.probes.left_out().account(),
        "recorder": {
            "cpu_seconds": now.cpu_seconds - began.cpu_seconds,
            "max_rss_bytes": cost.max_rss_bytes(),
            "max_cpu": running.options.max_cpu,
            "max_cpu_exceeded": running.watch.warnings,
            "hurried": running.urgency.times,
        },
        "events": round(running.writer.meter.events),
        "ns_per_event": ns_per_run(running.probes.programs()),
        **_path_facts(running),
        **running.probes.end_facts(),
        **({} if running.kept is None else {"rights_kept": running.kept}),
    }


def _path_seconds(running: Running) -> dict[str, float]:
    """Return the seconds of CPU that the programs of each part of the path took, as estimated.

    Part → seconds, by the rules of `part_seconds`, which leaves out parts of which nothing is
    known; {} for a recording without the path. The probes must not be closed yet.
    """
    probes, meter = running.probes, running.writer.meter
    block_events = meter.events - meter.path_events
    return part_seconds(probes.programs(), probes.path_runs(), block_events)


def _path_facts(running: Running) -> End:
    """Return the END frame's key `path`: calls, timed and seconds by part; {} without the path."""
    if not running.probes.path.parts:
        return {}
    runs = running.probes.path_runs()
    seconds = _path_seconds(running)
    return {"path": {"calls": runs.calls, "timed": runs.timed, "seconds": seconds}}


def _summary(running: Running, stopped: Clock) -> Summary:
    """Return the summary for the user, without `error` and `command_status`.

    `stopped`: clock readings (name → ns) right before the programs were detached, where its seconds
    end. Unwritten are the bytes copied from the rings that the writer has not written by now. Asks
    the probes for counters, so they must not be closed yet.
    """
    writer, loss, sink = running.writer, running.loss, running.opened.sink
    rotation, flight = running.rotation, running.flight
    unwritten_bytes = running.intake.taken_bytes - writer.raw_bytes
    return Summary(
        reason=running.stop.reason or "",
        seconds=_seconds(running, stopped),
        events=round(writer.meter.events),
        events_exact=writer.meter.exact,
        raw_bytes=writer.raw_bytes,
        log_bytes=writer.log_bytes,
        file_bytes=sink.size if isinstance(sink, PlainLog) else 0,
        chunks=writer.chunks,
        lost=loss.by_kind,
        too_deep=loss.too_deep,
        skipped=loss.skipped,
        unwritten_bytes=unwritten_bytes,
        unwritten_events=_unwritten_events(writer, unwritten_bytes),
        written_until=_moment(running, writer.until),
        cpu_seconds=cost.read(()).cpu_seconds - running.began.cpu_seconds,
        max_rss_bytes=cost.max_rss_bytes(),
        ns_per_event=ns_per_run(running.probes.programs()),
        path_events=round(writer.meter.path_events),
        path_seconds=_path_seconds(running),
        followed=dict(running.probes.end_facts().get("sites", {}).get("follow", {})),
        left_out=running.probes.left_out(),
        missing=running.opened.missing,
        lacking=running.opened.lacking,
        triggers_let_pass=flight.let_pass,
        files=sink.files,
        files_deleted=rotation.deleted + flight.deleted,
        files_gone=rotation.taken_away + flight.taken_away,
    )


def _seconds(running: Running, clock: Clock) -> float:
    """Return the seconds from the recording's beginning to a clock reading (name → ns)."""
    return (clock["monotonic"] - running.began.monotonic) / 1e9


def _moment(running: Running, clock: Clock | None) -> Moment | None:
    """Return a clock reading as a moment of the recording; None for None."""
    if clock is None:
        return None
    return Moment(max(0.0, _seconds(running, clock)), clock["realtime"])


def _of_output(running: Running, ended: bool) -> TraceError | None:
    """Return the error of the output as one for the user; None: the log was written.

    `ended`: whether the writer thread ended; else the output is stuck, which is the error whatever
    else failed. Then comes the writer's own error, an OSError with advice (`explain`), another
    itself; last, if there is none, a file that others removed while it was written (if that was the
    reason to stop, "output removed").
    """
    error, path = running.writer.error, running.options.output
    if not ended:
        return OutputError(
            "the output takes no more data: the end of the log could not be written; "
            "what was written reads back as an interrupted log"
        )
    if isinstance(error, OSError):
        return explain(error, path or "standard output")
    if error is None and running.stop.reason == "output removed":
        return OutputError(
            f"{path} was removed while recording: nothing of it is left; "
            "record again, to a place where it stays"
        )
    return error


def _of_recorder(failure: OSError | TraceError | None) -> TraceError | None:
    """Return the recorder's own failure as an error for the user; None for None.

    An OSError becomes a TraceError with its file's name, if it has one; a TraceError is returned
    itself.
    """
    if isinstance(failure, OSError):
        where = f"{failure.filename}: " if failure.filename else ""
        return TraceError(f"recording had to stop: {where}{failure.strerror or failure}")
    return failure


def _unwritten_events(writer: WriterThread, unwritten_bytes: int) -> int:
    """Return about how many events are in records that were copied from the rings but not written.

    `unwritten_bytes`: bytes of these records; 0 gives 0. The writer counted the events of the jobs
    that it ran and that did not write (`writer.unwritten`): if these are all the bytes, their
    number is returned. Where the output was stuck, some jobs did not run: then the number follows
    from the mean size of all events counted, written or not, and is 0 if none was counted.
    """
    if not unwritten_bytes:
        return 0
    if writer.unwritten.bytes >= unwritten_bytes:
        return round(writer.unwritten.events)
    events = writer.unwritten.events + writer.meter.events
    size = writer.unwritten.bytes + writer.meter.bytes
    return round(unwritten_bytes * events / size) if size else 0


def _wait_for_command(
    child: Child, name: str, stop: StopRequests, tell: Callable[[str], None]
) -> int | None:
    """Wait for the command's end, however long; return its exit status.

    A command that a signal ended has 128 + the signal's number. Sends SIGTERM to the command if a
    signal to stop has come by now, and again when more come, those of the first 0.5 s after that
    time. Calls `tell` with a message for the user if the command still runs after 0.5 s. `name`:
    the command's, for the message. None: the command was not started.
    """
    seen = stop.signals
    if seen:
        child.terminate()
    if not child.wait(0.5):
        tell(f"recording has ended; waiting for {name} to end")
    while not child.wait(0.1):
        if stop.signals > seen:
            child.terminate()
            seen = stop.signals
    return child.status


def _stuck(writer: WriterThread, stop: StopRequests) -> bool:
    """Return whether to give the output up, as the user insists and nothing moves.

    So if at least two signals to stop came and the writer thread has ended no job for STUCK_NS.
    """
    return stop.signals > 1 and time.monotonic_ns() - writer.progress_ns > STUCK_NS
