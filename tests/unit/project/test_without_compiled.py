# SPDX-License-Identifier: Apache-2.0
"""An installation without compiled modules records; the other commands say what to install."""

import subprocess
import sys
from importlib import resources

import pytest

DEMO = str(resources.files("biotrail") / "data" / "demo.biotrail")
COMMAND = """
import sys
sys.modules["biotrail.converters.match.compiled"] = None
from biotrail.cli.main import main
main(sys.argv[1:])
"""


def without_compiled(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", ["report", "convert", "info", "dump", "verify"])
def test_what_reads_logs_says_what_to_install(command: str) -> None:
    # GIVEN an installation without compiled modules / WHEN a log is read
    done = without_compiled(command, DEMO)
    # THEN one message says what to do
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("biotrail: error: this installation can record, but reads no log")
    assert "install biotrail again where a C compiler" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["record", "--help"], ["doctor", "--help"], ["--help"]])
def test_what_reads_none_works(arguments: list[str]) -> None:
    # GIVEN an installation without compiled modules / WHEN nothing is read / THEN it works
    assert without_compiled(*arguments).returncode == 0
