# SPDX-License-Identifier: Apache-2.0
"""Writes `bpf/records.h` and the tables of `docs/log-format.md` from the schema.

`python -m recorder.generate` writes both; `--check` writes nothing and exits 1 where
one of them differs from what the schema says.
"""

import argparse
import difflib
import sys
from pathlib import Path

from biotrail.recorder.schema import records
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.records import RECORDS, Field, Record

ROOT = Path(__file__).resolve().parents[2]
HEADER = Path("bpf/records.h")
DOCUMENT = Path("docs/log-format.md")
BEGIN_MARK = "<!-- generated: records -->"
END_MARK = "<!-- end generated -->"

_C_TYPES = {"u8": "__u8", "u16": "__u16", "u32": "__u32", "u64": "__u64", "i32": "__s32"}

_HEADER_START = """\
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Written by recorder/schema/generate.py from recorder/schema/records.py: change the schema, not this file. */
#ifndef BIOTRAIL_RECORDS_H
#define BIOTRAIL_RECORDS_H
"""


def struct_name(record: Record) -> str:
    """C name of a record's struct; the prefix keeps clear of the kernel's own types."""
    return f"bt_{record.kind.name.lower()}"


def _offset(record: Record, field: Field) -> int:
    fields = record.dtype.fields
    if fields is None:
        raise TraceError(f"record {record.name} of recorder/schema/records.py has no fields")
    return int(fields[field.name][1])


def _member(field: Field) -> str:
    if field.type.startswith("char"):
        return f"char {field.name}[{field.type[4:]}]"
    array = f"[{field.count}]" if field.count > 1 else ""
    return f"{_C_TYPES[field.type]} {field.name}{array}"


def _struct(record: Record) -> list[str]:
    name = struct_name(record)
    title = f"{record.letter} {record.tracepoint}".rstrip()
    lines = ["", f"/* {title}: {record.meaning} */", f"struct {name} {{"]
    lines += [f"\t{_member(field)};" for field in record.fields]
    lines += ["};", f'_Static_assert(sizeof(struct {name}) == {record.size}, "size of {name}");']
    lines += [
        f"_Static_assert(__builtin_offsetof(struct {name}, {field.name}) == "
        f'{_offset(record, field)}, "{name}.{field.name}");'
        for field in record.fields
    ]
    return lines


def header_text() -> str:
    """The whole of `bpf/records.h`."""
    lines = [
        _HEADER_START.rstrip("\n"),
        "",
        f"#define BT_TIMESTAMP_BITS {records.TIMESTAMP_BITS}",
        f"#define BT_TIMESTAMP_MASK ((1ULL << {records.TIMESTAMP_BITS}) - 1)",
        f"#define BT_BLOCK_BYTES {records.BLOCK_BYTES}",
        f"#define BT_NO_TAG {records.NO_TAG:#x}",
        f"#define BT_CHAIN_SLOTS {records.CHAIN_SLOTS}",
        f"#define BT_CHAIN_COUNT {records.CHAIN_COUNT:#x}ULL",
        f"#define BT_Q_FLAG_OWN {records.Q_FLAG_OWN}",
        f"#define BT_D_FLAG_CHAIN_CUT {records.D_FLAG_CHAIN_CUT}",
        f"#define BT_FILE_NAME_LAST {records.FILE_NAME_LAST}",
        f"#define BT_FILE_NAME_CUT {records.FILE_NAME_CUT}",
        f"#define BT_FILE_NAME_DELETED {records.FILE_NAME_DELETED}",
        f"#define BT_MAX_RECORD_BYTES {records.MAX_RECORD_BYTES}",
        "",
        "enum bt_kind {",
    ]
    lines += [f"\tBT_{record.kind.name} = {int(record.kind)}," for record in RECORDS]
    lines.append("};")
    for record in RECORDS:
        lines += _struct(record)
    return "\n".join([*lines, "", "#endif", ""])


def _table(record: Record) -> list[str]:
    title = f"### {int(record.kind)} `{record.letter}` {record.name}, {record.size} bytes"
    source = f" From `{record.tracepoint}`." if record.tracepoint else ""
    lines = [title, "", record.meaning + source, ""]
    lines += ["| offset | field | type | unit | meaning |", "|---|---|---|---|---|"]
    for field in record.fields:
        kind = f"{field.type}[{field.count}]" if field.count > 1 else field.type
        meaning = field.meaning.replace("|", "\\|")  # a bare bar would end the cell
        cells = (str(_offset(record, field)), f"`{field.name}`", kind, field.unit, meaning)
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def tables_text() -> str:
    """The field tables: what stands between the marks of `docs/log-format.md`."""
    lines = [BEGIN_MARK, ""]
    for record in RECORDS:
        lines += _table(record)
    return "\n".join([*lines, END_MARK])


def document_text(current: str) -> str:
    """`current` (the whole document) with the text between the marks renewed.

    Raises TraceError where the marks are missing.
    """
    if not current:
        current = f"# The log's format\n\n{BEGIN_MARK}\n{END_MARK}\n"
    before, begin, rest = current.partition(BEGIN_MARK)
    _, end, after = rest.partition(END_MARK)
    if not begin or not end:
        raise TraceError(f"{DOCUMENT} lacks the lines {BEGIN_MARK} and {END_MARK}: put them back")
    return before + tables_text() + after


def outputs(root: Path) -> dict[Path, tuple[str, str]]:
    """Path below `root` → (text now, text that the schema asks for)."""
    found = {
        path: (root / path).read_text() if (root / path).exists() else ""
        for path in (HEADER, DOCUMENT)
    }
    wanted = {HEADER: header_text(), DOCUMENT: document_text(found[DOCUMENT])}
    return {path: (found[path], wanted[path]) for path in found}


def check(root: Path) -> str:
    """A unified diff of what is stale below `root`; empty where nothing is."""
    return "".join(
        "".join(
            difflib.unified_diff(
                now.splitlines(keepends=True),
                wanted.splitlines(keepends=True),
                f"{path} (found)",
                f"{path} (from the schema)",
            )
        )
        for path, (now, wanted) in outputs(root).items()
        if now != wanted
    )


def write(root: Path) -> list[Path]:
    """Writes what is stale below `root`; returns the paths written."""
    stale = [path for path, (now, wanted) in outputs(root).items() if now != wanted]
    for path, (_, wanted) in outputs(root).items():
        if path in stale:
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(wanted)
    return stale


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m recorder.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the source tree")
    options = parser.parse_args(arguments)
    try:
        difference = check(options.root) if options.check else ""
        written = [] if options.check else write(options.root)
    except TraceError as error:
        print(error, file=sys.stderr)
        return 1
    for path in written:
        print(f"wrote {path}")
    if difference:
        print(difference, end="")
        print("stale: run python -m recorder.generate and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
