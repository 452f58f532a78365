# SPDX-License-Identifier: Apache-2.0
"""Programs that the proof needs and that cannot be had: the reason is said, and nothing fails."""

from pathlib import Path

import pytest

from tests.prove.claims import Claim, failed, skipped, table
from tests.prove.packages import Missing, programs


def test_what_is_skipped_fails_nothing_and_is_shown() -> None:
    # GIVEN something that holds, and something that could not be tried
    claims = [Claim("programs", "a count", "3", "3", holds=True), skipped("programs", "b", "no b")]
    # WHEN both are put as a table THEN it says so, and the proof has not failed
    assert table(claims).splitlines()[2:] == [
        "| programs | a count | 3 | 3 | yes |",
        "| programs | b | no b |  | skipped |",
    ]
    assert not failed(claims)
    # AND with something that does not hold it has
    assert failed([*claims, Claim("programs", "a count", "2", "3", holds=False)])


def test_installed_programs_are_used_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a program on the path
    (tmp_path / "served").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    # WHEN it is looked for THEN nothing is unpacked
    found = programs(("served",), ("served-package",), tmp_path / "unpacked")
    assert found.path("served") == tmp_path / "served"
    assert not (tmp_path / "unpacked").exists()
    # AND one that the packages should have, but have not, is missed by name
    with pytest.raises(Missing, match="the packages have no other"):
        found.path("other")


def test_without_a_way_to_have_packages_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a machine without apt-get, and an apt-get that cannot have the package
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="needs apt-get and dpkg"):
        programs(("no-such-server",), ("no-such-package",), tmp_path / "unpacked")
    for name, text in (("apt-get", "echo E: no such package >&2; exit 100"), ("dpkg", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    # WHEN the package is asked for THEN apt-get's own words are the reason
    with pytest.raises(Missing, match="no-such-package cannot be had: E: no such package"):
        programs(("no-such-server",), ("no-such-package",), tmp_path / "unpacked")
