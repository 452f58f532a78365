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
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.inputs.foreign import without_block_events
from biotrail.converters.inputs.lttng.directories import find
from biotrail.converters.inputs.lttng.frames import DISK_NAME, FRAME
from biotrail.converters.inputs.tracepoints import Batch, Loss, TracepointSource
from biotrail.converters.inputs.translate import Column, TracepointRows
from biotrail.recorder.schema.errors import LogFormatError

_CLOCK_UNCERTAINTY_NS = 1_000
_NS = 10**9
_OWN = ("number", "time", "cpu", "thread", "process", "procname")
Version = tuple[int, int]
_FIRST_WITH_BARRIER: Version = (2, 2)
"""Version of lttng-modules that put BARRIER at bit 4, and moved those behind up by one."""
_BARRIER = 4
_LETTERS = ((1 << 1, b"D"), (1 << 0, b"W"), (1 << 2, b"R"), (1 << 8, b"F"))
"""Bits of the operation in LTTng's rwbs, and its letter: the first that is set counts, so that a
write with FLUSH, as Linux before 4.8 had it, is a write."""
_FLUSH, _PREFLUSH, _SECURE = 1 << 8, 1 << 10, 1 << 7
_FLAGS = ((1 << 9, b"F"), (1 << 3, b"A"), (1 << 5, b"S"), (1 << 6, b"M"))
"""Bits of FUA, RAHEAD, SYNC and META, in the order of blk_fill_rwbs()."""
_RWBS_BITS = 11


class LttngSource(TracepointSource):
    """A kernel trace, or a session's directory with one, as a Source."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Find the traces, and read their metadata. Raises LogFormatError."""
        super().__init__(path, "lttng")
        traces, others = find(path)
        self.size = sum(f.stat().st_size for d in traces for f in d.iterdir() if f.is_file())
        self._reading = Reading(traces)
        self._version: Version | None = None
        facts = self._reading.first
        self._clock = facts["clock"]
        self._frequency = int(self._clock["frequency"])
        self._zero: int | None = None
        """CLOCK_REALTIME (ns) when the clock was 0; None: not known."""
        if self._clock["is_since_1970"]:
            cycles = self._clock["seconds"] * self._clock["frequency"] + self._clock["cycles"]
            self._zero = self._ns(cycles)
        self._span: tuple[int, int] = tuple(facts["span"] or (0, 0))
        self._describe(facts)
        for place in others:
            self.remarks.append(f"{place}: user space's events are passed over")

    def _ns(self, cycles: int) -> int:
        return cycles * _NS // self._frequency

    def _times(self, cycles: U64) -> I64:
        """Return times (ns), (n,), of the clock; past 292 years they are negative."""
        if self._frequency == _NS:
            return cycles.astype(np.int64)
        whole, rest = np.divmod(cycles, np.uint64(self._frequency))
        parts = rest.astype(np.float64) * (_NS / self._frequency)
        return (whole * np.uint64(_NS)).astype(np.int64) + parts.astype(np.int64)

    def _describe(self, facts: dict[str, Any]) -> None:
        environment = facts["environment"]
        enabled = [event for event in facts["events"] if event.startswith("block_")]
        if environment.get("domain", "kernel") != "kernel" or not enabled:
            self._reading.close()
            raise without_block_events(self.name, self.tool)
        self.set_recorded(enabled)
        version = [environment.get(f"tracer_{part}", "?") for part in ("major", "minor")]
        name = environment.get("tracer_name", "lttng")
        self.header["created_by"] = f"{name} {'.'.join(map(str, version))}"
        if all(isinstance(part, int) for part in version):
            self._version = version[0], version[1]
        else:
            self.remark(
                "its metadata do not say which version of lttng-modules wrote it: flags (SYNC, "
                "META) are taken to be as those since 2.2 write them"
            )
        if release := environment.get("kernel_release"):
            self.header["kernel"] = {"release": release}
        if host := environment.get("hostname"):
            self.header["host"] = {"name": host, "os": environment.get("sysname", "?")}
        if (clock := str(self._clock["name"])) != "monotonic":
            self.remark(f"times are of the clock {clock}, not of CLOCK_MONOTONIC")
        if self._zero is None:
            self.remark("wall-clock times are not known")
        else:
            began = self._ns(facts["began"])
            self.set_clocks(began, began + self._zero, _CLOCK_UNCERTAINTY_NS)
        for path, why, size in facts["unreadable"]:
            self.unreadable_bytes += size
            self.problems.append(f"{path}: {size} bytes cannot be read: {why}")

    def batches(self) -> Iterator[Batch]:
        reached = 0
        for facts, payload in self._reading.frames():
            if facts["frame"] == "error":
                self.interrupted = True
                self.problem(f"babeltrace2 cannot read on: {facts['text']}")
            if facts["frame"] != "batch":
                continue
            rows, at = [], 0
            for table in facts["tables"]:
                dtype = np.dtype([(name, kind) for name, kind in table["fields"]])
                records = np.frombuffer(payload, dtype, table["count"], at)
                at += records.nbytes
                if table["event"] == DISK_NAME:
                    pairs = zip(records["dev"].tolist(), records["diskname"].tolist(), strict=True)
                    disks = [{"dev": dev, "name": n.decode("utf-8", "replace")} for dev, n in pairs]
                    self.notes.append(("devices", {"devices": disks}))
                else:
                    rows.append(self._rows(table["event"], records))
            if facts["reached"] is not None:
                reached = max(reached, self._ns(facts["reached"]))
            elif ends := [int(r.time.max()) for r in rows if len(r)]:
                reached = max(reached, *ends)
            for where, cycles, cpu, why in facts["problems"]:
                time = self._ns(cycles)
                end = max(time, self._span[1] - (self._zero or 0))
                self.add_damage(self._offset(time), time, end)
                self.problem(f"stream {where} (CPU {cpu}): not read on: {why}")
            losses = [Loss(self._ns(b), self._ns(e), cpu, n) for b, e, cpu, n in facts["losses"]]
            passed_over = Counter({str(k): int(v) for k, v in facts["passed_over"].items()})
            yield Batch(rows, reached, self._offset(reached), losses, passed_over)

    def _rows(self, event: str, records: NDArray[np.void]) -> TracepointRows:
        names = records.dtype.names or ()
        columns: dict[str, Column] = {name: records[name] for name in names if name not in _OWN}
        if "rwbs" in columns and columns["rwbs"].dtype.kind in "iu":
            columns["rwbs"] = letters(columns["rwbs"], self._version)
        thread = next((records[name] for name in ("thread", "tid") if name in names), None)
        return TracepointRows(
            event,
            self._times(records["time"]),
            records["cpu"],
            np.full(len(records), -1) if thread is None else thread,
            records["number"],
            columns,
            records["process"] if "process" in names else None,
            records["procname"] if "procname" in names else None,
        )

    def _offset(self, reached: int) -> int:
        """Return how many bytes were read up to a time (ns), by its share of the span."""
        begin, end = self._span
        share = (reached + (self._zero or 0) - begin) / max(end - begin, 1)
        return int(self.size * min(max(share, 0.0), 1.0))


def letters(bits: NDArray[Any], version: Version | None = None) -> NDArray[np.bytes_]:
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


# Has babeltrace2 read traces in a child process (`child.py`), and receives what it sends.

INSTALL = "apt-get install python3-bt2 (or your system's name for babeltrace2's Python bindings)"
_SYSTEM_PYTHON = "/usr/bin/python3"
_ROOT = Path(__file__).parents[4]
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


Frame = tuple[dict[str, Any], bytes]
"""A frame's JSON object and its records."""


class Reading:
    def __init__(self, traces: Sequence[Path]) -> None:
        """Start the child, and wait for its first frame. Raises LogFormatError."""
        self.place = traces[0]
        for python in interpreters():
            # Removed here: a child that is killed cannot.
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
            self.first, _ = self._receive()
            if not self.first.get("missing"):
                break
            self.close()
        else:
            raise LogFormatError(
                f"{self.place}: LTTng's traces are read by babeltrace2's Python bindings, which "
                f"are not installed: {INSTALL}"
            )
        if self.first["frame"] == "error":
            self.close()
            raise LogFormatError(
                f"{self.place}: babeltrace2 cannot read this trace: {self.first['text']}; "
                "copy the trace again, whole"
            )

    def frames(self) -> Iterator[Frame]:
        kind = self.first["frame"]
        while kind not in ("end", "error"):
            facts, payload = self._receive()
            kind = facts["frame"]
            yield facts, payload
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
                return json.loads(text), records
        # The child ended early: how it did, and what it said.
        status = self._child.wait()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        self._said.seek(0)
        # babeltrace2 draws a picture before what it says of a failed assertion.
        lines = self._said.read(_SAID_BYTES).decode("ascii", "ignore").splitlines()
        said = [word for line in lines if (word := line.lstrip("() ").rstrip())]
        return {"frame": "error", "text": ": ".join([f"it ended by {how}", *said[-1:]])}, b""


def interpreters() -> list[str]:
    """Return the Pythons that may have the bindings, which are compiled for one version."""
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
