# SPDX-License-Identifier: Apache-2.0
"""What pages say exists: commands with their options and values, files, and where links lead."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from biotrail.cli.main import cli
from tests.support.paths import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_COMMAND = re.compile(r"^(?:\$ )?(?:ssh host )?(?:sudo )?(?:\S*/)?biotrail (?P<words>[a-z].*)$")
_NOT_ITS_OWN = re.compile(r"\s{2,}\S.*$|\s+[|>&].*$|\s+#.*$")
"""What stands behind a command on its line: words about it, pipes, comments."""
_FROM_THE_SHELL = re.compile(r"\$\([^)]*\)")

_LINK = re.compile(r"\]\((?P<file>[^)#:\s]*)(?:#(?P<place>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(
    r"(?<![\w./~-])(?:benchmarks|bpf|converters|docs|recorder|scripts|share|tests"
    r"|biotrail/(?:cli|text|bpf|recorder|converters))/[\w./*-]*"
)
_MODULES_OF = re.compile(r"^\| module of `(?P<folder>[\w/]+)` \|")
"""The head of a table whose first column has modules, by their names below a folder."""


def places(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    heads = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def files(text: str) -> Iterator[str]:
    """Paths of the tree that a page names in code, and modules in the first column of a table."""
    for code in _CODE.findall(text):
        for path in _PATH.findall(code):
            yield path.rstrip("./")
    folder = ""
    for line in text.splitlines():
        head = _MODULES_OF.match(line)
        folder = head["folder"] if head else folder * line.startswith("|")
        if folder and not head:
            for name in _CODE.findall(line.split("|")[1]):
                yield f"{folder.rstrip('/')}/{name.rstrip('/')}"


def blocks(text: str) -> Iterator[str]:
    """Lines of code: those between fences, and those that are indented."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands(page: Path) -> list[str]:
    found = []
    for line in blocks(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        told = _COMMAND.match(line)
        if told:
            words = _FROM_THE_SHELL.sub("1", told["words"])
            found.append(_NOT_ITS_OWN.sub("", words))
    return found


def check(words: list[str]) -> None:
    """click.UsageError for an option, a value or a command that biotrail does not have."""
    name, *arguments = words
    root = click.Context(cli)
    command = cli.get_command(root, name)
    if command is None:
        raise click.UsageError(f"no command {name}")
    context = click.Context(command, info_name=name, parent=root)
    values, _, _ = command.make_parser(context).parse_args(arguments)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in values:
            value = values[parameter.name]
            if type(value).__name__ == "Sentinel":  # an option whose value may be left out
                value = parameter.flag_value
            parameter.type_cast_value(context, value)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_is_there(page: Path) -> None:
    # GIVEN a page / WHEN its commands are taken apart / THEN biotrail knows each of them
    for told in commands(page):
        try:
            check(shlex.split(told))
        except click.UsageError as error:
            pytest.fail(f"{page.name}: biotrail {told}: {error.format_message()}")


def test_what_is_not_there_is_found() -> None:
    # GIVEN wrong commands / THEN each is told
    for wrong in ("reports a", "report --bye process a", "slow --over long a", "slow --op reed a"):
        with pytest.raises(click.UsageError):
            check(wrong.split())


def test_commands_are_found() -> None:
    # GIVEN the pages that teach the commands / THEN their commands are among what is checked
    found = {page.stem: commands(page) for page in PAGES}
    assert len(found["README"]) >= 5
    assert len(found["commands"]) > 20
    assert found["hist"] == [
        "hist --stage I2D --linear 1ms --in ms --op read -d loop1 flood.biotrail"
    ]
    assert "report --by process disk.biotrail" in found["report"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    # GIVEN a page / WHEN its links to files and headings are followed / THEN these are there
    for link in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent / link["file"] if link["file"] else page
        assert target.exists(), link[0]
        assert link["place"] is None or link["place"] in places(target), link[0]


@pytest.mark.parametrize("page", PAGES[3:], ids=lambda page: page.name)
def test_a_page_says_for_whom_it_is(page: Path) -> None:
    # GIVEN a page / WHEN its first paragraph is read / THEN it names the readers
    text = page.read_text(encoding="utf-8")
    assert re.match(r"(<!--[^\n]+\n)?# [^\n]+\n\nFor ", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_are_there(page: Path) -> None:
    # GIVEN a page / WHEN files and modules that it names are looked for / THEN each is there
    for path in files(page.read_text(encoding="utf-8")):
        assert any(ROOT.glob(path)) or any(ROOT.glob(f"{path}.py")), path


def test_files_are_found() -> None:
    # GIVEN names of files as pages have them / THEN these are what is looked for
    table = "| module of `converters/` | holds |\n|---|---|\n| `match/rules` | `no` |"
    found = ["tests/unit", "converters", "converters/match/rules"]
    assert list(files(f"`tests/unit/`\n\n{table}")) == found
