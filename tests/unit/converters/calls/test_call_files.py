# SPDX-License-Identifier: Apache-2.0
"""The file of a call: its descriptor's, else that of its bios."""

import io

import pytest

from biotrail.converters.calls.files import CallFiles
from biotrail.converters.calls.first_bios import FirstBios
from biotrail.converters.pipeline import Trace
from tests.support.path_logs import FSYNC, PathLog


@pytest.mark.parametrize("window", [1, 250_000])
def test_a_call_is_of_its_descriptors_file(window: int) -> None:
    # GIVEN a flush and a write of two threads that return in the same nanosecond, a read whose bio
    # alone has a file, and a call without either
    log = PathLog()
    log.name(7, b"var", b"redo")
    log.name(8, b"var", b"data")
    log.bio(120, 180, entry=100)
    log.returns(100, 200, 43, file=8)
    log.returns(110, 200, number=FSYNC, result=0, queued=1, file=7)
    log.request(320, 380, entry=300, file=8)
    log.returns(300, 400, queued=1)
    log.returns(500, 600, blocked=50)
    # WHEN the calls' files are asked for
    trace = Trace(io.BytesIO(log.data()))
    first, only, found, all_of = FirstBios(), CallFiles(), [], []
    for one in trace.lifecycles(window):
        if one.path is None:
            continue
        calls = one.path.calls
        found += list(zip(calls.tid.tolist(), first.of_calls(one)[1].tolist(), strict=True))
        all_of += only.of(one, calls).tolist()
    # THEN each has its own
    paths = [(tid, trace.context.files[row].path if row >= 0 else None) for tid, row in found]
    assert [path and path.split("/")[-1] for _, path in sorted(paths[:2])] == ["redo", "data"]
    assert [path and path.split("/")[-1] for _, path in paths[2:]] == ["data", None]
    assert all_of == [row for _, row in found]
