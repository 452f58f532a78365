# SPDX-License-Identifier: Apache-2.0
"""Tables by hand for OTF2 tests, and archives read back by two readers."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    Bios,
    Edges,
    Lifecycles,
    LossWindows,
    Requests,
    Stages,
    Tasks,
)
from tests.support import captures
from tests.support.perfetto_make import table

VDA = captures.names()["vda"]
LOOP = captures.names()["loop1"]
ZRAM = captures.names()["zram1"]


def bios(*rows: dict[str, Any]) -> Bios:
    """Bios of vda, 4096 bytes each where a row says nothing else."""
    return table(Bios, rows, dev=VDA, bytes=4096)  # type: ignore[no-any-return]


def requests(*rows: dict[str, Any]) -> Requests:
    """Requests of vda, 4096 bytes each where a row says nothing else."""
    return table(Requests, rows, dev=VDA, bytes=4096)  # type: ignore[no-any-return]


def window(
    begin: int,
    end: int,
    ended: Bios | None = None,
    ended_requests: Requests | None = None,
    open_bios: Bios | None = None,
    loss: Sequence[dict[str, Any]] = (),
) -> Lifecycles:
    """A window of a trace."""
    return Lifecycles(
        begin=begin,
        end=end,
        bios=bios() if ended is None else ended,
        requests=requests() if ended_requests is None else ended_requests,
        edges=table(Edges, []),
        bio_stages=table(Stages, []),
        request_stages=table(Stages, []),
        open_bios=bios() if open_bios is None else open_bios,
        open_requests=requests(),
        tasks=table(Tasks, []),
        loss=table(LossWindows, loss),
    )


def context() -> Context:
    """The context of a test log's header."""
    return Context(captures.header())


@dataclass
class Operation:
    """One operation as a reader of the archive sees it."""

    handle: str
    mode: str
    blocking: bool
    asked: int
    sector: int | None
    events: list[tuple[str, int]] = field(default_factory=list)
    done: int | None = None
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)


def operations(anchor: Path) -> dict[tuple[str, int], Operation]:
    """Operations of devices by (location's name, matching id), read by the otf2 package.

    Fails where an event is out of order, ends what did not begin, or begins what goes on.
    """
    otf2 = pytest.importorskip("otf2")
    found: dict[tuple[str, int], Operation] = {}
    last: dict[str, int] = {}
    with otf2.reader.open(str(anchor)) as trace:
        of_threads = threads_of(trace)
        for location, event in trace.events:
            assert event.time >= last.get(location.name, 0)
            last[location.name] = event.time
            if isinstance(event, otf2.events.Metric) or location.name in of_threads:
                continue
            kind = type(event).__name__.removeprefix("IoOperation").lower()
            attributes = {a.name: value for a, value in (event.attributes or {}).items()}
            key = (location.name, event.matching_id)
            if kind == "begin":
                assert key not in found
                found[key] = Operation(
                    event.handle.name,
                    str(event.mode).rpartition(".")[2].lower(),
                    event.operation_flags == otf2.IoOperationFlag.NONE,
                    event.bytes_request,
                    attributes.pop("sector", None),
                )
            operation = found[key]
            operation.events.append((kind, event.time))
            if attributes:
                operation.attributes[kind] = attributes
            if kind == "complete":
                operation.done = event.bytes_result
    return found


def threads_of(trace: Any) -> set[str]:
    """Names of the locations of threads: those that are not below a device."""
    return {
        place.name
        for place in trace.definitions.locations
        if place.group.system_tree_parent.parent is None
    }


@dataclass
class Call:
    """A system call as a reader of the archive sees it. Times in ns."""

    name: str
    begin: int
    end: int = -1
    asked: dict[str, Any] = field(default_factory=dict)
    """Attributes of Enter and of the operation's begin."""
    told: dict[str, Any] = field(default_factory=dict)
    """Attributes of Leave and of the operation's end."""
    waits: list[tuple[str, int, int]] = field(default_factory=list)
    """(name with what it is for, begin, end) of each."""
    operation: tuple[str, str, int, int] | None = None
    """(handle, mode, bytes requested, bytes done)."""


def calls(anchor: Path) -> dict[str, list[Call]]:
    """System calls by location's name, in their order, read by the otf2 package.

    Fails where a region is left that was not entered, or an operation is not within its call.
    """
    otf2 = pytest.importorskip("otf2")
    found: dict[str, list[Call]] = {}
    stacks: dict[str, list[str]] = {}
    with otf2.reader.open(str(anchor)) as trace:
        of_threads = threads_of(trace)
        for location, event in trace.events:
            if location.name not in of_threads:
                continue
            mine, stack = found.setdefault(location.name, []), stacks.setdefault(location.name, [])
            attributes = {a.name: value for a, value in (event.attributes or {}).items()}
            match type(event).__name__:
                case "Enter" if not stack:
                    mine.append(Call(event.region.name, event.time, asked=attributes))
                    stack.append(event.region.name)
                case "Enter":
                    assert len(stack) == 1
                    stack.append(event.region.name)
                    name = " ".join([event.region.name, *attributes.values()])
                    mine[-1].waits.append((name, event.time, -1))
                case "Leave":
                    assert stack.pop() == event.region.name
                    if stack:
                        name, begin, _ = mine[-1].waits.pop()
                        mine[-1].waits.append((name, begin, event.time))
                    else:
                        mine[-1].end = event.time
                        mine[-1].told |= attributes
                case "IoOperationBegin":
                    assert len(stack) == 1
                    assert event.operation_flags == otf2.IoOperationFlag.NONE
                    mode = str(event.mode).rpartition(".")[2].lower()
                    mine[-1].operation = (event.handle.name, mode, event.bytes_request, -1)
                    mine[-1].asked |= attributes
                case "IoOperationComplete":
                    assert len(stack) == 1
                    begun = mine[-1].operation
                    assert begun is not None
                    assert begun[0] == event.handle.name
                    mine[-1].operation = (*begun[:3], event.bytes_result)
    assert not any(stacks.values())
    return found


LEGAL = (
    (True, ["begin", "complete"]),
    (False, ["begin", "issued", "complete"]),
    (False, ["begin", "issued", "cancelled"]),
)
"""(blocking, events) of the operations that OTF2 permits."""


def assert_legal(found: dict[tuple[str, int], Operation]) -> None:
    """Fails where an operation's events are not those that OTF2 permits."""
    for operation in found.values():
        assert (operation.blocking, [kind for kind, _ in operation.events]) in LEGAL


def otf2_print(anchor: Path) -> str:
    """Everything of an archive as otf2-print shows it; a warning is an error."""
    if shutil.which("otf2-print") is None:
        pytest.skip("otf2-print is not installed")
    command = ["otf2-print", "--warnings-as-errors", "--show-all", str(anchor)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rewritten(anchor: Path, directory: Path) -> dict[str, bytes]:
    """An archive's event files as the library itself writes the same events, by file name."""
    otf2 = pytest.importorskip("otf2")
    with otf2.reader.open(str(anchor)) as trace:
        writer = otf2.writer.Writer(str(directory), definitions=trace.definitions)
        for location in trace.definitions.locations:
            writer.event_writer_from_location(location)
        for location, event in trace.events:
            writer.event_writer_from_location(location).write(event)
        writer.close()
    return event_files(directory / "traces.otf2")


def event_files(anchor: Path) -> dict[str, bytes]:
    """An archive's event files by name."""
    return {path.name: path.read_bytes() for path in anchor.with_suffix("").glob("*.evt")}


def assert_as_the_library(anchor: Path, directory: Path) -> None:
    """Assert that each event file is the one that the library makes of its events."""
    found, expected = event_files(anchor), rewritten(anchor, directory)
    assert found.keys() == expected.keys()
    for name, data in found.items():
        assert data == expected[name], name
