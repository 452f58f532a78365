# SPDX-License-Identifier: Apache-2.0
"""Sizes of modules and functions: each fits into a reader's head."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

MOST_MODULE_LINES = 400
MOST_FUNCTION_LINES = 50
"""With docstring and signature, without decorators."""
TOPS = ("recorder", "converters", "biotrail", "tests", "scripts", "benchmarks")
LONG_MODULES = {
    "recorder/schema/records.py",  # the schema: one page of truth
    "converters/inputs/blkparse/line_loops.py",  # one compiled unit: its functions are inlined
    "converters/inputs/ftrace/line_loops.py",  # one compiled unit: its functions are inlined
    "converters/settling/plain.py",  # one compiled unit: its structs cannot be shared
}
LONG_FUNCTIONS = {  # compiled: half of their lines are types
    "converters/analysis/distributions/sum_loops.py:depth",
    "converters/inputs/ftrace/line_loops.py:read_lines",
    "converters/outputs/perfetto/writing/packet_loops.py:encode",
    "converters/settling/plain.py:bio_rows",
    "converters/settling/plain.py:request_rows",
    "recorder/log/column_loops.py:fill_columns",
    "recorder/log/column_loops.py:fill_records",
}


def sources() -> Iterator[Path]:
    """Python files of the tree, each once: biotrail/recorder and its like are links."""
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.resolve() == path:
                yield path


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(`path:name`, lines) of every function, nested ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            yield f"{path.relative_to(ROOT)}:{node.name}", lines


def long_modules() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in sources()
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_MODULE_LINES
    }


def long_functions() -> set[str]:
    every = (found for path in sources() for found in functions(path))
    return {name for name, lines in every if lines > MOST_FUNCTION_LINES}


@pytest.mark.parametrize(
    ("found", "allowed"),
    [(long_modules, LONG_MODULES), (long_functions, LONG_FUNCTIONS)],
    ids=["modules", "functions"],
)
def test_nothing_is_longer_than_agreed(found, allowed) -> None:
    # GIVEN every source file  THEN those that are too long are among the exempt ones
    assert found() <= allowed


def test_the_whole_tree_is_measured() -> None:
    # GIVEN the sources that are measured  THEN they are the tree's, each once
    found = list(sources())
    assert len(found) == len(set(found)) > 500
    assert {path.relative_to(ROOT).parts[0] for path in found} == set(TOPS)
