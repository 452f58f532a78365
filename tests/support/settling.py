# SPDX-License-Identifier: Apache-2.0
"""A log read with and without the settling of plain I/O, and what differs."""

import dataclasses
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from biotrail.converters.events.stacks import Stack
from biotrail.converters.events.tables import I32, Lifecycles, Table
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.converters.settling import settler
from biotrail.recorder.log.frames import MAGIC
from biotrail.recorder.schema.errors import TraceError
from tests.support.paths import ROOT

TABLES = ("bios", "requests", "bio_stages", "request_stages", "open_bios", "open_requests", "edges")

MOST_BYTES = 8 << 20
"""Larger logs are not read both ways: about two million events, some seconds."""
Read = tuple[Trace, list[Lifecycles]]


def uncompiled(path: str) -> ModuleType:
    """The source of a compiled module, such as "converters/settling/plain.py", as a module."""
    name = "uncompiled_" + Path(path).stem
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(ROOT / path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def windows_of(
    log: Any, settling: ModuleType | None, window_events: int, associate: str = "auto"
) -> Read:
    """The windows of a log; settling: the pass, None: the model alone."""
    trace = Trace(log, associate)
    trace.settling = settling
    return trace, list(trace.lifecycles(window_events))


def differences(
    one: tuple[Trace, list[Lifecycles]], other: tuple[Trace, list[Lifecycles]]
) -> list[str]:
    """What differs between two readings: columns of tables by window, entries of the account.

    Rows of stacks are numbered in the order in which they are met, so stacks are compared by their
    frames.
    """
    found = []
    stacks = _common_rows(one[0], other[0])
    for field in dataclasses.fields(one[0].account):
        values = getattr(one[0].account, field.name), getattr(other[0].account, field.name)
        if values[0] != values[1]:
            found.append(f"account.{field.name}: {values[0]} and {values[1]}")
    if len(one[1]) != len(other[1]):
        return [*found, f"{len(one[1])} and {len(other[1])} windows"]
    for number, (first, second) in enumerate(zip(one[1], other[1], strict=True)):
        for name in TABLES:
            where = f"window {number}, {name}"
            tables = getattr(first, name), getattr(second, name)
            found += _columns(where, *map(_with_stacks, tables, stacks))
        found += _parts(f"window {number}, path", first.path, second.path)
        found += _parts(f"window {number}, sites", first.sites, second.sites)
    return found


def _common_rows(*traces: Trace) -> list[I32]:
    """Return per trace, for each of its stacks' rows, a number that equal stacks share.

    Another entry follows, -1, for bios without a stack.
    """
    numbers: dict[Stack, int] = {}
    return [
        np.array([*(numbers.setdefault(s, len(numbers)) for s in trace.stacks.all()), -1], np.int32)
        for trace in traces
    ]


def _with_stacks(table: Table, rows: I32) -> Any:
    """Return the table with its stacks' rows replaced by the numbers at them, if it has stacks."""
    if not hasattr(table, "stack"):
        return table
    return dataclasses.replace(table, stack=rows[table.stack])  # type: ignore[type-var]


def _parts(where: str, first: Any, second: Any) -> list[str]:
    """What differs between two records of tables, each None or of the same class."""
    if first is None or second is None:
        return [] if first is second else [f"{where}: {first!r:.40} and {second!r:.40}"]
    found = []
    for field in dataclasses.fields(first):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, Table) and isinstance(other, Table):
            found += _columns(f"{where}.{field.name}", one, other)
        elif one is not other and one != other:
            found.append(f"{where}.{field.name}: {one!r:.40} and {other!r:.40}")
    return found


def _columns(where: str, first: Table, second: Table) -> list[str]:
    if len(first) != len(second):
        return [f"{where}: {len(first)} and {len(second)} rows"]
    if where.endswith("edges"):  # their order is not part of the tables
        first, second = _in_order(first), _in_order(second)
    found = []
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if a.dtype != b.dtype:
            found.append(f"{where}.{field.name}: {a.dtype} and {b.dtype}")
        unlike = a != b
        rows = np.flatnonzero(unlike.reshape(len(unlike), -1).any(axis=1)) if len(unlike) else []
        if len(rows):
            found.append(f"{where}.{field.name}[{rows[0]}]: {a[rows[0]]} and {b[rows[0]]}")
    return found


def assert_alike(log: Path) -> None:
    """Read a log both ways, unless it is large or not readable, and compare the tables."""
    if settler.compiled is None or log.stat().st_size > MOST_BYTES:
        return
    try:
        alone = windows_of(log, None, WINDOW_EVENTS)
    except (TraceError, PermissionError):
        return
    different = differences(alone, windows_of(log, settler.compiled, WINDOW_EVENTS))
    assert not different, f"{log}: tables differ with plain I/O settled first: {different[:5]}"


def logs_below(directory: Path) -> list[Path]:
    """The logs among a directory's files, whatever they are named."""
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if _begins(path) == MAGIC]


def _begins(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC))
    except OSError:
        return b""


def _in_order(edges: Any) -> Any:
    return edges.take(np.lexsort((edges.sector, edges.request, edges.bio)))
