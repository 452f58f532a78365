# SPDX-License-Identifier: Apache-2.0
"""The model of `metrics --events`: which rules of a report's first sentences hold."""

from pathlib import Path
from typing import cast

import pytest

from biotrail.cli.children.recorder_process import Recorder
from biotrail.cli.measuring.live_model import LiveModel
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.text.report.verdict import RULES
from tests.support import blame_logs
from tests.support.blame_logs import MS
from tests.support.followed_logs import patient

__all__ = ["patient"]
pytestmark = pytest.mark.usefixtures("patient")


class NoRecorder:
    """Of a log that is there."""

    def cpu_seconds(self) -> float:
        return 0.0


def model_of(path: Path) -> LiveModel:
    with path.open("rb") as stream:
        source = LiveSource(stream)
        model = LiveModel(source, cast(Recorder, NoRecorder()))
        source.start()
        source.join()
        model.run()
    return model


def test_the_rules_that_held_in_the_last_minute(tmp_path: Path) -> None:
    # GIVEN a minute of reads that are with the device for most of their time
    ios = blame_logs.alone("app", 1200, 50 * MS, takes=20 * MS)
    # WHEN the model has read it
    reading = model_of(blame_logs.write(tmp_path / "a.biotrail", ios)).read()
    # THEN each rule is there, and the one on the main part holds
    assert reading.verdict is not None
    assert list(reading.verdict) == list(RULES)
    assert reading.verdict["main-part"] and not reading.verdict["failed"]


def test_nothing_is_said_before_the_first_minute(tmp_path: Path) -> None:
    # GIVEN ten seconds of reads WHEN the model has read them THEN no rule is told of
    ios = blame_logs.alone("app", 200, 50 * MS, takes=20 * MS)
    assert model_of(blame_logs.write(tmp_path / "a.biotrail", ios)).read().verdict is None
