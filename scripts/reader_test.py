# SPDX-License-Identifier: Apache-2.0
"""Draw functions at random, for a reader who judges what their docstrings say.

    python scripts/reader_test.py --seed 1             # signatures and docstrings alone
    python scripts/reader_test.py --seed 1 --bodies    # the same functions, whole

Give the first output to somebody who knows the block layer and numpy and has not seen the code:
for each function, what it takes, returns and changes, in a sentence. Hold the answers against the
second output. A docstring is clear when the answer is right and nothing essential is missing.
"""

import argparse
import ast
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("recorder", "converters")
LEAST_LINES = 7
"""Shorter functions are read whole."""


@dataclass(frozen=True)
class Drawn:
    """A function, with the class that it belongs to (empty: none)."""

    place: str
    owner: str
    node: ast.FunctionDef
    source: str

    def head(self) -> str:
        """Return the decorators, signature and docstring as source text."""
        body = self.node.body[0]
        end = body.end_lineno if ast.get_docstring(self.node) else self.node.body[0].lineno - 1
        return self._lines(self._start(), end or 0)

    def whole(self) -> str:
        """Return the function as source text."""
        return self._lines(self._start(), self.node.end_lineno or 0)

    def title(self) -> str:
        """Return `path: Class.function`."""
        name = f"{self.owner}.{self.node.name}" if self.owner else self.node.name
        return f"{self.place}: {name}"

    def _start(self) -> int:
        return min([self.node.lineno, *(one.lineno for one in self.node.decorator_list)])

    def _lines(self, first: int, last: int) -> str:
        return "\n".join(self.source.splitlines()[first - 1 : last])


def functions() -> Iterator[Drawn]:
    """Yield every function and method of LEAST_LINES and more below PLACES, in order of paths."""
    for path in sorted(path for place in PLACES for path in (ROOT / place).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for owner, node in _defined(ast.parse(source)):
            if (node.end_lineno or 0) - node.lineno + 1 >= LEAST_LINES:
                yield Drawn(str(path.relative_to(ROOT)), owner, node, source)


def _defined(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, one) for one in node.body if isinstance(one, ast.FunctionDef))


def main() -> None:
    """Print the functions that the seed draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, required=True, help="another seed: other functions")
    parser.add_argument("--count", type=int, default=30, help="functions (default: 30)")
    parser.add_argument("--bodies", action="store_true", help="print the functions whole")
    arguments = parser.parse_args()
    every = list(functions())
    drawn = random.Random(arguments.seed).sample(every, min(arguments.count, len(every)))
    for number, one in enumerate(drawn, 1):
        text = one.whole() if arguments.bodies else one.head()
        sys.stdout.write(f"## {number}. {one.title()}\n\n{text}\n\n")


if __name__ == "__main__":
    main()
