# SPDX-License-Identifier: Apache-2.0
"""A conversion that is ended by a signal leaves nothing behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from biotrail.cli.main import main
from biotrail.cli.options.ending import terminated_as_interrupted
from tests.support import captures

WRITERS = {
    "a.pftrace": "biotrail.converters.outputs.perfetto.convert.convert",
    "a.otf2": "biotrail.converters.outputs.otf2.convert.convert",
    "a.blktrace": "biotrail.converters.outputs.blktrace.convert.write",
}


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Signals as a program at a terminal has them, however the tests were started."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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
        main(["convert", str(log), "-o", str(place / name)])
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
