# SPDX-License-Identifier: Apache-2.0
"""Processes of the recorder's own that keep a right which it gives up: how they begin and end."""

import subprocess
import sys
from pathlib import Path


def begin(program: Path, *, answers: bool) -> "subprocess.Popen[bytes]":
    """Start a file of Python's as a process with the rights that this one has now.

    It reads from a pipe, and goes when that ends. answers: it writes to another pipe. Raises
    OSError.
    """
    return subprocess.Popen(
        # -I, -S: nothing of the environment, the current directory or site-packages.
        [sys.executable, "-I", "-S", "-B", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if answers else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the recorder
    )


def end(process: "subprocess.Popen[bytes]", seconds: float = 1.0) -> bool:
    """End it by the end of its input, after `seconds` by SIGKILL, and wait; return False then."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:  # e.g. SIGSTOP
        process.kill()
        process.wait()
        return False
    return True
