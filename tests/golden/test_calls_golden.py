# SPDX-License-Identifier: Apache-2.0
"""Calls, waits and completions of a recording with the path; `--update` rewrites the files."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.calls.arrow import CALL_SCHEMA
from biotrail.converters.events.path_tables import Calls
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect
from tests.support.paths import ROOT

LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
EXPECTED = Path(__file__).parent / "calls"
COMMANDS = {
    "report.txt": ("report", "--limit", "0"),
    "by-call.txt": ("report", "--limit", "0", "--by", "call"),
    "by-writer.txt": ("report", "--limit", "0", "--by", "writer"),
    "slow.txt": ("slow", "--calls", "--limit", "5"),
    "slow-brief.txt": ("slow", "--calls", "--brief", "--limit", "0"),
    "calls.csv": ("export", "--what", "calls"),
    "waits.csv": ("export", "--what", "waits"),
}
TITLES = ("From issue to completion", "Calls", "By call", "By writer")
"""Tables of a report that are about the path."""


@pytest.mark.parametrize("name", COMMANDS)
def test_what_commands_say(
    name: str, cli: Cli, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recording with the path  WHEN its tables are asked for
    monkeypatch.setenv("COLUMNS", "160")
    text = cli(*COMMANDS[name], LOG).out
    if COMMANDS[name][0] == "report":
        parts = [part.strip("\n") for part in text.split("\n\n")]
        text = "\n\n".join(part for part in parts if part.startswith(TITLES)) + "\n"
        text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    # THEN they are those on file
    expect(EXPECTED / name, text)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a command
    assert {path.name for path in EXPECTED.iterdir()} == set(COMMANDS)


@pytest.mark.parametrize("window", [1, 50, 250_000])
def test_parts_add_up_in_windows_of_any_size(window: int) -> None:
    # GIVEN the same  WHEN it is read in windows of several sizes
    paths = [w.path for w in Trace(LOG).lifecycles(window) if w.path is not None]
    calls = Calls.concatenate([path.calls for path in paths])
    # THEN each call's parts are exactly the time from its entry to its return
    names = [n.removesuffix("_ns") for n in CALL_SCHEMA.names if n.endswith("_ns")]
    parts = [name for name in names if name not in ("entry", "exit", "duration")]
    assert len(parts) == 6
    whole = np.sum([getattr(calls, part) for part in parts], axis=0)
    assert np.array_equal(whole, calls.exit - calls.entry)
    assert calls.own_io.sum() > 0
    assert calls.other_io.sum() > 0


def test_an_archive_gives_the_same(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the recording's archive  WHEN commands read it instead
    archive = tmp_path / "x.parquet"
    assert cli("archive", LOG, "-o", archive).status == 0
    # THEN they say the same
    for command in (*COMMANDS.values(), ("report", "--json"), ("dump",)):
        assert cli(*command, archive).out == cli(*command, LOG).out, command
