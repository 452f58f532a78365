# SPDX-License-Identifier: Apache-2.0
"""share/ holds a man page for each command and shell completions, all of them up to date."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from biotrail.cli.main import cli
from tests.support.paths import ROOT

SHARE = ROOT / "share"
PAGES = sorted((SHARE / "man" / "man1").iterdir())
SCRIPT = ROOT / "scripts" / "generate_share.py"


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_what_is_committed_is_up_to_date() -> None:
    # GIVEN the tree  WHEN share/ is held against the command line  THEN nothing is stale
    done = generate("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def names(above: str, group: click.Group, context: click.Context) -> Iterator[str]:
    """Yield the pages' names of all commands of a group, and of those below."""
    for name in group.list_commands(context):
        yield f"{above}-{name}.1"
        if isinstance(command := group.get_command(context, name), click.Group):
            yield from names(f"{above}-{name}", command, click.Context(command))


def test_each_command_has_its_page() -> None:
    # GIVEN the subcommands  THEN there is a page for each, one for them all, and no other
    context = cli.make_context("biotrail", [], resilient_parsing=True)
    expected = {"biotrail.1", *names("biotrail", cli, context)}
    assert {page.name for page in PAGES} == expected


def test_stale_missing_and_surplus_files_are_found_and_mended(tmp_path: Path) -> None:
    # GIVEN a tree where one file was changed, one is missing and one has no command any more
    shutil.copytree(SHARE, tmp_path / "share")
    pages = tmp_path / "share" / "man" / "man1"
    (pages / "biotrail-slow.1").write_text("changed by hand\n")
    (pages / "biotrail-top.1").unlink()
    (pages / "biotrail-gone.1").write_text("")

    # WHEN it is checked  THEN each is listed, and none is written
    checked = generate("--check", "--root", str(tmp_path))
    assert checked.returncode == 1
    names = [f"biotrail-{name}.1" for name in ("gone", "slow", "top")]
    assert checked.stdout.splitlines() == [f"stale: share/man/man1/{name}" for name in names]
    assert "generate_share.py" in checked.stderr
    assert (pages / "biotrail-slow.1").read_text() == "changed by hand\n"

    # AND WHEN it is generated  THEN it is what is committed
    assert generate("--root", str(tmp_path)).returncode == 0
    assert {page.name: page.read_text() for page in pages.iterdir()} == {
        page.name: page.read_text() for page in PAGES
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_formatted_without_warnings(page: Path) -> None:
    # GIVEN a page  WHEN groff formats it with all warnings on  THEN it gives none
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    # AND it has the sections of a man page, and no markup is left over
    lines = done.stdout.splitlines()
    assert {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"} <= set(lines)
    assert not [line for line in lines if re.match(r"\s*\.[A-Z]{2}\b", line) or "\\" in line]


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("bash-completion/completions/biotrail", "_biotrail_completion() {"),
        ("zsh/site-functions/_biotrail", "#compdef biotrail"),
        ("fish/vendor_completions.d/biotrail.fish", "function _biotrail_completion;"),
    ],
)
def test_completions_call_the_command(path: str, first: str) -> None:
    # GIVEN a shell's completion  THEN its first line is the one that the shell looks for
    text = (SHARE / path).read_text()
    assert text.splitlines()[0] == first
    # AND it asks biotrail itself for what may follow
    assert "_BIOTRAIL_COMPLETE=" in text
