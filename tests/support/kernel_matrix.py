# SPDX-License-Identifier: Apache-2.0
"""What held in which kernel: a table of kernels and tests, printed and kept in a document.

A document's table is merged: the kernels of a whole run replace their own columns, those of a run
of some cases the cells of these, and all else stays.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- generated: kernels -->", "<!-- end -->"
PACKAGE = "kernel package"
AGAIN = "recorded again for events that the kernel skipped"
NOT_RUN = "-"
SKIPPED = "Skipped, and why:"
_REASON = re.compile(r"- (?P<kernel>\S+), (?P<test>.+?): (?P<reason>.*)")


def _version(kernel: str) -> tuple[int, ...]:
    """What kernels are sorted by: x86-64 first, then versions, then sizes of pages."""
    return tuple(int(number) for number in re.findall(r"\d+", kernel))


@dataclass
class Matrix:
    """Cells by (test, kernel): "pass", "FAIL" or "skip"; a reason for each skip."""

    cells: dict[tuple[str, str], str] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, test: str, kernel: str, cell: str, reason: str = "") -> None:
        """Adds a result; a failure is not forgotten for what comes later (a teardown)."""
        if self.cells.get((test, kernel)) == "FAIL":
            return
        self.cells[test, kernel] = cell
        if reason:
            self.reasons[test, kernel] = " ".join(reason.split())

    def kernels(self) -> list[str]:
        return sorted({kernel for _, kernel in self.cells}, key=_version)

    def lines(self) -> list[str]:
        """The table as Markdown, then the reasons of skips.

        Cases of one test with the same results share a row, those with one reason a line.
        """
        kernels = self.kernels()
        rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for name in dict.fromkeys(test for test, _ in self.cells):
            test, _, case = name.partition(", ")
            cells = tuple(self.cells.get((name, kernel), NOT_RUN) for kernel in kernels)
            rows.setdefault((test, cells), []).append(case)
        table = [f"| | {' | '.join(kernels)} |", "|---" * (len(kernels) + 1) + "|"]
        for (test, cells), cases in rows.items():
            of = f": {'; '.join(cases)}" if all(cases) else ""
            table.append(f"| {test}{of} | {' | '.join(cells)} |")
        why: dict[tuple[str, str], list[str]] = {}
        for (test, kernel), reason in self.reasons.items():
            why.setdefault((kernel, reason), []).append(test)
        notes = [
            f"- {kernel}, {'; '.join(tests)}: {reason}" for (kernel, reason), tests in why.items()
        ]
        return [*table, "", SKIPPED, "", *notes] if notes else table

    def of_booted(self) -> "Matrix":
        """The same without kernels that could not be had: of these nothing is known."""
        booted = {kernel for test, kernel in self.cells if test == PACKAGE}
        return Matrix(
            {key: cell for key, cell in self.cells.items() if key[1] in booted},
            {key: why for key, why in self.reasons.items() if key[1] in booted},
        )

    def update(self, newer: "Matrix", whole: bool = True) -> None:
        """Takes the columns of `newer`'s kernels in place of its own; unless `whole`, its cells.

        Then a package that differs is added to the one that is there: the others' cells are of it.
        """
        if not whole:
            newer = self._with_cells_of(newer)
        fresh = set(newer.kernels())
        for mine, theirs in ((self.cells, newer.cells), (self.reasons, newer.reasons)):
            kept = {key: value for key, value in mine.items() if key[1] not in fresh}
            mine.clear()
            mine.update(theirs | kept)

    def _with_cells_of(self, newer: "Matrix") -> "Matrix":
        """Return the columns of `newer`'s kernels, with its cells where it has them."""
        kernels = set(newer.kernels())
        both = Matrix(
            {key: cell for key, cell in self.cells.items() if key[1] in kernels},
            {key: why for key, why in self.reasons.items() if key[1] in kernels},
        )
        for key, cell in newer.cells.items():
            if cell == NOT_RUN or key[0] == AGAIN:  # how often is told of a whole run alone
                continue
            known = both.cells.get(key, "").split(", ") if key[0] == PACKAGE else []
            both.cells[key] = ", ".join(dict.fromkeys([*filter(None, known), cell]))
            both.reasons.pop(key, None)
            if key in newer.reasons:
                both.reasons[key] = newer.reasons[key]
        return both


def read(lines: list[str]) -> Matrix:
    """The matrix that `lines` wrote."""
    found = Matrix()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    for label, *cells in rows[2:]:
        test, _, cases = label.partition(": ")
        for name in [f"{test}, {case}" for case in cases.split("; ")] if cases else [test]:
            for kernel, cell in zip(rows[0][1:], cells, strict=True):
                if cell != NOT_RUN:
                    found.cells[name, kernel] = cell
    for line in lines:
        if match := _REASON.fullmatch(line):
            for test in match["test"].split("; "):
                found.reasons[test, match["kernel"]] = match["reason"]
    return found


def write(path: Path, newer: Matrix, whole: bool = True) -> None:
    """Merges the matrix of a run, `whole` or of some cases, into the document's generated part."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN + "\n")
    inside, _, after = rest.partition(END)
    merged = read(inside.splitlines())
    merged.update(newer, whole)
    body = "\n".join(merged.lines())
    path.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
