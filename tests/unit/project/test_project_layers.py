# SPDX-License-Identifier: Apache-2.0
"""What import-linter's contracts cannot say: outputs by their names' first word.

A converter's modules share that word (`perfetto`, `perfetto_lanes`); a new one needs no entry
anywhere to be held to the rule.
"""

from collections.abc import Iterator

import grimp
import pytest

SAME_OUTPUT = {"blkparse": "blktrace"}
"""blktrace's files, as bytes and as blkparse prints them."""


@pytest.fixture(scope="module")
def imports() -> list[tuple[str, str]]:
    """Each direct import between the modules in converters/: (importer, imported)."""
    graph = grimp.build_graph("converters", exclude_type_checking_imports=True)
    return list(pairs(graph))


def pairs(graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            yield importer, imported


def output(module: str) -> str | None:
    """The output that a module serves; None for the model, which serves all."""
    name = module.removeprefix("converters.").split(".")[0]
    if name in ("converters", "model"):
        return None
    word = name.split("_")[0]
    return SAME_OUTPUT.get(word, word)


def test_an_output_knows_no_other(imports: list[tuple[str, str]]) -> None:
    # GIVEN the imports of all modules that serve an output
    ours = [(a, b) for a, b in imports if output(a) and output(b)]
    # THEN each stays within its own output
    assert ours
    assert [(a, b) for a, b in ours if output(a) != output(b)] == []


def test_the_model_knows_no_output(imports: list[tuple[str, str]]) -> None:
    # GIVEN the imports of the model's modules  THEN none leads to an output
    ours = [(a, b) for a, b in imports if a.startswith("converters.model")]
    assert ours
    assert [(a, b) for a, b in ours if output(b)] == []
