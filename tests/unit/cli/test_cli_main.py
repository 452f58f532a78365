# SPDX-License-Identifier: Apache-2.0
"""The command itself: help, errors, exit status, imports, signals; what subcommands do alike."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import click
import pytest

from biotrail import __version__
from biotrail.__main__ import main as start
from biotrail.cli import main, metrics, record, top
from biotrail.cli.main import _COMMANDS
from biotrail.cli.main import main as run_main
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text import units
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.paths import DATA, ROOT, SAMPLE

# The command itself: help, errors, exit status.


def test_version_and_help(cli: Cli) -> None:
    # GIVEN the command WHEN it is asked what it is THEN it says so
    assert cli("--version").out == f"biotrail {__version__}\n"
    said = cli("--help")
    assert said.status == 0
    for name in ("record", "convert", "view", "info", "dump", "doctor", "demo"):
        assert name in said.out
    # AND the help of slow names the option that chooses the trace's surroundings, not that of cuts
    told = " ".join(cli("slow", "--help").out.split())
    assert "under way within --margin of one of them" in told


def test_ctrl_c_while_modules_are_imported_ends_the_command_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a command whose import Ctrl-C interrupts
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt if name == "main" else AttributeError

    monkeypatch.setitem(sys.modules, "biotrail.cli.main", Interrupted("main"))
    # WHEN it begins THEN it ends as a shell expects, without a word
    with pytest.raises(SystemExit) as ended:
        start()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help_with_an_example(cli: Cli, name: str) -> None:
    # GIVEN a subcommand WHEN it is asked for help THEN an example is in it
    words = ["fleet", "report"] if name == "fleet" else [name]
    said = cli(*words, "--help")
    assert said.status == 0
    assert f"biotrail {name}" in said.out.split("Options:")[0].replace("Usage: biotrail", "")


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


FREE_SOME = "free some, raise the limit (ulimit -v), or use a part of the log (--from, --to, -d)"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LogFormatError("bad"), "bad"),
        (OSError(5, "Input/output error", "/x"), "/x: Input/output error"),
        (MemoryError(), f"there was not enough memory; {FREE_SOME}"),
        (MemoryError("8 GiB"), f"there was not enough memory: 8 GiB; {FREE_SOME}"),
        (
            ImportError("libarrow.so: failed to map segment from shared object"),
            f"there was not enough memory: a library could not be loaded; {FREE_SOME}",
        ),
        (
            RuntimeError("can't start new thread"),
            "no thread could be started: there is not enough memory (ulimit -v), "
            "or a limit of threads is reached (ulimit -u, a cgroup's pids.max); raise it",
        ),
        (KeyboardInterrupt(), ""),
        (click.exceptions.Abort(), ""),
    ],
)
def test_what_ends_a_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    # GIVEN a command that ends in some way
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main.cli, "main", fail)
    # WHEN it does THEN status and words are as agreed: none where the user ended it
    done = cli("info")
    assert done.status == (1 if said else 130)
    assert done.err == (f"biotrail: error: {said}\n" if said else "")


@pytest.mark.parametrize("command", ["dump", "report"])
def test_a_closed_pipe_is_no_error(command: str) -> None:
    # GIVEN a command that prints more than the first read takes, or a pipe that takes nothing
    process = subprocess.Popen(
        [sys.executable, "-m", "biotrail.cli.main", command, str(SAMPLE)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # WHEN its reader goes away
    if command == "dump":
        process.stdout.readline()
    process.stdout.close()
    # THEN it ends without a word
    assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("dump {log} >&-", 1, "biotrail: error: standard output: Bad file descriptor\n"),
        ("dump {log} >/dev/full", 1, "biotrail: error: standard output: No space left on device\n"),
        ("report {log} >&-", 1, "biotrail: error: standard output: Bad file descriptor\n"),
        ("report - <&-", 1, "biotrail: error: Bad file descriptor\n"),
        ("convert -o - {log} >&-", 1, " bytes: Bad file descriptor"),
        ("export --what requests -o {out} {log} <&- >&- 2>&-", 0, ""),
    ],
)
def test_a_standard_stream_that_is_closed_or_full(
    tmp_path: Path, command: str, status: int, said: str
) -> None:
    # GIVEN a shell that closes streams, or sends them to a full disk
    words = command.format(log=shlex.quote(str(SAMPLE)), out=tmp_path / "x.csv")
    # WHEN a command is run there
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.quote(sys.executable)} -m biotrail.cli.main {words}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    # THEN it says in one line what failed, or does what needs no such stream
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("\n") == (1 if said else 0)
    assert (tmp_path / "x.csv").exists() == (status == 0)


def test_quantities_as_people_read_them() -> None:
    # GIVEN numbers WHEN they are shown THEN they have fitting units
    sizes = [units.size(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)]
    assert sizes == ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 TiB"]
    times = [units.duration(n) for n in (850, 12_300, 4_560_000, 1.23e9, 125e9)]
    assert times == ["850 ns", "12.3 µs", "4.56 ms", "1.23 s", "2 min 5 s"]
    assert [units.plural(n, "event") for n in (1, 2000)] == ["1 event", "2,000 events"]


# What every subcommand does alike: options of cuts, names of files, a recorder's options.

CUTS = ROOT / "docs" / "cuts.md"


def test_every_option_of_cuts_is_documented() -> None:
    # GIVEN the options that choose a part of a log
    command = main.cli.get_command(click.Context(main.cli), "convert")
    assert command is not None
    options = [one for one in command.params if str(one.name).startswith("cut_")]
    rows = [line for line in CUTS.read_text().splitlines() if line.startswith("| `-")]
    # THEN each has its row in docs/cuts.md
    for option in options:
        assert any(f"`{option.opts[-1]} " in row or f"`{option.opts[0]}" in row for row in rows)


def completed(lines: Sequence[str], where: Path) -> list[list[str]]:
    """What a real bash offers for the last word of each line, by biotrail's own completion."""
    script = """
source <(_BIOTRAIL_COMPLETE=bash_source biotrail)
compopt() { told+=$2; }
offer() {
    COMP_LINE=$1
    COMP_WORDS=("${@:2}")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    told=
    COMPREPLY=()
    _biotrail_completion biotrail
    echo "options: $told" "${COMPREPLY[@]}"
}
"""
    for line in lines:
        words = line.split(" ")  # a line that ends with a space has an empty last word
        script += shlex.join(["offer", line, *words]) + "\n"
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
    return [line.removeprefix("options: ").split(" ") for line in done.stdout.splitlines()]


def test_bash_completes_subcommands_and_names_of_files(tmp_path: Path) -> None:
    # GIVEN the beginning of a subcommand, and words where a log belongs
    words = (
        "biotrail report ",
        "biotrail info --json di",
        "biotrail convert a.biotrail di",
        "biotrail diff a.biotrail di",
        "biotrail verify ",
        "biotrail slow -o out",
        "biotrail view di",
    )
    # WHEN bash asks for what each may become
    subcommands, *files = completed(("biotrail rep", *words), tmp_path)
    # THEN it gets subcommands, and is let complete names of files by itself
    assert "report" in subcommands
    assert [options for options, *_ in files] == ["default"] * len(words)


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


# What a command imports, on which the time depends that it takes to begin.
#
# A module is imported by what needs it: not by what only names it in an annotation, and not where
# most logs do without.

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


ACCOUNT = ("biotrail.converters.analysis", "biotrail.converters.clocks.alignment")
"""What only cuts and several hosts need."""
OTHER_REPORTS = tuple(
    f"biotrail.converters.{name}"
    for name in (
        *("analysis.blame.blame", "analysis.slow", "analysis.guests", "analysis.diff"),
        *("calls.division", "submissions", "sites.joining"),
        *("analysis.report.calls", "analysis.report.path", "analysis.report.pairs"),
        *("inputs.blktrace", "inputs.blkparse", "inputs.ftrace", "inputs.lttng"),
        *("events.path_tables", "clocks.alignment"),
    )
)
"""What a report of the block layer alone does not need."""


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("info", ("rich", *ACCOUNT, "biotrail.converters.outputs")),
        ("dump", ("rich",)),
        ("hist", ("rich",)),
        ("convert", ()),
        ("report", (*OTHER_REPORTS, "numpy.ma")),
    ],
)
def test_a_command_that_reads_a_log_imports_only_what_that_takes(
    tmp_path: Path, command: str, others: tuple[str, ...]
) -> None:
    # GIVEN a small log with kernel pointers, of the block layer alone WHEN a command reads it
    target = ("-o", str(tmp_path / "a.pftrace")) if command == "convert" else ()
    modules = imported_by(command, str(LOG), *target)
    # THEN nothing was imported that serves recording, tables, other logs or what was not asked for
    assert below(modules, (*RECORDING, *TABLES, *RARE, *others)) == []


# A conversion that is ended by a signal leaves nothing behind.

WRITERS = {
    "a.pftrace": "biotrail.converters.outputs.perfetto.convert.convert",
    "a.otf2": "biotrail.converters.outputs.otf2.convert.convert",
    "a.blktrace": "biotrail.converters.outputs.blktrace.convert.write",
}


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("name", WRITERS)
def test_nothing_half_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: signal.Signals
) -> None:
    # GIVEN a conversion that is told to end when it has begun to write
    log, place = tmp_path / "a.biotrail", tmp_path / "out"
    captures.write_log(log, captures.load("ext4-journal-on-loop"))
    place.mkdir()
    begun: list[str] = []

    def told_to_end(*_: object, **_how: object) -> None:
        begun.extend(file.name for file in place.iterdir())
        os.kill(os.getpid(), number)

    monkeypatch.setattr(WRITERS[name], told_to_end)
    # WHEN it runs
    with pytest.raises(SystemExit) as end:
        run_main(["convert", str(log), "-o", str(place / name)])
    # THEN it ends as by Ctrl-C, and what it had begun is gone
    assert end.value.code == 130
    assert begun
    assert not list(place.iterdir())


def test_an_ignored_signal_stays_ignored() -> None:
    # GIVEN a process that nohup started
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        # WHEN its terminal goes away in the midst of it / THEN it goes on
        with terminated_as_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
