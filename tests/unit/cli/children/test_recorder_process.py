# SPDX-License-Identifier: Apache-2.0
"""How a recorder process ends is told: by itself, by us, or by someone else."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from biotrail.cli.children.recorder_process import Recorder, passing_dumps
from biotrail.recorder.schema.errors import ProbeError

WAITS = ("sh", "-c", "echo begun; exec sleep 100")


@contextmanager
def running(command: tuple[str, ...]) -> Iterator[Recorder]:
    """A recorder that is another program, from when it has begun."""
    recorder = Recorder(())
    recorder._command = list(command)
    with recorder:
        assert recorder.stream.readline() == b"begun\n"
        yield recorder


def test_a_recorder_that_is_killed_is_one_message() -> None:
    # GIVEN a recorder WHEN someone kills it THEN that is an error that says so
    with running(WAITS) as recorder:
        os.kill(recorder.pid, signal.SIGKILL)
        said = rf"the recorder \(process {recorder.pid}\) was ended by SIGKILL, perhaps for want"
        with pytest.raises(ProbeError, match=said):
            recorder.wait()
        # AND stopping it afterwards changes nothing about it
        recorder.stop()
        with pytest.raises(ProbeError, match=said):
            recorder.wait()


@pytest.mark.parametrize(("how", "status"), [(Recorder.stop, 143), (Recorder.kill, 137)])
def test_a_recorder_that_we_end_is_no_error(how: object, status: int) -> None:
    # GIVEN a recorder that has no handlers yet
    with running(WAITS) as recorder:
        # WHEN it is stopped or killed by us THEN its status is as a shell tells it
        assert callable(how)
        how(recorder)
        assert recorder.wait() == status


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_dumps_are_passed_on(number: signal.Signals) -> None:
    # GIVEN a recorder that has its handlers WHEN this process is asked for a dump
    with running((sys.executable, "-c", HANDLES)) as recorder, passing_dumps(recorder):
        os.kill(os.getpid(), number)
        # THEN the recorder gets that
        assert recorder.wait() == number


HANDLES = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
print("begun", flush=True)
signal.signal(signal.SIGUSR1, lambda number, frame: None)
signal.signal(signal.SIGUSR2, lambda number, frame: None)
sys.exit(signal.sigwait([signal.SIGUSR1, signal.SIGUSR2]))
"""


def test_a_dump_asked_for_too_early_ends_nothing() -> None:
    # GIVEN a recorder that has no handlers yet, and no flight recorder at all
    with running(WAITS) as recorder:
        for asked in (recorder, None):
            with passing_dumps(asked):
                # WHEN dumps are asked for
                for number in (signal.SIGUSR1, signal.SIGUSR2):
                    os.kill(os.getpid(), number)
        # THEN all goes on
        assert not recorder.ended()
