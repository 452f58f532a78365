# SPDX-License-Identifier: Apache-2.0
"""docs/path.md: its tables of reasons and rules are the code's."""

import re

import pytest

from biotrail.converters.calls.reason_rules import REASONS, RULES, WAIT_REASON_NAMES
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "path.md"


def functions(names: str) -> str:
    return " ".join(f"`{name}`" for name in names.split())


def reasons() -> str:
    rows = [f"| {text.name} | {text.meaning} |" for text in REASONS.values()]
    return "\n".join(["| waited for | |", "|---|---|", *rows])


def rules() -> str:
    rows = [
        f"| {WAIT_REASON_NAMES[rule.reason]} | {functions(rule.functions)} "
        f"| {functions(rule.callers)} | {rule.kernels} |"
        for rule in RULES
    ]
    head = "| waited for | a function | called by | kernels |"
    return "\n".join([head, "|---|---|---|---|", *rows])


@pytest.mark.parametrize(("name", "make"), [("reasons", reasons), ("rules", rules)])
def test_the_page_has_the_code(name: str, make: object, request: pytest.FixtureRequest) -> None:
    # GIVEN the code's table  WHEN it is put as text (--update puts it into the page)
    assert callable(make)
    wanted = f"<!-- {name} -->\n{make()}\n<!-- end -->"
    if request.config.getoption("--update"):
        text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end -->", lambda _: wanted, PAGE.read_text(), flags=re.S
        )
        PAGE.write_text(text)
    # THEN the page has it
    assert wanted in PAGE.read_text()
