# SPDX-License-Identifier: Apache-2.0
"""One boot of one kernel, and what its cases left; `guest_case.py` is the other side."""

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.cli.main import main
from biotrail.converters.events.tables import (
    NEVER,
    STAGE_NAMES,
    Bios,
    Certainty,
    Edges,
    Lifecycles,
    Requests,
    Stages,
)
from biotrail.converters.pipeline import Trace
from biotrail.recorder.accounting.loss import NOT_ONE_CPU
from biotrail.recorder.schema.records import Kind
from tests.support.both_ways import assert_alike
from tests.support.devices import read_fio_report
from tests.vm.boots import CONSOLE, CONSOLE_SO_FAR, HERE

SECONDS = int(os.environ.get("VMTEST_SECONDS", "7200"))
"""Ends a hang; two quiet cores take a tenth of it, a busy machine half."""
CHOSEN = os.environ.get("VMTEST_CASES", "").split()
"""Cases to perform; none: all."""
NOT_CHOSEN = "not among VMTEST_CASES"
STATUS = "status"
"""File that a machine writes when it has performed all that was chosen."""
COMPILING = {"bcc_beside_core", "biosnoop_beside_core", "smmu"}
"""Cases that want the kernel's headers."""
READ, WRITE = 0, 1
"""REQ_OP_READ, REQ_OP_WRITE: the same in every kernel."""
OP_MASK = 0xFF


def _comms(window: Lifecycles) -> list[str]:
    """The name of the task that queued each bio; empty where it is not known."""
    return [window.tasks.comm[task] if task >= 0 else "" for task in window.bios.task.tolist()]


class Log:
    """A case's log as tables; names of devices for their numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace = Trace(path)
        self.reader = self.trace.reader
        windows = list(self.trace.lifecycles())
        assert_alike(path)
        self.bios = Bios.concatenate([window.bios for window in windows])
        self.comms = np.array([comm for window in windows for comm in _comms(window)], np.object_)
        self.requests = Requests.concatenate([window.requests for window in windows])
        self.edges = Edges.concatenate([window.edges for window in windows])
        self.stages = Stages.concatenate([window.bio_stages for window in windows])
        self.open = len(windows[-1].open_bios) + len(windows[-1].open_requests)

    def seen(self) -> Counter[tuple[str, int]]:
        """Counts of records by (name of their kind, dev), straight from the log."""
        counts: Counter[tuple[str, int]] = Counter()
        for events, _ in Trace(self.path).events():
            for kind in (Kind.Q, Kind.D, Kind.R):
                devices, numbers = np.unique(events.dev[events.rows(kind)], return_counts=True)
                for dev, number in zip(devices.tolist(), numbers.tolist(), strict=True):
                    counts[kind.name, dev] += number
        return counts

    def lost(self, kind: Kind | None = None) -> int:
        """How many records the log tells as lost: of a kind, or of all."""
        windows = self.reader.losses
        return sum(w["count"] for w in windows if kind is None or w["kind"] == kind)

    def lost_while(self, bios: Bios) -> bool:
        """Whether the kernel skipped events at a time when one of these bios was under way."""
        if not len(bios):
            return False
        first, last = int(bios.queue.min()), int(bios.complete.max())
        skips = [w for w in self.reader.losses if w["cpu"] == NOT_ONE_CPU]
        return any(w["start"] <= last and first <= w["end"] for w in skips)

    def dev(self, name: str) -> int:
        """dev_t of a recorded device."""
        devices = self.reader.header["devices"]
        return int(next(device["dev"] for device in devices if device["name"] == name))

    def bios_of(self, name: str) -> Bios:
        return self.bios.take(self.bios.dev == self.dev(name))

    def requests_of(self, name: str) -> Requests:
        return self.requests.take(self.requests.dev == self.dev(name))

    def certainties(self) -> set[str]:
        return {Certainty(int(value)).name for value in np.unique(self.bios.certainty)}

    def sent_to(self, name: str) -> Bios:
        """Bios that fio itself sent to a device: none that come from above it or from the cache."""
        mine = (self.bios.dev == self.dev(name)) & (self.bios.parent == NEVER)
        return self.bios.take(mine & (self.comms == "fio"))

    def below(self, case: "Case") -> Bios:
        """The lower devices' bios whose parents are on the case's device."""
        lower = self.bios.take(np.isin(self.bios.dev, [self.dev(name) for name in case.lower]))
        return lower.take(np.isin(lower.parent, self.bios_of(case.top).number))

    def parts_unseen(self, case: "Case") -> bool:
        """Whether bios below came without their Q: an old kernel's array sent them on."""
        return bool((self.below(case).tid == 0).any())

    def is_linked(self, case: "Case") -> bool:
        """Whether the kernel told a remap from the case's device to those below."""
        return len(self.below(case)) > 0

    def medians(self, bios: Bios) -> dict[str, float]:
        """Median time in ns of each stage of these bios."""
        mine = np.isin(self.stages.owner, bios.number)
        spans, kinds = self.stages.end - self.stages.start, self.stages.stage
        return {
            words: float(np.median(spans[mine & (kinds == stage)]))
            for stage, words in STAGE_NAMES.items()
            if (mine & (kinds == stage)).any()
        }

    def unfinished_of(self, name: str) -> int:
        """Bios of a device that have no end."""
        return int((self.bios_of(name).complete == NEVER).sum())

    def unfinished(self) -> int:
        absorbed = self.requests.absorbed_by != NEVER
        left = int((self.bios.complete == NEVER).sum())
        return left + int(((self.requests.complete == NEVER) & ~absorbed).sum()) + self.open


class Logs(dict[str, Log]):
    """A machine's logs by their path below its directory, each read once."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def __missing__(self, path: str) -> Log:
        self[path] = Log(self._directory / path)
        return self[path]


@dataclass
class Case:
    """What one case told, its logs, and fio's account."""

    directory: Path
    told: dict[str, Any]
    logs: "Logs"

    @property
    def log(self) -> Log:
        """The case's own, or that which several share."""
        return self.logs[self.told.get("log", f"{self.directory.name}/log.biotrail")]

    @property
    def top(self) -> str:
        return str(self.told["devices"][0])

    @property
    def lower(self) -> list[str]:
        return list(self.told["devices"][1:])

    def is_skipped(self) -> bool:
        """Whether the kernel skipped events while its devices were used."""
        return self.log.lost_while(self.log.sent_to(self.top))

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return list(read_fio_report(self.directory / "log.json")["jobs"])

    @property
    def job(self) -> dict[str, Any]:
        (job,) = self.jobs
        return job

    @property
    def failed(self) -> int:
        """I/Os that failed, by fio's account."""
        return int(self.job.get("total_err", 0))


def biotrail(*words: str | Path) -> int:
    """Runs a command on this machine; its exit status."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def boot_command(kernel: str, directory: Path) -> list[str | Path]:
    command = [HERE / "run", "-k", kernel, "-o", directory, "-t", str(SECONDS)]
    if not CHOSEN or COMPILING & set(CHOSEN):
        command.append("-H")
    return [*command, HERE / "cases.sh", *CHOSEN]


class Machine:
    """A kernel that was booted, and its cases."""

    def __init__(self, kernel: str, directory: Path) -> None:
        self.kernel = kernel
        self.branch = re.sub("^arm64-|-16k$", "", kernel)
        """The kernel's version, which decides what it lacks: 6.12 of arm64-6.12-16k."""
        self.directory = directory
        self._logs = Logs(directory)
        self.console = self._read_console()
        booted = re.search(r"s to boot (\S+)", self.console)
        self.version = booted[1] if booted else ""
        self.missing = "" if booted else self._prerequisite()

    def _read_console(self) -> str:
        """What was said on it. That of a machine that came up is kept, with what it left."""
        kept, fresh = self.directory / CONSOLE, self.directory / CONSOLE_SO_FAR
        path = kept if kept.exists() else fresh
        text = path.read_text(encoding="utf-8", errors="replace")
        if path == fresh and " s to boot " in text:
            fresh.rename(kept)
        return text

    def _prerequisite(self) -> str:
        """What `run` said is missing; empty where the kernel was started and did not come up."""
        last = (self.console.strip().splitlines() or [""])[-1]
        return last if last.startswith("virtual machine: ") else ""

    def repeats(self) -> dict[str, int]:
        """How often cases were recorded again, for what the kernel skipped of them."""
        told = {
            path.parent.name: json.loads(path.read_text(encoding="utf-8")).get("repeats", 0)
            for path in sorted(self.directory.glob("*/case.json"))
        }
        return {name: number for name, number in told.items() if number}

    def case(self, name: str, lossy: bool = False) -> Case:
        """A case that was performed; skips or fails the test where it was not.

        Skips, too, where the kernel did not run a program for some of its events, and the log
        says so: unless the test wants the case with its losses.
        """
        case = self._performed(name)
        if not lossy and "devices" in case.told and case.is_skipped():
            pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
        return case

    def _performed(self, name: str) -> Case:
        if self.missing:
            pytest.skip(self.missing)
        directory = self.directory / name
        try:
            told = json.loads((directory / "case.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            if CHOSEN and (self.directory / STATUS).exists():
                pytest.skip(f"virtual machine: {NOT_CHOSEN}")
            pytest.fail(f"the machine ended before {name}:\n{self.console}")
        if told["ended"] == "skipped":
            pytest.skip(f"virtual machine: {told['reason']}")
        if told["ended"] == "failed":
            pytest.fail(f"{name} failed in the machine:\n{told['reason']}")
        return Case(directory, told, self._logs)
