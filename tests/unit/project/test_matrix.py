# SPDX-License-Identifier: Apache-2.0
"""Results of virtual machines and of the proof, as tables."""

from pathlib import Path

import pytest

from tests.prove.claims import Claim, failed, skipped, table
from tests.prove.packages import Missing, programs
from tests.support.kernel_matrix import AGAIN, BEGIN, END, NOT_RUN, PACKAGE, Matrix, read, write

# The table of kernels and tests: read back, merged into a document.


def of(kernel: str, **cells: str) -> Matrix:
    found = Matrix()
    found.note(PACKAGE, kernel, f"{kernel}.0-1-amd64")
    for test, cell in cells.items():
        found.note(test, kernel, cell, "no module brd: not found" if cell == "skip" else "")
    return found


def test_a_table_reads_back() -> None:
    # GIVEN a matrix with a failure and a skip
    one = of("5.10", counts="FAIL", brd="skip", nvme="pass")
    # WHEN its lines are read  THEN it is the same
    assert read(one.lines()) == one
    # GIVEN a test that failed  WHEN its teardown passes  THEN it has failed
    one = of("6.1", nvme="FAIL")
    one.note("nvme", "6.1", "pass")
    assert one.cells["nvme", "6.1"] == "FAIL"
    # GIVEN a kernel whose package could not be had: its tests skip, and it has no version
    found = of("6.1", nvme="pass")
    found.note("nvme", "7.2", "skip", "no package")
    # WHEN asked for what is known  THEN it is not there
    assert found.of_booted().kernels() == ["6.1"]


def test_cases_with_the_same_results_share_a_row() -> None:
    # GIVEN cases of one test, of which two are alike
    one = of("6.1")
    for case in ("ahci", "brd", "trace, plain"):
        one.note(f"counts, {case}", "6.1", "skip" if case == "brd" else "pass", "")
        one.note(f"bytes, {case}", "6.1", "skip", "no module")
    # WHEN they are put as lines  THEN these share a row, and reasons a line
    lines = one.lines()
    assert "| counts: ahci; trace, plain | pass |" in lines
    assert "- 6.1, bytes, ahci; bytes, brd; bytes, trace, plain: no module" in lines
    # AND it reads back
    assert read(lines) == one


def test_kernels_stand_by_their_version() -> None:
    # GIVEN 6.12, 5.10 and 6.1  WHEN merged  THEN they stand in the order of versions
    merged = of("6.12", nvme="pass")
    merged.update(of("5.10", nvme="pass"))
    merged.update(of("6.1", nvme="pass"))
    assert merged.kernels() == ["5.10", "6.1", "6.12"]
    # AND those of arm64 behind them, with other sizes of pages last
    for kernel in ("arm64-6.12-16k", "arm64-6.12", "arm64-5.10"):
        merged.update(of(kernel, nvme="pass"))
    assert merged.kernels()[3:] == ["arm64-5.10", "arm64-6.12", "arm64-6.12-16k"]


def test_a_document_keeps_the_columns_of_other_kernels(tmp_path: Path) -> None:
    # GIVEN a document with 5.10's and 6.1's results
    page = tmp_path / "kernels.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n", encoding="utf-8")
    first = of("5.10", nvme="pass", brd="skip")
    first.update(of("6.1", nvme="FAIL", gone="pass"))
    write(page, first)
    # WHEN 6.1 is run again
    write(page, of("6.1", nvme="pass", new="pass"))
    # THEN its column is the new one, 5.10's is as it was, and so is the rest of the document
    text = page.read_text(encoding="utf-8")
    found = read(text.splitlines())
    assert found.cells["nvme", "5.10"] == found.cells["nvme", "6.1"] == "pass"
    assert found.cells["new", "6.1"] == "pass"
    assert ("gone", "6.1") not in found.cells
    assert found.reasons == {("brd", "5.10"): "no module brd: not found"}
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_a_run_of_some_cases_replaces_their_cells_alone(tmp_path: Path) -> None:
    # GIVEN a document with 6.1's whole run
    page = tmp_path / "kernels.md"
    page.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    first = of("6.1", nvme="pass", brd="skip", zram="FAIL")
    first.note(AGAIN, "6.1", "7")
    write(page, first)
    # WHEN some cases are run, of which one is new, one passes now, and one is not chosen
    second = of("6.1", zram="pass", pairs="skip", brd=NOT_RUN)
    second.note(AGAIN, "6.1", "0")
    write(page, second, whole=False)
    # THEN these have the new results, all others their own
    found = read(page.read_text(encoding="utf-8").splitlines())
    cells = {test: cell for (test, _), cell in found.cells.items() if test != PACKAGE}
    expected = {"nvme": "pass", "brd": "skip", "zram": "pass", "pairs": "skip", AGAIN: "7"}
    assert cells == expected
    assert {test for test, _ in found.reasons} == {"brd", "pairs"}
    assert found.cells[PACKAGE, "6.1"] == "6.1.0-1-amd64"
    # AND a later one without a skip has no reason left; another package is named beside the first
    third = Matrix({(PACKAGE, "6.1"): "6.1.0-2-amd64", ("pairs", "6.1"): "pass"})
    for _ in range(2):
        write(page, third, whole=False)
    found = read(page.read_text(encoding="utf-8").splitlines())
    assert {test for test, _ in found.reasons} == {"brd"}
    assert found.cells[PACKAGE, "6.1"] == "6.1.0-1-amd64, 6.1.0-2-amd64"
    # AND a whole run leaves nothing of all that
    write(page, of("6.1", nvme="pass"))
    assert read(page.read_text(encoding="utf-8").splitlines()) == of("6.1", nvme="pass")


# Programs that the proof needs and that cannot be had: the reason is said, and nothing fails.


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
