# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from biotrail.recorder.schema.errors import TraceError

SIGNAL_STATUS = 128
"""A shell's exit status for a command that a signal ended is this plus the signal's number."""


class Child:
    """A command, looked up when this is made, without a shell; ended by SIGTERM at most."""

    def __init__(self, command: Sequence[str], *, stdout: int | None = None) -> None:
        """Look the program up in PATH; `stdout`: a descriptor, None: as ours. Raises TraceError."""
        self._command = list(command)
        self._stdout = stdout
        self._process: subprocess.Popen[bytes] | None = None
        self.pidfd: int | None = None
        if shutil.which(command[0]) is None:
            raise TraceError(
                f"cannot start {command[0]}: no such program, or it is not executable; "
                "give its path, or look at PATH (sudo changes it)"
            )

    def start(self) -> None:
        """Start it, and set `pidfd` where the kernel has such (5.3). Raises TraceError."""
        try:
            self._process = subprocess.Popen(self._command, stdout=self._stdout)
        except OSError as error:
            raise TraceError(f"cannot start {self._command[0]}: {error.strerror}") from error
        with suppress(OSError):  # before 5.3 the poll loop only checks `running`
            self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status as a shell reports it; None while the command runs or was not started."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        return SIGNAL_STATUS - code if code < 0 else code

    def terminate(self) -> None:
        if self.running and self._process is not None:
            with suppress(PermissionError):
                self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the command's end; return whether it has ended."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Close `pidfd`; the command goes on."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
