# SPDX-License-Identifier: Apache-2.0
"""What blkparse counted, by the summary at the end of its text, against what was read of it."""

import re
from collections import Counter

import numpy as np

from biotrail.converters.inputs.blkparse.lines import Lines
from biotrail.converters.inputs.blktrace.format import CATEGORY_SHIFT, Act, Category

_SECTION = re.compile(rb"(CPU\d+|Total) \(.+\):")
_COUNT = re.compile(rb"(PC )?(?:Reads?|Writes?) ([A-Z][a-z]+): +([\d,.]+)([KMGP]?)")
_ENTRIES = re.compile(rb"Events \(.+\): ([\d,.]+)([KMGP]?) entries")
_SKIPS = re.compile(rb"Skips: ([\d,.]+)([KMGP]?) forward \(([\d,.]+)([KMGP]?) - .*")
_OTHER = re.compile(
    rb"(?:Throughput \(R/W\): |Input file .* added$|PC |Read depth|IO unplugs: |Allocation wait: "
    rb"|Dispatch wait: |Completion wait: )"
)
_DRIVER = np.uint64(int(Category.PC) << CATEGORY_SHIFT)
_COUNTED: dict[str, tuple[Act, ...]] = {
    "Queued": (Act.QUEUE,),
    "Dispatches": (Act.ISSUE,),
    "Requeued": (Act.REQUEUE,),
    "Completed": (Act.COMPLETE,),
    "Merges": (Act.BACKMERGE, Act.FRONTMERGE),
}
_NAMES = {
    "Queued": "queued bios",
    "Dispatches": "issues",
    "Requeued": "requeues",
    "Completed": "completions",
    "Merges": "merges",
    "entries": "events",
}


class Summary:
    """The counts of the summary, added up over devices and CPUs, and those of the text."""

    def __init__(self, name: str) -> None:
        """name: of the text, for messages."""
        self._name = name
        self._said: Counter[str] = Counter()
        self._inexact: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._of_cpu = False
        self.skipped = 0
        """Records that blkparse missed, by their numbers."""

    def take(self, text: bytes) -> bool:
        """Take in a line; return whether it is of the summary, or what blkparse says beside it."""
        text = text.strip()
        if section := _SECTION.fullmatch(text):
            self._of_cpu = section[1] != b"Total"
            return True
        if entries := _ENTRIES.fullmatch(text):
            self._add("entries", entries[1], entries[2])
            return True
        if skips := _SKIPS.fullmatch(text):
            self.skipped += _value(skips[3], skips[4])[0]
            return True
        counts = list(_COUNT.finditer(text))
        for of_driver, what, digits, unit in (match.groups() for match in counts):
            if self._of_cpu and not of_driver and what.decode() in _COUNTED:
                self._add(what.decode(), digits, unit)
        return bool(counts) or _OTHER.match(text) is not None

    def count(self, lines: Lines) -> None:
        """Count the records of a block of text as blkparse does."""
        act = lines.act
        self._found["entries"] += int(np.count_nonzero(act >= 0))
        plain = act[(lines.column("action") & _DRIVER) == 0]
        numbers = np.bincount(plain[plain >= 0], minlength=len(Act) + 1)
        for what, acts in _COUNTED.items():
            self._found[what] += int(sum(numbers[a] for a in acts))

    def problems(self) -> list[str]:
        """Return what does not add up; nothing where the text has no summary."""
        found = []
        for what, said in self._said.items():
            # A requeued request is issued again; releases differ in whether it counts twice.
            slack = self._inexact[what]
            slack += self._found["Requeued"] if what == "Dispatches" else 0
            if abs(said - self._found[what]) > slack:
                about = "about " if self._inexact[what] else ""
                found.append(f"{about}{said} {_NAMES[what]}, of which {self._found[what]} are here")
        if not found:
            return []
        return [
            f"{self._name}: its summary does not add up: it counts {'; '.join(found)}: lines were "
            "left out or are there twice, or it is another text's"
        ]

    def _add(self, what: str, digits: bytes, unit: bytes) -> None:
        value, inexact = _value(digits, unit)
        self._said[what] += value
        self._inexact[what] += inexact


def _value(digits: bytes, unit: bytes) -> tuple[int, int]:
    """Return (a printed count, by how much it may be less than what was counted).

    blkparse cuts off: 1,234,567 is printed as 1,234K. The locale's separators are left out.
    """
    step = 1000 ** (b" KMGP".index(unit) if unit else 0)
    return int(re.sub(rb"\D", b"", digits) or b"0") * step, step - 1
