# SPDX-License-Identifier: Apache-2.0
"""Has babeltrace2 read traces in a child process (`child`), and receives what it sends."""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from biotrail.converters.inputs.lttng.child.frames import FRAME
from biotrail.recorder.schema.errors import LogFormatError

INSTALL = "apt-get install python3-bt2 (or your system's name for babeltrace2's Python bindings)"
_SYSTEM_PYTHON = "/usr/bin/python3"
_ROOT = Path(__file__).parents[4]
"""The directory of the package `biotrail`."""
_PROGRAM = """
import sys
sys.path.append(sys.argv[1])  # behind all else: its other packages are of another Python
from biotrail.converters.inputs.lttng.child.main import main
sys.exit(main(sys.argv[2], sys.argv[3:]))
"""
_SAID_BYTES = 2000


@dataclass
class Frame:
    """A frame that the child sent: its JSON object, and the records that this describes."""

    facts: dict[str, Any]
    payload: bytes

    @property
    def kind(self) -> str:
        """What it is: start, batch, end, or error."""
        return str(self.facts["frame"])


class Reading:
    """A child process that reads traces, and the frames that it sends."""

    def __init__(self, traces: Sequence[Path]) -> None:
        """Start the child, and wait for its first frame.

        Raises LogFormatError: babeltrace2's bindings are not installed, or cannot read the traces.
        """
        self.place = traces[0]
        for python in interpreters():
            self._start(python, traces)
            self.first = self._receive()
            if not self.first.facts.get("missing"):
                break
            self.close()
        else:
            raise LogFormatError(
                f"{self.place}: LTTng's traces are read by babeltrace2's Python bindings, which "
                f"are not installed: {INSTALL}"
            )
        if self.first.kind == "error":
            self.close()
            raise LogFormatError(
                f"{self.place}: babeltrace2 cannot read this trace: {self.first.facts['text']}; "
                "copy the trace again, whole"
            )

    def _start(self, python: str, traces: Sequence[Path]) -> None:
        """Start the child by this interpreter; its standard error goes to `_said`.

        It gets a directory for copies, which is removed here: a child that is killed cannot.
        """
        scratch = tempfile.TemporaryDirectory()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by _end
        self._child = subprocess.Popen(
            # -I: modules in PYTHONPATH or the current directory cannot be imported.
            [python, "-I", "-B", "-c", _PROGRAM, str(_ROOT), scratch.name, *map(str, traces)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._finalizer = weakref.finalize(self, _end, self._child, self._said, scratch)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames after the first one, up to "end" or "error", and end the child."""
        frame = self.first
        while frame.kind not in ("end", "error"):
            frame = self._receive()
            yield frame
        self.close()

    def close(self) -> None:
        """End the child. Closing again has no effect."""
        self._finalizer()

    def _receive(self) -> Frame:
        """Return the next frame; an error frame if the child has ended without one."""
        pipe = self._child.stdout
        assert pipe is not None
        head = pipe.read(FRAME.size)
        if len(head) == FRAME.size:
            length, payload = FRAME.unpack(head)
            text, records = pipe.read(length), pipe.read(payload)
            if len(text) == length and len(records) == payload:
                return Frame(json.loads(text), records)
        return Frame({"frame": "error", "text": self._last_words()}, b"")

    def _last_words(self) -> str:
        """Return how a child that ended early did so: its signal or status, and what it said."""
        status = self._child.wait()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        self._said.seek(0)
        # babeltrace2 draws a picture before what it says of a failed assertion.
        lines = self._said.read(_SAID_BYTES).decode("ascii", "ignore").splitlines()
        said = [text for line in lines if (text := line.lstrip("() ").rstrip())]
        return ": ".join([f"it ended by {how}", *said[-1:]])


def interpreters() -> list[str]:
    """Return the Pythons that may have the bindings, in the order in which they are tried.

    They are this one, if the module is there, and the distribution's: the bindings are compiled for
    one version of Python.
    """
    found = [sys.executable] if importlib.util.find_spec("bt2") else []
    found += [p for p in (shutil.which(_SYSTEM_PYTHON), shutil.which("python3")) if p]
    return list(dict.fromkeys(found))


def _end(
    process: subprocess.Popen[bytes], said: IO[bytes], scratch: tempfile.TemporaryDirectory[str]
) -> None:
    """End a child, close what it wrote to, and remove its directory."""
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
    said.close()
    scratch.cleanup()
