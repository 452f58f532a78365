# SPDX-License-Identifier: Apache-2.0
"""LTTng's kernel traces as a source of events."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.inputs.foreign import clocks_at, without_block_events
from biotrail.converters.inputs.lttng.directories import find
from biotrail.converters.inputs.lttng.frames import DISK_NAME, FRAME
from biotrail.converters.inputs.tracepoints import Batch, Loss, TracepointSource
from biotrail.converters.inputs.translate import Column, TracepointRows
from biotrail.recorder.schema.errors import LogFormatError

_CLOCK_UNCERTAINTY_NS = 1_000
_SYSTEM = "block_"
_TOOL = "lttng"


class LttngSource(TracepointSource):
    """A kernel trace, or a session's directory with one, as a Source."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Find the traces, and read their metadata.

        Raises LogFormatError: there is none of the kernel, or several recordings; it cannot be
        read; or what reads it is not installed.
        """
        super().__init__(path, _TOOL)
        found = find(path)
        self.size = sum(f.stat().st_size for d in found.traces for f in d.iterdir() if f.is_file())
        self._reading = Reading(found.traces)
        self._version: tuple[int, int] | None = None
        facts = self._reading.first.facts
        self._clock = Clock.of(facts["clock"])
        self._span: tuple[int, int] = tuple(facts["span"] or (0, 0))
        self._describe(facts)
        for place in found.others:
            self.remarks.append(f"{place}: user space's events are passed over")

    def _describe(self, facts: dict[str, Any]) -> None:
        environment = facts["environment"]
        enabled = [event for event in facts["events"] if event.startswith(_SYSTEM)]
        if environment.get("domain", "kernel") != "kernel" or not enabled:
            self._reading.close()
            raise without_block_events(self.name, _TOOL)
        self.set_recorded(enabled)
        self._set_version(environment)
        if release := environment.get("kernel_release"):
            self.header["kernel"] = {"release": release}
        if host := environment.get("hostname"):
            self.header["host"] = {"name": host, "os": environment.get("sysname", "?")}
        self._set_clocks(facts["began"])
        for path, why, size in facts["unreadable"]:
            self.unreadable_bytes += size
            self.problems.append(f"{path}: {size} bytes cannot be read: {why}")

    def _set_version(self, environment: dict[str, Any]) -> None:
        """Set which version of lttng-modules wrote the trace; say what is assumed without one."""
        version = [environment.get(f"tracer_{part}", "?") for part in ("major", "minor")]
        name = environment.get("tracer_name", "lttng")
        self.header["created_by"] = f"{name} {'.'.join(map(str, version))}"
        major, minor = version
        if isinstance(major, int) and isinstance(minor, int):
            self._version = major, minor
            return
        self.remarks.append(
            f"{self.name}: its metadata do not say which version of lttng-modules wrote it: flags "
            "(SYNC, META) are taken to be as those since 2.2 write them"
        )

    def _set_clocks(self, began: int) -> None:
        """Set the header's clocks, at the cycles when the trace began; add what is not known."""
        zero = self._clock.realtime_of_zero
        if self._clock.name != "monotonic":
            self.remarks.append(
                f"{self.name}: times are of the clock {self._clock.name}, not of CLOCK_MONOTONIC"
            )
        if zero is None:
            self.remarks.append(f"{self.name}: wall-clock times are not known")
            return
        time = self._clock.ns(began)
        self.header["clocks"] = clocks_at(time, time + zero, _CLOCK_UNCERTAINTY_NS)

    def batches(self) -> Iterator[Batch]:
        """Yield the trace's events, as the child sends them."""
        reached = 0
        for frame in self._reading.frames():
            if frame.kind == "error":
                self.interrupted = True
                self.problems.append(
                    f"{self.name}: babeltrace2 cannot read on: {frame.facts['text']}"
                )
            elif frame.kind == "batch":
                batch = self._batch(frame, reached)
                reached = batch.complete_to
                yield batch

    def _batch(self, frame: "Frame", reached: int) -> Batch:
        """Return a frame's rows and losses; adds what streams could not be read on from.

        reached: ns to which the batches before are complete.
        """
        facts = frame.facts
        rows = tables(facts, frame.payload, self._clock, self._version)
        for named in rows:
            if named.event == DISK_NAME:
                pairs = zip(*(named.columns[c].tolist() for c in ("dev", "diskname")), strict=True)
                disks = [
                    {"dev": dev, "name": name.decode("utf-8", "replace")} for dev, name in pairs
                ]
                self.notes.append(("devices", {"devices": disks}))
        rows = [row for row in rows if row.event != DISK_NAME]
        if facts["reached"] is not None:
            reached = max(reached, self._clock.ns(facts["reached"]))
        elif ends := [int(r.time.max()) for r in rows if len(r)]:
            reached = max(reached, *ends)
        for where, cycles, cpu, why in facts["problems"]:
            time = self._clock.ns(cycles)
            end = max(time, self._span[1] - (self._clock.realtime_of_zero or 0))
            self.damaged.append({"offset": self._offset(time), "start": time, "end": end})
            self.problems.append(f"{self.name}: stream {where} (CPU {cpu}): not read on: {why}")
        offset = self._offset(reached)
        passed_over = Counter({str(k): int(v) for k, v in facts["passed_over"].items()})
        return Batch(rows, reached, offset, losses(facts, self._clock), passed_over)

    def _offset(self, reached: int) -> int:
        """Return how many bytes were read when all up to `reached` (ns) was, by the trace's span.

        babeltrace2 does not say. 0 where the span is not known.
        """
        begin, end = self._span
        share = (reached + (self._clock.realtime_of_zero or 0) - begin) / max(end - begin, 1)
        return int(self.size * min(max(share, 0.0), 1.0))


# The columns that the child sends, as tracepoints' rows.

_NS = 10**9
_OWN = ("number", "time", "cpu", "thread", "process", "procname")
"""Fields of a record that are not the tracepoint's own."""
_FIRST_WITH_BARRIER = (2, 2)
"""Version of lttng-modules that put BARRIER at bit 4, and moved those behind up by one."""
_BARRIER = 4
_LETTERS = ((1 << 1, b"D"), (1 << 0, b"W"), (1 << 2, b"R"), (1 << 8, b"F"))
"""Bits of the operation in LTTng's rwbs, and its letter: the first that is set counts, so that a
write with FLUSH, as Linux before 4.8 had it, is a write."""
_FLUSH, _PREFLUSH, _SECURE = 1 << 8, 1 << 10, 1 << 7
_FLAGS = ((1 << 9, b"F"), (1 << 3, b"A"), (1 << 5, b"S"), (1 << 6, b"M"))
"""Bits of FUA, RAHEAD, SYNC and META, in the order of blk_fill_rwbs()."""
_RWBS_BITS = 11


@dataclass(frozen=True)
class Clock:
    """A trace's clock: its name, cycles a second, and cycles from 1970 to its zero, if known."""

    name: str
    frequency: int
    offset: int | None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Clock":
        """Return the clock that the child described."""
        offset = facts["seconds"] * facts["frequency"] + facts["cycles"]
        since_1970 = facts["is_since_1970"]
        return cls(str(facts["name"]), int(facts["frequency"]), offset if since_1970 else None)

    def ns(self, cycles: int) -> int:
        """Return a time (ns) of the clock."""
        return cycles * _NS // self.frequency

    def ns_of(self, cycles: U64) -> I64:
        """Return times (ns), (n,), of the clock; past 292 years they are negative."""
        if self.frequency == _NS:
            return cycles.astype(np.int64)
        whole, rest = np.divmod(cycles, np.uint64(self.frequency))
        parts = rest.astype(np.float64) * (_NS / self.frequency)
        return (whole * np.uint64(_NS)).astype(np.int64) + parts.astype(np.int64)

    @property
    def realtime_of_zero(self) -> int | None:
        """CLOCK_REALTIME (ns) when the clock was 0; None: not known."""
        return None if self.offset is None else self.ns(self.offset)


def tables(
    facts: dict[str, Any], payload: bytes, clock: Clock, version: tuple[int, int] | None
) -> list[TracepointRows]:
    """Return a batch's rows by event. version: of lttng-modules; None: not known."""
    rows, at = [], 0
    for table in facts["tables"]:
        dtype = np.dtype([(name, kind) for name, kind in table["fields"]])
        records = np.frombuffer(payload, dtype, table["count"], at)
        rows.append(_rows(table["event"], records, clock, version))
        at += records.nbytes
    return rows


def _rows(
    event: str, records: NDArray[np.void], clock: Clock, version: tuple[int, int] | None
) -> TracepointRows:
    """Return an event's records as rows; the thread is the context's, else the event's own."""
    names = records.dtype.names or ()
    columns: dict[str, Column] = {name: records[name] for name in names if name not in _OWN}
    if "rwbs" in columns and columns["rwbs"].dtype.kind in "iu":
        columns["rwbs"] = letters(columns["rwbs"], version)
    thread = next((records[name] for name in ("thread", "tid") if name in names), None)
    return TracepointRows(
        event,
        clock.ns_of(records["time"]),
        records["cpu"],
        np.full(len(records), -1) if thread is None else thread,
        records["number"],
        columns,
        records["process"] if "process" in names else None,
        records["procname"] if "procname" in names else None,
    )


def letters(bits: NDArray[Any], version: tuple[int, int] | None = None) -> NDArray[np.bytes_]:
    """Return rwbs as the kernel's letters (S8), (n,), from LTTng's bits (blk_rwbs_ctf_integer).

    Operations that have no bit there (write-zeroes, those of zones, passthrough) get N. version: of
    lttng-modules, before 2.2 with other bits; None: those since 2.2.
    """
    bits = bits & ((1 << _RWBS_BITS) - 1)
    if version is not None and version < _FIRST_WITH_BARRIER:
        low = bits & ((1 << _BARRIER) - 1)
        bits = low | (bits >> _BARRIER << (_BARRIER + 1)) & ((1 << _RWBS_BITS) - 1)
    table = np.array([_letters(value) for value in range(1 << _RWBS_BITS)], "S8")
    return table[bits.astype(np.int64)]


def _letters(bits: int) -> bytes:
    operation = next((letter for bit, letter in _LETTERS if bits & bit), b"N")
    preflush = bits & _PREFLUSH or (bits & _FLUSH and operation != b"F")
    # Before Linux 4.8 discards are writes, but for secure ones.
    secure = bits & _SECURE and operation in b"DW"
    if secure:
        operation = b"D"
    flags = b"".join(letter for bit, letter in _FLAGS if bits & bit)
    return (b"F" if preflush else b"") + operation + (b"E" if secure else b"") + flags


def losses(facts: dict[str, Any], clock: Clock) -> list[Loss]:
    """Return a batch's losses."""
    return [Loss(clock.ns(b), clock.ns(e), cpu, count) for b, e, cpu, count in facts["losses"]]


# Has babeltrace2 read traces in a child process (`child`), and receives what it sends.

INSTALL = "apt-get install python3-bt2 (or your system's name for babeltrace2's Python bindings)"
_SYSTEM_PYTHON = "/usr/bin/python3"
_ROOT = Path(__file__).parents[4]
"""The directory of the package `biotrail`."""
_PROGRAM = """
import sys
sys.path.append(sys.argv[1])  # behind all else: its other packages are of another Python
from biotrail.converters.inputs.lttng.frames import send
try:
    from biotrail.converters.inputs.lttng.child import main
except ImportError as error:  # bt2 is not there
    send({"frame": "error", "missing": True, "text": str(error)})
    sys.exit(1)
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
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
    said.close()
    scratch.cleanup()
