# SPDX-License-Identifier: Apache-2.0
"""Histories read without some rules, until one is wrong.

Prints the number of that history and what was wrong, or 0. Run by `mutants.py`, which gives the
bug's name: `mutant_child.py NAME FIRST COUNT`. Without a name all rules hold; `TABLE/RULE` is the
bug of lacking that rule.
"""

import sys

from biotrail.converters.match import rules
from tests.prove.histories import outcome
from tests.prove.mutant_list import MUTANTS

WIDTH = 90


def seed(name: str) -> None:
    """Put the bug of this name into this process; nothing for "". KeyError: there is none."""
    if name in rules.RULES:
        rules.OFF.add(name)
    elif name:
        rules.OFF.update({mutant.name: mutant for mutant in MUTANTS}[name].rules)


def main() -> None:
    """Print `number what`, or 0."""
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seed(name)
    for number in range(first, count):
        found = outcome(number)
        if found.wrong:
            text = found.wrong[0].replace("|", "/")
            print(number + 1, text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…")
            return
    print(0)


if __name__ == "__main__":
    main()
