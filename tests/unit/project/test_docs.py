# SPDX-License-Identifier: Apache-2.0
"""What is kept beside the code: links, pages of commands, completions, licences."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click
import pytest

from biotrail.cli.main import cli
from tests.support.paths import ROOT

# What documents say exists: commands with their options and values, files, and where links lead.

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
_NAMES_IN_FILES = (
    re.compile(r"`(?P<file>[\w./-]+\.(?:py|h))` \(`(?P<name>\w+)`"),
    re.compile(r"`(?P<name>\w+)` (?:of|in) `(?P<file>[\w.-]+/[\w./-]+\.(?:py|h))`"),
)
"""A file, and in parentheses a name that stands in it; a name, and the file that it stands in."""
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


def test_commands_are_found_and_wrong_ones_told() -> None:
    # GIVEN the pages that teach the commands / THEN their commands are among what is checked
    found = {page.stem: commands(page) for page in PAGES}
    assert len(found["README"]) >= 5
    assert len(found["commands"]) > 20
    assert found["hist"] == [
        "hist --stage I2D --linear 1ms --in ms --op read -d loop1 flood.biotrail"
    ]
    assert "report --by process disk.biotrail" in found["report"]
    # GIVEN wrong commands / THEN each is told
    for wrong in ("reports a", "report --bye process a", "slow --over long a", "slow --op reed a"):
        with pytest.raises(click.UsageError):
            check(wrong.split())
    # GIVEN names of files as pages have them / THEN these are what is looked for
    table = "| module of `converters/` | holds |\n|---|---|\n| `match/rules` | `no` |"
    found = ["tests/unit", "converters", "converters/match/rules"]
    assert list(files(f"`tests/unit/`\n\n{table}")) == found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_second_line_of_each_table_is_a_separator(page: Path) -> None:
    # GIVEN a page without its code / WHEN the first two lines of its tables are read
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    for head, second in re.findall(r"(?m)(?<!\|\n)^ {0,3}(\|.*)\n(.*)$", text):
        # THEN below the head is a separator with as many columns: else it is no table
        assert re.fullmatch(r" {0,3}\|(-+\|)+", second), head
        assert second.count("|") == len(re.findall(r"(?<!\\)\|", head)), head


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    # GIVEN a page / WHEN its links to files and headings are followed / THEN these are there
    for link in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent / link["file"] if link["file"] else page
        assert target.exists(), link[0]
        assert link["place"] is None or link["place"] in places(target), link[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_are_in_the_files_that_a_page_gives_for_them(page: Path) -> None:
    # GIVEN a page WHEN it gives a file and a name in it THEN the file has it
    text = " ".join(page.read_text(encoding="utf-8").split())
    for given in chain.from_iterable(one.finditer(text) for one in _NAMES_IN_FILES):
        assert re.search(rf"\b{given['name']}\b", (ROOT / given["file"]).read_text()), given[0]


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


# docs/architecture.md lists what is depended on, with the versions that pyproject.toml asks for.


def test_dependencies_are_listed_with_their_floors() -> None:
    # GIVEN what runs of a command may need  WHEN its row in the table is read
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [
        project["optional-dependencies"][name] for name in ("otf2", "fleet", "metrics", "view")
    ]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [
        line.split("|") for line in page.partition("## Libraries")[2].splitlines() if "|" in line
    ]
    # THEN it has the floor
    for wanted in chain(project["dependencies"], *extras):
        name, floor = re.match(r"([\w-]+)>=([\w.]+)", wanted).groups()  # type: ignore[union-attr]
        row = next((row for row in rows if name in re.findall(r"[\w-]+", row[1])), None)
        assert row and floor in re.findall(r"[\d.]+\d|\d+", row[2]), wanted


# share/ holds a man page for each command and shell completions, all of them up to date.

SHARE = ROOT / "share"
MAN_PAGES = sorted((SHARE / "man" / "man1").iterdir())
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
    assert {page.name for page in MAN_PAGES} == expected


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
        page.name: page.read_text() for page in MAN_PAGES
    }


@pytest.mark.parametrize("page", MAN_PAGES, ids=lambda page: page.name)
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


# Every source file says in its first lines under which licence it is.

SOURCES = {".py", ".c", ".h", ".toml", ".yaml", ".yml", ".sh", ".sql", ".js"}
KERNEL_SIDE = "GPL-2.0-only OR BSD-2-Clause"
USER_SIDE = "Apache-2.0"
LIBRARY = Path("converters/analysis/page/echarts")  # not ours: it comes with its own licences
FIRST_LINES = 2  # an interpreter line may come before


def tracked_files() -> list[Path]:
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def is_source(path: Path) -> bool:
    if path.suffix in SOURCES or path.name == "Makefile":
        return True
    return not path.suffix and path.read_bytes()[:2] == b"#!"


def declared(path: Path) -> str | None:
    for line in path.read_text(encoding="utf-8").splitlines()[:FIRST_LINES]:
        _, mark, licence = line.partition("SPDX-License-Identifier: ")
        if mark:
            return licence.removesuffix("*/").removesuffix("-->").strip()
    return None


def is_kernel_side(path: Path) -> bool:
    """Whether the file is compiled for the kernel: BPF programs and tests' modules."""
    module = path.suffix in {".c", ".h"} and path.is_relative_to("tests/vm")
    return path.parts[0] == "bpf" or path.name.endswith(".bpf.c") or module


def test_every_source_file_declares_its_licence() -> None:
    # GIVEN all files under version control that are source code
    sources = [
        path
        for path in tracked_files()
        if is_source(path) and path.relative_to(ROOT).parent != LIBRARY
    ]
    # WHEN their first lines are read  THEN each names the licence of its part of the tree
    wrong = {
        str(path.relative_to(ROOT)): licence
        for path in sources
        if (licence := declared(path))
        != (KERNEL_SIDE if is_kernel_side(path.relative_to(ROOT)) else USER_SIDE)
    }
    assert len(sources) > 1
    assert wrong == {}


def test_licence_texts_are_there() -> None:
    # GIVEN identifiers that files use  THEN their texts stand in LICENSES/ and LICENSE names them
    for identifier in ("Apache-2.0", "GPL-2.0-only", "BSD-2-Clause"):
        assert (ROOT / "LICENSES" / f"{identifier}.txt").stat().st_size > 1000
        assert identifier in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_library_that_pages_embed_comes_with_its_licences() -> None:
    # GIVEN the library's folder THEN it holds nothing without a licence, and LICENSE tells of it
    names = {path.name for path in (ROOT / LIBRARY).iterdir()}
    parts = {"LICENSE-d3", "LICENSE-tslib", "LICENSE-zrender"}
    assert names == {"LICENSE", "NOTICE", "README.md", "echarts.min.js", *parts}
    assert str(LIBRARY) in (ROOT / "LICENSE").read_text(encoding="utf-8")
    # AND a page that holds the library holds its notice
    head = (ROOT / LIBRARY / "echarts.min.js").read_text(encoding="utf-8")[:500]
    assert "Licensed to the Apache Software Foundation" in head
