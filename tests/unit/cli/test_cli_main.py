# SPDX-License-Identifier: Apache-2.0
"""The command itself: help, errors, exit status."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from biotrail import __version__
from biotrail.cli import main
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text import units
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT


def test_version_and_help(cli: Cli) -> None:
    # GIVEN the command WHEN it is asked what it is THEN it says so
    assert cli("--version").out == f"biotrail {__version__}\n"
    said = cli("--help")
    assert said.status == 0
    for name in ("record", "convert", "view", "info", "dump", "doctor", "demo"):
        assert name in said.out


@pytest.mark.parametrize("name", ["record", "convert", "info", "dump", "doctor", "demo"])
def test_every_command_has_help_with_an_example(cli: Cli, name: str) -> None:
    # GIVEN a subcommand WHEN it is asked for help THEN an example is in it
    said = cli(name, "--help")
    assert said.status == 0
    assert f"biotrail {name}" in said.out.split("Options:")[0].replace("Usage: biotrail", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["record", "--no-such-option"],
        ["record", "--duration", "soon"],
        ["record", "--duration", "0"],
        ["record", "--buffer-size", "many"],
        ["record", "--events", "none"],
        ["record", "--level", "99"],
        ["info"],
        ["dump", "--kind", "@", "x.biotrail"],
        ["convert", "-"],
        ["convert", "x.biotrail", "-o", "x.txt"],
        ["convert", "x.biotrail", "-o", "-", "--format", "otf2"],
    ],
)
def test_wrong_usage_ends_with_2(cli: Cli, arguments: list[str]) -> None:
    # GIVEN arguments that make no sense WHEN they are given THEN the status is 2
    done = cli(*arguments)
    assert done.status == 2
    assert "Error: " in done.err


def test_an_error_is_one_sentence_on_standard_error(cli: Cli, tmp_path: Path) -> None:
    # GIVEN no such log, and one that is none
    (tmp_path / "text").write_text("hello, world")
    for name in ("none", "text"):
        for command in ("info", "dump", "convert"):
            # WHEN it is to be read
            done = cli(command, tmp_path / name)
            # THEN the error names it, without a traceback
            assert (done.status, done.out) == (1, "")
            assert done.err.startswith("biotrail: error: ")
            assert str(tmp_path / name) in done.err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (LogFormatError("bad"), 1, "biotrail: error: bad\n"),
        (OSError(5, "Input/output error", "/x"), 1, "biotrail: error: /x: Input/output error\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.exceptions.Abort(), 130, ""),
    ],
)
def test_what_ends_a_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: str
) -> None:
    # GIVEN a command that ends in some way
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main.cli, "main", fail)
    # WHEN it does THEN status and words are as agreed
    done = cli("info")
    assert (done.status, done.err) == (status, said)


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    # GIVEN a command that prints more than a pipe holds
    sample = ROOT / "biotrail" / "data" / "demo.biotrail"
    process = subprocess.Popen(
        [sys.executable, "-m", "biotrail.cli.main", "dump", str(sample)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # WHEN its reader goes away
    process.stdout.readline()
    process.stdout.close()
    # THEN it ends without a word
    assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), ("10s", 10), ("250ms", 0.25), ("5min", 300), ("2h", 7200), (".5 s", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    # GIVEN a duration as people write it WHEN it is read THEN it is in seconds
    assert units.Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("512K", 512 << 10), ("8M", 8 << 20), ("8MiB", 8 << 20), ("1.5g", 3 << 29)],
)
def test_sizes(text: str, size: int) -> None:
    # GIVEN a size as people write it WHEN it is read THEN it is in bytes
    assert units.Size().convert(text, None, None) == size


def test_quantities_as_people_read_them() -> None:
    # GIVEN numbers WHEN they are shown THEN they have fitting units
    assert [units.size(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
    assert [units.duration(n) for n in (850, 12_300, 4_560_000, 1.23e9, 125e9)] == [
        "850 ns",
        "12.3 µs",
        "4.56 ms",
        "1.23 s",
        "2 min 5 s",
    ]
    assert [units.plural(n, "event") for n in (1, 2000)] == ["1 event", "2,000 events"]
