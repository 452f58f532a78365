# SPDX-License-Identifier: Apache-2.0
"""`biotrail record`: its options, and what it says."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest

from biotrail.cli import record as module
from biotrail.cli.children.recorder_process import Recorder as RecorderProcess
from biotrail.cli.children.recorder_process import passing_dumps
from biotrail.cli.options.record_arguments import follow_options
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import PATH_PARTS, Kind
from biotrail.recorder.session.session import Status
from biotrail.text.record.closing import followed_lines
from tests.support.cli_runner import Cli
from tests.support.fake_recorder import Recorder, recorder, summary

__all__ = ["recorder"]


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
    # GIVEN a command after the options WHEN it has options of its own THEN they are its own
    cli("record", "-q", "make", "-j8", "--output", "x")
    assert recorder.options is not None
    assert recorder.options.command == ("make", "-j8", "--output", "x")
    # GIVEN a command that failed WHEN the recording ends THEN so does biotrail
    recorder.result = summary(reason="command ended", command_status=7)
    assert cli("record", "--", "false").status == 7


def test_a_device_by_two_names_is_said_once(
    cli: Cli, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a device by two names, another one, and one that is not there
    def resolve(spec: str) -> tuple[int, int]:
        if spec == "sdx":
            raise ProbeError("there is no such block device")
        return (1, 0) if "zram0" in spec else (2, 0)

    monkeypatch.setattr(module.devices, "resolve", resolve)
    # WHEN they are recorded THEN each is said once; what is wrong is for the recorder to say
    said = cli("record", "-d", "zram0", "-d", "/dev/zram0", "-d", "sda", "-d", "sdx", "-o", "x").err
    assert "biotrail: recording zram0, sda, sdx until Ctrl-C to x\n" in said


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


# The option `record --follow`: its settings, and what it refuses.


def test_settings_of_follow_choose() -> None:
    # GIVEN a type  THEN all are followed, as many as devices have in flight, in the best way
    assert follow_options("request") == FollowOptions("request", 1, 1000, 0, 0, "auto", 2000)
    # GIVEN all settings  THEN each is taken
    given = follow_options("bio,every=10,max=50,lives=7,slower=5ms,way=typed,max-functions=30")
    assert given == FollowOptions("bio", 10, 50, 7, 5_000_000, "typed", 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("folio", "'folio' is no I/O of the block layer: give request or bio"),
        ("request,each=3", "there is no setting 'each=3': choose of every="),
        ("request,every", "there is no setting 'every'"),
        ("request,every=0", "every=0: give a whole number from 1 to 4294967295"),
        ("request,every=-1", "every=-1: give a whole number from 1 to"),
        ("request,max=5000", "max=5000: give a whole number from 1 to 4096"),
        ("request,way=best", "there is no way 'best': choose of auto, session, multi"),
        ("request,slower=soon", "'soon' is not a duration"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    # GIVEN a wrong value  THEN one message says what there is
    with pytest.raises(click.UsageError) as error:
        follow_options(text)
    assert message in error.value.format_message()


def test_the_end_says_what_was_followed() -> None:
    # GIVEN counts of lives  THEN there is a line for them, and one for each kind that is missing
    counts = {"born": 1024, "quick": 599, "full": 3, "cut": 0}
    first, *rest = followed_lines(FollowOptions("request"), counts)
    assert first == "followed 1,024 lives of request, 599 of them too quick to be recorded"
    assert len(rest) == 1
    assert rest[0].startswith("3 births")


# The options --path and --call-over of `biotrail record`.


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], frozenset()),
        (["--path"], frozenset(PATH_PARTS)),
        (["--path", "-d", "sda"], frozenset(PATH_PARTS)),
        (["--path", "all"], frozenset(PATH_PARTS)),
        (["--path=irq"], frozenset({"irq"})),
        (["--path=time,wait,time"], frozenset({"time", "wait"})),
    ],
)
def test_parts_are_named_or_all(
    words: list[str], parts: frozenset[str], cli: Cli, recorder: Recorder
) -> None:
    # GIVEN parts in each form WHEN the command is called THEN the session gets them
    assert cli("record", *words, "--", "true").status == 0
    assert recorder.options is not None
    assert recorder.options.path == parts
    assert recorder.options.command == ("true",)


@pytest.mark.parametrize("value", ["disk", "call,disk", "", "call,", "ALL"])
def test_a_part_that_is_none_is_wrong_usage(value: str, cli: Cli, recorder: Recorder) -> None:
    # GIVEN a part that does not exist WHEN the command is called
    done = cli("record", f"--path={value}")
    # THEN it is refused with the parts that there are
    assert done.status == 2
    assert "there is no part" in done.err
    assert ", ".join(PATH_PARTS) in " ".join(done.err.split())
    assert recorder.options is None


def test_calls_without_io_are_recorded_from_a_duration_on(cli: Cli, recorder: Recorder) -> None:
    # GIVEN no duration, and one WHEN the command is called THEN the session gets ns
    assert cli("record", "--path").status == 0
    assert recorder.options is not None
    assert recorder.options.call_over_ns == 1_000_000
    assert cli("record", "-f", "--path", "--call-over", "250us").status == 0
    assert recorder.options.call_over_ns == 250_000


# How a recorder process ends is told: by itself, by us, or by someone else.

WAITS = ("sh", "-c", "echo begun; exec sleep 100")


@contextmanager
def running(command: tuple[str, ...]) -> Iterator[RecorderProcess]:
    """A recorder that is another program, from when it has begun."""
    recorder = RecorderProcess(())
    recorder._command = list(command)
    with recorder:
        assert recorder.stream.readline() == b"begun\n"
        yield recorder


def test_a_recorder_that_is_killed_is_one_message() -> None:
    # GIVEN a recorder WHEN someone kills it THEN that is an error that says so
    with running(WAITS) as recorder:
        os.kill(recorder.pid, signal.SIGKILL)
        said = rf"the recorder \(process {recorder.pid}\) was ended by SIGKILL, perhaps for want"
        with pytest.raises(ProbeError, match=said):
            recorder.wait()
        # AND stopping it afterwards changes nothing about it
        recorder.stop()
        with pytest.raises(ProbeError, match=said):
            recorder.wait()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, 137)])
def test_a_recorder_that_we_end_is_no_error(number: signal.Signals, status: int) -> None:
    # GIVEN a recorder that has no handlers yet
    with running(WAITS) as recorder:
        # WHEN it is stopped or killed by us THEN its status is as a shell tells it
        recorder.send(number)
        assert recorder.wait() == status


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_dumps_are_passed_on(number: signal.Signals) -> None:
    # GIVEN a recorder that has its handlers WHEN this process is asked for a dump
    with running((sys.executable, "-c", HANDLES)) as recorder, passing_dumps(recorder):
        os.kill(os.getpid(), number)
        # THEN the recorder gets that
        assert recorder.wait() == number


HANDLES = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
print("begun", flush=True)
signal.signal(signal.SIGUSR1, lambda number, frame: None)
signal.signal(signal.SIGUSR2, lambda number, frame: None)
sys.exit(signal.sigwait([signal.SIGUSR1, signal.SIGUSR2]))
"""


def test_a_dump_asked_for_too_early_ends_nothing() -> None:
    # GIVEN a recorder that has no handlers yet, and no flight recorder at all
    with running(WAITS) as recorder:
        for asked in (recorder, None):
            with passing_dumps(asked):
                # WHEN dumps are asked for
                for number in (signal.SIGUSR1, signal.SIGUSR2):
                    os.kill(os.getpid(), number)
        # THEN all goes on
        assert not recorder.ended()
