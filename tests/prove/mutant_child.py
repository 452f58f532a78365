# SPDX-License-Identifier: Apache-2.0
"""Histories on a copy of the packages, until one is wrong: prints its number and what is said.

Run by `mutants.py`: mutant_child.py DIRECTORY FIRST COUNT
"""

import sys
from pathlib import Path

import biotrail.converters
from tests.prove.histories import outcome

WIDTH = 90


def main() -> None:
    """Print `number what`, or 0."""
    directory, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not Path(biotrail.converters.__file__).is_relative_to(directory):
        sys.exit(f"the copy in {directory} is not what is tested: {biotrail.converters.__file__}")
    for seed in range(first, count):
        found = outcome(seed)
        if found.wrong:
            text = found.wrong[0].replace("|", "/")
            print(seed + 1, text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…")
            return
    print(0)


if __name__ == "__main__":
    main()
