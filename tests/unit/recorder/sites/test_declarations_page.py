# SPDX-License-Identifier: Apache-2.0
"""docs/declarations.md lists every ready-made pair and type, as declarations.toml has them."""

import pytest

from biotrail.recorder.sites.declarations import READY_MADE, ObjectType, Pair, read
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "declarations.md").read_text()
READY = read(READY_MADE)


def pair_row(pair: Pair) -> str:
    """The row of a pair: its first variant's events, key, and the label of `by`."""
    variant = pair.variants[0]
    names = [*dict.fromkeys(event.event for event in variant.begins)]
    begins = ", ".join(f"`{name}`" for name in names)
    key = ", ".join(f"`{text}`" for text in variant.key).replace("|", "\\|")
    by = variant.by[0].partition("=")[0] if variant.by else ""
    return f"| `{pair.name}` | {pair.about} | {begins} | `{variant.end.event}` | {key} | {by} |"


def type_row(declared: ObjectType) -> str:
    detail = f"`{declared.detail[0]}`" if declared.detail else ""
    return f"| `{declared.name}` | {declared.about} | {detail} |"


@pytest.mark.parametrize("name", READY.pairs)
def test_each_pair_has_its_row(name: str) -> None:
    # GIVEN a ready-made pair  THEN the page has its row
    assert pair_row(READY.pairs[name]) in PAGE.splitlines()


@pytest.mark.parametrize("name", READY.types)
def test_each_type_has_its_row(name: str) -> None:
    assert type_row(READY.types[name]) in PAGE.splitlines()
