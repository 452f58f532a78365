# SPDX-License-Identifier: Apache-2.0
"""Which Q a record belongs to, where there are fewer events than are looked at."""

import io

import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.path_logs import PathLog


@pytest.mark.parametrize(
    "kind", [Kind.STACK, Kind.FILE, Kind.CALL, Kind.DIRTIED, Kind.INTERRUPT, Kind.SUBMISSION]
)
def test_a_record_alone_in_its_log(kind: Kind) -> None:
    # GIVEN a log whose only event is a record that should follow another
    log = PathLog()
    log.add(kind, 5)
    # WHEN it is read  THEN there is no bio, and no error
    windows = list(Trace(io.BytesIO(log.data())).lifecycles())
    assert sum(len(window.bios) for window in windows) == 0
