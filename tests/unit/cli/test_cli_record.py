# SPDX-License-Identifier: Apache-2.0
"""`biotrail record`: arguments to options, and what it says."""

import os
import re
from pathlib import Path

import pytest

from biotrail.cli import record as module
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session.session import Status
from tests.support.cli_runner import Cli
from tests.support.fake_recorder import Recorder, summary


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    monkeypatch.chdir(tmp_path)
    fake = Recorder(summary())
    monkeypatch.setattr(module, "record", fake)
    return fake


def test_arguments_become_options(cli: Cli, recorder: Recorder) -> None:
    # GIVEN every option WHEN the command is called
    words = "record -d sda -d /home -o x.biotrail -f --duration 5min --events all"
    done = cli(*words.split(), "--buffer-size", "8M", "--sync", "--level", "3", "--", "ls", "-l")
    # THEN the session gets what was said, the command's own options untouched
    assert done.status == 0
    options = recorder.options
    assert options is not None
    assert options.devices == ("sda", "/home")
    assert (options.output, options.force, options.duration) == ("x.biotrail", True, 300)
    assert (options.events, options.ring_bytes) == ("all", 8 << 20)
    assert (options.sync, options.level, options.command) == (True, 3, ("ls", "-l"))


def test_a_command_needs_no_dashes(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a command after the options WHEN it has options of its own THEN they are its own
    cli("record", "-q", "make", "-j8", "--output", "x")
    assert recorder.options is not None
    assert recorder.options.command == ("make", "-j8", "--output", "x")


def test_a_log_without_a_name_gets_one(cli: Cli, recorder: Recorder) -> None:
    # GIVEN no name WHEN something is recorded THEN the name tells host and time
    cli("record")
    assert recorder.options is not None
    host = re.escape(os.uname().nodename)
    assert re.fullmatch(rf"biotrail-{host}-\d{{8}}-\d{{6}}\.biotrail", str(recorder.options.output))


def test_the_summary_says_what_was_recorded_and_what_is_next(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a recording without loss WHEN it ends THEN a few lines say how it went
    done = cli("record", "-o", "my log")
    assert done.out == ""
    assert done.err.splitlines() == [
        "biotrail: starting",
        "biotrail: recording all devices until Ctrl-C to my log",
        "biotrail: about 1,000,000 events in 10 s (duration), log 100 B, 5.0 bytes per event",
        "biotrail: cost: 5.0 % of one core (recorder 500 ms), 80.0 MiB of memory",
        "biotrail: next: biotrail convert 'my log'",
    ]


def test_quiet_is_quiet_but_not_about_losses(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a recording without loss WHEN it is quiet THEN it says nothing
    assert cli("record", "-q").err == ""
    # GIVEN losses WHEN it is quiet THEN they are told, with the remedy
    recorder.result = summary(lost={int(Kind.Q): 7, int(Kind.C): 1}, too_deep=1, skipped={"D": 2})
    said = cli("record", "-q").err
    assert "LOST 8 events: Q (queue) 7, C (complete) 1; 1 of them because" in said
    assert "--buffer-size" in said
    assert "2 events not seen: D 2" in said


def test_the_commands_status_is_passed_on(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a command that failed WHEN the recording ends THEN so does biotrail
    recorder.result = summary(reason="command ended", command_status=7)
    assert cli("record", "--", "false").status == 7


def test_a_failed_output_is_an_error_after_the_summary(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a disk that became full
    recorder.result = summary(
        reason="output failed", error=OutputError("disk full"), unwritten_bytes=2 << 20
    )
    # WHEN the recording ends THEN the summary, the loss and the error are told
    done = cli("record")
    assert done.status == 1
    assert "2.0 MiB of records could not be written" in done.err
    assert done.err.endswith("biotrail: error: disk full\n")
    assert "next:" not in done.err


def test_the_live_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a terminal of 60 columns
    monkeypatch.setenv("COLUMNS", "60")
    line = module.LiveLine("recording", show=True)
    # WHEN statuses come
    line.update(Status(1.0, 1000, 0, 5000))
    line.update(Status(3.0, 5000, 2, 9000))
    line.update(Status(4.0, 5000, 2, 9000, note="waiting"))
    line.clear()
    # THEN one line is written over and over, and a note stays
    assert capsys.readouterr().err == (
        "biotrail: recording\n"
        "\r    1.0 s   1,000 events   1,000/s   0 lost   4.9 KiB\x1b[K"
        "\r    3.0 s   5,000 events   2,000/s   2 lost   8.8 KiB\x1b[K"
        "\r\x1b[Kbiotrail: waiting\n"
    )
