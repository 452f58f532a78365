# SPDX-License-Identifier: Apache-2.0
"""The recorder process that `biotrail top` and `record --print` start, and streams of its log."""

import ctypes
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from biotrail.cli.options.ending import handled
from biotrail.recorder.output.folders import explain
from biotrail.recorder.output.output import NewFile
from biotrail.recorder.schema.errors import LogFormatError, ProbeError
from biotrail.recorder.session.stop import DUMP_SIGNALS
from biotrail.text.printing import relay

if TYPE_CHECKING:
    from biotrail.converters.inputs.backlog import LiveSource

_PR_SET_PDEATHSIG = 1
"""<linux/prctl.h>"""
END_SECONDS = 10.0
"""A recorder that has not exited this long after SIGTERM is killed: its programs go with it."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_SECONDS = 0.05


class Recorder:
    """A process `biotrail record -o -`; a context manager that stops it after the block."""

    def __init__(
        self,
        arguments: Sequence[str],
        command: Sequence[str] = (),
        *,
        log: BinaryIO | None = None,
        target: str = "-",
        speaks: bool = False,
    ) -> None:
        """log: a file for its log; None: `stream`. speaks: it inherits standard error."""
        biotrail = ["-m", "biotrail"]
        started = getattr(sys.modules["__main__"], "__file__", None)
        # In one file (docs/install.md) its packages are found by that file's own beginning alone.
        if started and (file := Path(started).absolute().parent).is_file():
            biotrail = [str(file)]
        # -P: root must not import a `biotrail` package that lies in the current directory.
        self._command = [sys.executable, "-P", *biotrail, "record", "-q", "-o", target, *arguments]
        self._command += ["--", *command] if command else []
        self._log, self._speaks = log, speaks
        self._sent: set[int] = set()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.process: subprocess.Popen[bytes]
        self.stream: BinaryIO
        self.pid: int

    def __enter__(self) -> Self:
        parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

        def before_exec() -> None:
            # A dump that is asked for before the recorder has set its handlers must not end it.
            for number in DUMP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            # SIGTERM when this process dies, as of SIGKILL: on an idle device the recorder writes
            # nothing, and would never get SIGPIPE.
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        # A session of its own: Ctrl-C reaches this process only, which then stops the recorder.
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._log is None else self._log,
            stderr=None if self._speaks else self._said,
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509 - no thread runs yet
        )
        self.pid, self.stream = self.process.pid, cast(BinaryIO, self.process.stdout)
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        try:
            # The pipe stays open and its reader reads on, or the recorder would block in write().
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
        finally:
            self.process.wait()
            self._said.close()

    def stop(self) -> None:
        """Send SIGTERM: the recorder completes its log and exits."""
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        self._sent.add(number)
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the recorder to exit and return its exit status; its stream must be read."""
        status = self.process.wait()
        if status >= 0:
            return status
        if -status in self._sent:
            return 128 - status
        name = signal.Signals(-status).name
        why = ", perhaps for want of memory: see dmesg" if -status == signal.SIGKILL else ""
        raise ProbeError(f"the recorder (process {self.pid}) was ended by {name}{why}")

    def ended(self) -> bool:
        return self.process.poll() is not None

    def outcome(self, *, begun: bool = True) -> int:
        """Wait for its exit, print what it said, and return its status; 1 if it began no log."""
        ended = self.process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").rstrip()
        if not begun:
            said = (said or "biotrail: the recorder ended") if ended >= 0 else ""
        if said:
            relay(said, err=True)
        return self.wait() or int(not begun)

    def cpu_seconds(self) -> float:
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def stopping(recorder: Recorder) -> Iterator[None]:
    """Stop the recorder at the first SIGINT, SIGTERM or SIGHUP, kill it at the second."""
    seen = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            recorder.send(signal.SIGKILL)
            raise KeyboardInterrupt
        recorder.stop()

    with handled(_SIGNALS, stop), passing_dumps(recorder):
        yield


@contextmanager
def passing_dumps(recorder: Recorder | None) -> Iterator[None]:
    """Pass SIGUSR1 and SIGUSR2 on to a recorder in the block; None: they do nothing."""

    def dump(number: int, _frame: FrameType | None) -> None:
        if recorder is not None:
            recorder.send(signal.Signals(number))

    before = {number: signal.signal(number, dump) for number in DUMP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Tail(io.RawIOBase):
    """A readable stream, not seekable, that follows a file while a recorder writes it."""

    def __init__(self, file: BinaryIO, ended: Callable[[], bool], name: str) -> None:
        self._stream = open(f"/proc/self/fd/{file.fileno()}", "rb", buffering=0)  # noqa: SIM115
        self._ended, self.name = ended, name

    def read(self, count: int = -1, /) -> bytes:
        """Return bytes, and wait while there are none and the recorder has not ended."""
        while True:
            over = self._ended()  # before the read, which then gets all that was written
            if (data := self._stream.read(count)) or over:
                return data
            time.sleep(_LOOK_SECONDS)


class Tee(io.RawIOBase):
    """A stream, not seekable, that copies what is read to a file (None: to none), the kept log."""

    def __init__(self, stream: BinaryIO, kept: BinaryIO | None, name: str) -> None:
        self._stream, self._kept, self.name = stream, kept, name

    def read(self, count: int = -1, /) -> bytes:
        data: bytes = self._stream.read(count)
        if self._kept is not None:
            try:
                left = memoryview(data)
                while left:
                    left = left[self._kept.write(left) :]
            except OSError as error:
                raise explain(error, self.name) from error
        return data

    def drain(self) -> None:
        """Read and copy the rest of the stream: the index, which readers of a pipe do not need."""
        while self.read(1 << 20):
            pass


def live_source(
    recorder: Recorder, stream: Tail | Tee | BinaryIO, kept: NewFile | None = None
) -> "LiveSource | None":
    """Start reading the log that the recorder writes; None: it failed before it began a log.

    kept: the log's file, which gets its name, or is deleted if there is no log.
    """
    from biotrail.converters.inputs.backlog import LiveSource

    try:
        source = LiveSource(cast(BinaryIO, stream))
    except LogFormatError:
        recorder.stop()
        if not recorder.process.wait():
            raise
        if kept is not None:
            kept.discard()
        return None
    source.start()
    if kept is not None:
        kept.publish()
    return source
