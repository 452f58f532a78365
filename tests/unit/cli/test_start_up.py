# SPDX-License-Identifier: Apache-2.0
"""What a command imports, on which the time depends that it takes to begin.

A module is imported by what needs it: not by what only names it in an annotation, and not where
most logs do without.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from biotrail.cli.main import _COMMANDS
from tests.support.paths import DATA, ROOT

SECONDS = 120
LOG = DATA / "kernels" / "6.12.biotrail"
RECORDING = ("biotrail.recorder.probes", "biotrail.recorder.host", "biotrail.recorder.rights")
"""What only recording needs."""
TABLES = ("pyarrow", "duckdb", "pandas")
RARE = ("tempfile", "hmac", "biotrail.converters.inputs.blktrace.source")
"""What a log that is given by its path does not need."""
SCRIPT = """
import json, sys
from biotrail.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    """Run a command in a process of its own; return the names of all modules imported there."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0, done.stderr
    return set(modules)


def below(modules: set[str], names: tuple[str, ...]) -> list[str]:
    """Return the modules that are one of `names` or lie in one of them."""
    return sorted(m for m in modules if any(m == n or m.startswith(f"{n}.") for n in names))


def test_help_and_version_import_no_command() -> None:
    # GIVEN what is asked most often WHEN it is answered
    for option in ("--help", "--version"):
        modules = imported_by(option)
        # THEN neither numpy nor any reader, recorder or subcommand was imported
        ours = ("biotrail.converters", "biotrail.recorder.log", "biotrail.library", *RECORDING)
        assert below(modules, ("numpy", "pyarrow", "rich", "zstandard", *ours)) == []
        assert not {f"biotrail.cli.{name}" for name in _COMMANDS} & modules


@pytest.mark.parametrize("command", ["info", "dump", "hist"])
def test_a_command_that_reads_a_log_imports_only_what_that_takes(command: str) -> None:
    # GIVEN a small log with kernel pointers WHEN a command reads it
    modules = imported_by(command, str(LOG))
    # THEN nothing was imported that serves recording, tables or other sorts of logs
    assert below(modules, (*RECORDING, *TABLES, *RARE, "rich")) == []


def test_an_account_of_a_log_imports_neither_choices_nor_clocks_of_hosts() -> None:
    # GIVEN one log WHEN its account is asked for
    modules = imported_by("info", str(LOG))
    # THEN what only cuts and several hosts need was not imported
    several = ("biotrail.converters.analysis", "biotrail.converters.clocks.alignment")
    assert below(modules, (*several, "biotrail.converters.outputs")) == []


def test_reports_and_traces_are_made_without_tables(tmp_path: Path) -> None:
    # GIVEN a log WHEN it is reported, and converted for Perfetto
    made = imported_by("convert", str(LOG), "-o", str(tmp_path / "a.pftrace"))
    reported = imported_by("report", str(LOG))
    # THEN pyarrow, which takes as long to import as a small log to read, was not imported
    for modules in (made, reported):
        assert below(modules, (*TABLES, *RECORDING, *RARE)) == []


def test_a_report_of_the_block_layer_imports_neither_paths_nor_what_was_not_asked_for() -> None:
    # GIVEN a log of the block layer alone WHEN it is reported
    modules = imported_by("report", str(LOG))
    # THEN neither the tables of other logs nor other options' modules were imported
    converters = "biotrail.converters"
    others = (
        *(f"{converters}.analysis.{name}" for name in ("blame.blame", "slow", "guests", "diff")),
        *(f"{converters}.{name}" for name in ("calls.division", "submissions", "sites.joining")),
        *(f"{converters}.analysis.report.{name}" for name in ("calls", "path", "pairs")),
        *(f"{converters}.inputs.{name}" for name in ("blktrace", "blkparse", "ftrace", "lttng")),
        *(f"{converters}.{name}" for name in ("events.path_tables", "clocks.alignment")),
    )
    assert below(modules, (*others, "numpy.ma")) == []
