# SPDX-License-Identifier: Apache-2.0
"""Lifecycles of every captured sequence, as text. `--update` rewrites what is expected."""

from pathlib import Path

import pytest

from tests.scenarios.tools import describe, tables_of
from tests.support import captures
from tests.support.golden_files import Expect

EXPECTED = Path(__file__).parent / "captures"
FILES = sorted(path.stem for path in captures.DATA.glob("*.txt"))


@pytest.mark.parametrize("name", FILES)
def test_lifecycles_of_a_capture(name: str, expect: Expect) -> None:
    # GIVEN a captured sequence / WHEN its log is read
    found = describe(tables_of(captures.load(name))) + "\n"
    # THEN its bios and requests are those on file
    expect(EXPECTED / f"{name}.txt", found)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a capture
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == FILES
