# SPDX-License-Identifier: Apache-2.0
"""The options --path and --call-over of `biotrail record`."""

from pathlib import Path

import pytest

from biotrail.cli import record as module
from biotrail.recorder.schema.records import PATH_PARTS
from tests.support.cli_runner import Cli
from tests.support.fake_recorder import Recorder, summary


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    monkeypatch.chdir(tmp_path)
    fake = Recorder(summary())
    monkeypatch.setattr(module, "record", fake)
    return fake


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


def test_the_path_needs_the_core_backend(cli: Cli, recorder: Recorder) -> None:
    # GIVEN the bcc backend WHEN the path is asked for THEN that is wrong usage
    done = cli("record", "--backend", "bcc", "--path")
    assert (done.status, "--path needs the core backend" in done.err) == (2, True)


def test_calls_without_io_are_recorded_from_a_duration_on(cli: Cli, recorder: Recorder) -> None:
    # GIVEN no duration, and one WHEN the command is called THEN the session gets ns
    assert cli("record", "--path").status == 0
    assert recorder.options is not None
    assert recorder.options.call_over_ns == 1_000_000
    assert cli("record", "-f", "--path", "--call-over", "250us").status == 0
    assert recorder.options.call_over_ns == 250_000
    # AND what is no duration is wrong usage
    assert cli("record", "--path", "--call-over", "soon").status == 2
