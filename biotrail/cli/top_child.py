# SPDX-License-Identifier: Apache-2.0
"""The recorder that `biotrail top` starts: a process whose log comes through a pipe."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import BinaryIO, Self, cast

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.output import output

_PR_SET_PDEATHSIG = 1
"""<linux/prctl.h>"""
END_SECONDS = 10.0
"""After this, a recorder that was asked to end is killed; the kernel removes its programs."""


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_SECONDS = 0.05


def filter_arguments(filters: Filters) -> list[str]:
    """The options of `record` that make these filters."""
    found = [f"--pid={pid}" for pid in filters.pids] + [f"--tid={tid}" for tid in filters.tids]
    found += [f"--comm={name}" for name in filters.comms]
    found += [f"--cgroup={path}" for path in filters.cgroups]
    found += [f"--op={op}" for op in filters.ops]
    found += [f"--flags={'+'.join(flags)}" for flags in filters.flags]
    found += [f"--sectors={first}-{last}" for first, last in filters.sectors]
    found += [f"--{name}" for name in ("children", "below") if getattr(filters, name)]
    found += ["--own-io"] if filters.own_io else []
    if filters.min_bytes:
        found.append(f"--min-size={filters.min_bytes}")
    return [*found, f"--max-in-flight={filters.max_followed}"]


def _end_with(parent: int) -> Callable[[], None]:
    """What a child calls first, so that it gets SIGTERM when `parent` ends, by kill -9 too.

    On an idle device it writes nothing: it would never see that nobody reads any more.
    """
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


class Recorder:
    """`biotrail record -o -` as a process of its own; ended when the block ends."""

    def __init__(
        self,
        arguments: Sequence[str],
        command: Sequence[str] = (),
        *,
        log: BinaryIO | None = None,
        speaks: bool = False,
    ) -> None:
        """arguments, command: record's. log: a file that it writes, instead of `stream`.

        speaks: its standard error is this process's own; `said` is empty then.
        """
        # -P: a directory `biotrail` in the current one is not what root wants to run.
        self._command = [sys.executable, "-P", "-m", "biotrail.cli.main", "record", "-q", "-o", "-"]
        self._command += [*arguments, *(["--", *command] if command else [])]
        self._log, self._speaks = log, speaks
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C comes to us, and we end it.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._log is None else self._log,
            stderr=None if self._speaks else self._said,
            start_new_session=True,
            preexec_fn=_end_with(os.getpid()),  # noqa: PLW1509 - no thread runs yet
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        try:
            # Its stream stays open: who reads it reads on, so that it does not hang in a write.
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            self._process.wait()
            self._said.close()

    @property
    def stream(self) -> BinaryIO:
        """The log."""
        return cast(BinaryIO, self._process.stdout)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def stop(self) -> None:
        """Ask it to end its log."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it at once; its log has no end then."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def wait(self) -> int:
        """Its exit status, once its stream has ended."""
        return self._process.wait()

    def ended(self) -> bool:
        """Whether it has ended: it writes nothing any more."""
        return self._process.poll() is not None

    def said(self) -> str:
        """What it wrote to standard error."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def cpu_seconds(self) -> float:
        """CPU time that it took so far; without the probes', which other tasks pay."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def stopping(recorder: Recorder) -> Iterator[None]:
    """The first signal ends the recording, a second one all; one that is ignored stays so."""
    seen = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            recorder.kill()
            raise KeyboardInterrupt
        recorder.stop()

    taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Tail:
    """A stream of what a recorder writes to a file, while it does."""

    def __init__(self, file: BinaryIO, ended: Callable[[], bool], name: str) -> None:
        """file: open to write, from its beginning. ended: whether no more will be written."""
        self._stream = open(f"/proc/self/fd/{file.fileno()}", "rb", buffering=0)  # noqa: SIM115
        self._ended, self.name = ended, name

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes, as soon as there are any; none at the end."""
        while True:
            over = self._ended()  # asked before: what was written until then is read
            if (data := self._stream.read(count)) or over:
                return data
            time.sleep(_LOOK_SECONDS)

    def seekable(self) -> bool:
        """Never: its end is not known."""
        return False

    def drain(self) -> None:
        """Nothing: the file has all of it."""


class Tee:
    """A stream that keeps what is read from it in a file as well, as the log that it is."""

    def __init__(self, stream: BinaryIO, kept: BinaryIO | None, name: str) -> None:
        self._stream, self._kept, self.name = stream, kept, name

    def read(self, count: int = -1) -> bytes:
        """As much as there is, at most `count`. Raises OutputError when the file fails."""
        data: bytes = self._stream.read(count)
        if self._kept is not None:
            try:
                left = memoryview(data)
                while left:
                    left = left[self._kept.write(left) :]
            except OSError as error:
                raise output.explain(error, self.name) from error
        return data

    def drain(self) -> None:
        """Keep the rest, which no reader of the log asks for: its index."""
        while self.read(1 << 20):
            pass

    def seekable(self) -> bool:
        """Never."""
        return False
