# SPDX-License-Identifier: Apache-2.0
"""Runs `biotrail metrics`: programs or a recorder process, the server, and what ends them."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from biotrail import __version__
from biotrail.cli.children.recorder_process import Recorder, passing_dumps, stopping
from biotrail.cli.measuring.application import application
from biotrail.cli.measuring.exposition import Exposition
from biotrail.cli.measuring.figures import Reading, Source
from biotrail.cli.measuring.flight_logs import Exemplars, FlightLogs
from biotrail.cli.measuring.kernel import KernelSums, kernel_counts
from biotrail.cli.measuring.server import Address, MetricsServer
from biotrail.cli.options.ending import stopped_by_signals
from biotrail.recorder.probes.measuring import Measuring
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text.printing import relay, say

SAMPLE_SECONDS = 0.1
EVERY_SECONDS = 10.0
"""The program's runs are timed for SAMPLE_SECONDS in each EVERY_SECONDS."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Flight:
    """A flight recorder beside the sums. arguments: of `biotrail record`; target: its -o."""

    arguments: Sequence[str]
    target: str


@dataclass(frozen=True)
class MetricsService:
    """What is to be measured, and served where."""

    address: Address
    seconds: float | None
    """Time after which to end; None: at a signal."""
    devices: Sequence[tuple[int, int]] = field(default_factory=tuple)
    """(dev_t, 0) of each disk; none: all."""


def serve_sums(asked: MetricsService, flight: Flight | None) -> int:
    """Serve what the kernel adds up until the end; return the exit status.

    flight: recorded beside it; if its process ends, so does this. Raises TraceError.
    """
    with ExitStack() as stack:
        stop = stack.enter_context(stopped_by_signals())
        stack.enter_context(passing_dumps(None))
        program = stack.enter_context(Measuring(asked.devices))
        logs = FlightLogs(flight.target) if flight else None
        info = {"version": __version__, "figures": "kernel"}
        exemplars = logs.exemplars if logs else None
        server = _server(asked.address, KernelSums(program), info, exemplars)
        recorder = None
        if flight is not None:  # before the server's thread: it is started by fork()
            recorder = Recorder(flight.arguments, target=flight.target, speaks=True)
            stack.enter_context(recorder)
            stack.enter_context(passing_dumps(recorder))
        with server:
            _say_where(server.address)
            return _measure(program, stop, recorder, asked.seconds)


def _measure(
    program: Measuring, stop: threading.Event, recorder: Recorder | None, seconds: float | None
) -> int:
    """Time samples of the program's runs until the end; return the exit status."""
    began = time.monotonic()
    sample_at = began + SAMPLE_SECONDS
    wait = _LOOK_SECONDS
    while not stop.wait(wait):
        now = time.monotonic()
        if seconds is not None and now - began >= seconds:
            break
        if recorder is not None and recorder.ended():
            return recorder.wait() or 1
        counting = now >= sample_at
        program.count_runs(counting)
        if counting:
            sample_at = now + EVERY_SECONDS
        left = _LOOK_SECONDS if seconds is None else max(seconds - (now - began), 0.0)
        wait = SAMPLE_SECONDS if counting else min(_LOOK_SECONDS, left)
    if recorder is not None:
        recorder.stop()
        return recorder.wait()
    return 0


def serve_model(
    asked: MetricsService,
    arguments: Sequence[str],
    events: str,
    by: str | None = None,
    blame: str | None = None,
) -> int:
    """Serve what the model adds up of a recorder's log until that ends; return the exit status.

    arguments: of `biotrail record`. events: its event set. by: what I/O is divided by, of LABELS.
    blame: what victims and culprits are; None: nobody is blamed. Raises TraceError.
    """
    from biotrail.cli.measuring.live_model import LiveModel
    from biotrail.converters.analysis.live.totals import LABELS
    from biotrail.converters.inputs.backlog import LiveSource

    with ExitStack() as stack:
        late = _Late()
        info = {"version": __version__, "figures": "model", "events": events}
        server = _server(asked.address, late, info, None, LABELS[by] if by else ())
        recorder = stack.enter_context(Recorder(arguments))
        stack.enter_context(stopping(recorder))
        try:
            source = LiveSource(recorder.stream)
        except LogFormatError:
            recorder.stop()
            if recorder.failed() >= 0:
                relay(recorder.said().rstrip() or "biotrail: the recorder ended", err=True)
            return recorder.wait() or 1
        source.start()
        model = LiveModel(source, recorder, by, blame)
        late.source = model
        with server:
            _say_where(server.address)
            model.run()
        source.join()
        recorder.failed()
        if said := recorder.said().rstrip():
            relay(said, err=True)
        return recorder.wait()


class _Late:
    """A Source that is set before it is first asked: the address is bound before all else."""

    source: Source

    def read(self) -> Reading:
        """See Source."""
        return self.source.read()


def _server(
    address: Address,
    source: Source,
    info: dict[str, str],
    exemplars: Callable[[], Exemplars] | None,
    labels: tuple[str, ...] = (),
) -> MetricsServer:
    """Return a server of figures that is bound, and does not serve yet. Raises OutputError."""
    exposition = Exposition(source, info, kernel_counts, exemplars, labels)
    return MetricsServer(address, application(exposition.registry()))


def _say_where(address: Address) -> None:
    say(f"biotrail: metrics at http://{address}/metrics", err=True)
