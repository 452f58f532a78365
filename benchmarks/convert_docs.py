# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md that `convert_cost.py` writes, between two marks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN = "<!-- made by `make bench-convert`; begin -->"
END = "<!-- made by `make bench-convert`; end -->"
_MIB = 1 << 20
Rows = Sequence[Mapping[str, Any]]
Cell = str


def write_docs(page: Path, found: Mapping[str, Any]) -> None:
    """Replace what is between the marks of a page by tables of what `convert_cost.py` found.

    Raises ValueError where the page has not both marks, once each.
    """
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page}: needs the lines {BEGIN} and {END} once")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{section(found)}\n\n{END}{after}", encoding="utf-8")


def section(found: Mapping[str, Any]) -> str:
    """Return the text between the marks: the machine, loads, speed, memory and bytes."""
    rows: Rows = found["rows"]
    sizes = sorted({row["millions"] for row in rows})
    parts = [
        f"Measured {found['date'][:10]} on: {found['machine']}.",
        "\n".join(f"- `{name}`: {means}" for name, means in found["loads"].items()),
    ]
    for millions in sizes:
        some = [row for row in rows if row["millions"] == millions]
        number = ", ".join(str(n) for n in sorted({row["rounds"] for row in some}))
        parts.append(
            f"Logs of {millions} million events: millions of events per second of CPU time, "
            f"medians (rounds: {number}); in brackets the ratio to btt."
        )
        parts.append(_table(some, _speed))
    parts.append("Peak memory in MiB.")
    parts.append(_table(rows, _memory, sized=True))
    parts.append("Bytes written per event.")
    parts.append(_table([row for row in rows if row["millions"] == sizes[0]], _bytes))
    return "\n\n".join(parts)


def _speed(row: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Cell:
    """Return `2.35 (1.20)`: the rate, and its ratio to btt's, if that ran and is another's."""
    text = f"{row['rate']:.2f}"
    if "btt" in others and row["tool"] != "btt":
        text += f" ({row['rate'] / others['btt']['rate']:.2f})"
    return text


def _memory(row: Mapping[str, Any], _: object) -> Cell:
    return f"{row['max_rss'] / _MIB:.0f}"


def _bytes(row: Mapping[str, Any], _: object) -> Cell:
    return f"{row['size'] / row['events']:.1f}"


def _table(rows: Rows, cell: Any, *, sized: bool = False) -> str:
    """Return a table with a line per load (and size) and a column per tool; `-`: not measured."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    lines: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["load"], row["millions"]), {})[row["tool"]] = row
    head = ["load", *(["M events"] if sized else []), *tools]
    text = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (load, millions), by_tool in lines.items():
        cells = [cell(by_tool[t], by_tool) if t in by_tool else "-" for t in tools]
        text.append("| " + " | ".join([load, *([str(millions)] if sized else []), *cells]) + " |")
    return "\n".join(text)
