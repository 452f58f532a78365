# SPDX-License-Identifier: Apache-2.0
"""A log read in windows of several sizes, and what differs."""

import dataclasses
import importlib.util
import sys
from collections.abc import Hashable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import I32, Edges, Lifecycles, Table
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.recorder.log.frames import MAGIC
from biotrail.recorder.schema.errors import TraceError
from tests.support.paths import ROOT

TABLES = ("bios", "requests", "edges", "bio_stages", "request_stages")

MOST_BYTES = 4 << 20
"""Larger logs are read once."""
FEW_EVENTS = 1_000
Read = tuple[Trace, list[Lifecycles]]


def uncompiled(path: str) -> ModuleType:
    """The source of a compiled module, such as "recorder/log/column_loops.py", as a module."""
    name = "uncompiled_" + Path(path).stem
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(ROOT / path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def windows_of(log: Any, window_events: int, associate: str = "auto") -> Read:
    trace = Trace(log, associate)
    return trace, list(trace.lifecycles(window_events))


def differences(one: Read, other: Read) -> list[str]:
    """What differs between two readings: columns of the tables of all windows, of the account.

    In which window an I/O is does not count, nor what is in flight between two. Rows of stacks and
    files are numbered in the order in which they are met, so stacks are compared by their frames,
    and files by what they are.
    """
    found = []
    for field in dataclasses.fields(one[0].account):
        values = getattr(one[0].account, field.name), getattr(other[0].account, field.name)
        if values[0] != values[1]:
            found.append(f"account.{field.name}: {values[0]} and {values[1]}")
    known: dict[str, dict[Hashable, int]] = {"stack": {}, "file": {}}
    first, second = (_whole(windows, _numbers(trace, known)) for trace, windows in (one, other))
    found += [f"{name}: one reading has none" for name in sorted(first.keys() ^ second.keys())]
    for name in first.keys() & second.keys():
        found += _columns(name, first[name], second[name])
    return found


def _whole(windows: list[Lifecycles], numbers: dict[str, I32]) -> dict[str, Any]:
    """The tables of all windows, each sorted by what its rows are of."""
    found = {}
    for name in TABLES:
        tables = [getattr(window, name) for window in windows]
        found[name] = _in_order(_with_numbers(type(tables[0]).concatenate(tables), numbers))
    for part in ("path", "sites"):
        several = [getattr(w, part) for w in windows if getattr(w, part) is not None]
        for field in dataclasses.fields(several[0]) if several else ():
            tables = [t for one in several if isinstance(t := getattr(one, field.name), Table)]
            if tables and not field.name.startswith("open_"):
                whole = type(tables[0]).concatenate(tables)
                whole = _with_numbers(whole, {"file": numbers["file"]})
                found[f"{part}.{field.name}"] = _in_order(whole)
    return found


def _numbers(trace: Trace, known: dict[str, dict[Hashable, int]]) -> dict[str, I32]:
    """Return, per column of rows, a number for each row that equal stacks or files share.

    known: numbers so far, to which new ones are added. Another entry follows, -1, for "none".
    """
    files = trace.context.files
    rows: dict[str, list[Any]] = {
        "stack": list(trace.stacks.all()),
        "file": [files[row] for row in range(len(files))],
    }
    return {
        name: np.array(
            [*(known[name].setdefault(one, len(known[name])) for one in found), -1], "i4"
        )
        for name, found in rows.items()
    }


def _with_numbers(table: Any, numbers: dict[str, I32]) -> Any:
    """Return the table with rows of stacks and files replaced by the numbers at them."""
    found = {name: of for name, of in numbers.items() if hasattr(table, name)}
    return dataclasses.replace(table, **{n: of[getattr(table, n)] for n, of in found.items()})


def _columns(where: str, first: Table, second: Table) -> list[str]:
    if len(first) != len(second):
        return [f"{where}: {len(first)} and {len(second)} rows"]
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
    """Read a log in small and large windows, unless it is large or not readable: nothing differs.

    How many events came too late for their window is a matter of windows.
    """
    if log.stat().st_size > MOST_BYTES:
        return
    try:
        whole = windows_of(log, WINDOW_EVENTS)
    except (TraceError, PermissionError):
        return
    cut = windows_of(log, FEW_EVENTS)
    if cut[0].account.late:  # counted and told: rows that need an event which came after its window
        return
    cut[0].account.late = whole[0].account.late
    different = differences(whole, cut)
    assert not different, f"{log}: small windows have other tables: {different[:5]}"


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


def _in_order(table: Any) -> Any:
    """The rows sorted by the bio, request or life that they are of; of one, as they come."""
    if isinstance(table, Edges):
        return table.take(np.lexsort((table.sector, table.request, table.bio)))
    for key in ("owner", "life"):
        if hasattr(table, key):
            return table.take(np.argsort(getattr(table, key), kind="stable"))
    if hasattr(table, "number") and not isinstance(table, Calls | Waits):
        return table.take(np.argsort(table.number, kind="stable"))
    return table
