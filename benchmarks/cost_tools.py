# SPDX-License-Identifier: Apache-2.0
"""The tracers of `record_cost.py`: how each is started, seen to trace, ended and counted."""

import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.cost_figures import (
    Account,
    count_blk_trace,
    count_perf_data,
    parse_biotrail,
    parse_lines,
    parse_ring_stats,
)
from benchmarks.cost_loads import SkippedError, cpu_ns
from tests.support.ftrace_setup import binary_blk_tracer

ROOT = Path(__file__).resolve().parents[1]
BIOTRAIL = (sys.executable, "-m", "biotrail.cli.main")
BUFFER_MIB = 16
"""Buffer per CPU, the same for every tool: biotrail's own default."""
START_SECONDS = 60
END_SECONDS = 120
BUDGET_ACTS = 2.0
"""Seconds after which calls are timed no more, where that took more than --call-budget."""
TELLING = ("Unable", "ailed", "annot", "rror")
Ready = Callable[[], bool]


class Program(ABC):
    """A tracer that is one process: start() returns once it traces, stop() once all is written."""

    name = ""
    program = ""
    settle = 0.2
    """Seconds until it costs what it costs from then on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._out = self._said = Path()

    def start(self, device: str, out: Path) -> None:
        """Trace `device` into `out`. Raises SkippedError where that cannot be."""
        if shutil.which(self.program) is None:
            raise SkippedError(f"{self.program} is not installed")
        self._out, self._said = out, out.with_suffix(".said")
        self._begin(device)

    @abstractmethod
    def _begin(self, device: str) -> None:
        """Start tracing the device."""

    def _run(self, command: Sequence[str], ready: Ready, **options: object) -> None:
        with open(self._said, "wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=said, **{"stdout": said, **options}
            )
        end = time.monotonic() + START_SECONDS
        while not ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.abandon()
                raise SkippedError(f"{self.program} cannot trace here: {self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        said = [
            path.read_text(errors="replace") for path in (self._out, self._said) if path.exists()
        ]
        lines = "\n".join(said).split("\n")
        telling = [text.strip() for text in lines if any(word in text for word in TELLING)]
        return (telling or [text.strip() for text in lines if text.strip()] or ["no message"])[0]

    def cpu_ns(self) -> int:
        return 0 if self._process is None else cpu_ns(self._process.pid)

    def stop(self) -> Account:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(END_SECONDS)
        self._process = None
        return self._account(self._said.read_text(errors="replace"))

    @abstractmethod
    def _account(self, said: str) -> Account:
        """What it wrote and lost; said: what it printed."""

    def abandon(self) -> None:
        """End it whatever state it is in."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Biotrail(Program):
    program = BIOTRAIL[0]

    def __init__(self, name: str, *options: str) -> None:
        super().__init__()
        self.name = f"biotrail {name}"
        self._options = options
        if "--path" in options:
            self.settle = BUDGET_ACTS

    def _begin(self, device: str) -> None:
        command = [*BIOTRAIL, "record", "-d", device, "-o", str(self._out), *self._options]
        self._run(command, lambda: b": recording " in self._said.read_bytes(), cwd=ROOT)

    def _account(self, said: str) -> Account:
        return parse_biotrail(said, self._out.stat().st_size)


class Metrics(Program):
    """`biotrail metrics`: sums in the kernel, scraped once, at the end."""

    name = "biotrail metrics"
    program = BIOTRAIL[0]
    _TOTAL = re.compile(r"^biotrail_(ios|lost_events)_total\{.*\} (\S+)", re.MULTILINE)

    def _begin(self, device: str) -> None:
        command = [*BIOTRAIL, "metrics", "-d", device, "--listen", "127.0.0.1:0"]
        self._run(command, lambda: b"metrics at " in self._said.read_bytes(), cwd=ROOT)

    def stop(self) -> Account:
        url = self._said.read_text().split()[-1]
        with urllib.request.urlopen(url, timeout=END_SECONDS) as answer:
            found = self._TOTAL.findall(answer.read().decode())
        super().stop()
        events, lost = (
            sum(int(float(number)) for name, number in found if name == wanted)
            for wanted in ("ios", "lost_events")
        )
        return Account(events, lost, 0)

    def _account(self, said: str) -> Account:
        return Account()


class Perf(Program):
    """`perf record -e 'block:*'`, all CPUs."""

    name = "perf record block:*"
    program = "perf"

    def _begin(self, device: str) -> None:
        command = ["perf", "record", "-a", "-e", "block:*", "-m", f"{BUFFER_MIB}M", "-B", "-N"]
        self._run([*command, "-o", str(self._out)], self._is_mapped)

    def _is_mapped(self) -> bool:
        """Whether it has the buffers of all CPUs: the last that it does before it enables."""
        assert self._process is not None
        maps = Path(f"/proc/{self._process.pid}/maps").read_text()
        return maps.count("[perf_event]") >= len(os.sched_getaffinity(0))

    def _account(self, said: str) -> Account:
        with open(self._out, "rb") as stream, mmap.mmap(stream.fileno(), 0, prot=1) as data:
            return count_perf_data(data)


class Bpftrace(Program):
    """A bpftrace script that writes the fields of Q, s, D and C as text."""

    name = "bpftrace, same fields"
    program = "bpftrace"
    _LINE = """
tracepoint:block:{point} {{ if (args->dev == {dev}) {{
  printf("{letter} %llu %d %d %llu %u %s %s\\n", nsecs, tid, args->dev, args->sector,
    args->nr_sector, args->rwbs, {last}); }} }}"""
    _POINTS = (
        ("Q", "block_bio_queue", "args->comm"),
        ("s", "block_io_start", "args->comm"),
        ("D", "block_rq_issue", "args->comm"),
        ("C", "block_rq_complete", "comm"),
    )

    def _begin(self, device: str) -> None:
        major, minor = Path(f"/sys/block/{device}/dev").read_text().split(":")
        dev = int(major) << 20 | int(minor)
        script = "".join(
            self._LINE.format(point=point, dev=dev, letter=letter, last=last)
            for letter, point, last in self._POINTS
        )
        pages = str((BUFFER_MIB << 20) // os.sysconf("SC_PAGESIZE"))
        self._run(
            ["bpftrace", "-o", str(self._out), "-e", script],
            lambda: self._out.exists() and self._out.stat().st_size > 1 << 10,
            env={**os.environ, "BPFTRACE_PERF_RB_PAGES": pages},
        )

    def _account(self, said: str) -> Account:
        events, lost = 0, []
        with open(self._out, "rb") as stream:
            for text in stream:
                if text[:2] in LETTERS:
                    events += 1
                else:
                    lost.append(text.decode(errors="replace"))
        return parse_lines(events, said + "".join(lost), self._out.stat().st_size)


LETTERS = (b"Q ", b"s ", b"D ", b"C ")


class Biosnoop(Program):
    """bcc's biosnoop: a line per I/O, at its end."""

    name = "bcc biosnoop"

    def __init__(self) -> None:
        super().__init__()
        names = ("biosnoop-bpfcc", "biosnoop")
        self.program = next((name for name in names if shutil.which(name)), names[0])

    def _begin(self, device: str) -> None:
        with open(self._out, "wb") as out:
            self._run(
                [self.program, "-d", device],
                lambda: self._out.read_bytes().startswith(b"TIME"),
                stdout=out,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def _account(self, said: str) -> Account:
        with open(self._out, "rb") as stream:
            events = sum(1 for _ in stream) - 1  # its heading
        return parse_lines(max(events, 0), said, self._out.stat().st_size)


class BlkTracer(Program):
    """The kernel's blk tracer, binary, copied from trace_pipe."""

    name = "blk tracer (ftrace)"
    program = "cat"

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._enable = self._tracefs = Path()

    def _begin(self, device: str) -> None:
        self._enable = Path("/sys/block") / device / "trace" / "enable"
        try:
            self._tracefs = self._stack.enter_context(binary_blk_tracer(BUFFER_MIB << 10))
            self._stack.callback(self._enable.write_text, "0")
            self._enable.write_text("1")
        except OSError as error:
            raise SkippedError(f"ftrace cannot be set up: {error.strerror}") from error
        with open(self._out, "wb") as out:
            command = ["cat", str(self._tracefs / "trace_pipe")]
            self._run(command, lambda: self._out.stat().st_size > 0, stdout=out)

    def stop(self) -> Account:
        self._enable.write_text("0")
        size = -1
        while size != (size := self._out.stat().st_size):  # what the buffers held is copied
            time.sleep(0.2)
        stats = self._tracefs.glob("per_cpu/cpu*/stats")
        lost = sum(parse_ring_stats(path.read_text()) for path in stats)
        account = super().stop()
        self._stack.close()
        return Account(account.events, lost, account.size)

    def _account(self, said: str) -> Account:
        return Account(count_blk_trace(self._out.read_bytes()), 0, self._out.stat().st_size)

    def abandon(self) -> None:
        super().abandon()
        self._stack.close()


def all_tools() -> list[Program]:
    events = ("minimal", "lifecycle", "all")
    path = ("--events", "lifecycle", "--path")
    return [
        Metrics(),
        *(Biotrail(name, "--events", name) for name in ("light", *events)),
        Biotrail("lifecycle, level 0", "--events", "lifecycle", "--level", "0"),
        Biotrail("lifecycle, path", *path),
        Biotrail("lifecycle, path, no budget", *path, "--call-budget", "0"),
        *(Biotrail(f"{name}, bcc", "--events", name, "--backend", "bcc") for name in events),
        *(Perf(), Bpftrace(), Biosnoop(), BlkTracer()),
    ]
