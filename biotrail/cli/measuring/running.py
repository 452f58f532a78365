# SPDX-License-Identifier: Apache-2.0
"""Runs `biotrail metrics`: programs or a recorder process, the server, and what ends them."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from biotrail import __version__
from biotrail.cli.children.recorder_process import Recorder, live_source, passing_dumps, stopping
from biotrail.cli.measuring.application import application
from biotrail.cli.measuring.exposition import Exposition
from biotrail.cli.measuring.flight_logs import FlightLogs
from biotrail.cli.measuring.kernel import KernelSums, kernel_counts
from biotrail.cli.measuring.server import Address, MetricsServer
from biotrail.cli.options.ending import stopped_by_signals
from biotrail.recorder.probes.measuring import Measuring
from biotrail.text.printing import say

SAMPLE_SECONDS = 0.1
EVERY_SECONDS = 10.0
"""The program's runs are timed for SAMPLE_SECONDS in each EVERY_SECONDS."""
_LOOK_SECONDS = 1.0


def serve_sums(
    address: Address,
    devices: Sequence[tuple[int, int]],
    seconds: float | None,
    flight: Sequence[str] = (),
    target: str = "",
) -> int:
    """Serve what the kernel adds up. flight, target: of a flight recorder, whose end ends it."""
    with ExitStack() as stack:
        stop = stack.enter_context(stopped_by_signals())
        stack.enter_context(passing_dumps(None))
        program = stack.enter_context(Measuring(devices))
        exemplars = FlightLogs(target).exemplars if target else None
        info = {"version": __version__, "figures": "kernel"}
        figures = Exposition(KernelSums(program).read, info, kernel_counts, exemplars)
        server = MetricsServer(address, application(figures.registry()))
        recorder = None
        if target:  # before the server's thread: it is started by fork()
            recorder = Recorder(flight, target=target, speaks=True)
            stack.enter_context(recorder)
            stack.enter_context(passing_dumps(recorder))
        with server:
            say(f"biotrail: metrics at http://{server.address}/metrics", err=True)
            began = time.monotonic()
            sample_at, wait = began + SAMPLE_SECONDS, _LOOK_SECONDS
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
    address: Address,
    arguments: Sequence[str],
    events: str,
    by: str | None = None,
    blame: str | None = None,
) -> int:
    from biotrail.cli.measuring.live_model import LiveModel
    from biotrail.converters.analysis.live.totals import LABELS

    with ExitStack() as stack:
        info = {"version": __version__, "figures": "model", "events": events}
        labels = LABELS[by] if by else ()
        figures = Exposition(None, info, kernel_counts, labels=labels)
        server = MetricsServer(address, application(figures.registry()))  # bound before all else
        recorder = stack.enter_context(Recorder(arguments))
        stack.enter_context(stopping(recorder))
        source = live_source(recorder, recorder.stream)
        if source is None:
            return recorder.outcome(begun=False)
        model = LiveModel(source, recorder, by, blame)
        figures.read = model.read
        with server:
            say(f"biotrail: metrics at http://{server.address}/metrics", err=True)
            model.run()
        source.join()
        return recorder.outcome()
