# SPDX-License-Identifier: Apache-2.0
"""Recordings of `perf record`, for live tests."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import record_command

BLOCK = "block:*"
"""Every event of the block layer."""


def needs_perf() -> None:
    """Skip the test where perf cannot record tracepoints."""
    if shutil.which("perf") is None:
        pytest.skip("needs perf")
    done = subprocess.run(
        ["perf", "record", "-q", "-a", "-e", "block:block_rq_issue", "-o", "/dev/null", "true"],
        capture_output=True,
        text=True,
        timeout=record_command.SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"perf cannot record: {done.stderr.strip()[-200:]}")


@contextmanager
def perf_record(output: Path, *options: str, events: str = BLOCK) -> Iterator[None]:
    """Record events on all CPUs with perf, from before the block to its end."""
    command = ["perf", "record", "-q", "-a", "-m", "8M", "-k", "CLOCK_MONOTONIC", "-e", events]
    # Other tests' BPF programs come and go, and perf 6.1 cannot always read its records of them.
    command.append("--no-bpf-event")
    # perf starts its command once it records.
    command += [*options, "-o", str(output), "--", "sh", "-c", "echo begun; exec sleep 100000"]
    environment = {**os.environ, "LC_ALL": "C"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with record_command.started(command, text=True, env=environment, **pipes) as process:
        said = process.stdout.readline()
        assert said == "begun\n", process.communicate(timeout=record_command.SECONDS)
        yield
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=record_command.SECONDS)
