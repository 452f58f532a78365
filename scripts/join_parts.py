# SPDX-License-Identifier: Apache-2.0
"""Join the parts of converters/match into one source for Cython, and its declarations.

One module, so that the compiler sees all of it, and C structs and functions need no headers.
What the parts share by imports is one namespace there:

- a class marked `struct` becomes a C struct; its name stands for a pointer to one, a field of type
  `Note` is one itself;
- a function becomes a C function;
- a number that a module gives a name becomes a literal;
- the columns of a table (`tables.BIO_COLUMNS`) become a C struct, a row (`BioRow`);
- `on["TABLE/RULE"]`, whether a rule holds, is asked by the rule's place in `rules.RULES`.
"""

import ast
import io
import tokenize
from pathlib import Path

PACKAGE = "biotrail.converters.match"
MODULE = f"{PACKAGE}.compiled"
PARTS = (
    *("state", "memory", "generations", "families", "bios", "requests"),
    *("flights", "doubt", "finder", "closing", "rows"),
)
"""Modules of the package, in the order in which they are joined."""
NUMBERS, LIVES, RULES, TABLES = "numbers", "lives", "rules", "tables"
OF_THE_SCHEMA = ("NO_SECTOR", "NO_TAG", "Q_FLAG_OWN")
"""Names of recorder.schema.records that parts use."""

_HEAD = """# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.stdlib import calloc, free, realloc
from cython.cimports.libc.string import memcpy, memset
"""
_TYPES = '''cdef extern from *:
    """
    #include <setjmp.h>
    static _Thread_local jmp_buf task_begun;
    #define begin_task() setjmp(task_begun)
    #define give_task_up() longjmp(task_begun, 1)
    """
    int begin_task()
    void give_task_up()

ctypedef long long int64
ctypedef unsigned long long uint64
ctypedef unsigned int uint32
ctypedef int int32
ctypedef unsigned short uint16
ctypedef unsigned char uint8
ctypedef unsigned long long* words
ctypedef void* pointer
ctypedef long long[2] int64_2
ctypedef long long[7] int64_7
ctypedef long long[32] int64_32
'''
_C_TYPES = {"i8": "int64", "u8": "uint64", "i4": "int32", "u4": "uint32", "u2": "uint16"}
"""By dtype; others are a byte."""
_C_FUNCTION = "@cython.cfunc\n@cython.exceptval(check=False)\n"


def folder(root: Path) -> Path:
    return root / "biotrail" / "converters" / "match"


def sources(root: Path) -> list[Path]:
    """Return all files that the module is made of."""
    names = (NUMBERS, LIVES, RULES, TABLES, *PARTS)
    return [*(folder(root) / f"{name}.py" for name in names), _schema(root), Path(__file__)]


def _schema(root: Path) -> Path:
    return root / "biotrail" / "recorder" / "schema" / "records.py"


def joined(root: Path) -> tuple[str, str]:
    trees = {
        name: ast.parse((folder(root) / f"{name}.py").read_text(encoding="utf-8"))
        for name in (NUMBERS, LIVES, TABLES, *PARTS)
    }
    rows = _rows(trees.pop(TABLES))
    numbers = {k: v for tree in trees.values() for k, v in _numbers(tree).items()}
    schema = _numbers(ast.parse(_schema(root).read_text(encoding="utf-8")), OF_THE_SCHEMA)
    numbers |= schema | {"NULL": "cython.NULL", "bint": "cython.bint"}
    places = _places(ast.parse((folder(root) / f"{RULES}.py").read_text(encoding="utf-8")))
    text = [_HEAD]
    for name in PARTS:
        lines = (folder(root) / f"{name}.py").read_text(encoding="utf-8").splitlines()
        for node in trees[name].body:
            if isinstance(node, ast.FunctionDef):
                text.append(_function(node, lines))
            elif isinstance(node, ast.ClassDef):
                first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
                text.append("\n".join(lines[first - 1 : node.end_lineno]))
    return _replaced("\n\n\n".join(text) + "\n", numbers, places), _declarations(
        trees[LIVES]
    ) + rows


def _numbers(tree: ast.Module, only: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the literal of each name, or of these, that a module gives a number."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in only if only else name.isupper():
                value = eval(compile(ast.Expression(node.value), name, "eval"))
                found[name] = str(value)
                if value >= 1 << 31:  # larger literals are Python's objects to Cython
                    kind = "int64" if value < 1 << 63 else "uint64"
                    found[name] = f"cython.cast({kind}, {value})"
    return found


def _places(tree: ast.Module) -> dict[str, str]:
    """Return the places of rules, as literals, by `TABLE/RULE`."""
    tables = next(n.value for n in tree.body if isinstance(n, ast.AnnAssign))
    assert isinstance(tables, ast.Dict)
    names = [
        f"{ast.literal_eval(table or tables)}/{ast.literal_eval(rule.args[0])}"
        for table, found in zip(tables.keys, tables.values, strict=True)
        for rule in ast.walk(found)
        if isinstance(rule, ast.Call)
    ]
    return {name: str(place) for place, name in enumerate(names)}


def _function(node: ast.FunctionDef, lines: list[str]) -> str:
    """Return a function as one of C's."""
    first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    text = "\n".join(lines[first - 1 : node.end_lineno])
    if node.decorator_list:
        return text
    return _C_FUNCTION + text.replace(") -> None:", ") -> cython.void:", 1)


def _replaced(text: str, numbers: dict[str, str], places: dict[str, str]) -> str:
    """Return a source with literals for names and rules, and sizes of structs."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    edits = []
    for at, token in enumerate(tokens):
        if token.type == tokenize.STRING and [t.string for t in tokens[at - 2 : at]] == ["on", "["]:
            edits.append((token.start, token.end, places[ast.literal_eval(token.string)]))
        if token.type != tokenize.NAME or (at and tokens[at - 1].string == "."):
            continue
        assigned = tokens[at + 1].string == "=" and tokens[at - 1].string != ":"
        if token.string in numbers and not assigned:
            edits.append((token.start, token.end, numbers[token.string]))
        elif token.string == "size_of" and tokens[at + 1].string == "(":
            struct = tokens[at + 2].string.lower()
            edits.append((token.start, tokens[at + 3].end, f"cython.sizeof({struct}_s)"))
    for (row, begin), (_, end), new in reversed(edits):
        line = lines[row - 1]
        lines[row - 1] = line[:begin] + new + line[end:]
    return "".join(lines)


def _declarations(tree: ast.Module) -> str:
    """Return the C structs of the classes that are marked so."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    text = [_TYPES]
    text += [f"ctypedef {node.name.lower()}_s* {node.name}\n" for node in classes]
    text.append("ctypedef note_s* At\n")
    text.append("ctypedef Range[2] range_2\nctypedef Tags[2] tags_2\nctypedef Flight[4] flight_4\n")
    fields: dict[str, list[str]] = {}
    for node in classes:
        own = [
            f"    {_type(field.annotation)} {field.target.id}\n"
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        ]
        base = node.bases[0].id if node.bases and isinstance(node.bases[0], ast.Name) else ""
        fields[node.name] = fields.get(base, []) + own
        text.append(f"cdef struct {node.name.lower()}_s:\n{''.join(fields[node.name])}")
    return "\n".join(text)


def _rows(tree: ast.Module) -> str:
    """Return the C structs of rows: `BioRow` is a pointer to one with the fields of BIO_COLUMNS."""
    text = ""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            table, _, rest = node.targets[0].id.partition("_")
            if rest == "COLUMNS":
                columns = eval(compile(ast.Expression(node.value), table, "eval"))
                text += f"\ncdef struct {table.lower()}_row_s:\n"
                text += "".join(f"    {_C_TYPES.get(t, 'uint8')} {n}\n" for n, t in columns.items())
                text += f"ctypedef {table.lower()}_row_s* {table.capitalize()}Row\n"
    return text


def _type(annotation: ast.expr) -> str:
    name = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    return "note_s" if name == "Note" else str(name)
