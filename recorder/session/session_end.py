# SPDX-License-Identifier: Apache-2.0
"""A stopped recording's account: the END frame's facts, the user's summary, and its error."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.host import clocks
from biotrail.recorder.output.output import explain
from biotrail.recorder.output.rotation import Rotation
from biotrail.recorder.output.sinks import PlainLog, Sink
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.rights.priority import Urgency
from biotrail.recorder.rights.rights import Lack
from biotrail.recorder.schema.errors import OutputError, TraceError
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.cost_watch import CostWatch, ns_per_run
from biotrail.recorder.session.flight import Flight
from biotrail.recorder.session.session_types import Moment, RecordOptions, Summary
from biotrail.recorder.session.stop import StopRequests


@dataclass(frozen=True)
class Account:
    """The parts of a recording, from which the account is made when it has stopped.

    began: the totals when it began. missing: tracepoints of the event set that could not be
    recorded. lacking: what did not work for lack of rights. kept: capabilities that were kept
    when others were given up; None: none were given up.
    """

    options: RecordOptions
    probes: Probes
    sink: Sink
    writer: WriterThread
    loss: LossCounters
    rotation: Rotation
    flight: Flight
    watch: CostWatch
    urgency: Urgency
    began: cost.Reading
    missing: list[dict[str, str]]
    lacking: list[Lack]
    kept: list[str] | None

    def end(self, reason: str | None, stopped: dict[str, int]) -> dict[str, Any]:
        """Return the facts for the END frame; the log writer adds the log's size.

        `reason`: why the recording ended, as in StopRequests; None: no stop was requested.
        `stopped`: the clocks (name → ns) right before the programs were detached. Reads the
        programs' run times and counts, so they must still be loaded.
        """
        now = cost.read(self.probes.programs())
        return {
            "reason": reason,
            **self.flight.at_end(),
            "seconds": self._seconds(stopped),
            "stopped": stopped,
            "clocks": clocks.reading(),
            "lost": {str(kind): count for kind, count in self.loss.by_kind.items()},
            "too_deep": self.loss.too_deep,
            "skipped": self.loss.skipped,
            "programs": cost.program_rows(None, now),
            "left_out": self.probes.left_out().account(),
            "recorder": {
                "cpu_seconds": now.cpu_seconds - self.began.cpu_seconds,
                "max_rss_bytes": cost.max_rss_bytes(),
                "max_cpu": self.options.max_cpu,
                "max_cpu_exceeded": self.watch.warnings,
                "hurried": self.urgency.times,
            },
            "events": round(self.writer.meter.events),
            "ns_per_event": ns_per_run(self.probes.programs()),
            **({} if self.kept is None else {"rights_kept": self.kept}),
        }

    def summary(self, reason: str | None, stopped: dict[str, int], taken_bytes: int) -> Summary:
        """Return the summary for the user, without `error` and `command_status`.

        `reason`, `stopped`: as in `end`. `taken_bytes`: bytes of records copied from the rings.
        """
        writer = self.writer
        return Summary(
            reason=reason or "",
            seconds=self._seconds(stopped),
            events=round(writer.meter.events),
            events_exact=writer.meter.exact,
            raw_bytes=writer.raw_bytes,
            log_bytes=writer.log_bytes,
            file_bytes=self.sink.size if isinstance(self.sink, PlainLog) else 0,
            chunks=writer.chunks,
            lost=self.loss.by_kind,
            too_deep=self.loss.too_deep,
            skipped=self.loss.skipped,
            unwritten_bytes=taken_bytes - writer.raw_bytes,
            unwritten_events=_unwritten_events(writer, taken_bytes - writer.raw_bytes),
            written_until=self._until(writer.until),
            cpu_seconds=cost.read(()).cpu_seconds - self.began.cpu_seconds,
            max_rss_bytes=cost.max_rss_bytes(),
            ns_per_event=ns_per_run(self.probes.programs()),
            left_out=self.probes.left_out(),
            missing=self.missing,
            lacking=self.lacking,
            triggers_let_pass=self.flight.let_pass,
            files=self.sink.files,
            files_deleted=self.rotation.deleted + self.flight.deleted,
            files_gone=self.rotation.gone + self.flight.gone,
        )

    def _seconds(self, stopped: dict[str, int]) -> float:
        return (stopped["monotonic"] - self.began.monotonic) / 1e9

    def _until(self, clock: dict[str, int] | None) -> Moment | None:
        """Return a clock reading as a moment of the recording; None for None."""
        if clock is None:
            return None
        return Moment(max(0.0, self._seconds(clock)), clock["realtime"])

    def error(
        self, ended: bool, reason: str | None, failure: OSError | TraceError | None
    ) -> TraceError | None:
        """Return the error that ended the recording; None if it ended as asked for.

        `ended`: the writer thread ended, so the END frame was written or writing failed before.
        `failure`: an error of the recorder itself; an error of the output comes first.
        """
        return self._of_output(ended, reason) or _of_recorder(failure)

    def _of_output(self, ended: bool, reason: str | None) -> TraceError | None:
        """Return the error of the output as one for the user; None: the log was written."""
        if not ended:
            return OutputError(
                "the output takes no more data: the end of the log could not be written; "
                "what was written reads back as an interrupted log"
            )
        if isinstance(self.writer.error, OSError):
            return explain(self.writer.error, self.options.output or "standard output")
        if self.writer.error is None and reason == "output removed":
            return OutputError(
                f"{self.options.output} was removed while recording: nothing of it is left; "
                "record again, to a place where it stays"
            )
        return self.writer.error


def _of_recorder(failure: OSError | TraceError | None) -> TraceError | None:
    """Return the recorder's own failure as an error for the user; None for None."""
    if isinstance(failure, OSError):
        where = f"{failure.filename}: " if failure.filename else ""
        return TraceError(f"recording had to stop: {where}{failure.strerror or failure}")
    return failure


def _unwritten_events(writer: WriterThread, unwritten_bytes: int) -> int:
    """Return about how many events are in records that were copied from the rings but not written.

    The writer counts events of the jobs that it ran. If the output is stuck, some jobs did not run:
    then the number follows from the mean size of the counted events.
    """
    if not unwritten_bytes:
        return 0
    if writer.unwritten.bytes >= unwritten_bytes:
        return round(writer.unwritten.events)
    events = writer.unwritten.events + writer.meter.events
    size = writer.unwritten.bytes + writer.meter.bytes
    return round(unwritten_bytes * events / size) if size else 0


def see_off(child: Child, name: str, stop: StopRequests, tell: Callable[[str], None]) -> int | None:
    """Wait for the command's end; return its exit status (128 + signal).

    Sends SIGTERM to the command if a signal ended the recording, and for each signal that comes
    while waiting. Calls `tell` with a message after 0.5 s. `name`: the command's, for the message.
    """
    if stop.signals:
        child.terminate()
    if not child.wait(0.5):
        tell(f"recording has ended; waiting for {name} to end")
    seen = stop.signals
    while not child.wait(0.1):
        if stop.signals > seen:
            child.terminate()
            seen = stop.signals
    return child.status


def stuck(writer: WriterThread, stop: StopRequests, after_ns: int) -> bool:
    """Return whether to give the output up: two signals, and no job has ended for `after_ns`."""
    return stop.signals > 1 and time.monotonic_ns() - writer.progress_ns > after_ns
