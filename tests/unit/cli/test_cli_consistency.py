# SPDX-License-Identifier: Apache-2.0
"""What every subcommand does alike: names that are mistyped, names of files, forms of output."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from biotrail.cli import main, metrics, record, top
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
CUTS = ROOT / "docs" / "cuts.md"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("reprot", "No such command 'reprot'. Did you mean 'report'?"),
        ("recrod", "No such command 'recrod'. Did you mean 'record'?"),
        ("qqqqqq", "No such command 'qqqqqq'.\n"),
    ],
)
def test_a_mistyped_subcommand_gets_the_nearest_one(cli: Cli, typed: str, said: str) -> None:
    # GIVEN a name that no subcommand has  WHEN it is called  THEN the nearest is named, status 2
    done = cli(typed, "x")
    assert done.status == 2
    assert said in done.err


def test_one_form_at_a_time(cli: Cli) -> None:
    # GIVEN two forms of a report  WHEN both are asked for  THEN it is wrong usage
    done = cli("report", "--json", "--csv", SAMPLE)
    assert (done.status, done.out) == (2, "")
    assert "--json and --csv: give one of them" in done.err


def test_help_of_slow_names_the_option_of_its_trace(cli: Cli) -> None:
    # GIVEN the help of slow  WHEN it says how much of the surroundings is in the trace
    told = " ".join(cli("slow", "--help").out.split())
    # THEN it names the option that chooses it, which is not that of cuts
    assert "under way within --margin of one of them" in told


def test_every_option_of_cuts_is_documented() -> None:
    # GIVEN the options that choose a part of a log
    command = main.cli.get_command(click.Context(main.cli), "convert")
    assert command is not None
    options = [one for one in command.params if str(one.name).startswith("cut_")]
    rows = [line for line in CUTS.read_text().splitlines() if line.startswith("| `-")]
    # THEN each has its row in docs/cuts.md
    for option in options:
        assert any(f"`{option.opts[-1]} " in row or f"`{option.opts[0]}" in row for row in rows)


def completed(line: str, where: Path) -> list[str]:
    """What a real bash offers for the last word of `line`, by biotrail's own completion."""
    script = f"""
source <(_BIOTRAIL_COMPLETE=bash_source biotrail)
COMP_LINE={line!r}
COMP_WORDS=({line}{'""' if line.endswith(" ") else ""})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
told=
compopt() {{ told+=$2; }}
COMPREPLY=()
_biotrail_completion biotrail
printf '%s\\n' "options: $told" "${{COMPREPLY[@]}}"
"""
    commands = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=where,
        env={**os.environ, "PATH": commands},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "biotrail report ",
        "biotrail info --json di",
        "biotrail convert a.biotrail di",
        "biotrail diff a.biotrail di",
        "biotrail verify ",
        "biotrail slow -o out",
        "biotrail view di",
    ],
)
def test_bash_completes_names_of_files(line: str, tmp_path: Path) -> None:
    # GIVEN a word where a log belongs  WHEN bash asks for what it may become
    # THEN biotrail's completion lets it complete names of files
    assert completed(line, tmp_path)[0] == "options: default"


def test_bash_completes_subcommands(tmp_path: Path) -> None:
    # GIVEN the beginning of a subcommand  WHEN bash asks  THEN that is what it gets
    assert "report" in completed("biotrail rep", tmp_path)


@pytest.mark.parametrize("module", [top, metrics])
def test_what_a_recorder_process_gets_record_takes(module: ModuleType) -> None:
    # GIVEN the options of a command that starts a recorder process
    taken = {option: one for one in record.command.params for option in one.opts}
    ours = [one for one in module.command.params if one.name not in module._NOT_PASSED_ON]
    # THEN those that it passes on as they are written, record has, of the same type
    for one in ours:
        same = taken[max(one.opts, key=len)]
        assert (type(same.type), same.multiple) == (type(one.type), one.multiple), one.opts
        # AND the same default, for one that is not given is not passed on
        assert (
            one.opts == ["--events"]
            or one.to_info_dict()["default"] == same.to_info_dict()["default"]
        )
