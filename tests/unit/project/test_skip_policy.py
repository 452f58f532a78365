# SPDX-License-Identifier: Apache-2.0
"""A skip that the list does not name fails a strict run, and is named."""

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.skip_policy import Skip, forbidden, read_permissions

pytest_plugins = ["pytester"]
TESTS = ROOT / "tests"
SKIPPING = """
import pytest

def test_skips():
    pytest.skip("no disk: none here")

def test_passes():
    pass
"""
ENTRY = '[[skip]]\ntest = "test_it.py::*"\nreason = "no disk: *"\nwhy = "a reason"\n'


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the conftest imports what tests share

    def in_fresh_tree(may_skip: str, body: str, *arguments: str) -> pytest.RunResult:
        (pytester.path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
        (pytester.path / "may-skip.toml").write_text(may_skip)
        (pytester.path / "test_it.py").write_text(body)
        return pytester.runpytest_subprocess(*arguments)

    return in_fresh_tree


def test_listed_skip_passes(run) -> None:
    # GIVEN a list that permits the skip  WHEN the run is strict
    result = run(ENTRY, SKIPPING, "--strict-skips")
    # THEN it passes, and the skip is still shown
    assert result.ret == 0
    result.stdout.fnmatch_lines(["may skip*test_it.py::test_skips: no disk: none here"])


@pytest.mark.parametrize(
    "body",
    [SKIPPING, "import pytest\npytest.skip('no module', allow_module_level=True)\n"],
    ids=["one test", "whole module"],
)
def test_unlisted_skip_fails_a_strict_run(run, body: str) -> None:
    # GIVEN an empty list  WHEN the run is strict
    result = run("", body, "--strict-skips")
    # THEN it fails and names the test
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["NOT LISTED*test_it.py*: no *", "FAILED: 1 skipped that*"])


def test_unlisted_skip_passes_by_hand(run, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an empty list and a developer's shell, where CI is not set
    monkeypatch.delenv("CI", raising=False)
    # WHEN the tests run  THEN they pass, and the skip is shown
    result = run("", SKIPPING)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["NOT LISTED*test_it.py::test_skips*"])


def test_permissions_are_for_one_reason_and_say_why(tmp_path: Path) -> None:
    # GIVEN a permission for one reason
    (tmp_path / "list.toml").write_text(ENTRY)
    permissions = read_permissions(tmp_path / "list.toml")
    # WHEN the same test skips for another  THEN it is forbidden
    skips = [Skip("test_it.py::test_a", "no disk: x"), Skip("test_it.py::test_a", "no root")]
    assert forbidden(skips, permissions) == [skips[1]]
    # GIVEN an entry that does not say why  WHEN it is read  THEN it is an error
    (tmp_path / "list.toml").write_text('[[skip]]\ntest = "*"\nreason = "*"\nwhy = ""\n')
    with pytest.raises(ValueError, match="needs test, reason and why"):
        read_permissions(tmp_path / "list.toml")
