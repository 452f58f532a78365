# SPDX-License-Identifier: Apache-2.0
"""Texts held against files, which `--update` rewrites."""

import difflib
from collections.abc import Callable
from pathlib import Path

Expect = Callable[[Path, str], None]


def expecting(update: bool) -> Expect:
    def expect(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        expected = path.read_text()
        changes = difflib.unified_diff(expected.splitlines(), text.splitlines(), lineterm="")
        assert text == expected, "\n".join(changes)

    return expect


def expect_section(page: Path, head: str, wanted: str, *, update: bool) -> None:
    """Assert what stands in a page between the comments `head` and `end`; update: put it there."""
    before, begin, rest = page.read_text().partition(f"<!-- {head} -->\n")
    found, end, after = rest.partition("<!-- end -->")
    assert begin and end, head
    if update:
        page.write_text(f"{before}{begin}{wanted}\n{end}{after}")
    else:
        assert found == f"{wanted}\n"
