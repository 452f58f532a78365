# SPDX-License-Identifier: Apache-2.0
"""The command whose run is recorded: started without a shell, awaited, never killed by force."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from biotrail.recorder.schema.errors import TraceError

SIGNAL_STATUS = 128
"""What a shell adds to the number of the signal that ended a command."""


class Child:
    """One command. It is looked up when this is made, and started by `start()`."""

    def __init__(self, command: Sequence[str], *, stdout: int | None = None) -> None:
        """`stdout`: descriptor for the command's standard output; None: ours.

        Raises TraceError when there is no such program.
        """
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
        """Start the command; `pidfd` becomes readable when it ends. Raises TraceError."""
        try:
            self._process = subprocess.Popen(self._command, stdout=self._stdout)
        except OSError as error:
            raise TraceError(f"cannot start {self._command[0]}: {error.strerror}") from error
        with suppress(OSError):  # kernels before 5.3: the poll loop asks `running` instead
            self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status as a shell reports it (128 + signal); None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        return SIGNAL_STATUS - code if code < 0 else code

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); the terminal's Ctrl-C reached it already, if there was one.

        Nothing happens where it became another user's, and this process may not.
        """
        if self.running and self._process is not None:
            with suppress(PermissionError):
                self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for its end at most so long; whether it ended."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Give back the descriptor."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
