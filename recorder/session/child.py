# SPDX-License-Identifier: Apache-2.0
"""Runs the command that is recorded: without a shell, ended by SIGTERM at most, never killed."""

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
    """One command: looked up when this object is made, started by `start()`."""

    def __init__(self, command: Sequence[str], *, stdout: int | None = None) -> None:
        """Keep the command, and check that its program is found in PATH; start nothing yet.

        `command`: program (name or path) and arguments; at least the program. `stdout`: descriptor
        for the command's standard output; None: this process's. Sets `pidfd` to None. Raises
        TraceError: there is no such program, or it is not executable.
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
        """Start the command; to be called once. Raises TraceError: its program cannot be executed.

        Sets `pidfd` to a new descriptor that is readable once the command has ended (`close` closes
        it); it stays None where the kernel has no pidfd_open(2) (before 5.3) or refuses.
        """
        try:
            self._process = subprocess.Popen(self._command, stdout=self._stdout)
        except OSError as error:
            raise TraceError(f"cannot start {self._command[0]}: {error.strerror}") from error
        with suppress(OSError):  # before 5.3 the poll loop only checks `running`
            self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def running(self) -> bool:
        """Whether the command was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status as a shell reports it: 128 + number for a command that a signal ended.

        None while the command runs, and if it was never started.
        """
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        return SIGNAL_STATUS - code if code < 0 else code

    def terminate(self) -> None:
        """Send SIGTERM to the command if it runs; a terminal's Ctrl-C reaches it anyway.

        Does nothing before `start`, after its end, and where the command became another user's and
        this process lacks CAP_KILL. Does not wait; processes that the command started get no
        signal.
        """
        if self.running and self._process is not None:
            with suppress(PermissionError):
                self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the command's end; return whether it has ended.

        True at once if it was never started or has ended. Sends no signal.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Close `pidfd`. Closing again has no effect; the command goes on."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
