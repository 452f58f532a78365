# SPDX-License-Identifier: Apache-2.0
"""Signals to commands with a recorder process: those that ask for a dump, and a killed recorder."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.devices import LoopDevice
from tests.support.metrics_scrapes import serving
from tests.support.record_command import (
    BIOTRAIL,
    SECONDS,
    children,
    environment,
    started,
    stop,
    wait_until,
    wait_until_gone,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

FREE_PORT = ("--listen", "127.0.0.1:0")
FLIGHT = ("metrics", *FREE_PORT, "--keep", "5s", "-o")
COMMANDS = [
    ("metrics", *FREE_PORT, "--events", "light"),
    ("top", "--json"),
    ("record", "--print"),
]


def heed_signals() -> None:
    """Whoever runs the tests may ignore them (nohup, a shell's background job)."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def begun(device: LoopDevice, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The command, from when it shows what it records."""
    command = [*BIOTRAIL, *map(str, arguments), "-d", device.path]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": heed_signals}
    with started(command, env=environment(), text=True, **options) as process:
        assert process.stdout is not None and process.stderr is not None
        (process.stdout if arguments[0] == "top" else process.stderr).readline()
        yield process


@pytest.mark.parametrize("arguments", [("metrics", *FREE_PORT), *COMMANDS], ids=" ".join)
def test_without_a_flight_recorder_these_signals_do_nothing(
    loop_device: LoopDevice, arguments: tuple[str, ...]
) -> None:
    # GIVEN a command that keeps nothing WHEN it is asked for a dump THEN it goes on
    with begun(loop_device, *arguments) as process:
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            process.send_signal(number)
        status, said = stop(process, signal.SIGINT)
        assert (status, "rror" in said) == (0, False), said


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_with_one_each_signal_writes_a_log(
    loop_device: LoopDevice, tmp_path: Path, number: signal.Signals
) -> None:
    # GIVEN metrics beside a flight recorder
    target = tmp_path / "k.biotrail"

    def asked() -> bool:
        # Not too often: each signal has the kernel's verifier begin anew.
        metrics.process.send_signal(number)
        time.sleep(0.5)
        return bool(list(tmp_path.iterdir()))

    with serving("-d", loop_device.path, *FLIGHT[3:], target) as metrics:
        # WHEN it is asked for a dump, before the recorder is ready and then THEN there is one
        wait_until(asked, "a log is written")
        # AND it goes on
        status, said = stop(metrics.process, signal.SIGINT)
        assert status == 0, said


@pytest.mark.parametrize("arguments", COMMANDS[1:], ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_recorder_stays_behind(
    loop_device: LoopDevice, arguments: tuple[str, ...], number: signal.Signals
) -> None:
    # GIVEN a command, and the recorder that it started
    with begun(loop_device, *arguments) as process:
        (recorder,) = children(process.pid)
        # WHEN it is ended in any way
        process.send_signal(number)
        process.communicate(timeout=SECONDS)
        # THEN the recorder, and with it its programs, has ended too
        wait_until_gone(recorder)
    if number == signal.SIGKILL or arguments[0] == "top":
        assert process.returncode == (-9 if number == signal.SIGKILL else 0)


@pytest.mark.parametrize("arguments", [FLIGHT, *COMMANDS], ids=" ".join)
def test_a_killed_recorder_is_one_message(
    loop_device: LoopDevice, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    # GIVEN a command with a recorder process
    target = [tmp_path / "k.biotrail"] if arguments == FLIGHT else []
    with begun(loop_device, *arguments, *target) as process:
        # WHEN that is killed
        wait_until(lambda: len(children(process.pid)) == 1, "it runs")
        subprocess.run(["kill", "-KILL", str(children(process.pid)[0])], check=True)
        _, said = process.communicate(timeout=SECONDS)
        # THEN the command says so, and fails
        assert process.returncode == 1
        errors = [line for line in said.splitlines() if "biotrail: error: " in line]
        assert len(errors) == 1 and "was ended by SIGKILL" in errors[0], said
        assert "Traceback" not in said
