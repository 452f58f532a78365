# SPDX-License-Identifier: Apache-2.0
"""A named pipe as a log: everything that a program writes into it is read, once."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import biotrail
from tests.support import captures
from tests.support.cli_runner import Cli

COMMANDS = (
    ["info", "--json"],
    ["report", "--json"],
    ["slow", "--json"],
    ["report", "--json", "--slower-than", "1us"],
    ["blame"],
    ["hist"],
    ["dump"],
    ["export", "-o", "-", "--format", "csv"],
)
"""Those with `slow` and `--slower-than` read a log twice."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "captured.biotrail"
    captures.write_log(path, captures.load("plugged-merge-loop"))
    return path


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """Returns a named pipe into which the bytes are written once it is read."""
    writers = []

    def pipe(data: bytes) -> Path:
        path = tmp_path / f"pipe{len(writers)}"
        os.mkfifo(path)
        writers.append(threading.Thread(target=path.write_bytes, args=(data,), daemon=True))
        writers[-1].start()
        return path

    yield pipe
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive(), "nobody read the pipe to its end"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_read_a_pipe_as_they_read_a_file(
    cli: Cli, log: Path, piped: Callable[[bytes], Path], command: list[str]
) -> None:
    # GIVEN a log, and a pipe that the same bytes are written into
    pipe = piped(log.read_bytes())
    # WHEN a command reads each
    of_file, of_pipe = cli(*command, log), cli(*command, pipe)
    # THEN it says the same
    assert of_file.status == of_pipe.status == 0
    assert of_pipe.out.replace(str(pipe), "LOG") == of_file.out.replace(str(log), "LOG")


def test_what_is_no_log_is_named_by_its_first_bytes(
    cli: Cli, piped: Callable[[bytes], Path]
) -> None:
    # GIVEN a pipe with something else WHEN it is read
    pipe = piped(b"nothing that is known" * 10)
    done = cli("info", pipe)
    # THEN one line names the pipe and the very first bytes
    assert done.status == 1
    assert str(pipe) in done.err
    assert "b'nothing " in done.err


def test_an_archive_is_refused_for_it_is_read_from_its_end(
    cli: Cli, piped: Callable[[bytes], Path]
) -> None:
    # GIVEN a pipe with what begins as Parquet does WHEN it is read
    done = cli("report", piped(b"PAR1" + bytes(100)))
    # THEN the reason is said
    assert done.status == 1
    assert "an archive cannot be read from a pipe" in done.err


def test_the_library_reads_a_pipe_once(log: Path, piped: Callable[[bytes], Path]) -> None:
    # GIVEN a recording opened by a pipe's path WHEN its bios have been read
    recording = biotrail.open(piped(log.read_bytes()))
    assert recording.bios.num_rows == biotrail.open(log).bios.num_rows
    # THEN a second reading is refused, and does not wait for another writer
    with pytest.raises(ValueError, match="can be read once"):
        recording.events  # noqa: B018
