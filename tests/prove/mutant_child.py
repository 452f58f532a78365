# SPDX-License-Identifier: Apache-2.0
"""Histories with one bug in the model of this process, until one is wrong.

Prints the number of that history and what was wrong, or 0. Run by `mutants.py`, which gives the
bug's name: `mutant_child.py NAME FIRST COUNT`. Without a name, the model is right; `TABLE/RULE`
drops that rule.
"""

import sys

from biotrail.converters import pipeline
from tests.prove.histories import outcome
from tests.prove.mutant_list import MUTANTS
from tests.prove.seeding import TABLES, RuleBroken

WIDTH = 90


def seed(name: str) -> None:
    """Put the bug of this name into this process; nothing for "". KeyError: there is none."""
    if "/" in name and name.partition("/")[0] in TABLES:
        rules, _, rule = name.partition("/")
        RuleBroken(rules, (rule,)).apply()
    elif name:
        {mutant.name: mutant for mutant in MUTANTS}[name].broken.apply()


def main() -> None:
    """Print `number what`, or 0."""
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seed(name)
    pipeline.BY_MACHINE = False
    for number in range(first, count):
        found = outcome(number)
        if found.wrong:
            text = found.wrong[0].replace("|", "/")
            print(number + 1, text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…")
            return
    print(0)


if __name__ == "__main__":
    main()
