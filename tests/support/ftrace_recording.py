# SPDX-License-Identifier: Apache-2.0
"""Recordings of block events by ftrace, as trace-cmd and tracefs give them, for live tests."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ftrace_setup, record_command

BUFFER_KIB = 16 << 10


def needs_trace_cmd() -> None:
    """Skip the test where trace-cmd is missing."""
    if shutil.which("trace-cmd") is None:
        pytest.skip("needs trace-cmd")


@contextmanager
def block_events(buffer_kib: int = BUFFER_KIB) -> Iterator[Path]:
    """Record all block events in an instance of tracefs; give its directory. Stopped at the end."""
    try:
        with ftrace_setup.instance(buffer_kib) as instance:
            ftrace_setup.enable_block_events(instance)
            yield instance
    except ftrace_setup.NoTracerError as error:
        pytest.skip(str(error))


def stop(instance: Path) -> None:
    """Record no more."""
    (instance / "tracing_on").write_text("0")


def written(instance: Path, directory: Path) -> dict[str, Path]:
    """Stop recording; return the files that tracefs and trace-cmd make of it, by what they are.

    "trace": tracefs's text; "trace.dat": trace-cmd's file; "v6", "plain": the same as version 6,
    and not compressed; "report", "report-ns": what trace-cmd prints. The instance is gone then.
    """
    stop(instance)
    files = {name: directory / f"{name}.of-ftrace" for name in _MADE}
    files["trace"].write_bytes((instance / "trace").read_bytes())
    dat = str(files["trace.dat"])
    root = instance.parent.parent
    # It also ends whatever the root's tracer does.
    with ftrace_setup.root_lock(), ftrace_setup.holding(root / "tracing_on", "1"):
        _run("extract", "-B", instance.name, "-o", dat)
    _run("convert", "--file-version", "6", "-i", dat, "-o", str(files["v6"]))
    _run("convert", "--compression", "none", "-i", dat, "-o", str(files["plain"]))
    files["report"].write_bytes(_run("report", "-i", dat))
    files["report-ns"].write_bytes(_run("report", "-t", "-i", dat))
    return files


_MADE = ("trace", "trace.dat", "v6", "plain", "report", "report-ns")


def _run(*arguments: str) -> bytes:
    """Run trace-cmd; return what it prints."""
    done = subprocess.run(
        ["trace-cmd", *arguments],
        capture_output=True,
        timeout=record_command.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout
