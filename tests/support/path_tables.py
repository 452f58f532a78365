# SPDX-License-Identifier: Apache-2.0
"""The tables of the path beside the block layer of a whole log, all windows together."""

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from numpy.typing import NDArray

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import (
    BioPaths,
    Calls,
    Commits,
    DriverSteps,
    HeldBios,
    Interrupts,
    Waits,
)
from biotrail.converters.events.tables import Bios, Requests
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import PATH_PARTS, Kind
from biotrail.recorder.schema.syscalls import numbers
from tests.support import devices

_NO_NAME = ""


def number_of(name: str, machine: str = "x86_64") -> int:
    """The number of a system call."""
    (number,) = numbers(frozenset({name}), machine)
    return number


@dataclass
class RecordedPath:
    """A log's tables, and names of threads: of each bio's and of each call's."""

    trace: Trace
    bios: Bios
    requests: Requests
    calls: Calls
    waits: Waits
    paths: BioPaths
    interrupts: Interrupts
    commits: Commits
    steps: DriverSteps
    held: HeldBios
    bio_comms: NDArray[np.object_]
    call_comms: NDArray[np.object_]

    def number_of(self, name: str) -> int:
        """The number of a system call on the machine that recorded."""
        return number_of(name, self.trace.reader.header["host"]["machine"])

    def calls_of(self, comm: str, *names: str) -> Calls:
        """The calls that a thread of this name made, by these names."""
        wanted = [self.number_of(name) for name in names]
        return self.calls.take((self.call_comms == comm) & np.isin(self.calls.number, wanted))

    def calls_of_any(self, comm: str) -> Calls:
        """All calls that a thread of this name made."""
        return self.calls.take(self.call_comms == comm)

    def with_paths(self, chosen: NDArray[np.bool_]) -> tuple[Bios, BioPaths]:
        """Those of the chosen bios that have a path, and the path of each, in the same order."""
        bios = self.bios.take(chosen & np.isin(self.bios.number, self.paths.number))
        order = np.argsort(self.paths.number)
        rows = order[np.searchsorted(self.paths.number, bios.number, sorter=order)]
        return bios, self.paths.take(rows)

    def steps_of(self, requests: Requests) -> DriverSteps:
        """What the driver did with each of these requests; fails where one has no steps."""
        order = np.argsort(self.steps.number)
        rows = np.searchsorted(self.steps.number, requests.number, sorter=order)
        rows = order[np.minimum(rows, len(order) - 1)]
        assert np.array_equal(self.steps.number[rows], requests.number)
        return self.steps.take(rows)

    def call_of(self, paths: BioPaths, tid: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Per path the row in `calls` of its call, by thread and entry; -1: it has not returned."""
        keys = zip(self.calls.tid.tolist(), self.calls.entry.tolist(), strict=True)
        row_of = {key: row for row, key in enumerate(keys)}
        wanted = zip(tid.tolist(), paths.entry.tolist(), strict=True)
        return np.array([row_of.get(key, -1) for key in wanted], dtype=np.int64)


def recorded_path(
    source: Path | BinaryIO, window_events: int = WINDOW_EVENTS, associate: str = "auto"
) -> RecordedPath:
    trace = Trace(source, associate=associate)
    windows = list(trace.lifecycles(window_events))
    tables = [window.path for window in windows if window.path is not None]
    bios = Bios.concatenate([window.bios for window in windows])
    calls = Calls.concatenate([one.calls for one in tables])
    names = np.append(windows[-1].tasks.comm, _NO_NAME).astype(np.object_)
    return RecordedPath(
        trace,
        bios,
        Requests.concatenate([window.requests for window in windows]),
        calls,
        Waits.concatenate([one.waits for one in tables]),
        BioPaths.concatenate([one.bios for one in tables]),
        Interrupts.concatenate([one.interrupts for one in tables]),
        Commits.concatenate([one.commits for one in tables]),
        DriverSteps.concatenate([one.steps for one in tables]),
        HeldBios.concatenate([one.held for one in tables]),
        names[bios.task],
        names[calls.task],
    )


def of_process(found: RecordedPath, comm: str, *calls: str) -> Waits:
    mine = found.calls_of(comm, *calls)
    keys = set(zip(mine.tid.tolist(), mine.entry.tolist(), strict=True))
    waits = zip(found.waits.tid.tolist(), found.waits.entry.tolist(), strict=True)
    return found.waits.take(np.array([key in keys for key in waits], dtype=np.bool_))


def reasons(found: RecordedPath, waits: Waits) -> Counter[str]:
    """How many waits have each reason; one that no rule knows by its functions."""
    named: Counter[str] = Counter()
    for reason, stack in zip(waits.reason.tolist(), waits.stack.tolist(), strict=True):
        functions = found.trace.context.wait_stacks.get(stack, (f"stack {stack}",))
        known = reason not in (WaitReason.OTHER, WaitReason.UNKNOWN)
        named[WAIT_REASON_NAMES[WaitReason(reason)] if known else " ".join(functions)] += 1
    return named


def whole(log: Path) -> RecordedPath:
    """The log, of which nothing was lost and no part of the path is missing."""
    reader = LogReader(log)
    assert reader.losses == []
    facts = reader.header["path"]
    assert (facts["parts"], facts["missing"]) == (list(PATH_PARTS), [])
    return recorded_path(log)


def sector_of(path: Path) -> Callable[[int], int]:
    """From an offset in a file to its sector on the device, by the file system's own account."""
    if shutil.which("filefrag") is None:
        pytest.skip("needs filefrag")
    said = devices.run("filefrag", "-e", "-b512", path)
    found = re.findall(r"^ *\d+: +(\d+)\.\. +(\d+): +(\d+)\.\.", said, re.MULTILINE)
    extents = [tuple(map(int, extent)) for extent in found]
    assert extents, said

    def sector(offset: int) -> int:
        at = offset // 512
        (there,) = (start + at - first for first, last, start in extents if first <= at <= last)
        return there

    return sector


def operations(bios: Bios) -> np.ndarray:
    return bios.opf & 0xFF


def completions(log: Path) -> RecordedPath:
    found = whole(log)
    counts = dict.fromkeys((Kind.C, Kind.INTERRUPT), 0)
    for events, _ in Trace(log).events():
        for kind in counts:
            counts[kind] += len(events.rows(kind))
    assert counts[Kind.C] == counts[Kind.INTERRUPT] > 0
    return found
